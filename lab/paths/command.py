# SPDX-License-Identifier: GPL-2.0-only
"""`ndm lab scenarios`: the suites that are drawn or counted out, written again."""

from __future__ import annotations

import argparse

from ndm_tcp import checkout
from ndm_tcp.lab.paths import (
    access_paths,
    ccbench,
    lan_paths,
    mahimahi,
    sealed_paths,
    training_paths,
)

SETS = {
    "access": access_paths.main,
    "ccbench": ccbench.main,
    "lan": lan_paths.main,
    "sealed": sealed_paths.main,
    "training": training_paths.main,
    "variable": mahimahi.main,
}
EXAMPLE = """example:
  ndm lab scenarios training        # training, and every validation suite drawn with it
  ndm lab scenarios lan             # lan and training-lan"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The argument of `ndm lab scenarios`."""
    parser.add_argument("set", choices=tuple(SETS), help="which, with the suites drawn beside it")


def main(args: argparse.Namespace) -> int:
    """Write the files; the same code writes the same bytes.

    Raises:
        NdmError: not in a checkout.
    """
    checkout.require("lab scenarios", "clone the project, and run it there")
    SETS[args.set]()
    print(f"{args.set}: written in {checkout.ROOT / 'lab' / 'scenarios'}")
    return 0
