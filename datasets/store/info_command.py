# SPDX-License-Identifier: GPL-2.0-only
"""`ndm dataset info`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from ndm_tcp.datasets.store import card, store
from ndm_tcp.datasets.store.describe import BINS, describe, label_lines

EXAMPLE = """example:
  ndm dataset info out/data"""
BARS = "▁▂▃▄▅▆▇█"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `ndm dataset info`."""
    parser.add_argument("data", type=Path, metavar="DIR", help="dataset folder")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")


def _spark(histogram: list[int]) -> str:
    top = max(max(histogram), 1)
    return "".join(" " if not n else BARS[(n * (len(BARS) - 1)) // top] for n in histogram)


def main(args: argparse.Namespace) -> int:
    """Run `ndm dataset info`."""
    facts = describe(store.load(args.data))
    if args.json:
        print(json.dumps(facts, indent=2))
        return 0
    print(
        f"{args.data}: {facts['rounds']} rounds ({facts['valid_rounds']} valid) of "
        f"{facts['flows']} flows from {facts['sources']} sources"
    )
    print(f"contract of the measurements {facts['contract']}, sha256 {facts['sha256']}")
    for name, counted in facts["counts"].items():
        print(f"  {name:12} " + ", ".join(f"{k} {v}" for k, v in counted.items()))
    causes = ", ".join(f"{k} {v}" for k, v in facts["rounds_with_loss"].items() if v)
    print(f"  {'loss':12} {causes or 'none'}")
    for line in label_lines(facts["flows"], facts["labelled"], facts["unlabelled"]):
        print(f"  {'labels':12} {line}")
    if facts["capture"].get("packets"):
        packets = ", ".join(f"{k} {v}" for k, v in facts["capture"].items() if v)
        print(f"  {'captured':12} {packets}")
    left_out = ", ".join(f"{v} x {k}" for k, v in facts["skipped"].items())
    print(f"  {'left out':12} {left_out or 'nothing'}")
    for name, at in facts["truncated"].items():
        print(f"  {'cut short':12} {name} at byte {at}")
    for warning in facts["warnings"]:
        print(f"  {'warning':12} {warning}")
    for kind, names in facts["masked"].items():
        print(f"  {'always 0':12} {', '.join(names)} in rounds marked {kind}")
    print(f"\n  {'input':16} {'range':>8}  {'':{BINS}}      p5  median     p95")
    for number, (name, i) in enumerate(facts["inputs"].items(), start=1):
        bounds = f"{i['range'][0]:g}..{i['range'][1]:g}"
        print(
            f"  {number:2} {name:14} {bounds:>7}  {_spark(i['histogram'])} "
            f"{i['p5']:7.3f} {i['median']:7.3f} {i['p95']:7.3f}"
        )
    if (args.data / card.CARD).is_file():
        print(f"\ncard and plots: {args.data / card.CARD}")
    return 0
