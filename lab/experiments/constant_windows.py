# SPDX-License-Identifier: GPL-2.0-only
"""Which constant window serves a path best? The measure of what target windows should be.

    python -m ndm_tcp.lab.experiments.constant_windows training,training-access -o out/windows

Prints a Markdown table of the paths of one flow and one rate: for each multiple of the
bandwidth-delay product, the score of `ndm select` less that of the best one; the target window that
is taught, and what it loses. Resumes.

A network does not hold its window still, so it may need more than a constant window does.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ndm_tcp.errors import NdmError
from ndm_tcp.lab.guest import suite, workers
from ndm_tcp.lab.guest.workers import Workers
from ndm_tcp.lab.paths import truth
from ndm_tcp.lab.paths.scenario import Link, Scenario
from ndm_tcp.lab.score import board
from ndm_tcp.selection import points

SHARES = (1.0, 1.1, 1.2, 1.32, 1.46, 1.65, 1.9)
"""windows to try, of the BDP"""
FEWEST_PACKETS = 2


def fits(scenario: Scenario) -> bool:
    """Has the path one flow, one rate and one RTT, so that one window may serve it?"""
    link = scenario.link
    alone = len(scenario.flows) == 1 and scenario.web is None
    return link is not None and alone and not (link.steps or link.rtt_steps)


def packets(link: Link, share: float) -> int:
    """A multiple of the path's BDP as a window, packets."""
    return max(FEWEST_PACKETS, round(truth.bdp_packets(link) * share))


def scores(
    scenarios: Sequence[Scenario], out: Path, seed: int, where: Workers
) -> dict[str, dict[int, float]]:
    """Score by path and constant window in packets.

    Args:
        scenarios: each of one flow (`fits`).
        out: folder of the runs.
        seed: of the lab.
        where: guests run.

    Raises:
        NdmError: a run failed.
    """
    todo = []
    for one in scenarios:
        assert one.link is not None
        windows = {packets(one.link, share) for share in (*SHARES, truth.target_bdp(one))}
        name = f"{one.name}-{suite.tag(one, 'fixed_cwnd')}"
        todo += [
            suite.Job(one, f"fixed_cwnd:{window}:paced", seed, out / f"{name}-{window}-{seed}")
            for window in sorted(windows)
        ]
    found: dict[str, dict[int, float]] = {}
    for outcome in suite.execute(todo, where, True, quiet=False):
        job = outcome.job
        if outcome.result is None:
            raise NdmError(f"{job.folder}: {outcome.error}; run the command again")
        m = board.metrics(outcome)
        score = points(m.goodput_mbps, m.rtt_mean_ms, m.retransmitted_share, m.share, m.jain, 1.0)
        found.setdefault(job.scenario.name, {})[int(job.cc.split(":")[1])] = score
    return found


def row(scenario: Scenario, found: dict[int, float]) -> tuple[str, float]:
    """A line of the table, and what the taught window loses."""
    link = scenario.link
    assert link is not None
    best = max(found.values())

    def less(share: float) -> float:
        return found[packets(link, share)] - best

    taught = truth.target_bdp(scenario)
    known = (
        f"{truth.bdp_packets(link):.0f}",
        f"{link.jitter_us / link.rtt_us:.3f}",
        f"{link.loss:g}",
    )
    cells = [*(f"{less(share):+.2f}" for share in SHARES), f"{taught:.2f}", f"{less(taught):+.2f}"]
    return "| " + " | ".join([scenario.name, *known, *cells]) + " |", -less(taught)


def main(argv: list[str] | None = None) -> int:
    """Print the table of the suites."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("suite", help="as ndm lab board takes it")
    parser.add_argument("-o", "--out", type=Path, required=True, help="of the runs; resumes")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only each N-th path")
    parser.add_argument("--seed", type=int, default=1, help="of the lab (default: %(default)s)")
    workers.add_arguments(parser)
    args = parser.parse_args(argv)
    try:
        if args.every < 1:
            raise NdmError(f"--every {args.every}: expected 1 or more")
        chosen = [one for one in suite.load_suite(args.suite) if fits(one)][:: args.every]
        if not chosen:
            raise NdmError(f"{args.suite}: no path of one flow and one rate; name another suite")
        found = scores(chosen, args.out, args.seed, workers.workers_of(args))
    except NdmError as error:
        print(f"ndm: {error}", file=sys.stderr)
        return 2
    heads = [
        "path",
        "BDP, packets",
        "jitter / RTT",
        "loss",
        *map(str, SHARES),
        "taught",
        "less the best",
    ]
    print("| " + " | ".join(heads) + " |\n|" + "---|" * len(heads))
    lost = []
    for one in chosen:
        text, loses = row(one, found[one.name])
        print(text)
        lost.append(loses)
    print(f"\n{len(lost)} paths; the taught window loses {sum(lost) / len(lost):.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
