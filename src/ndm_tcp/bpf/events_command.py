# SPDX-License-Identifier: GPL-2.0-only
"""`ndm bpf events`: the event of every round, as text that `ndm trace` reads."""

from __future__ import annotations

import argparse
import contextlib
import subprocess

from ndm_tcp.bpf import loader
from ndm_tcp.errors import require_above_zero

EXAMPLE = """example:  (the first as root, while ndm_tcp_bpf is in use)
  ndm bpf events --seconds 30 > rounds.txt
  ndm trace rounds.txt -o rounds.parquet"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `ndm bpf events`."""
    loader.add_folder(parser)
    parser.add_argument("--seconds", type=float, help="stop after these (default: Ctrl-C)")


def main(args: argparse.Namespace) -> int:
    """Run `ndm bpf events`: the loader's lines, until it is told to stop."""
    require_above_zero("--seconds", args.seconds)
    with loader.started(args.folder, "events") as child:
        try:
            with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
                child.wait(args.seconds)
        finally:
            child.terminate()  # if it has not ended; at another signal, too
        _, trouble = child.communicate()
    loader.refuse(trouble)
    return child.returncode
