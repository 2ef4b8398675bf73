# SPDX-License-Identifier: GPL-2.0-only
"""`ndm bpf status`: is the BPF form loaded, which network runs in it, what it counted."""

from __future__ import annotations

import argparse
import json
import platform
from pathlib import Path

from ndm_tcp import contract
from ndm_tcp.bpf import loader

EXAMPLE = """example:  (as root)
  ndm bpf status
  ndm bpf status --json"""

COUNTERS = {
    "flows": "sockets use it now",
    "rounds": "rounds since it was loaded",
    "fallbacks": "times the watchdog took over",
    "guarded": "rounds in which the guard held the window",
    "events_lost": "events that nobody read in time",
    "no_memory": "rounds without the network, for want of memory",
}


def read(folder: Path) -> dict[str, str | int | bool]:
    """State of the BPF form in this kernel.

    Args:
        folder: where the loader is.

    Returns:
        kernel and loaded; if loaded the pinned folder, the hashes of the network that runs, of the
        one that it was built with and of the contract, whether that is this program's, and
        `COUNTERS`.

    Raises:
        NdmError: not root, or the pins are damaged.
    """
    _, text = loader.run(folder, "status")
    said = loader.facts(text)
    found: dict[str, str | int | bool] = {
        "kernel": platform.release(),
        "loaded": said["loaded"] == "1",
    }
    if found["loaded"]:
        found |= {name: said[name] for name in ("pin", "model_hash", "contract_hash")}
        found["built_in"] = said.get("built_in", said["model_hash"])
        found["contract_is_ours"] = said["contract_hash"] == contract.HASH
        found |= {name: int(said[name]) for name in COUNTERS if name in said}
    return found


def text(found: dict[str, str | int | bool]) -> str:
    """The facts, a line each."""
    lines = [f"kernel       {found['kernel']}"]
    if not found["loaded"]:
        return "\n".join([*lines, f"{loader.NAME}  not loaded; run: sudo ndm bpf load"])
    other = "" if found["contract_is_ours"] else f", but this program's is {contract.HASH}"
    lines.append(f"{loader.NAME}  loaded, pinned at {found['pin']}")
    swapped = found["model_hash"] != found["built_in"]
    instead = f", swapped in; built with {found['built_in']}" if swapped else ""
    lines.append(f"model        {found['model_hash']}{instead}")
    lines.append(f"contract     {found['contract_hash']}{other}")
    lines += [f"{name:12} {found[name]} {what}" for name, what in COUNTERS.items() if name in found]
    return "\n".join(lines)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `ndm bpf status`."""
    loader.add_folder(parser)
    parser.add_argument("--json", action="store_true", help="print it as JSON")


def main(args: argparse.Namespace) -> int:
    """Run `ndm bpf status`; exit code 1 if it is not loaded."""
    found = read(args.folder)
    print(json.dumps(found, indent=1) if args.json else text(found))
    return 0 if found["loaded"] else 1
