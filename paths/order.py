# SPDX-License-Identifier: GPL-2.0-only
"""Baseline RTT, jitter, and whether packets overtake one another.

Packets that others overtook show jitter that changes the order; `jitter` has the other kind.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ndm_tcp.paths import jitter, trains
from ndm_tcp.paths.observed import Floats, Observed
from ndm_tcp.paths.smooth import running_median, spread
from ndm_tcp.paths.trains import Clock

OVERTAKEN_S = 2e-4
"""a packet that arrives so much later than one sent after it was overtaken"""
REORDERED_SHARE = 0.02
"""of the ACKs; stray ones come from retransmissions..."""
REORDERED_PER_LOSS = 0.5
"""...so that there are as many as a third of the packets that were lost"""
NEAR = 15
"""ACKs of the running median that noise is the rest of"""
BASE_SHORT, BASE_LONG, BASE_REORDERED = 5, 15, 9
"""ACKs of the running medians whose lowest one is near the baseline RTT beside jitter. A flow that
is without a queue only once, at its start, needs a short one; of many low ones short medians find
exceptions, and the mean of both errs least."""
ONE_MOMENT, ONCE = 100, 2.0
"""ACKs around the lowest median; sigmas by which medians elsewhere are higher: there was a queue"""
STANDING_PACKETS = 3
"""above the lowest RTT: the link was busy, so ACKs follow its clock"""
STANDING_ACKS = 50
OFF_CLOCK = 0.25
"""packets between ACKs and the link's clock: below, only the queue varies the RTT"""
OUTLIER_PACKETS = 2.7
"""1 % of the RTTs lie further from the running median; a queue alone moves by single packets"""
CLOCK_PACKETS = 0.6
"""spread that the link's own clock leaves, packets"""
LEAST_JITTER_PACKETS = 0.6
"""below, jitter cannot be told from the queue's steps..."""
SURE_JITTER = 0.1
"""...but where the RTT varies by so much of the lowest one"""
BASE_BELOW = 0.08
"""sigmas of the baseline RTT below the mean of the lowest running medians"""
FILLED_BELOW, REORDERED_ABOVE = 0.25, 0.35
"""sigmas of the baseline RTT from what a draw of the jitter explains: where the flow fills the
link, and beside reordering"""
BASE_ABOVE = 1.0
"""sigmas of the baseline RTT above the lowest running median beside reordering"""
JITTER_WINDOW = 30
"""sigmas in a window of the rate: its ends move by a sigma"""


@dataclass(frozen=True)
class Order:
    """Delays of a path that are no queue."""

    base: float
    """baseline RTT, s"""
    jitter: float
    """standard deviation, s"""
    reorder: bool
    noise: float
    """spread of the RTT around its running median, s"""
    lift: float
    """median delay by jitter in order, above its mean, at the link's rate, s"""


def measure(o: Observed, clock: Clock) -> Order:
    """Baseline RTT and jitter of a flow; where the link's clock shows, there is no jitter."""
    behind = np.maximum.accumulate(o.sent) - o.sent
    overtaken = int((behind > OVERTAKEN_S).sum())
    stray = max(REORDERED_SHARE * len(behind), REORDERED_PER_LOSS * float(o.lost.sum()))
    residue = o.rtt - running_median(o.rtt, NEAR)
    noise = spread(residue)
    if overtaken > stray:
        base = float(running_median(o.rtt, BASE_REORDERED).min()) + BASE_ABOVE * noise
        return Order(base, noise, True, noise, 0.0)
    rate = o.rough_rate
    outlier = float(np.percentile(np.abs(residue), 99)) * rate
    sure = noise > SURE_JITTER * o.min_rtt
    off = off_clock(o, rate, noise) > OFF_CLOCK and outlier > OUTLIER_PACKETS
    sigma = jitter.in_order(o, rate, NEAR) if not clock.pps and (off or sure) else 0.0
    if not sigma or (not sure and sigma * rate < LEAST_JITTER_PACKETS):
        return Order(o.min_rtt, 0.0, False, noise, 0.0)
    base = max(o.min_rtt, _low(o.rtt, sigma) - BASE_BELOW * sigma)
    return Order(base, sigma, False, noise, float(jitter.lifts(sigma * rate, sigma)))


def refined(o: Observed, order: Order, pps: float) -> Order:
    """The same, with the baseline RTT that explains the lowest RTTs beside jitter.

    How low they are depends on how many packets jitter met, and whether the queue ever emptied. So
    the lowest of what one draw of jitter and the flow's own queue add is taken off.

    Args:
        pps: rate of the link; 0: not known, or not filled.
    """
    if not order.jitter:
        return order
    # Packets that the queue dropped count in o.used, but did not use the link.
    wait = trains.waits(np.cumsum(o.acked), o.sent, pps) if pps else np.zeros(len(o.sent))
    sigma = order.jitter
    lowest = _low(wait + jitter.added(o, wait, sigma, order.reorder), sigma)
    base = _low(o.rtt, sigma) - lowest
    if order.reorder:
        base += REORDERED_ABOVE * sigma
    elif pps:
        base -= FILLED_BELOW * sigma
    return replace(order, base=max(o.min_rtt, base))


def _low(rtt: Floats, jitter: float) -> float:
    """The lowest RTT that is not an exception, s."""
    short, long = running_median(rtt, BASE_SHORT), running_median(rtt, BASE_LONG)
    k = int(np.argmin(long))
    far = np.concatenate([long[: max(0, k - ONE_MOMENT)], long[k + ONE_MOMENT :]])
    if not len(far) or far.min() > long[k] + ONCE * jitter:
        return float(short.min())
    return float(short.min() + long.min()) / 2


def off_clock(o: Observed, rate: float, noise: float) -> float:
    """Median distance of ACKs from the clock of a busy link, packets."""
    standing = o.rtt[1:] > o.min_rtt + STANDING_PACKETS / rate
    if standing.sum() <= STANDING_ACKS:
        return 1.0 if noise * rate > 2 * CLOCK_PACKETS else 0.0
    off = np.abs(np.diff(o.at) - o.acked[1:] / rate) * rate
    return float(np.median(off[standing]))
