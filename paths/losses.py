# SPDX-License-Identifier: GPL-2.0-only
"""Size of the bottleneck's queue, and which losses it caused.

Losses by overflow come when the queue is at its highest, random ones at any length of it. The
length in packets is the excess of the RTT times the rate.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ndm_tcp.paths.model import Burst
from ndm_tcp.paths.observed import Bools, Floats, Ints, Observed
from ndm_tcp.paths.order import Order

TOP_PERCENTILE = 99.7
"""of the queue: a pause of the host delays a few ACKs, so the highest value is not the queue's"""
BEFORE = 3
"""ACKs before a loss was noticed among which its queue was highest"""
LEVELS = (0.85, 0.7, 0.55, 0.4)
"""Shares of the highest queue that may part overflow from random loss. Bursts of a few packets
blur where a short queue is full, so lower ones are tried."""
SCORE, SCORE_GAIN = 3.5, 0.5
"""standard deviations by which losses at the top exceed those that chance puts there; and by how
much a lower level has to be better"""
TWICE = 1.5
"""times as many losses at the top as chance puts there, at least"""
LEAST_QUEUE = 2.0
"""packets; below, the level of a loss is not known"""
EDGE, EDGE_PACKETS, EDGE_JITTER = 0.15, 1.5, 0.5
"""A loss so near to the full queue counts as overflow: share, packets, sigmas of jitter."""
QUEUE_PERCENTILE = 75
"""of the queue at overflows: the highest is a pause, the lowest a burst's end"""
STRAGGLERS, STRAGGLERS_SHARE = 4, 0.08
"""Overflow losses noticed late, of retransmissions: so few are no random loss."""
LEAST_RANDOM = 3
"""random losses from which on there is a rate of them"""
LEAST_REAL, LEAST_REAL_SHARE, LEAST_LOSS_SHARE = 5, 0.3, 0.2
"""Beside reordering: losses that no D-SACK takes back, and their share, for these to be real."""
BURST_LOSSES, BURST_GAP, BURST_SHARE = 8, 10, 0.25
"""losses, packets between two of one burst, share of losses in bursts beyond chance"""
CAP_PACKETS, CAP_JITTER = 4, 3
"""Beyond its own packets in flight nothing of a lone flow waits: slack in packets, and sigmas."""
CAP_BASE = 0.97
"""of the BDP is surely on the way and not in the queue"""


@dataclass(frozen=True)
class Losses:
    """The queue, and what is lost without it."""

    queue: float
    """packets, full if `overflow`, else the highest that was seen"""
    highest: float
    """packets"""
    overflow: bool
    """the queue was seen to overflow"""
    random: float
    """probability of a random loss"""
    n_random: int
    burst: Burst | None
    at_overflow: Floats
    """[m] the queue at each overflow, packets"""


def queue_length(o: Observed, order: Order, pps: Floats, lone: bool) -> Floats:
    """[k] packets in the bottleneck's queue, by the RTT.

    Args:
        pps: [k] the bottleneck's rate.
        lone: then no more than the flow has in flight; a pause of the host looks like more.
    """
    queue: Floats = (o.rtt - order.base) * pps
    if not lone:
        return queue
    cap = o.flight + CAP_PACKETS - CAP_BASE * pps * order.base
    return np.minimum(queue, np.maximum(cap, LEAST_QUEUE) + CAP_JITTER * order.jitter * pps)


def measure(o: Observed, order: Order, queue: Floats, pps: float) -> Losses:
    """Queue and losses of a flow.

    Args:
        queue: [k] see `queue_length`.
        pps: mean rate of the bottleneck.
    """
    at = np.flatnonzero(o.lost)
    n = o.lost[at]
    level = _levels_of(np.searchsorted(o.T, o.t[at]), queue)
    total = int(n.sum())
    highest = float(np.percentile(queue, TOP_PERCENTILE))
    share, score = _parting(queue, o.acked, level, n, highest)
    full = level > share * highest
    overflow = score > SCORE and int(n[full].sum()) >= 2 and highest > LEAST_QUEUE
    real = total - int(o.facts.get("dsacks", 0))
    if order.reorder and real < max(LEAST_REAL, LEAST_REAL_SHARE * total):
        overflow = False
    near = np.zeros(len(at), dtype=bool)
    size, at_overflow = highest, np.zeros(0)
    if overflow:
        at_overflow = np.repeat(level[full], n[full])
        if share > LEVELS[0] - 0.1:
            size = float(np.percentile(at_overflow, QUEUE_PERCENTILE))
        edge = min(size - max(EDGE_PACKETS, EDGE * size), share * highest)
        edge -= EDGE_JITTER * order.jitter * pps
        near = level > edge
        below = max(1, int(o.acked[queue <= edge].sum()))
        random = n[~near].sum() / below
        if n[~near].sum() < max(STRAGGLERS, STRAGGLERS_SHARE * n[near].sum()):
            random = 0.0
    else:
        random = total / max(1, o.packets) if total >= LEAST_RANDOM else 0.0
    if order.reorder:
        random = _without_reordered(o, n, near, overflow)
    random = float(random)
    left = (at[~near], n[~near]) if random > 0 else (at[:0], n[:0])
    burst = _burst(o, *left, random)
    return Losses(size, highest, overflow, random, int(left[1].sum()), burst, at_overflow)


def _levels_of(position: Ints, queue: Floats) -> Floats:
    """The queue around each of these samples: the highest of the last few."""
    return np.array([queue[max(0, p - BEFORE) : p + 2].max() if p else 0.0 for p in position])


def _parting(
    queue: Floats, acked: Ints, level: Floats, n: Ints, highest: float
) -> tuple[float, float]:
    """The share of the highest queue that parts losses best, and the score of that."""
    best, share = -9.0, 0.8
    total, packets = int(n.sum()), max(1, int(acked.sum()))
    for candidate in LEVELS:
        passed = acked[queue > candidate * highest].sum()
        lost = n[level > candidate * highest].sum()
        expected = total / packets * passed
        score = float((lost - expected) / np.sqrt(max(expected, 0.5)))
        if lost > TWICE * expected and score > best + SCORE_GAIN:
            best, share = score, candidate
    return share, best


def _without_reordered(o: Observed, n: Ints, near: Bools, overflow: bool) -> float:
    """Random loss beside reordering: D-SACKs name what was only overtaken."""
    total, resent = int(n.sum()), int(o.facts.get("retransmitted", 0))
    mine = int(n[~near].sum()) if overflow else min(total, resent)
    real = max(0, mine - int(o.facts.get("dsacks", 0)))
    return real / o.packets if real >= max(LEAST_REAL, LEAST_LOSS_SHARE * total) else 0.0


def _burst(o: Observed, at: Ints, n: Ints, random: float) -> Burst | None:
    """Gilbert-Elliott parameters, if losses come together more often than by chance."""
    if n.sum() < BURST_LOSSES:
        return None
    gaps = np.diff(o.delivered[at])
    joined = ((gaps < BURST_GAP).sum() + (n - 1).sum()) / n.sum()
    if joined <= BURST_SHARE + BURST_GAP * random:
        return None
    clusters = 1 + int((gaps >= BURST_GAP).sum())
    mean = n.sum() / clusters
    # Half of the bad state's packets are lost: the lab's bursts, netem's default, are like that.
    # A fifth of the bursts lose nothing and is not seen.
    return Burst(
        start=float(1.2 * clusters / o.packets),
        end=float(min(1.0, 0.5 / max(mean - 0.5, 0.5))),
        loss=0.5,
    )
