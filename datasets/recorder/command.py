# SPDX-License-Identifier: GPL-2.0-only
"""`ndm dataset record`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from ndm_tcp import files
from ndm_tcp.datasets.recorder import record
from ndm_tcp.datasets.recorder.record import Wanted
from ndm_tcp.errors import NdmError

STDERR = 2
"""file descriptor: with --json stdout has nothing but the facts"""
EXAMPLE = """example:  (as root)
  ndm dataset record -o out/upload -- curl -T big.file https://example.org/
  ndm dataset record -o out/web --port 443 --seconds 60
  ndm dataset record -o out/app --pid 1234
  ndm dataset build out/upload -o out/data

Packet headers, tcp_info every 10 ms, and tcp_probe where tracefs allows. Run it on the machine
that sends."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `ndm dataset record`."""
    parser.add_argument("-o", "--out", type=files.folder, required=True, help="folder to make")
    parser.add_argument("--port", type=int, help="sockets with this port, local or remote")
    parser.add_argument("--pid", type=int, help="sockets of this process and its children")
    parser.add_argument("--seconds", type=float, help="at most so long")
    parser.add_argument("--device", default="any", help="network device (default: any)")
    parser.add_argument("--json", action="store_true", help="print the facts of the recording")
    parser.add_argument("command", nargs="*", metavar="CMD", help="program to run, after --")


def main(args: argparse.Namespace) -> int:
    """Run `ndm dataset record`."""
    if not (args.command or args.port or args.pid):
        raise NdmError("nothing to record is named; give -- CMD..., --port or --pid")
    if args.pid is not None and not Path(f"/proc/{args.pid}").exists():
        raise NdmError(f"--pid {args.pid}: no such process; name one that runs")
    wanted = Wanted(args.port, args.pid)
    prints_to = STDERR if args.json else None
    facts = record.record(args.out, args.command, wanted, args.seconds, args.device, prints_to)
    if args.json:
        print(json.dumps(facts, indent=2, default=str))
        return int(facts.get("exit_code", 0))
    probe = f"no tcp_probe: {facts['no_tcp_probe']}" if "no_tcp_probe" in facts else "tcp_probe"
    print(
        f"{args.out}: {facts['packets']} packets of {facts['connections']} connections, "
        f"{facts['polls']} polls ({facts['late_polls']} late), {probe}"
    )
    for name in ("packets_lost", "events_lost"):
        if facts.get(name):
            print(f"  {facts[name]} {name.replace('_', ' ')}: use a quieter host or a port")
    return int(facts.get("exit_code", 0))
