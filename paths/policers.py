# SPDX-License-Identifier: GPL-2.0-only
"""Policers: the rate is cut without a queue, after a burst that a token bucket allows.

Beside a policer the RTT never rises, and losses come when the bucket is empty. So from one loss to
another the tokens' rate passes, whatever the sender tried; from one random loss to another, any.
Compare Flach et al., SIGCOMM 2016.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ndm_tcp.paths.observed import Floats, Ints, Observed, rates_of
from ndm_tcp.paths.order import Order
from ndm_tcp.paths.rates import Rates
from ndm_tcp.paths.smooth import spread

LEAST_LOSSES = 5
"""ACKs that marked packets lost"""
LEAST_STRETCHES, STRETCH_RTTS = 4, 4.0
"""stretches of time from one loss to another, and their shortest duration in baseline RTTs"""
MOST_QUEUE_PACKETS, QUEUE_PERCENTILE = 4.0, 90
"""of the ACKs around losses: more is a queue"""
SAME_RATE = 0.06
"""of the log rate: what such stretches scatter"""
STEADY = 0.05
"""of the log of the packets in flight: a flow that offers the same all the time, as its application
or the receiver's window lets it, loses packets at random at the same rate, too"""
LEAST_BUCKET = 2.0
"""packets; with one it would be a link"""
OFTEN_LOST = 0.02
"""of the packets: a flow that loses fewer lets the bucket fill between its losses, and tokens that
come then are lost"""


@dataclass(frozen=True)
class Policer:
    """A token bucket without a queue."""

    pps: float
    """packets per s"""
    bucket: float
    """packets that pass at once when it is full"""
    at_least: bool
    """the rate is only a lower bound, and with it the bucket a guess"""


def measure(o: Observed, order: Order, rate: Rates) -> Policer | None:
    """The policer of a lone flow; None: the path has none."""
    at = np.flatnonzero(o.lost)
    if len(at) < LEAST_LOSSES or order.reorder or order.jitter or rate.levels:
        return None
    first, last = at[0], at[-1]
    span = o.t[last] - o.t[first]
    if span <= 0:
        return None
    pps = float((o.delivered[last] - o.delivered[first]) / span)
    around = np.searchsorted(o.at, o.t[at]).clip(0, len(o.rtt) - 1)
    queue = (o.rtt[around] - order.base) * pps
    if np.percentile(queue, QUEUE_PERCENTILE) > MOST_QUEUE_PACKETS:
        return None
    between = (o.at >= o.t[first]) & (o.at <= o.t[last])
    if spread(np.log(o.flight[between].clip(1))) < STEADY:
        return None
    rates = _between_losses(o, at)
    if len(rates) < LEAST_STRETCHES or spread(np.log(rates.clip(1))) > SAME_RATE:
        return None
    # Tokens that come while the bucket is full are lost, so it empties from its fullest time on.
    used = o.delivered[: first + 1] - pps * o.t[: first + 1]
    at_least = float(o.lost.sum()) < OFTEN_LOST * o.packets
    return Policer(pps, max(LEAST_BUCKET, float(used[-1] - used.min())), at_least)


def _between_losses(o: Observed, at: Ints) -> Floats:
    """Packets per s from a loss to the first one that is `STRETCH_RTTS` later, and so on."""
    ends = [at[0]]
    for k in at[1:]:
        if o.t[k] - o.t[ends[-1]] >= STRETCH_RTTS * o.min_rtt:
            ends.append(k)
    return rates_of(o, np.array(ends[:-1], np.int64), np.array(ends[1:], np.int64))
