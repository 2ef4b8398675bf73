# SPDX-License-Identifier: GPL-2.0-only
"""`ndm bpf load`: programs into the kernel, golden vectors through them, then registration."""

from __future__ import annotations

import argparse
import os

from ndm_tcp.bpf import default, loader

EXAMPLE = """example:  (as root)
  make -C bpf
  ndm bpf load
  ndm bpf load --default                   # for new connections, until reboot or unload
  make -C bpf ROOT=$PWD/out/mine OUT=$PWD/out/mine && ndm bpf load --folder out/mine"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `ndm bpf load`."""
    loader.add_folder(parser)
    parser.add_argument("--default", action="store_true", help="new connections use it")


def main(args: argparse.Namespace) -> int:
    """Run `ndm bpf load`."""
    if args.default and os.geteuid() == 0:  # else the loader refuses
        default.require_choice()
    loader.run(args.folder, "load")
    default.remember()
    if args.default:
        default.make_default()
    print(f"{loader.NAME} loaded; golden vectors passed in this kernel")
    return 0
