# SPDX-License-Identifier: GPL-2.0-only
"""A/A control: the same algorithms in the lab's own guest and in one with externals.

A patch of the kernel may change every algorithm in it, and a module moves the guest's clock and its
random numbers. How far CUBIC and ndm_tcp are apart in the two guests is therefore the least
difference between two algorithms that such a board can show.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from ndm_tcp.lab.score.metrics import Cell, number

ALGORITHMS = ("cubic", "ndm_tcp")
HEAD = (
    *("scenario", "algorithm", "Mbit/s, own kernel", "with externals", "apart, %"),
    *("retr. %, own", "with", "RTT ms, own", "with"),
)


@dataclass(frozen=True)
class Control:
    """How far apart the two guests are."""

    rows: list[tuple[str, ...]]
    """by `HEAD`"""
    summary: list[str]
    """a sentence for each algorithm"""


def apart(own: Cell, external: Cell) -> float:
    """Difference of the goodputs, of the first one; 0 where both are 0."""
    before, after = own.mean["goodput_mbps"], external.mean["goodput_mbps"]
    return (after - before) / before if before else float(after > 0)


def compare(own: Sequence[Cell], external: Sequence[Cell]) -> Control:
    """The control of a board.

    Args:
        own: of the lab's own guest.
        external: of the guest with externals; algorithms beside `ALGORITHMS` are left out.
    """
    theirs = {(cell.scenario, cell.cc): cell for cell in external}
    pairs = [(c, theirs[c.scenario, c.cc]) for c in own if (c.scenario, c.cc) in theirs]
    rows = []
    for before, after in pairs:
        values = [number(before.mean["goodput_mbps"]), number(after.mean["goodput_mbps"])]
        values.append(f"{100 * apart(before, after):+.1f}")
        for measure, scale in (("retransmitted_share", 100), ("rtt_mean_ms", 1)):
            values += [number(cell.mean[measure] * scale) for cell in (before, after)]
        rows.append((before.scenario, before.cc, *values))
    summary = []
    for cc in ALGORITHMS:
        found = [100 * abs(apart(*pair)) for pair in pairs if pair[0].cc == cc]
        if found:
            summary.append(
                f"{cc}: goodput {median(found):.1f} % apart in the median scenario, "
                f"{max(found):.1f} % at most."
            )
    return Control(rows, summary)
