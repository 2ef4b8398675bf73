# SPDX-License-Identifier: GPL-2.0-only
"""`ndm ab`: compare algorithms by the flows of this host, or of logs of ss."""

from __future__ import annotations

import argparse
import ipaddress
import sys
from collections.abc import Sequence
from pathlib import Path

from ndm_tcp import files, progress
from ndm_tcp.ab import compare, host, logs, report
from ndm_tcp.ab.flows import Flow
from ndm_tcp.errors import NdmError, require_above_zero

EXAMPLE = """example:
  ndm ab --watch 60                          # this host's flows, by algorithm
  ndm ab --watch 60 --peer 203.0.113.0/24 -o out/ab
  ndm ab --watch 60 --by port --only 443,8443
  while sleep 1; do date +%s.%N; ss -tin; done > ss.log
  ndm ab ss.log --json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `ndm ab`."""
    parser.add_argument("logs", nargs="*", type=Path, metavar="LOG", help="of ss -tin, with times")
    parser.add_argument("--watch", type=float, metavar="SECONDS", help="poll this host for so long")
    parser.add_argument(
        "--every", type=float, default=1.0, metavar="SECONDS", help="between two polls"
    )
    parser.add_argument(
        "--by", choices=list(compare.KEYS), default="cc", help="what makes flows a group"
    )
    parser.add_argument("--only", help="these groups alone, separated by commas")
    parser.add_argument(
        "--reference", help="the group beside which the others are (default: that of most flows)"
    )
    parser.add_argument("--peer", metavar="NETWORK", help="only flows to it, such as 10.0.0.0/8")
    parser.add_argument(
        "--least",
        type=float,
        default=2.0,
        metavar="SECONDS",
        help="flows that were watched for less are left out",
    )
    parser.add_argument(
        "-o", "--out", type=files.folder, metavar="DIR", help="write ab.json and a page"
    )
    parser.add_argument("--json", action="store_true", help="print ab.json")


def require_sense(args: argparse.Namespace) -> None:
    """Refuse arguments that contradict each other.

    Raises:
        NdmError: naming them.
    """
    if bool(args.logs) == (args.watch is not None):
        raise NdmError("name either logs of ss or --watch SECONDS; run: ndm ab --help")
    for name in ("watch", "every", "least"):
        require_above_zero(f"--{name}", getattr(args, name))
    if args.watch is not None and args.every > args.watch:
        raise NdmError(
            f"--every {args.every:g}: longer than --watch {args.watch:g}, so no flow is seen "
            "twice; use a shorter --every"
        )


def network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    """A network that was named.

    Raises:
        NdmError: it is none.
    """
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise NdmError(f"--peer {text}: not a network; write 10.0.0.0/8 or 2001:db8::/32") from None


def to_network(flows: Sequence[Flow], text: str) -> list[Flow]:
    """Flows whose destination is in a network.

    Raises:
        NdmError: it is no network, or no flow goes there.
    """
    wanted = network(text)
    found = []
    for flow in flows:
        try:
            if ipaddress.ip_address(flow.ends.peer) in wanted:
                found.append(flow)
        except ValueError:
            continue  # a name
    if not found:
        raise NdmError(
            f"--peer {text}: none of {len(flows)} flows goes there; name another, or leave it out"
        )
    return found


def watched(seconds: float, every_s: float, least_s: float) -> tuple[list[Flow], int]:
    """Flows of this host, and how many connections fell between two polls; Ctrl-C ends it early.

    Raises:
        NdmError: there is no flow, or the kernel does not answer.
    """
    here = host.Host(least_s)
    with progress.bar(round(seconds), "s", quiet=False) as bar:
        try:
            for passed in host.watch(seconds, every_s, here):
                bar.update(min(round(passed), round(seconds)) - bar.n)
        except KeyboardInterrupt:
            if not here.polls:
                raise
            print("ndm: interrupted; comparing what was seen", file=sys.stderr)
    flows = here.flows()
    if not flows:
        raise NdmError("no TCP connection in this network namespace; watch for longer")
    return flows, here.missed()


def main(args: argparse.Namespace) -> int:
    """Run `ndm ab`."""
    require_sense(args)
    if args.peer:
        network(args.peer)
    missed = None
    if args.logs:
        flows, source = logs.read(args.logs, args.least), files.shown(args.logs[0].name)
    else:
        if args.out:
            files.require_writable(args.out)  # not after a minute of watching
        flows, missed = watched(args.watch, args.every, args.least)
        source = "this host"
    if args.peer:
        flows = to_network(flows, args.peer)
    only = [name for name in (args.only or "").split(",") if name]
    found = compare.compare(flows, args.by, only, args.reference, missed)
    print(
        report.json_text(found) if args.json else report.screen(found), end="\n" * (not args.json)
    )
    if args.out:
        page = report.write(found, flows, source, args.out)
        if not args.json:
            print(f"\npage: {page}")
    return 0
