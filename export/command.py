# SPDX-License-Identifier: GPL-2.0-only
"""`ndm export`; its options need neither torch nor onnx."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from ndm_tcp import checkout, files
from ndm_tcp.export import judge
from ndm_tcp.export.integers import generated

EXAMPLE = """example:
  ndm export out/run                       # headers in out/run/generated, reports in out/run
  ndm export policy.onnx                   # of any framework; everything in policy.export
  cp -rT kmod out/kmod && ndm export out/run -o out/kmod/generated   # a module with that network
  ndm export out/run --shipped             # replace the network of this checkout
  ndm export out/run --measure             # nanoseconds and instructions into the report"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `ndm export`."""
    parser.add_argument(
        "what", metavar="RUN", type=Path, help="folder of a training run, or an ONNX file"
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "-o",
        "--out",
        type=files.folder,
        help="folder of headers and vectors (default: RUN/generated, or FILE.export/generated)",
    )
    where.add_argument(
        "--shipped",
        dest="out",
        action="store_const",
        const=generated.GENERATED,
        help="replace the network of this checkout: -o kmod/generated",
    )
    parser.add_argument(
        judge.OVERRIDE,
        action="store_true",
        help="export a run that on held-out paths does not beat a constant window",
    )
    parser.add_argument(
        "--qat",
        metavar="DATASET",
        type=Path,
        help="try fine-tuning in integers on the inputs of a dataset; the better network counts",
    )
    parser.add_argument(
        "--measure",
        action="store_true",
        help="time an inference beside float C and onnxruntime, count instructions (seconds)",
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")


def main(args: argparse.Namespace) -> int:
    """Run `ndm export`."""
    from ndm_tcp.export import chain, source
    from ndm_tcp.export.report import screen

    if args.out == generated.GENERATED:
        checkout.require("--shipped", "name a folder: -o")
    out = args.out or source.folder_of(args.what) / "generated"
    report = chain.export(args.what, out, args.qat, args.measure, args.even_if_worse)
    if args.json:
        print(json.dumps(asdict(report), indent=2))
        return 0
    print(screen.screen(report))
    print(
        f"wrote {out / 'ndm_model.h'} and {source.folder_of(args.what) / 'report.html'}",
        file=sys.stderr,
    )
    return 0
