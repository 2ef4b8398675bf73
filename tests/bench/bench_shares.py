# SPDX-License-Identifier: GPL-2.0-only
"""Shares beside CUBIC, among equals and of a late CUBIC on drawn paths, simulated.

python -m tests.bench.bench_shares [KMOD ...] [--draws 100] [--seed 7]
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from ndm_tcp.lab.guest.uml_build import KMOD
from ndm_tcp.lab.paths.access_paths import flow
from ndm_tcp.lab.paths.scenario import Scenario, parse
from ndm_tcp.lab.paths.training_paths import log_uniform
from ndm_tcp.lab.sim.build import build
from ndm_tcp.lab.sim.simulate import simulate

SEEDS = (1, 2)
QUEUES_BDP = ((0, 1), (1, 4), (4, 100))
DrawnPath = tuple[float, Scenario]
"""queue, BDP; and the path"""
Run = tuple[str, Path, str]
"""name, the simulator's program, algorithm"""
Value = Callable[[dict[str, Any]], float]
"""of a result"""


def beside_cubic(rng: random.Random) -> str:
    """A CUBIC and a flow under test, the second one 2 or 8 s late."""
    late = 8 if rng.random() < 0.5 else 2
    first, second = ("cubic", "$cc") if rng.random() < 0.5 else ("$cc", "cubic")
    return flow(0, 0, 38, first) + flow(1, late, 30, second)


def _equals(rng: random.Random) -> str:
    starts = [1.5 * number for number in range(rng.randint(2, 6))]
    return "".join(flow(n, at_s, 39 - int(at_s)) for n, at_s in enumerate(starts))


def late_cubic(rng: random.Random) -> str:
    """Four flows under test, and a CUBIC that comes seconds later."""
    flows = "".join(flow(n, n * rng.uniform(0.1, 0.6), 38) for n in range(4))
    return flows + flow(4, rng.uniform(5, 7), 30, "cubic")


def drawn(seed: int, count: int, flows: Callable[[random.Random], str]) -> list[DrawnPath]:
    """So many paths of 4 to 60 Mbit/s, 4 to 120 ms and 0.3 to 6 BDP of queue."""
    rng, paths = random.Random(seed), []
    for number in range(count):
        mbps, rtt_ms = log_uniform(rng, 4, 60), log_uniform(rng, 4, 120)
        bdp = mbps * 1e3 * rtt_ms / 12000
        queue = min(2500, max(8, round(log_uniform(rng, 0.3, 6) * bdp)))
        link = f"rate_bps = {mbps * 1e6:.0f}\nrtt_us = {rtt_ms * 1e3:.0f}\nqueue_packets = {queue}"
        text = f'seconds = 40\ntopology = "path"\n[link]\n{link}\n{flows(rng)}'
        paths.append((queue / bdp, parse(text, f"shared-{number}", "shared.toml")))
    return paths


def means(
    program: Path, cc: str, paths: Sequence[DrawnPath], value: Value
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The value on each path, over the seeds."""

    def mean(path: DrawnPath) -> float:
        return float(np.mean([value(simulate(program, path[1], cc, seed)) for seed in SEEDS]))

    with ThreadPoolExecutor() as pool:
        return np.array(list(pool.map(mean, paths)))


def tested_share(result: dict[str, Any]) -> float:
    """What the flows under test get."""
    return float(sum(flow["share"] for flow in result["flows"] if flow["tested"]))


def last_share(result: dict[str, Any]) -> float:
    """What the flow that came last gets."""
    return float(result["flows"][-1]["share"])


def table(
    what: str,
    runs: Sequence[Run],
    paths: Sequence[DrawnPath],
    value: Value,
    good: tuple[float, float],
    over: np.ndarray[Any, np.dtype[np.float64]] | float = 1.0,
) -> None:
    """Print a row for each run and class of queues; over: divides the values."""
    low, high = good
    print(f"| | queue, BDP | paths | {what}: median | {low} to {high} | lowest |")
    print("|---|---|---|---|---|---|")
    for name, program, cc in runs:
        found = means(program, cc, paths, value) / over
        for shortest, longest in QUEUES_BDP:
            part = found[[shortest <= queue < longest for queue, _ in paths]]
            inside = np.mean((part >= low) & (part <= high))
            print(
                f"| {name} | {shortest} to {longest} | {len(part)} | {np.median(part):.3f} "
                f"| {inside:.0%} | {part.min():.2f} |"
            )
    print()


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folders", nargs="*", type=Path, default=[KMOD], help="sources")
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--seed", type=int, default=7)
    args = parser.parse_args()
    runs = [(str(folder), build(folder), "ndm_tcp") for folder in args.folders]
    runs += [(cc, build(), cc) for cc in ("cubic", "bbr")]
    beside = drawn(args.seed, args.draws, beside_cubic)
    table("share beside CUBIC", runs, beside, tested_share, (0.4, 0.6))
    equals = drawn(args.seed, args.draws, _equals)
    table("Jain's index", runs, equals, lambda result: float(result["jain"]), (0.95, 1.0))
    late = drawn(args.seed, args.draws, late_cubic)
    over = means(build(), "cubic", late, last_share)
    others = [run for run in runs if run[2] != "cubic"]
    table("a late CUBIC, of that beside CUBICs", others, late, last_share, (0.8, 99), over)


if __name__ == "__main__":
    main()
