# SPDX-License-Identifier: GPL-2.0-only
"""Baseline RTT, jitter, and whether packets overtake one another.

Jitter that keeps the order holds a packet until the one before it has left, so delays of
neighbouring packets are alike and their highest ones dominate. `_in_order_table` computes what
such jitter leaves in the RTT; reading it backwards gives the standard deviation.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from ndm_tcp.paths.observed import Floats, Observed, rates_of, stretches
from ndm_tcp.paths.smooth import running_median, spread
from ndm_tcp.paths.trains import Clock

OVERTAKEN_S = 2e-4
"""a packet that arrives so much later than one sent after it was overtaken"""
REORDERED_SHARE = 0.02
"""of the ACKs; stray ones come from retransmissions"""
ROUGH_WINDOW_S = 0.06
"""shortest window for the first, rough rate"""
WINDOW_PACKETS = 25
"""packets in a window: a rate to about a packet in 25"""
WINDOW_RTTS = 2.0
"""A flight that leaves in a burst comes back within an RTT; two even it out."""
NEAR, WIDE = 15, 31
"""ACKs of the running medians: noise, and its model"""
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
LEAST_JITTER_PACKETS = 0.7
"""below, jitter cannot be told from the queue's steps..."""
SURE_JITTER = 0.1
"""...but where the RTT varies by so much of the lowest one"""
BASE_BELOW = 0.08
"""sigmas of the baseline RTT below the mean of the lowest running medians"""
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


def rough_rate(o: Observed) -> float:
    """Packets per s that were seen in the fastest tenth of the time."""
    width = max(WINDOW_RTTS * o.min_rtt, WINDOW_PACKETS * o.seconds / o.packets, ROUGH_WINDOW_S)
    starts = np.arange(o.t[0], o.t[-1] - width, width / 4)
    i, j = stretches(o, starts, width)
    return float(np.percentile(rates_of(o, i, j), 90)) if len(i) else o.packets / o.seconds


def measure(o: Observed, clock: Clock) -> Order:
    """Baseline RTT and jitter of a flow; where the link's clock shows, there is no jitter."""
    behind = np.maximum.accumulate(o.sent) - o.sent
    reordered = float(np.mean(behind > OVERTAKEN_S))
    residue = o.rtt - running_median(o.rtt, NEAR)
    noise = spread(residue)
    if reordered > REORDERED_SHARE:
        base = float(running_median(o.rtt, BASE_REORDERED).min()) + BASE_ABOVE * noise
        return Order(base, noise, True, noise, 0.0)
    rate = rough_rate(o)
    outlier = float(np.percentile(np.abs(residue), 99)) * rate
    sure = noise > SURE_JITTER * o.min_rtt
    off = off_clock(o, rate, noise) > OFF_CLOCK and outlier > OUTLIER_PACKETS
    jitter, lift = 0.0, 0.0
    if not clock.pps and (off or sure):
        jitter, lift = _in_order(noise, rate, sure)
    if not jitter:
        return Order(o.min_rtt, 0.0, False, noise, 0.0)
    base = max(o.min_rtt, _low(o, jitter) - BASE_BELOW * jitter)
    return Order(base, jitter, False, noise, lift)


def _low(o: Observed, jitter: float) -> float:
    """The lowest RTT that is not an exception, s."""
    short, long = running_median(o.rtt, BASE_SHORT), running_median(o.rtt, BASE_LONG)
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


def _in_order(noise: float, rate: float, sure: bool) -> tuple[float, float]:
    """Standard deviation of the jitter behind a spread of the RTT, and its median excess, s."""
    own = np.sqrt(max(noise**2 - (CLOCK_PACKETS / rate) ** 2, 0.25 * noise**2))
    sigma, left, excess = _in_order_table()
    found = float(np.interp(own * rate, sigma * left, sigma)) / rate
    if found * rate < LEAST_JITTER_PACKETS and not sure:
        return 0.0, 0.0
    return found, found * float(np.interp(found * rate, sigma, excess))


def lifts(near: Floats, sigma: float) -> Floats:
    """Median delay, s, that jitter of this sigma adds to packets with so many within a sigma."""
    sigmas, _, excess = _in_order_table()
    found: Floats = sigma * np.interp(near, sigmas, excess)
    return found


@functools.cache
def _in_order_table() -> tuple[Floats, Floats, Floats]:
    """[40] each: sigma in packets; spread that in-order jitter leaves, and its median, in sigma.

    Packets are evenly spaced, every second one is acknowledged, as receivers do.
    """
    rng = np.random.default_rng(1)
    sigmas = np.geomspace(0.05, 200, 40)
    n, left, median = 20000, [], []
    for sigma in sigmas:
        due = np.arange(n) / sigma
        delays = rng.standard_normal(n).clip(-4, 4)  # as netem's table
        excess = np.maximum.accumulate(due + delays) - due
        left.append(spread(excess[::2] - running_median(excess[::2], WIDE)))
        median.append(float(np.median(excess)))
    return sigmas, np.array(left), np.array(median)
