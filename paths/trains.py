# SPDX-License-Identifier: GPL-2.0-only
"""The link's clock, by trains of packets.

Packets that leave together and wait for the link arrive as far apart as the link sends them,
whether or not the flow ever fills the path. The first window is such a train, and receivers
acknowledge it packet by packet. Rivals' packets between two of a train's make some gaps longer, so
the clock is the most frequent gap, not the mean. Jitter leaves no frequent gap.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ndm_tcp.paths.observed import Floats, Ints, Observed
from ndm_tcp.paths.smooth import most_frequent

TOGETHER = 0.25
"""Two packets that left in less than so much of the time between their ACKs waited for the link."""
TOGETHER_BACK_S = 1e-4
"""time by which retransmissions make sending times go back, and no more"""
MOST_ACKED = 3
"""An ACK for more packets was held back: its gap is the receiver's clock."""
LEAST_GAP_S = 2e-5
"""Interrupts of the capturing host gather packets that come closer together."""
SAME = 0.02
"""log of gaps that count as equal: one microsecond of 100..."""
CLOCK_S = 1.5e-6
"""...and both ends of a gap are rounded to microseconds"""
LEAST_GAPS, LEAST_SHARE = 5, 0.5
"""The first window of ten packets has seven such gaps. Below half, no gap is frequent."""


@dataclass(frozen=True)
class Clock:
    """What trains of packets say of the link."""

    pps: float
    """packets per s; 0: no train, or no frequent gap"""
    gaps: int


NONE = Clock(0.0, 0)


@dataclass(frozen=True)
class Gaps:
    """[g] time per packet within trains, and when it was seen."""

    each: Floats
    """s"""
    t: Floats
    """s"""


def gaps(o: Observed) -> Gaps:
    """The gaps within trains. The first of each is left out: an idle link may have saved credit."""
    gap, left = np.diff(o.at), np.diff(o.sent)
    acked = o.acked[1:]
    pair = (left < TOGETHER * gap) & (left > -TOGETHER_BACK_S) & (gap > LEAST_GAP_S)
    pair &= (acked >= 1) & (acked <= MOST_ACKED)
    later = pair.copy()
    later[1:] &= pair[:-1]
    later[:1] = False
    return Gaps((gap[later] / acked[later]), o.at[1:][later])


def own_wait(o: Observed, pps: float) -> Floats:
    """[k] s that a packet waits behind the flow's own, on a link of this rate.

    Packets that the queue dropped count as if they had been sent on, so it is rather too long.
    """
    return waits(o.used, o.sent, pps)


def waits(before: Ints, sent: Floats, pps: float) -> Floats:
    """[n] s that packets wait on a link of this rate that nobody else uses (Lindley 1952).

    Args:
        before: [n] packets that the link sent on until then.
        sent: [n] s when they left the sender.
        pps: packets per s.
    """
    ahead: Floats = before / pps - sent
    return ahead - np.minimum.accumulate(ahead)


def clock(found: Gaps, from_s: float = 0.0, to_s: float = np.inf) -> Clock:
    """The link's clock in a stretch of time."""
    each = found.each[(found.t >= from_s) & (found.t < to_s)]
    if len(each) < LEAST_GAPS:
        return NONE
    gap, count = most_frequent(each, max(SAME, CLOCK_S / float(np.median(each))))
    if count < max(LEAST_GAPS, LEAST_SHARE * len(each)):
        return NONE
    # The median is a rounded gap, the mean of those that round to it or its neighbours is not.
    near = each[np.abs(each - gap) <= CLOCK_S]
    return Clock(1 / (float(near.mean()) if len(near) else gap), count)
