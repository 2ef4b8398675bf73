# SPDX-License-Identifier: GPL-2.0-only
"""One screen about a finished `make demo`: every figure is read from the files it left."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson

from ndm_tcp import contract as c
from ndm_tcp.errors import NdmError
from ndm_tcp.export.model_c import upward


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


def summary(folder: Path) -> str:
    """The text for a demo folder.

    Raises:
        NdmError: a step of the demo left nothing.
    """
    dataset, run = _json(folder / "data" / "dataset.json"), folder / "run"
    metrics, export = _json(run / "metrics.json"), _json(run / "export.json")
    module = folder / "kmod" / "ndm_tcp.ko"
    if not module.is_file():
        raise NdmError(f"{module}: missing; run: make demo")
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
    lines = [
        "",
        f"traces    {dataset['flows']} flows, {dataset['rounds']} rounds, "
        f"{len(dataset['sources'])} sources",
        f"network   {export['parameters']} parameters, {export['weight_bytes']} bytes, "
        f"model {export['model']}",
        "",
        "  split   rounds    gain MAE  holding it  congest AUC   (flows it never saw: val, test)",
        *rows,
        "",
        f"golden    {export['vectors']} vectors: C = specification, every layer, bit for bit",
        *errors,
        f"module    {module.stat().st_size} bytes for kernel {kernel}",
        "",
        f"header    {folder / 'kmod' / 'generated' / 'ndm_model.h'}",
        f"module    {module}",
        f"card      {run / 'MODEL_CARD.md'}",
        f"plots     {run / 'plots'}/*.png, notebooks {folder}/*.ipynb",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    try:
        print(summary(Path(sys.argv[1])))
    except NdmError as error:
        sys.exit(f"ndm: {error}")
