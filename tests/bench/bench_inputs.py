# SPDX-License-Identifier: GPL-2.0-only
"""The inputs from a capture against those the kernel module computed for the same flow.

    python -m tests.bench.bench_inputs [--seeds 40]

Runs the module in the lab over a path with loss, jitter and a queue, and prints the distance per
input, in per cent of its range, over all rounds of all seeds. Then over one path of each kind of
the training suites, on which captures can be less exact.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

from ndm_tcp.datasets.module_event import event_lines
from ndm_tcp.lab.paths.scenario import UNDER_TEST, load
from tests.conftest import ROOT
from tests.kmod.test_trace import LOSSY, distances

SUITES = ("training", "training-access")
CLOSE_PERCENT, CLOSE_PART = 0.5, 0.99


def main() -> None:
    """Record, compare, print Markdown tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=40)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        _table_of_inputs(args.seeds, Path(name))
        _table_of_paths(Path(name))


def _table_of_inputs(seeds: int, folder: Path) -> None:
    found, kernel_rounds = [], 0
    for seed in range(1, seeds + 1):
        percent, in_kernel = distances(LOSSY, seed, folder)
        found.append(percent)
        kernel_rounds += in_kernel
    percent = np.concatenate(found)
    losses = event_lines.INPUTS.index("loss_rate")
    lossy = sum(bool((run[:, losses] > 1).any()) for run in found)
    print(f"{kernel_rounds} rounds in the kernel, {len(percent)} of them in the captures too")
    print(f"{lossy} of {seeds} runs with a loss that only one has seen\n")
    print(f"| input | median | 95 % | largest |\n|{'---|' * 4}")
    for number, name in enumerate(event_lines.INPUTS):
        column = percent[:, number]
        values = [*np.percentile(column, [50, 95]), column.max()]
        print(f"| {number + 1} `{name}` | " + " | ".join(f"{v:.3f} %" for v in values) + " |")


def _table_of_paths(folder: Path) -> None:
    """Of the first lone flow of each kind; the row is that of the input furthest off."""
    print(f"\n| path | rounds | in the capture too | 95 % | of input |\n|{'---|' * 5}")
    rows, close = [], 0
    for kind, path in _kinds().items():
        percent, rounds = distances(path.read_text(), 1, folder / kind)
        p95 = np.percentile(percent, 95, axis=0)
        worst, part = int(p95.argmax()), len(percent) / rounds
        if p95[worst] <= CLOSE_PERCENT and part >= CLOSE_PART:
            close += 1
        else:
            rows.append((p95[worst], kind, rounds, part, event_lines.INPUTS[worst]))
    for far, kind, rounds, part, name in sorted(rows, reverse=True):
        print(f"| {kind} | {rounds} | {part:.0%} | {far:.3f} % | `{name}` |")
    print(f"| {close} others | | {CLOSE_PART:.0%} and more | {CLOSE_PERCENT} % and less | any |")


def _kinds() -> dict[str, Path]:
    found: dict[str, Path] = {}
    for suite in SUITES:
        for path in sorted((ROOT / "lab/scenarios" / suite).glob("*.toml")):
            kind = path.stem.split("-", 2)[2]
            flows = load(path).flows
            if [flow.cc for flow in flows] == [UNDER_TEST] and flows[0].count == 1:
                found.setdefault(kind, path)
    return found


if __name__ == "__main__":
    main()
