# SPDX-License-Identifier: GPL-2.0-only
"""`ndm dataset build`."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

from ndm_tcp.datasets import build

EXAMPLE = """example:
  ndm dataset build datasets/traces -o out/data
  ndm dataset build capture.pcap.gz ss.log -o out/data --keep-going

sources: sender-side pcap or pcapng, folders of recorded runs, ss -tin logs, iperf3 -J,
tcp_probe traces, M-Lab tcp-info JSONL and ndt7 JSON; plain, gzip or zstd"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `ndm dataset build`."""
    parser.add_argument("sources", type=Path, nargs="+", metavar="SOURCE")
    parser.add_argument("-o", "--out", type=Path, required=True, help="dataset folder")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument(
        "--keep-going",
        action="store_true",
        help="use whole packets of cut captures, leave out bad sources",
    )
    parser.add_argument("--json", action="store_true", help="print the manifest as JSON")


def main(args: argparse.Namespace) -> int:
    """Run `ndm dataset build`."""
    manifest = build.build(args.sources, args.out, max(args.jobs, 1), args.keep_going, args.json)
    if args.json:
        print(json.dumps(manifest, indent=2))
        return 0
    splits = ", ".join(f"{count} {name}" for name, count in manifest["splits"].items())
    print(
        f"{args.out}: {manifest['rounds']} rounds of {manifest['flows']} flows ({splits}) "
        f"from {len(manifest['sources'])} sources"
    )
    for source in manifest["sources"]:
        for reason, count in source["skipped"].items():
            print(f"  {source['name']}: {count} left out: {reason}")
        if source["truncated_at"] is not None:
            print(f"  {source['name']}: cut short at byte {source['truncated_at']}")
    return 0
