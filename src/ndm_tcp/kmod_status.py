# SPDX-License-Identifier: GPL-2.0-only
"""`ndm kmod status`: is the module loaded, which network runs in it, how many sockets use it."""

from __future__ import annotations

import argparse
import json
import platform
from pathlib import Path

from ndm_tcp import checkout, contract
from ndm_tcp.errors import NdmError

EXAMPLE = """example:
  ndm kmod status
  ndm kmod status --json"""

PARAMETERS = (
    *("model_hash", "contract_hash", "flows", "rounds", "fallbacks", "guarded", "no_memory"),
)
SYSCTL = Path("proc/sys/net/ipv4")


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return None


def read(root: Path = Path("/")) -> dict[str, str | int | bool | None]:
    """State of the module in the kernel.

    Args:
        root: where proc and sys are.

    Returns:
        kernel, loaded, default and available; of a loaded module its parameters (None where it
        has no such file), and whether its contract is this program's.
    """
    module = root / "sys" / "module" / "ndm_tcp"
    default = _read(root / SYSCTL / "tcp_congestion_control")
    available = _read(root / SYSCTL / "tcp_available_congestion_control")
    facts: dict[str, str | int | bool | None] = {
        "kernel": _read(root / "proc/sys/kernel/osrelease") or platform.release(),
        "loaded": module.is_dir(),
        "default": default,
        "available": available,
    }
    if not facts["loaded"]:
        return facts
    for name in PARAMETERS:
        text = _read(module / "parameters" / name)
        facts[name] = int(text) if text and name not in PARAMETERS[:2] else text
    facts["contract_is_ours"] = facts["contract_hash"] == contract.HASH
    return facts


def text(facts: dict[str, str | int | bool | None]) -> str:
    """The facts, a line each."""
    lines = [f"kernel     {facts['kernel']}"]
    if facts["default"]:
        lines.append(f"default    {facts['default']}")
    if not facts["loaded"]:
        kmod = "kmod" if checkout.is_here() else Path(__file__).resolve().parent / "kmod"
        lines.append(f"ndm_tcp    not loaded; run: sudo make -C {kmod} load")
        return "\n".join(lines)
    other = "" if facts["contract_is_ours"] else f", but this program's is {contract.HASH}"
    lines.append("ndm_tcp    loaded")
    lines.append(f"model      {facts['model_hash']}")
    lines.append(f"contract   {facts['contract_hash']}{other}")
    for name, what in (
        ("flows", "sockets use it now"),
        ("rounds", "rounds since it was loaded"),
        ("fallbacks", "times the watchdog took over"),
        ("guarded", "rounds in which the guard held the window"),
        ("no_memory", "rounds without the network, for want of memory"),
    ):
        value = "unknown" if facts[name] is None else facts[name]
        lines.append(f"{name:10} {value} {what}")
    return "\n".join(lines)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `ndm kmod status`."""
    parser.add_argument("--json", action="store_true", help="print it as JSON")


def main(args: argparse.Namespace) -> int:
    """Run `ndm kmod status`; exit code 1 if the module is not loaded."""
    if not Path("/proc/sys/net/ipv4").is_dir():
        raise NdmError("/proc/sys/net/ipv4: not there; this command needs a Linux kernel")
    facts = read()
    print(json.dumps(facts, indent=1) if args.json else text(facts))
    return 0 if facts["loaded"] else 1
