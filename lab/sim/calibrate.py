# SPDX-License-Identifier: GPL-2.0-only
"""How close the simulator comes to the lab, on the paths of the boards: docs/simulator.md.

    python -m ndm_tcp.lab.sim.calibrate docs/board -o docs/simulator.md

The boards are the lab's results. The simulator runs the same scenarios with the same algorithms,
several seeds each; its random numbers are other ones.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ndm_tcp import files
from ndm_tcp.errors import NdmError
from ndm_tcp.lab.guest import suite
from ndm_tcp.lab.guest.jobs import Job, Outcome
from ndm_tcp.lab.paths.scenario import UNDER_TEST, Scenario
from ndm_tcp.lab.score import bars
from ndm_tcp.lab.score.board import metrics
from ndm_tcp.lab.score.metrics import Cell, cells
from ndm_tcp.lab.sim.build import build
from ndm_tcp.lab.sim.simulate import ALGORITHMS, refusal, simulate

SUITES = ("access", "ccbench", "fairness", "published")
SEEDS = 5
GOODPUT, RTT, SHARE = 0.03, 0.10, 0.05
"""the wanted errors: of goodput and RTT relative, of shares absolute"""
KINDS = ("one flow", "equal flows", "beside others")
START = "<!-- calibration: begin -->"
END = "<!-- calibration: end -->"


@dataclass(frozen=True)
class Pair:
    """One algorithm on one path."""

    suite: str
    kind: str
    cc: str
    lab: Cell
    simulated: Cell

    def ratio(self, measure: str) -> float:
        """Simulated over the lab's, less 1."""
        return self.simulated.mean[measure] / max(self.lab.mean[measure], 1e-9) - 1

    def apart(self, measure: str) -> float:
        """Simulated less the lab's."""
        return self.simulated.mean[measure] - self.lab.mean[measure]


def kind(scenario: Scenario) -> str:
    """One of KINDS."""
    if len(scenario.flows) == 1:
        return KINDS[0]
    return KINDS[1] if all(flow.cc == UNDER_TEST for flow in scenario.flows) else KINDS[2]


def simulated(program: Path, scenario: Scenario, cc: str) -> Cell:
    """The mean of several seeds."""
    runs = []
    for seed in range(1, SEEDS + 1):
        job = Job(scenario, cc, seed, Path(scenario.name))
        runs.append(metrics(Outcome(job, simulate(program, scenario, cc, seed))))
    (cell,) = cells(runs)
    return cell


def pairs(folder: Path) -> list[Pair]:
    """Of all boards in a folder.

    Raises:
        NdmError: a board is not there.
    """
    program = build()
    work: list[tuple[str, Scenario, str, Cell]] = []
    for name in SUITES:
        board = bars.load(folder / f"{name}.csv")
        for scenario in suite.load_suite(name):
            found = board.get(scenario.name, {})
            if scenario.flows and not refusal(scenario):
                work += [(name, scenario, cc, found[cc]) for cc in ALGORITHMS if cc in found]
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        made = pool.map(lambda one: simulated(program, one[1], one[2]), work)
        return [
            Pair(name, kind(scenario), cc, lab, cell)
            for (name, scenario, cc, lab), cell in zip(work, made, strict=True)
        ]


def _error(values: NDArray[np.float64], most: float, form: str) -> str:
    """Mean, median and 90th percentile of the size, and how many are below the wanted one."""
    size = np.abs(values)
    numbers = [values.mean(), np.median(size), np.percentile(size, 90)]
    mean, low, high = (format(float(number), form) for number in numbers)
    return f"{mean} | {low}, {high} | {100 * float(np.mean(size < most)):.0f} %"


def table(found: list[Pair]) -> Iterator[str]:
    """Markdown rows: a row for each kind of path and algorithm."""
    yield (
        "| paths | algorithm | number | goodput: mean | median, p90 | < 3 % "
        "| RTT: mean | median, p90 | < 10 % | share: mean | median, p90 | < 0.05 |"
    )
    yield "|" + " --- |" * 12
    for one in KINDS:
        for cc in ALGORITHMS:
            group = [pair for pair in found if (pair.kind, pair.cc) == (one, cc)]
            if not group:
                continue
            goodput = np.array([pair.ratio("goodput_mbps") for pair in group])
            rtt = np.array([pair.ratio("rtt_mean_ms") for pair in group])
            share = np.array([pair.apart("share") for pair in group])
            errors = [_error(goodput, GOODPUT, ".1%"), _error(rtt, RTT, ".1%")]
            errors.append(_error(share, SHARE, ".3f") if one == KINDS[2] else " | | ")
            yield f"| {one} | `{cc}` | {len(group)} | {' | '.join(errors)} |"


def furthest(found: list[Pair], measure: str, count: int = 8) -> Iterator[str]:
    """The paths where the simulator is furthest off by a measure."""
    yield "| path | algorithm | Mbit/s, lab | simulated | RTT, ms | simulated | share | simulated |"
    yield "|" + " --- |" * 8
    order = sorted(found, key=lambda p: -abs(np.log1p(p.ratio(measure))))
    for pair in order[:count]:
        a, b = pair.lab.mean, pair.simulated.mean
        yield (
            f"| `{pair.lab.scenario}` | `{pair.cc}` | {a['goodput_mbps']:.2f} "
            f"| {b['goodput_mbps']:.2f} | {a['rtt_mean_ms']:.1f} | {b['rtt_mean_ms']:.1f} "
            f"| {a['share']:.2f} | {b['share']:.2f} |"
        )


def main(argv: list[str] | None = None) -> int:
    """Run the simulator; put the tables into a page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("boards", type=Path, help="folder of the lab's boards, as CSV")
    parser.add_argument("-o", "--out", type=Path, required=True, help="a page with the marks")
    args = parser.parse_args(argv)
    page = args.out.read_text(encoding="utf-8") if args.out.is_file() else ""
    if START not in page or END not in page:
        raise NdmError(f"{args.out}: no page with {START} and {END}; name docs/simulator.md")
    started_s = time.monotonic()
    found = pairs(args.boards)
    print(f"{len(found)} cells, {time.monotonic() - started_s:.0f} s", file=sys.stderr)
    lines = [*table(found), "", "Furthest off, by goodput:", ""]
    lines += [*furthest(found, "goodput_mbps"), "", "By RTT:", "", *furthest(found, "rtt_mean_ms")]
    text = "\n".join(lines)
    before, after = page.split(START)[0], page.split(END)[1]
    files.write_text(args.out, f"{before}{START}\n\n{text}\n\n{END}{after}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except NdmError as error:
        sys.exit(f"calibrate: {error}")
