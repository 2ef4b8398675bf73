# SPDX-License-Identifier: GPL-2.0-only
"""`ndm bpf unload`: unregister; sockets that use it keep it until they close."""

from __future__ import annotations

import argparse
import os

from ndm_tcp.bpf import default, loader

EXAMPLE = """example:  (as root)
  ndm bpf unload"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `ndm bpf unload`."""
    loader.add_folder(parser)


def main(args: argparse.Namespace) -> int:
    """Run `ndm bpf unload`."""
    before = default.restore() if os.geteuid() == 0 else None
    loader.run(args.folder, "unload")
    print(f"{loader.NAME} unloaded" + (f"; the default is {before} again" if before else ""))
    return 0
