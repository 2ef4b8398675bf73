# SPDX-License-Identifier: GPL-2.0-only
"""The part of a model card about the population that a run was chosen from."""

from __future__ import annotations

import sys
from pathlib import Path

import orjson

from ndm_tcp.errors import NdmError

SELECTION = "selection.json"


def text(run: Path, network: str) -> str:
    """All networks of the population, best first; empty if `ndm select` has not seen this one.

    Args:
        run: its folder.
        network: its number, as of `model_json.number`.

    Raises:
        NdmError: `selection.json` beside the run is damaged.
    """
    path = run.parent / SELECTION
    if not path.is_file():
        return ""
    try:
        found = orjson.loads(path.read_bytes())
        networks = found["networks"]
        if run.name not in networks:
            return ""
        if found.get("numbers", {}).get(run.name, network) != network:  # older files have none
            print(
                f"ndm: {path}: scored another network in {run.name}, so the card leaves it out; "
                f"run: ndm select {run.parent}",
                file=sys.stderr,
            )
            return ""
        order = sorted(networks, key=lambda name: -networks[name]["score"])
        rank = [name for name in order if name != "shipped"].index(run.name) + 1
        count = len(order) - ("shipped" in order)
        rows = []
        for name in order:
            row = networks[name]
            loss = f"{row['val_loss']:.5f}" if "val_loss" in row else ""
            shown = f"**{name}**" if name == run.name else name
            rows.append(f"| {shown} | {row['score']:+.4f} | {row['standard_error']:.4f} | {loss} |")
        refused = "".join(f"| {name} | refused | | |\n" for name in found["refused"])
        scores = [networks[name]["score"] for name in order if name != "shipped"]
        suites, runs = ", ".join(found["suites"]), int(found["lab_seeds"])
        seeds = f"{runs} lab seeds" if runs > 1 else "one lab seed"
        noise = found.get("noise")
        spread = f"{noise['standard_deviation']:.4f}" if noise else ""
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise NdmError(
            f"{path}: not written by ndm select ({error!r}); run: ndm select {run.parent}"
        ) from None
    table = "\n".join(rows)
    if spread:
        refused += f"""
Copies of one network with one bias a unit off have scores with a standard deviation of {spread}:
scores closer than that say nothing.
"""
    return f"""
Number {rank} of {count} networks that differ in their seed alone, scored by `ndm select` on
{suites} with {seeds} (docs/training.md): mean points over
scenarios, less the mean of all networks. Scores run from {min(scores):+.4f} to {max(scores):+.4f}.

| network | score | standard error over scenarios | held-out loss |
|---|---|---|---|
{table}
{refused}"""
