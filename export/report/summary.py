# SPDX-License-Identifier: GPL-2.0-only
"""One screen about a finished `make demo`: every figure is read from the files it left."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from ndm_tcp import contract as c
from ndm_tcp.errors import NdmError
from ndm_tcp.export.integers.model_c import upward
from ndm_tcp.model_json import NAME, SHIPPED, Model, from_json, real_weights

SAME_UNITS = 2
"""Units in the last place by which kinds of processor may train one recipe to other integers."""


PAGES = (
    ("board/board.html", "the network just trained in the lab, beside Reno, CUBIC and BBR"),
    ("board.png", "these runs over time: window, RTT, rate"),
    ("paths/index.html", "the paths of two captures, their replays and predictions"),
    ("adapt/report.html", "the network adapted to one of them, and whether to use it"),
    ("data/DATASET_CARD.md", "the rounds of the captures: counts, labels, inputs"),
    ("run/MODEL_CARD.md", "the network just trained: errors, claims, cost"),
    ("run/report.html", "how far its integers are from real arithmetic, with the proofs"),
)
"""of a demo, and what each shows"""


def _json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise NdmError(f"{path}: missing; run: make demo")
    data: dict[str, Any] = orjson.loads(path.read_bytes())
    return data


def _modinfo(module: Path, field: str) -> str:
    command = ["/sbin/modinfo", "-F", field, str(module)]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def apart(model: Model, other: Model) -> float | None:
    """How far two networks' integers are apart.

    Returns:
        the largest difference of a weight or bias, in units of the last place of its row's
        weights (the coarser of the two rows); None if their shapes differ.
    """
    shapes = [[layer.weight.shape for layer in m.layers] for m in (model, other)]
    if shapes[0] != shapes[1]:
        return None
    worst = 0.0
    pairs = zip(real_weights(model.layers), real_weights(other.layers), strict=True)
    for number, ((weight, bias), (weight_2, bias_2)) in enumerate(pairs):
        q_in = c.Q_ACT if number else c.Q_INPUT
        shift = np.minimum(model.layers[number].shift, other.layers[number].shift)
        per_unit = 2.0 ** (shift.astype(np.int64) + c.Q_PRE - q_in)
        rows = np.maximum(np.abs(weight - weight_2).max(axis=1), np.abs(bias - bias_2))
        worst = max(worst, float((rows * per_unit).max()))
    return worst


def beside_shipped(generated: Path, shipped: Path = SHIPPED) -> str:
    """Whether an exported network is the shipped one, or how far it is from it.

    Raises:
        NdmError: one of the two is missing or damaged.
    """
    model, other = from_json(generated / NAME), from_json(shipped)
    if model.hash() == other.hash():
        return "the shipped network, bit for bit"
    units = apart(model, other)
    if units is None:
        return f"not the shipped network {other.hash()}: its layers have other sizes"
    if units <= SAME_UNITS:
        unit = "unit" if units <= 1 else "units"
        return f"the shipped network, to the last place (at most {units:.2g} {unit} apart)"
    return (
        f"not the shipped network {other.hash()}: up to {units:,.0f} units in the last place "
        "apart;\n          the data or the recipe have changed since that was trained"
    )


def _told(path: Path) -> str:
    """The text of a step, without what it says of its pages."""
    lines = path.read_text(encoding="utf-8").strip().splitlines()
    return "\n".join(line for line in lines if not line.startswith(("page: ", "report: ")))


def _pages(folder: Path) -> list[str]:
    """What to read, in this order, and what to do next."""
    width = max(len(name) for name, _ in PAGES)
    return [
        f"read      in {folder}, in this order:",
        *(f"          {name:{width}}  {what}" for name, what in PAGES),
        "",
        "next      your own captures (README.md, 'Your own captures'):",
        "          .venv/bin/ndm path estimate my.pcap -o out/paths",
        "          .venv/bin/ndm path predict out/paths",
    ]


def summary(folder: Path) -> str:
    """The text for a demo folder.

    Raises:
        NdmError: a step of the demo left nothing.
    """
    dataset, run = _json(folder / "data" / "dataset.json"), folder / "run"
    metrics, export = _json(run / "metrics.json"), _json(run / "export.json")
    module, board = folder / "kmod" / "ndm_tcp.ko", folder / "board.txt"
    predicted, adapted = folder / "paths.txt", folder / "adapt.txt"
    for path in (module, board, predicted, adapted):
        if not path.is_file():
            raise NdmError(f"{path}: missing; run: make demo")
    rows = []
    for split in ("train", "val", "test"):
        part = metrics[split]
        if part["gain_mae"] is None:
            continue
        auc = part["congestion_auc"]
        rows.append(
            f"  {split:6}{part['rounds']:8}{part['gain_mae']:12.4f}{part['hold_mae']:12.4f}"
            f"{'unknown' if auc is None else f'{auc:.3f}':>12}"
        )
    errors = [
        f"  {o.name:12} |fixed - real| <= {upward(bound):.3g} for every input "
        f"({100 * bound / (o.hi - o.lo):.3f} % of its range), seen {upward(seen):.2g}"
        for o, bound, seen in zip(c.OUTPUTS, export["bound"], export["observed"], strict=True)
    ]
    kernel = _modinfo(module, "vermagic").split(" ")[0]
    table = [line for line in board.read_text(encoding="utf-8").splitlines() if line[:5] != "wrote"]
    lines = [
        "",
        f"traces    {dataset['flows']} flows, {dataset['rounds']} rounds, "
        f"{len(dataset['sources'])} sources",
        f"network   {export['parameters']} parameters, {export['weight_bytes']} bytes, "
        f"model {export['model']}:",
        f"          {beside_shipped(folder / 'kmod' / 'generated')}",
        "  split   rounds    gain MAE  holding it  congest AUC   (val chose the epoch)",
        *rows,
        f"golden    {export['vectors']} vectors: C = specification, every layer, bit for bit",
        *errors,
        f"module    {module}, {module.stat().st_size} bytes, for kernel {kernel}",
        "",
        "In the lab, in virtual time, one seed; ndm_tcp is the network just trained; published is",
        "what the experiment's authors measured in a network of theirs, which the lab rebuilds:",
        "\n".join(table).strip("\n"),
        "",
        "Two real captures: their estimated paths, and what each algorithm would get there;",
        "ndm_tcp is the shipped network:",
        _told(predicted),
        "",
        "The shipped network adapted to one of these paths, beside the others:",
        _told(adapted),
        "",
        *_pages(folder),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    try:
        print(summary(Path(sys.argv[1])))
    except NdmError as error:
        sys.exit(f"ndm: {error}")
