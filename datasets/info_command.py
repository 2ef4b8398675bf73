# SPDX-License-Identifier: GPL-2.0-only
"""`ndm dataset info`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from ndm_tcp import contract
from ndm_tcp.datasets import store
from ndm_tcp.datasets.records import LossCause

EXAMPLE = """example:
  ndm dataset info out/data"""
BARS = "▁▂▃▄▅▆▇█"
BINS = 16


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `ndm dataset info`."""
    parser.add_argument("data", type=Path, metavar="DIR")
    parser.add_argument("--json", action="store_true")


def describe(dataset: store.Dataset) -> dict[str, Any]:
    """Counts by kind, and quartiles and a histogram of every input over its range."""
    rounds = dataset.rounds
    counts = {
        name: {str(k): int(v) for k, v in zip(*_unique(rounds[name]), strict=True)}
        for name in ("format", "sampling", "cwnd_source", "cc", "split")
    }
    lost = rounds["lost"].to_numpy() > 0
    causes = rounds["loss_cause"].to_numpy()[lost]
    valid = rounds["valid"].to_numpy(zero_copy_only=False)
    inputs = {}
    for i in contract.INPUTS:
        values = rounds[i.name].to_numpy()[valid] / (1 << contract.Q_INPUT)
        histogram, _ = np.histogram(values, bins=BINS, range=(i.lo, i.hi))
        quantiles = np.quantile(values, [0.05, 0.5, 0.95]) if len(values) else np.zeros(3)
        inputs[i.name] = {
            "range": [i.lo, i.hi],
            "p5": float(quantiles[0]),
            "median": float(quantiles[1]),
            "p95": float(quantiles[2]),
            "histogram": histogram.tolist(),
        }
    return {
        "contract": contract.HASH,
        "sha256": dataset.sha256,
        "flows": dataset.manifest["flows"],
        "rounds": rounds.num_rows,
        "valid_rounds": int(valid.sum()),
        "sources": len(dataset.manifest["sources"]),
        "counts": counts,
        "rounds_with_loss": {c.name.lower(): int((causes == c).sum()) for c in LossCause},
        "inputs": inputs,
    }


def _unique(column: Any) -> tuple[list[Any], list[int]]:
    counted = column.value_counts().to_pylist()
    rows = sorted((str(row["values"]), row["counts"]) for row in counted)
    return [k for k, _ in rows], [v for _, v in rows]


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
    print(f"contract {facts['contract']}, sha256 {facts['sha256']}")
    for name, counted in facts["counts"].items():
        print(f"  {name:12} " + ", ".join(f"{k} {v}" for k, v in counted.items()))
    causes = ", ".join(f"{k} {v}" for k, v in facts["rounds_with_loss"].items() if v)
    print(f"  {'loss':12} {causes or 'none'}")
    print(f"\n  {'input':16} {'range':>8}  {'':{BINS}}      p5  median     p95")
    for number, (name, i) in enumerate(facts["inputs"].items(), start=1):
        bounds = f"{i['range'][0]:g}..{i['range'][1]:g}"
        print(
            f"  {number:2} {name:14} {bounds:>7}  {_spark(i['histogram'])} "
            f"{i['p5']:7.3f} {i['median']:7.3f} {i['p95']:7.3f}"
        )
    return 0
