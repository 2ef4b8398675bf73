# SPDX-License-Identifier: GPL-2.0-only
"""Paths of a local network: ndm_tcp beside Reno, CUBIC and BBR, held against its bars.

    python -m tests.bench.bench_lan [--seeds N] [--kmod DIR] [-o DIR]

The suite is lab/scenarios/lan, a development suite. On every path: goodput at least 0.95 of the
best of Reno, CUBIC and BBR, a retransmission rate of at most BBR's and at most three times CUBIC's.
Exit code 1 if a bar is missed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from ndm_tcp.lab.guest import suite
from ndm_tcp.lab.guest.workers import Workers
from ndm_tcp.lab.score import board
from ndm_tcp.lab.score.metrics import Cell, cells

RIVALS = ("reno", "cubic", "bbr")
GOODPUT, OF_BBR, OF_CUBIC = 0.95, 1.0, 3.0


def verdict(row: dict[str, Cell]) -> tuple[str, bool]:
    """A line of the table, and whether both bars are reached.

    Args:
        row: cells of one path by algorithm.
    """
    ours = row["ndm_tcp"].mean
    best = max(row[cc].mean["goodput_mbps"] for cc in RIVALS)
    share = {cc: 100 * row[cc].mean["retransmitted_share"] for cc in ("bbr", "cubic")}
    most = min(OF_BBR * share["bbr"], OF_CUBIC * share["cubic"])
    part, rate = ours["goodput_mbps"] / best, 100 * ours["retransmitted_share"]
    fast, clean = part >= GOODPUT, rate <= most
    line = f"{part:8.3f}{' ' if fast else '*'}{rate:9.3f}{' ' if clean else '*'}"
    line += f"{share['bbr']:9.3f}{share['cubic']:9.3f}"
    line += f"{ours['rtt_mean_ms']:9.2f}{row['bbr'].mean['rtt_mean_ms']:9.2f}"
    return line, fast and clean


def main() -> int:
    """Run the suite and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--kmod", type=Path, help="sources of another ndm_tcp")
    parser.add_argument("-o", "--out", type=Path, help="folder for the runs; resumes")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        out = args.out or Path(name)
        ccs = ["ndm_tcp", *RIVALS]
        jobs = suite.jobs_of(suite.load_suite("lan"), ccs, args.seeds, out, True, args.kmod)
        done = list(suite.execute(jobs, Workers(2), light=True, quiet=False, kmod=args.kmod))
    found = cells([board.metrics(o) for o in done if o.result is not None])
    rows: dict[str, dict[str, Cell]] = {}
    for cell in found:
        rows.setdefault(cell.scenario, {})[cell.cc] = cell
    print(f"{'goodput: of the best; %: retransmitted; * misses its bar':56}", end="")
    print(f"{'goodput':>8} {'%':>9} {'% BBR':>9}{'% CUBIC':>9}{'RTT ms':>9}{'BBR':>9}")
    reached = 0
    for name, row in sorted(rows.items()):
        line, good = verdict(row)
        reached += good
        print(f"{name:56}{line}")
    print(f"{reached} of {len(rows)} paths reach both bars, {args.seeds} seeds")
    return 0 if reached == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
