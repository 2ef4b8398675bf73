# SPDX-License-Identifier: GPL-2.0-only
"""`ndm bpf unload`: unregister; connections that use it keep it until they close."""

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
    try:
        _, text = loader.run(args.folder, "unload")
    except BaseException:  # a signal, too
        if before and loader.NAME in default.available():
            default.make_default()
        raise
    default.forget()
    said = [f"{loader.NAME} unloaded"]
    if before:
        said.append(f"the default is {before} again")
    if flows := int(loader.facts(text).get("flows", 0)):
        said.append(f"connections that keep it until they close: {flows}")
    print("; ".join(said))
    return 0
