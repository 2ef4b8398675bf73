# SPDX-License-Identifier: GPL-2.0-only
"""Runs to a scoreboard: means and spreads per scenario and algorithm, ccBench scores, winners.

The ccBench rules are those of its Set I and Set II (Sage, SIGCOMM 2023): a single flow scores
throughput squared over delay, a flow that joins CUBIC scores its distance from the fair share;
everybody within ten percent of the best wins.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, fields

import numpy as np

MARGIN = 0.1
"""An algorithm within this of the best score also wins."""


@dataclass(frozen=True)
class RunMetrics:
    """Metrics of one run for the algorithm under test."""

    scenario: str
    cc: str
    seed: int
    goodput_mbps: float
    """sum over the flows under test"""
    retransmissions: float
    """segments"""
    retransmitted_share: float
    """retransmitted over sent segments"""
    rtt_mean_ms: float
    rtt_p95_ms: float
    zero_intervals: float
    """seconds in which iperf3's sender wrote nothing; NaN in the simulator, which has no program"""
    share: float
    """of the goodput of all flows"""
    jain: float
    """Jain's fairness index over all flows; 1 with one flow"""


MEASURES = tuple(f.name for f in fields(RunMetrics))[3:]


@dataclass(frozen=True)
class Cell:
    """One algorithm in one scenario: mean and standard deviation over seeds, per measure."""

    scenario: str
    cc: str
    runs: int
    mean: dict[str, float]
    spread: dict[str, float]
    path: str = ""
    """where it ran: the lab or the simulator, and a digest of the scenario; empty: not known"""


def _statistics(values: list[float]) -> tuple[float, float]:
    """Mean and standard deviation of those that are numbers; a run may have no RTT."""
    known = [value for value in values if math.isfinite(value)]
    mean = float(np.mean(known)) if known else math.nan
    if len(values) == 1:
        return mean, 0.0
    return mean, float(np.std(known, ddof=1)) if len(known) > 1 else math.nan


def cells(runs: Iterable[RunMetrics]) -> list[Cell]:
    """One cell per scenario and algorithm; scenarios in order of appearance, best goodput first."""
    groups: dict[tuple[str, str], list[RunMetrics]] = defaultdict(list)
    order: dict[str, int] = {}
    for run in runs:
        groups[run.scenario, run.cc].append(run)
        order.setdefault(run.scenario, len(order))
    result = []
    for (scenario, cc), group in groups.items():
        found = {m: _statistics([getattr(run, m) for run in group]) for m in MEASURES}
        mean, spread = ({m: both[part] for m, both in found.items()} for part in (0, 1))
        result.append(Cell(scenario, cc, len(group), mean, spread))
    return sorted(result, key=lambda c: (order[c.scenario], -c.mean["goodput_mbps"], c.cc))


def power(cell: Cell) -> float:
    """Set I: goodput squared over mean RTT, Mbit/s and ms; 0 without an RTT."""
    rtt_ms = cell.mean["rtt_mean_ms"]
    return cell.mean["goodput_mbps"] ** 2 / rtt_ms if rtt_ms > 0 else 0.0


def friendliness(cell: Cell) -> float:
    """Set II: 1 at half of all goodput, 0 at none or all of it."""
    return 1.0 - 2.0 * abs(cell.mean["share"] - 0.5)


def winning_rates(board: list[Cell], set_two: bool) -> dict[str, float]:
    """Algorithm to the share of scenarios it wins; several may win one.

    One whose runs all failed in a scenario, or delivered nothing, has not won it.

    Set II compares distances from the fair share, as ccBench does: within ten percent of the
    fair share of the smallest distance.
    """
    scenarios: dict[str, list[Cell]] = defaultdict(list)
    for cell in board:
        scenarios[cell.scenario].append(cell)
    wins: dict[str, int] = defaultdict(int)
    for group in scenarios.values():
        if set_two:
            best = max(friendliness(c) for c in group)
            winners = [c for c in group if friendliness(c) >= best - MARGIN]
        else:
            best = max(power(c) for c in group)
            winners = [c for c in group if power(c) >= (1 - MARGIN) * best > 0]
        for cell in group:
            wins[cell.cc] += cell in winners
    rates = {cc: won / len(scenarios) for cc, won in wins.items()}
    return dict(sorted(rates.items(), key=lambda item: (-item[1], item[0])))


def number(value: float) -> str:
    """Three significant digits, plain."""
    if not math.isfinite(value):
        return "-"
    if value == 0 or abs(value) >= 100:
        return f"{value:.0f}"
    digits = 2 - math.floor(math.log10(abs(value)))
    return f"{value:.{min(max(digits, 0), 4)}f}"


def plus_minus(cell: Cell, measure: str, scale: float = 1.0) -> str:
    """`mean ± spread`, or only the mean for a single run."""
    mean = number(cell.mean[measure] * scale)
    return f"{mean} ± {number(cell.spread[measure] * scale)}" if cell.runs > 1 else mean
