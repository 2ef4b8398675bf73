# SPDX-License-Identifier: GPL-2.0-only
"""Queues that drop early: CoDel, alone or in fq_codel and cake (RFC 8289, RFC 8290).

CoDel drops once the queue has delayed packets by more than 5 ms for 100 ms, then again and again at
intervals that shrink with the square root of the number of drops. So no loss comes below 5 ms of
queue, losses follow that law, and the queue was longer at other times: a full queue drops at its
full length only.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ndm_tcp.paths.losses import Losses, loss_levels
from ndm_tcp.paths.observed import Floats, Ints, Observed

FQ_CODEL, CAKE = "fq_codel", "cake"
"""Linux's default queue, and that of many home routers. The first stands for both where the times
of drops do not distinguish them."""
TARGET_S, TARGET_SLACK = 5e-3, 0.9
"""CoDel's default target; what a measured delay may lack"""
BELOW_SHARE = 0.02
"""of the losses below the target: stray ones"""
BY_CHANCE = 1e-4
"""probability that of so many random losses none comes below the target"""
INTERVAL_S, NEW_ROW = 0.1, 0.95
"""CoDel's default interval; drops that come in less of it after another are one row"""
LATE_S, LATE_SHARE = 2e-3, 0.03
"""by which a loss is noticed late, beside the time of a packet; and of the interval"""
LATEST = 0.1
"""of the interval: beside longer delays any losses seem to come when a law says"""
LEAST_LAW, LAW_SHARE = 3, 0.9
"""drops in rows that come when the law says; and their share of all in rows, which elsewhere is at
most 0.6 (docs/paths.md has the captures)"""
LEAST_AGAIN = 2
"""of these, drops whose predecessor came when the law says, too"""
LEAST_LONGER_LOSSES = 4
LONGER, LONGER_PACKETS, LONGER_SHARE = 1.15, 2, 0.0015
"""A queue that was so much longer than where it drops, for that share of the packets, was not
full then."""
LEAST_LOSSES = 8
ONE_DROP_S = 2e-3
"""losses so close together are one drop and its neighbours"""
EVEN = 0.35
"""median change of the log of the time between drops; 0.5 to 2.8 where losses are random"""
SHORTEST_PERCENTILE, APART, APART_LOSSES = 5, 0.4, 30
"""of the time between drops, over its median: CoDel waits before the next drop, however the flow
changes. Of 30 random losses chance makes it so in one of 500 flows, of 16 in one of 30."""
NOT_FULL, NOT_FULL_PACKETS = 0.7, 4
"""of the longest queue, and below it by packets: half of the drops come there; at a full queue they
come at 0.9 to 1"""
LONGEST_PERCENTILE = 99.7


def drops_early(o: Observed, excess: Floats, queue: Floats, steady: bool = True) -> str:
    """The queue that drops before it is full; empty: none.

    Args:
        excess: [k] RTT above the baseline, s.
        queue: [k] packets in the queue.
        steady: the link's rate does not change, and no rival fills the queue; else it only seems to
            be longer at times.
    """
    at = _drops(o)
    if not len(at) or _below_target(o, at, excess) > BELOW_SHARE:
        return ""
    times = o.t[at]
    late_s = LATE_S + 1 / o.rough_rate
    if late_s < LATEST * INTERVAL_S:
        right = {name: _follows(times, law, late_s) for name, law in LAWS.items()}
        name = max(right, key=lambda name: right[name])
        if right[name]:
            return name
    if len(times) < LEAST_LOSSES or not steady or not _not_full(o, at, queue):
        return ""
    return FQ_CODEL if _spaced(np.diff(times)) else ""


def was_longer(o: Observed, excess: Floats, queue: Floats, lost: Losses) -> bool:
    """Was the queue of a lone flow longer at other times than at losses?

    Then it was not full; and random losses would not all come above CoDel's target.

    Args:
        excess: [k] RTT above the baseline, s.
        queue: [k] packets in the queue.
        lost: what was lost, if the queue drops when it is full.
    """
    at, packets = _drops(o), max(1, o.acked.sum())
    if not len(at):
        return False
    below = _below_target(o, at, excess)
    if below > BELOW_SHARE:
        return False
    if lost.overflow and len(lost.at_overflow) >= LEAST_LONGER_LOSSES:
        longer = queue > LONGER * lost.queue + LONGER_PACKETS
        if o.acked[longer].sum() > LONGER_SHARE * packets:
            return True
    around = loss_levels(np.arange(len(excess)), excess)  # as of the losses
    above = o.acked[around >= TARGET_SLACK * TARGET_S].sum() / packets
    return below == 0 and bool(above ** len(at) < BY_CHANCE) and _not_full(o, at, queue)


def _drops(o: Observed) -> Ints:
    """Numbers of the ACKs that marked a loss, without those that follow at once."""
    at = np.flatnonzero(o.lost)
    return at[np.diff(o.t[at], prepend=-np.inf) > ONE_DROP_S]


def _not_full(o: Observed, at: Ints, queue: Floats) -> bool:
    """Was the queue at most losses much shorter than at other times?

    Args:
        at: [m] numbers of the ACKs that marked them.
        queue: [k] packets in the queue.
    """
    longest = np.percentile(queue, LONGEST_PERCENTILE)
    level = np.median(loss_levels(np.searchsorted(o.at, o.t[at]), queue))
    return bool(level <= min(NOT_FULL * longest, longest - NOT_FULL_PACKETS))


def _below_target(o: Observed, at: Ints, excess: Floats) -> float:
    """Share of these losses at which the queue was too short for CoDel.

    Args:
        at: [m] numbers of the ACKs that marked them, m at least 1.
        excess: [k] RTT above the baseline, s.
    """
    level = loss_levels(np.searchsorted(o.at, o.t[at]), excess)
    return float((level < TARGET_SLACK * TARGET_S).mean())


State = tuple[int, float, int]
"""After a drop: its number, what the interval is multiplied by until the next drop, and the number
at which this row began."""


def _linux(state: State, new_row: bool) -> State | None:
    """The next state of `include/net/codel_impl.h`, which takes one step of Newton's method for
    the square root; a new row goes on where the one before had come to.
    """
    count, factor, begun = state
    number = count - begun if new_row else count + 1
    factor *= (3 - number * factor * factor) / 2
    if (new_row and number <= 1) or factor <= 0:
        return None
    return number, factor, number if new_row else begun


def _cake(state: State, new_row: bool) -> State | None:
    """The same of `sch_cake.c`, whose root is exact."""
    count, _, begun = state
    return None if new_row else (count + 1, float(1 / np.sqrt(count + 2)), begun)


Law = Callable[[State, bool], State | None]
LAWS: dict[str, Law] = {FQ_CODEL: _linux, CAKE: _cake}
BEGINS: dict[Law, State] = {_linux: (1, 1.0, 1), _cake: (1, float(1 / np.sqrt(2)), 1)}


def _follows(times: Floats, law: Law, late_s: float) -> int:
    """How many drops that come soon after another come when this law says; 0: too few of them.

    Args:
        times: [m] of drops, s.
        late_s: by which a drop may be noticed late, beside a share of the gap.
    """
    gaps = np.diff(times)
    soon = int((gaps < NEW_ROW * INTERVAL_S).sum())
    if soon < LEAST_LAW:
        return 0
    right, wrong, again, before = 0, 0, 0, False
    states: set[State] = {BEGINS[law]}
    for gap in gaps.tolist():
        on_time = {s for s in states if abs(gap - INTERVAL_S * s[1]) < late_s + LATE_SHARE * gap}
        after = {law(state, False) for state in on_time}
        if gap < NEW_ROW * INTERVAL_S:
            right += bool(on_time)
            wrong += not on_time
            again += bool(on_time) and before
            if wrong > (1 - LAW_SHARE) * soon:
                return 0
        else:
            after |= {BEGINS[law], *(law(state, True) for state in states)}
        # One that was noticed late does not end the row.
        after = after or {BEGINS[law], *(law(state, False) for state in states)}
        states, before = {state for state in after if state}, bool(on_time)
    return right if right >= LEAST_LAW and again >= LEAST_AGAIN else 0


def _spaced(waits: Floats) -> bool:
    """Are the times between drops even, or hardly any short?"""
    if np.median(np.abs(np.diff(np.log(waits)))) < EVEN:
        return True
    shortest = np.percentile(waits, SHORTEST_PERCENTILE)
    return len(waits) + 1 >= APART_LOSSES and bool(shortest >= APART * np.median(waits))
