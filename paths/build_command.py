# SPDX-License-Identifier: GPL-2.0-only
"""`ndm dataset build`: the builder, and labels for flows whose path nobody recorded."""

from __future__ import annotations

import argparse

from ndm_tcp.datasets.builder import command
from ndm_tcp.paths import label

EXAMPLE = command.EXAMPLE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `ndm dataset build`."""
    command.add_arguments(parser)
    parser.add_argument(
        "--no-label",
        action="store_true",
        help="do not estimate the paths of captures, so that they have no target window",
    )


def main(args: argparse.Namespace) -> int:
    """Run `ndm dataset build`."""
    return command.run(args, None if args.no_label else label.labeller())
