# SPDX-License-Identifier: GPL-2.0-only
"""`ndm dataset build`: the builder, and labels for flows whose path nobody recorded."""

from __future__ import annotations

import argparse
from pathlib import Path

from ndm_tcp.datasets.builder import command
from ndm_tcp.paths import label
from ndm_tcp.paths.model import load_all

EXAMPLE = command.EXAMPLE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `ndm dataset build`."""
    command.add_arguments(parser)
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--no-label",
        action="store_true",
        help="do not estimate the paths of captures, so that they have no target window",
    )
    which.add_argument(
        "--paths",
        type=Path,
        metavar="DIR",
        help="take these path models of ndm path estimate, in place of new estimates",
    )


def main(args: argparse.Namespace) -> int:
    """Run `ndm dataset build`."""
    if args.no_label:
        return command.run(args, None)
    return command.run(args, label.labeller(load_all(args.paths) if args.paths else None))
