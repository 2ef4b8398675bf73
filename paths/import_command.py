# SPDX-License-Identifier: GPL-2.0-only
"""`ndm path import`: path models of others."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from ndm_tcp import files
from ndm_tcp.errors import NdmError
from ndm_tcp.paths import model, profiles

EXAMPLE = """example:
  ndm path import internet-in-a-box/network-profiles -o out/paths     # iBoxNet
  ndm path import cell.trace --rtt-ms 40 --queue-packets 200 -o out/paths
  ndm path predict out/paths

exit code 1: a file was left out"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `ndm path import`."""
    parser.add_argument(
        "sources",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="iBoxNet profile, mahimahi trace, or a folder of profiles",
    )
    parser.add_argument("-o", "--out", type=files.folder, required=True, help="folder of models")
    parser.add_argument("--rtt-ms", type=float, help="baseline RTT of a trace, ms")
    parser.add_argument("--queue-packets", type=int, help="queue of a trace, packets")
    parser.add_argument("--json", action="store_true", help="print the models' files as JSON")


def main(args: argparse.Namespace) -> int:
    """Run `ndm path import`."""
    paths = [
        path
        for source in args.sources
        for path in (sorted(source.rglob("*.json")) if source.is_dir() else [source])
    ]
    if not paths:
        raise NdmError(f"{args.sources[0]}: no profile (*.json) in it; name a profile or a trace")
    made: dict[str, str] = {}
    failed: list[str] = []
    for path in paths:
        try:
            found = model.apart(profiles.read(path, args.rtt_ms, args.queue_packets), made)
        except NdmError as error:
            print(f"ndm: left out: {error}", file=sys.stderr)
            failed.append(str(path))
            continue
        to = args.out / f"{found.name}{model.SUFFIX}"
        model.write(found, to)
        made[found.name] = str(to)
    if args.json:
        print(json.dumps({"models": [*made.values()], "left_out": failed}, indent=2))
    else:
        print(f"{args.out}: path models: {len(made)}; left out: {len(failed)}")
    return 1 if failed or not made else 0
