# SPDX-License-Identifier: GPL-2.0-only
"""`ndm dataset build`, but for the labels: those come from `paths/build_command.py`."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from ndm_tcp import cluster, files
from ndm_tcp.datasets.builder import build, parts
from ndm_tcp.datasets.readers import pcap
from ndm_tcp.datasets.rounds.flow import Sampling
from ndm_tcp.datasets.store import describe

CUT_SHORT = 1
"""Exit code: the dataset is written, but a capture was cut short."""

EXAMPLE = """example:
  ndm dataset build datasets/traces -o out/data
  ndm dataset build capture.pcap.gz ss.log -o out/data --keep-going
  ssh host cat ss.log | ndm dataset build - -o out/data

sources: sender-side pcap or pcapng, folders of recorded runs, ss -tin logs, iperf3 -J,
tcp_probe traces, flent files, M-Lab tcp-info JSONL and ndt7 JSON; plain, gzip or zstd, also
in tar archives; - reads one from standard input;
exit code 1: written, but a capture was cut short (0 with --keep-going)"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `ndm dataset build`."""
    parser.add_argument("sources", nargs="+", metavar="SOURCE", help="path, fsspec URL, or -")
    parser.add_argument("-o", "--out", type=files.folder, required=True, help="dataset folder")
    parser.add_argument(
        "--jobs",
        type=int,
        default=len(os.sched_getaffinity(0)),
        help="processes (default: one a CPU)",
    )
    parser.add_argument(
        "--keep-going",
        action="store_true",
        help="leave out bad sources; a cut capture is no failure",
    )
    cluster.add_engine(parser, "where the work is done")
    parser.add_argument(
        "--parts",
        metavar="URL",
        help="where machines of a cluster meet (fsspec URL; default: a folder beside DIR)",
    )
    parser.add_argument("--json", action="store_true", help="print the manifest as JSON")


def run(args: argparse.Namespace, labeller: parts.Labeller | None) -> int:
    """Build, and say what came out."""
    manifest = build.build(
        args.sources,
        args.out,
        max(args.jobs, 1),
        args.keep_going,
        args.json,
        args.engine,
        args.parts,
        labeller,
    )
    cut = [source for source in manifest["sources"] if source["truncated_at"] is not None]
    for source in cut:
        said = pcap.cut_short(source["truncated_at"], source["capture"]["packets"])
        print(f"ndm: {source['name']}: {said}", file=sys.stderr)
    for source in manifest["sources"]:
        for warning in source["warnings"]:
            print(f"ndm: {source['name']}: {warning}", file=sys.stderr)
    if args.json:
        print(json.dumps(manifest, indent=2))
    else:
        _say(args.out, manifest)
    return CUT_SHORT if cut and not args.keep_going else 0


def _say(out: Path, manifest: dict[str, Any]) -> None:
    splits = ", ".join(f"{count} {name}" for name, count in manifest["splits"].items())
    print(
        f"{out}: {manifest['rounds']} rounds of {manifest['flows']} flows ({splits}) "
        f"from {len(manifest['sources'])} sources"
    )
    for source in manifest["sources"]:
        for reason, count in source["skipped"].items():
            print(f"  {source['name']}: {count} left out: {reason}")
    flows = [flow for source in manifest["sources"] for flow in source["flows"]]
    if not any(flow["sampling"] == Sampling.PER_ACK for flow in flows):
        return  # a log has no label to expect
    for line in describe.label_lines(manifest["flows"], *describe.labels(manifest)):
        print(f"  {line}")
