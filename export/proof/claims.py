# SPDX-License-Identifier: GPL-2.0-only
"""The claims of a certificate beside recorded rounds: does a recorded round lie in their boxes?

    ndm claims DIR...

For every claim: rounds inside its box, those of them in which the committed network breaks it, the
number of these in slow start, where the module does not use its gain, and lowest, median and
highest output in the box.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ndm_tcp import contract as c
from ndm_tcp import fixedpoint
from ndm_tcp.datasets.store import store
from ndm_tcp.export.integers import generated, model_c
from ndm_tcp.export.proof import properties
from ndm_tcp.fixedpoint import IntArray, Layer
from ndm_tcp.training import derived

SLOW_START = next(i.index for i in c.DENSE if i.name == "slow_start") - 1


def table(layers: list[Layer], x: IntArray) -> Iterator[str]:
    """Lines of the table.

    Args:
        layers: the network.
        x: [n, dense] inputs of rounds, Q12.
    """
    out = fixedpoint.forward(layers, x).outputs
    yield f"{len(x)} rounds"
    head = f"{'claim':44}{'inside':>8}{'broken':>8}{'slow start':>12}"
    yield f"{head}{'lowest':>9}{'median':>9}{'highest':>9}"
    for prop in properties.PROPERTIES:
        if prop.limit is None:
            continue
        low, high = np.array(prop.box()).T
        inside = ((low <= x) & (x <= high)).all(axis=1)
        found = out[inside, prop.output]
        broken = prop.sign * found > prop.sign * prop.limit
        starting = broken & (x[inside, SLOW_START] > 0)
        line = f"{prop.name:44}{len(found):8}{broken.sum():8}{starting.sum():12}"
        if len(found):
            ends = np.array([found.min(), np.median(found), found.max()]) / (1 << c.Q_PRE)
            line += "".join(f"{value:9.3f}" for value in ends)
        yield line


EXAMPLE = """example:
  ndm claims datasets/lab-rounds/*/"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The argument of `ndm claims`."""
    parser.add_argument("data", metavar="DIR", type=Path, nargs="+", help="dataset folders")


def main(args: argparse.Namespace) -> int:
    """Print the table of the committed network."""
    layers = model_c.from_json(generated.GENERATED / "ndm_model.json").layers
    rounds = store.load_all(args.data).rounds
    x = derived.dense(rounds).astype(np.int64)
    valid = rounds.column("valid").to_numpy(zero_copy_only=False).astype(bool)
    print("\n".join(table(layers, x[valid])))
    return 0
