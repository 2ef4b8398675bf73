# SPDX-License-Identifier: GPL-2.0-only
"""Competing flows, as one flow's RTT and rate show them.

A lone flow gets the bottleneck's rate whenever a queue stands, and no more waits than it has in
flight. Beside rivals its rate scatters, and more waits than its own packets.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ndm_tcp.paths.observed import Floats, Observed
from ndm_tcp.paths.order import Order
from ndm_tcp.paths.rates import MIN_WINDOWS, Rates, mean_excess

BEST_PERCENTILE = 97
"""of the windows' rates: what the flow got when the rivals sent least"""
SCATTER = 0.022
"""of a lone flow's log rate: receivers gather ACKs, sources pause"""
SCATTER_PACKETS = 0.3
"""packets by which a window's ends move it"""
SCATTER_LOSSES = 1.5
"""standard deviations of the number of random losses in a window"""
SCATTER_JITTER = 0.06
MOST_LEVELS = 4
"""Links seldom change more often in one capture; rivals do."""
OWN_SLACK, OWN_SLACK_PACKETS = 1.1, 5
"""over the packets in flight: bursts, and what the receiver gathers"""
OWN_SLACK_JITTER = 4
"""standard deviations of jitter"""
LEAST_FOREIGN_S = 3e-3
"""of queue: below, it may be ACKs that the receiver gathers"""
LONGEST_GAP_S = 0.02
"""between ACKs, counted as time in which others' packets waited"""
PAUSE_S = 0.02
"""A host pauses for as long; rivals stay."""
PAIR_SPACING = 0.5
"""Packets that left in less than half of the time in which they came back waited for the link."""
PAIR_PACKETS = 2
LAB_GATHERS_S, LAB_GATHERS_WIDTH_S = 3.05e-3, 1.5e-4
"""the lab's receiver gathers for 3 ms: that spacing is its clock, not the link's"""
PAIRS = 20
PAIR_PERCENTILE = 25
"""of the time per packet: between the pairs came others' packets"""
SHARP_WIDTH, SHARP_SHARE = 0.08, 0.3
"""A link's clock gives many pairs of the same spacing."""
PAIRS_FASTER = 1.15
ALONE_SHARE = 0.75
"""of the best rate: below, somebody else has a share"""
JOINED_S = 1.0
"""Rivals seen within the first second were probably there before."""
SAME_DELAY = 0.5
"""how much less the highest delay varies from level to level than the highest queue in packets"""


@dataclass(frozen=True)
class Shared:
    """What other flows do on the path."""

    rivals: bool
    pps: float
    """the bottleneck's rate with rivals; 0: none"""
    from_s: float
    by_pairs: bool
    """the rate is that of packet pairs, faster than the flow ever was"""
    joined: bool
    """the flow was never alone"""


NONE = Shared(False, 0.0, 0.0, False, False)


def measure(o: Observed, order: Order, rates: Rates) -> Shared:
    """Rivals of a flow, and the rate by the times when it was alone or by packet pairs."""
    if not _present(o, order, rates):
        return NONE
    w = rates.windows
    pps = float(np.percentile(w.rate[rates.busy], BEST_PERCENTILE))
    pair_pps, sharp = _pairs(o, o.rtt - order.base, rates.queue_s)
    by_pairs = sharp and pair_pps > PAIRS_FASTER * pps
    pps = pair_pps if by_pairs else pps
    crowded = w.middle[rates.busy & (w.rate < ALONE_SHARE * pps)]
    from_s = float(crowded[0]) if len(crowded) else 0.0
    return Shared(True, pps, from_s, by_pairs, from_s < JOINED_S)


def _present(o: Observed, order: Order, rates: Rates) -> bool:
    if rates.busy.sum() < MIN_WINDOWS:
        return False
    excess = o.rtt - order.base
    best = float(np.percentile(rates.windows.rate, BEST_PERCENTILE))
    if rates.scatter > _scatter_limit(o, order, rates, excess, best):
        return True
    if len(rates.levels) > MOST_LEVELS:
        return True
    if len(rates.levels) == 1:
        return _foreign_s(o, order, excess, best) > max(order.base, PAUSE_S)
    return _levels_are_rivals(o, rates, excess)


def _scatter_limit(o: Observed, order: Order, rates: Rates, excess: Floats, best: float) -> float:
    """Scatter of the log rate that a lone flow may have."""
    losses = np.flatnonzero(o.lost)
    at = np.searchsorted(o.T, o.t[losses]).clip(0, len(o.T) - 1)
    low = excess[at] < 0.5 * np.percentile(excess, 99)
    random = o.lost[losses][low].sum() / max(1, o.packets)
    width = rates.windows.width
    jitter = SCATTER_JITTER if order.reorder or order.jitter else 0.0
    return float(
        SCATTER
        + SCATTER_PACKETS / (width * best)
        + SCATTER_LOSSES * np.sqrt(random / (width * best))
        + order.jitter / width
        + jitter
    )


def _foreign_s(o: Observed, order: Order, excess: Floats, best: float) -> float:
    """For how long more waited than the flow had in flight, s."""
    own = OWN_SLACK * o.flight + OWN_SLACK_PACKETS + OWN_SLACK_JITTER * order.jitter * best
    more = (excess * best > own) & (excess > LEAST_FOREIGN_S) & o.calm
    return float((np.minimum(np.diff(o.T), LONGEST_GAP_S) * (more[1:] & more[:-1])).sum())


def _levels_are_rivals(o: Observed, rates: Rates, excess: Floats) -> bool:
    """Is a level a rival's doing?

    A queue overflows at the same number of packets before and after a step of the rate, but at
    the same delay beside a rival.
    """
    if len(rates.levels) < 2 or not o.lost.any():
        return False
    at = np.searchsorted([level.from_s for level in rates.levels], o.T, side="right") - 1
    highest, pps = [], []
    for number, level in enumerate(rates.levels):
        here = excess[at.clip(0) == number]
        if len(here) > 2 * PAIRS:
            highest.append(np.percentile(here, 98))
            pps.append(level.pps)
    if len(pps) < 2:
        return False
    delay, rate = np.array(highest).clip(1e-6), np.array(pps)
    steady = np.std(np.log(delay)) < SAME_DELAY * np.std(np.log(delay * rate))
    return bool(steady and rate[-1] < rate[0])


def _pairs(o: Observed, excess: Floats, queue_s: float) -> tuple[float, bool]:
    """Packets per s by packets that left together and waited; and whether a clock shows."""
    gap, left = np.diff(o.T), np.diff(o.sent)
    pair = (excess[1:] > queue_s) & (excess[:-1] > queue_s)
    pair &= (left < PAIR_SPACING * gap) & (left > -1e-4) & (o.acked[1:] >= PAIR_PACKETS)
    pair &= np.abs(gap - LAB_GATHERS_S) > LAB_GATHERS_WIDTH_S
    if pair.sum() < PAIRS:
        return 0.0, False
    each = (gap / np.maximum(o.acked[1:], 1))[pair]
    pps = float(1 / np.percentile(each, PAIR_PERCENTILE))
    return pps, bool(np.mean(np.abs(each * pps - 1) < SHARP_WIDTH) > SHARP_SHARE)


def unfilled_pps(o: Observed, order: Order, rates: Rates) -> tuple[float, bool]:
    """The rate where no queue stood for long, and whether it is only a lower bound."""
    w = rates.windows
    near = mean_excess(o, w, o.rtt - order.base) > rates.queue_s / 2
    some = near.sum() >= 4
    return float(np.percentile(w.rate[near] if some else w.rate, 95)), not some
