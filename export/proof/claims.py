# SPDX-License-Identifier: GPL-2.0-only
"""The claims of a certificate beside recorded rounds: does a recorded round lie in their boxes?

    ndm claims DIR...

For every claim: rounds inside its box, those of them in which the network breaks it, the number of
these in slow start, where the module does not use its gain, and lowest, median and
highest output in the box.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from ndm_tcp import contract as c
from ndm_tcp import fixedpoint, model_json
from ndm_tcp.datasets.store import store
from ndm_tcp.export.proof import properties
from ndm_tcp.fixedpoint import IntArray, Layer
from ndm_tcp.training import derived

SLOW_START = next(i.index for i in c.DENSE if i.name == "slow_start") - 1


@dataclass(frozen=True)
class Row:
    """Recorded rounds in the box of one claim."""

    claim: str
    inside: int
    broken: int
    """of those inside: rounds in which the network breaks the claim"""
    slow_start: int
    """of those broken: rounds in slow start"""
    lowest: float | None
    median: float | None
    highest: float | None
    """output in the box; None: no round is inside"""


def rows(layers: list[Layer], x: IntArray) -> Iterator[Row]:
    """A row a claim that has a limit.

    Args:
        layers: the network.
        x: [n, dense] inputs of rounds, Q12.
    """
    out = fixedpoint.forward(layers, x).outputs
    for prop in properties.PROPERTIES:
        if prop.limit is None:
            continue
        low, high = np.array(prop.box()).T
        inside = ((low <= x) & (x <= high)).all(axis=1)
        found = out[inside, prop.output]
        broken = prop.sign * found > prop.sign * prop.limit
        starting = broken & (x[inside, SLOW_START] > 0)
        counts = (len(found), int(broken.sum()), int(starting.sum()))
        if len(found):
            ends = np.array([found.min(), np.median(found), found.max()]) / (1 << c.Q_PRE)
            yield Row(prop.name, *counts, *ends.tolist())
        else:
            yield Row(prop.name, *counts, None, None, None)


def table(layers: list[Layer], x: IntArray) -> Iterator[str]:
    """Lines of the table; arguments as those of `rows`."""
    yield f"{len(x)} rounds"
    head = f"{'claim':44}{'inside':>8}{'broken':>8}{'slow start':>12}"
    yield f"{head}{'lowest':>9}{'median':>9}{'highest':>9}"
    for row in rows(layers, x):
        line = f"{row.claim:44}{row.inside:8}{row.broken:8}{row.slow_start:12}"
        for value in (row.lowest, row.median, row.highest):
            line += "" if value is None else f"{value:9.3f}"
        yield line


EXAMPLE = """example:
  ndm claims datasets/lab-rounds/*/
  ndm claims out/data --model out/run/generated/ndm_model.json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The argument of `ndm claims`."""
    parser.add_argument("data", metavar="DIR", type=Path, nargs="+", help="dataset folders")
    parser.add_argument(
        "--model",
        metavar="FILE",
        type=Path,
        default=model_json.SHIPPED,
        help="an ndm_model.json of ndm export (default: the shipped one)",
    )
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")


def main(args: argparse.Namespace) -> int:
    """Print the table."""
    model = model_json.from_json(args.model)
    layers = model.layers
    rounds = store.load_all(args.data).rounds
    x = derived.dense(rounds).astype(np.int64)
    valid = rounds.column("valid").to_numpy(zero_copy_only=False).astype(bool)
    if args.json:
        found = [asdict(row) for row in rows(layers, x[valid])]
        counted = {"model": model.hash(), "rounds": int(valid.sum()), "claims": found}
        print(json.dumps(counted, indent=2))
        return 0
    print(f"model {model.hash()}, " + "\n".join(table(layers, x[valid])))
    return 0
