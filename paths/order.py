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

from ndm_tcp.paths.observed import Floats, Observed
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
NEAR, WIDE, BASE = 15, 31, 9
"""ACKs of the running medians: noise, its model, and the lowest RTT beside reordering"""
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
"""below, jitter cannot be told from the queue's steps"""
BASE_ABOVE_MINIMUM = 0.3
"""sigmas: the lowest RTT had less than the mean delay"""
BASE_BELOW_MEDIANS = 0.2
"""sigmas: the same for the lowest running median beside reordering"""
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
    reordered: float
    """share of the ACKs for overtaken packets"""


def rough_rate(o: Observed) -> float:
    """Packets per s that were seen in the fastest tenth of the time."""
    width = max(WINDOW_RTTS * o.min_rtt, WINDOW_PACKETS * o.seconds / o.packets, ROUGH_WINDOW_S)
    starts = np.arange(o.t[0], o.t[-1] - width, width / 4)
    i = np.searchsorted(o.t, starts)
    j = np.minimum(np.searchsorted(o.t, starts + width), len(o.t) - 1)
    ok = o.t[j] - o.t[i] > width / 2
    if not ok.any():
        return o.packets / o.seconds
    i, j = i[ok], j[ok]
    return float(np.percentile((o.delivered[j] - o.delivered[i]) / (o.t[j] - o.t[i]), 90))


def measure(o: Observed, clock: Clock) -> Order:
    """Baseline RTT and jitter of a flow; where the link's clock shows, there is no jitter."""
    behind = np.maximum.accumulate(o.sent) - o.sent
    reordered = float(np.mean(behind > OVERTAKEN_S))
    residue = o.rtt - running_median(o.rtt, NEAR)
    noise = spread(residue)
    if reordered > REORDERED_SHARE:
        base = float(running_median(o.rtt, BASE).min()) + BASE_BELOW_MEDIANS * noise
        return Order(base, noise, True, noise, reordered)
    rate = rough_rate(o)
    jitter = 0.0
    outlier = float(np.percentile(np.abs(residue), 99)) * rate
    off = not clock.pps and off_clock(o, rate, noise) > OFF_CLOCK
    if off and outlier > OUTLIER_PACKETS:
        jitter = _in_order_sigma(noise, rate)
    return Order(o.min_rtt + BASE_ABOVE_MINIMUM * jitter, jitter, False, noise, reordered)


def off_clock(o: Observed, rate: float, noise: float) -> float:
    """Median distance of ACKs from the clock of a busy link, packets."""
    standing = o.rtt[1:] > o.min_rtt + STANDING_PACKETS / rate
    if standing.sum() <= STANDING_ACKS:
        return 1.0 if noise * rate > 2 * CLOCK_PACKETS else 0.0
    off = np.abs(np.diff(o.at) - o.acked[1:] / rate) * rate
    return float(np.median(off[standing]))


def _in_order_sigma(noise: float, rate: float) -> float:
    """Standard deviation of the jitter behind a spread of the RTT, s."""
    own = np.sqrt(max(noise**2 - (CLOCK_PACKETS / rate) ** 2, 0.25 * noise**2))
    sigma, left = _in_order_table()
    found = float(np.interp(own * rate, sigma * left, sigma)) / rate
    return found if found * rate >= LEAST_JITTER_PACKETS else 0.0


@functools.cache
def _in_order_table() -> tuple[Floats, Floats]:
    """(sigma in packets, spread that in-order normal jitter leaves, in sigma), [40] each.

    Packets are evenly spaced, every second one is acknowledged, as receivers do.
    """
    rng = np.random.default_rng(1)
    sigmas = np.geomspace(0.05, 200, 40)
    n, left = 20000, []
    for sigma in sigmas:
        due = np.arange(n) / sigma
        delays = rng.standard_normal(n).clip(-4, 4)  # as netem's table
        excess = np.maximum.accumulate(due + delays) - due
        left.append(spread(excess[::2] - running_median(excess[::2], WIDE)))
    return sigmas, np.array(left)
