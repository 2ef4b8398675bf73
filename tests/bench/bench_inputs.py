# SPDX-License-Identifier: GPL-2.0-only
"""The inputs from a capture against those the kernel module computed for the same flow.

    python -m tests.bench.bench_inputs [--seeds 40]

Runs the module in the lab over a path with loss, jitter and a queue, and prints the distance per
input, in per cent of its range, over all rounds of all seeds.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

from ndm_tcp.datasets.module_event import event_lines
from tests.kmod.test_trace import LOSSY, distances


def main() -> None:
    """Record, compare, print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=40)
    args = parser.parse_args()
    found, kernel_rounds = [], 0
    with tempfile.TemporaryDirectory() as name:
        for seed in range(1, args.seeds + 1):
            percent, in_kernel = distances(LOSSY, seed, Path(name))
            found.append(percent)
            kernel_rounds += in_kernel
    percent = np.concatenate(found)
    losses = event_lines.INPUTS.index("loss_rate")
    lossy = sum(bool((run[:, losses] > 1).any()) for run in found)
    print(f"{kernel_rounds} rounds in the kernel, {len(percent)} of them in the captures too")
    print(f"{lossy} of {args.seeds} runs with a loss that only one has seen\n")
    print(f"| input | median | 95 % | largest |\n|{'---|' * 4}")
    for number, name in enumerate(event_lines.INPUTS):
        column = percent[:, number]
        values = [*np.percentile(column, [50, 95]), column.max()]
        print(f"| {number + 1} `{name}` | " + " | ".join(f"{v:.3f} %" for v in values) + " |")


if __name__ == "__main__":
    main()
