# SPDX-License-Identifier: GPL-2.0-only
"""Size of the bottleneck's queue, and which losses it caused.

Losses by overflow come when the queue is at its highest, random ones at any length of it. The
length in packets is the excess of the RTT times the rate.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ndm_tcp.lab.paths.scenario import Burst
from ndm_tcp.paths.observed import Bools, Floats, Ints, Observed
from ndm_tcp.paths.order import Order
from ndm_tcp.paths.smooth import running_median

TOP_PERCENTILE, TOP_BESIDE_RIVALS = 99.7, 90
"""of the queue: a pause of the host delays a few ACKs, so the highest value is not the queue's;
beside rivals the flow's own packets in flight do not bound it, so more is left out"""
BEFORE = 3
"""ACKs before a loss was noticed among which its queue was highest"""
BAND, BAND_PACKETS, BAND_JITTER = 0.06, 1.2, 0.5
"""Overflows come at one length of the queue: share, packets, and sigmas of jitter by which
measured lengths differ. Bursts, and ACKs for two packets, blur it."""
CANDIDATES = 24
"""lengths of the queue at losses that are tried as the lower edge of its full length"""
EVIDENCE, EVIDENCE_OF_ALL = 14.0, 8.0
"""G statistic (Woolf 1957) by which losses prefer a full queue: 10.8 is one in 1,000 by chance, and
the best of several lengths is taken. Less will do where no loss came below the full queue."""
FULL_SHARE = 0.5
"""of the highest queue: no queue overflows below, as it would never have become so long"""
MORE_OFTEN = 1.5
"""times as many losses at a full queue as by chance"""
SMOOTHED = 9
"""ACKs of the running median that takes jitter out of the queue"""
LEAST_QUEUE = 2.0
"""packets; below, the level of a loss is not known"""
SIZE_PERCENTILE = 75
"""of the queue at overflows: bursts that end early are below, pauses above"""
SHORT_QUEUE = 15
"""packets; a shorter one overflows so often that hardly a time is long after it"""
MANY_OVERFLOWS = 100
"""ACKs that marked losses of a full queue. From so many on packets came at any part of the
transmission of the one in service. The last one that was let in waited for that, too, so it saw a
queue longer by up to one."""
STRAGGLERS, STRAGGLERS_SHARE = 4, 0.08
"""Overflow losses noticed late, of retransmissions: so few are no random loss."""
QUIET_RTTS, OVERFLOW_QUIETS, OVERFLOW_SHARE = 2.0, 2, 0.75
"""after an overflow, of the longest usual RTT: then all its losses are noticed and repaired, those
of a slow start after up to twice as long; these are three quarters of all or more"""
LEAST_RANDOM, LEAST_PASSED, LEAST_TIMES = 3, 100, 3
"""random losses, packets, and times besides the worst one, from which on there is a rate of them"""
LEAST_REAL, LEAST_REAL_SHARE, LEAST_LOSS_SHARE = 5, 0.3, 0.2
"""Beside reordering: losses that no D-SACK takes back, and their share, for these to be real."""
BLURRED = 2.0
"""standard deviations by which losses exceed those in a short queue: then some are overflows that
jitter lets look early"""
BURST_LOSSES, BURST_GAP, BURST_SHARE = 8, 10, 0.25
"""losses, packets between two of one burst, share of losses in bursts above what chance gives"""
CAP_PACKETS, CAP_JITTER = 4, 3
"""Beyond its own packets in flight nothing of a lone flow waits: slack in packets, and sigmas."""
CAP_BASE = 0.97
"""of the BDP is surely on the way and not in the queue"""
NO_STEPS = np.zeros(0)


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
    """losses that show it"""
    passed: int
    """packets among which these are"""
    burst: Burst | None
    share: float
    """of the packets that were lost"""
    at_overflow: Floats
    """[m] the queue at each overflow, packets"""


def unknown(lost: Losses) -> Losses:
    """The same where nothing tells overflows from random losses."""
    return replace(lost, overflow=False, random=0.0, n_random=0, passed=0, burst=None)


def queue_length(o: Observed, order: Order, pps: Floats, lone: bool) -> Floats:
    """[k] packets in the bottleneck's queue, by the RTT.

    Args:
        pps: [k] the bottleneck's rate.
        lone: then no more than the flow has in flight; a pause of the host looks like more.
    """
    rtt = running_median(o.rtt, SMOOTHED) if order.jitter else o.rtt
    queue: Floats = (rtt - order.base - order.lift) * pps
    if not lone:
        return queue
    cap = o.flight + CAP_PACKETS - CAP_BASE * pps * order.base
    return np.minimum(queue, np.maximum(cap, LEAST_QUEUE) + CAP_JITTER * order.jitter * pps)


def measure(
    o: Observed, order: Order, queue: Floats, pps: float, alone_s: float, steps: Floats = NO_STEPS
) -> Losses:
    """Queue and losses of a flow.

    Args:
        queue: [k] see `queue_length`.
        pps: mean rate of the bottleneck.
        alone_s: until when the flow was alone. Beside rivals every loss may be an overflow.
        steps: s at which the rate changes.
    """
    at = np.flatnonzero(o.lost)
    n = o.lost[at]
    level = loss_levels(np.searchsorted(o.at, o.t[at]), queue)
    total = int(n.sum())
    highest = float(
        np.percentile(queue, TOP_PERCENTILE if alone_s >= o.seconds else TOP_BESIDE_RIVALS)
    )
    blur = BAND_JITTER * order.jitter * pps
    around = _highest_around(queue)  # as of the losses
    edge, evidence = _edge(around, o.acked, level, blur, highest)
    enough = EVIDENCE_OF_ALL if (level > edge).all() else EVIDENCE
    overflow = evidence > enough and highest > LEAST_QUEUE
    real = total - int(o.facts.get("dsacks", 0))
    if order.reorder and real < max(LEAST_REAL, LEAST_REAL_SHARE * total):
        overflow = False
    near = o.t[at] > alone_s
    size, at_overflow = highest, np.zeros(0)
    if overflow:
        full = level > edge
        near |= full
        at_overflow = level[full]
        usual = at_overflow[_commonest(np.searchsorted(steps, o.t[at[full]], side="right"))]
        size = float(np.percentile(usual, SIZE_PERCENTILE))
        if not blur:
            size = _whole(size, len(at_overflow))
    counted = (queue <= edge if overflow else queue > -np.inf) & (o.at <= alone_s)
    stray = max(STRAGGLERS, STRAGGLERS_SHARE * n[near].sum()) if overflow else LEAST_RANDOM
    blurred = overflow and bool(order.jitter)
    lost, passed = _below(around, o.acked, counted, level, n * ~near, blurred)
    scattered = _scattered(o.t[at], n * ~near, o)
    random = _rate(lost, passed, stray) if scattered else 0.0
    if overflow and not random and size >= SHORT_QUEUE:
        # stragglers come within a few round trips of their overflow
        after = o.t[at[full]]
        quiet = _quiet(after, o.at, o) & counted
        later = n * (~near & _quiet(after, o.t[at], o))
        lost, passed = _below(around, o.acked, quiet, level, later, blurred)
        random = _rate(lost, passed, LEAST_RANDOM) if _scattered(o.t[at], later, o) else 0.0
    if order.reorder:
        random = _without_reordered(o, n, near, overflow) if scattered else 0.0
        lost, passed = round(random * o.packets), o.packets
    # Overflows in between would look like bursts.
    pure = random > 0 and (not blurred or lost == n[~near].sum())
    burst = _burst(o, at[~near], n[~near], random) if pure else None
    share = total / o.packets
    return Losses(size, highest, overflow, random, lost, passed, burst, share, at_overflow)


def _commonest(number: Ints) -> Bools:
    """[m] which of these, each at a level of this number, are at the level that most are at?"""
    found: Bools = number == np.bincount(number).argmax()
    return found


def _whole(size: float, overflows: int) -> float:
    """The queue in whole packets."""
    return float(np.floor(size if overflows >= MANY_OVERFLOWS else size + 0.5))


def _below(
    around: Floats, acked: Ints, counted: Bools, level: Floats, n: Ints, blurred: bool
) -> tuple[int, int]:
    """Losses below the full queue, and the packets that passed there.

    Random losses come as often at any length of the queue, overflows that jitter lets look early
    near its full length. So if the shorter half has fewer losses, it alone counts.

    Args:
        around: [k] see `_highest_around`.
        counted: [k] samples of the queue below its full length.
        level, n: [m] the queue at each loss and the packets lost there, 0 if they don't count.
        blurred: jitter blurs the queue's length.
    """
    lost, passed = int(n.sum()), int(acked[counted].sum())
    if not blurred or not counted.any():
        return lost, passed
    middle = float(np.median(around[counted]))
    few, there = int(n[level <= middle].sum()), int(acked[counted & (around <= middle)].sum())
    expected = few * passed / max(there, 1)
    return (few, there) if lost > expected + BLURRED * np.sqrt(expected + 1) else (lost, passed)


def _rate(lost: int, passed: int, least: float) -> float:
    """Losses of passed packets; 0: too few to tell."""
    return lost / passed if lost >= least and passed >= LEAST_PASSED else 0.0


def _scattered(t: Floats, n: Ints, o: Observed) -> bool:
    """Do losses come at several times? Those of one overflow come within a few round trips.

    Args:
        t: [m] s.
        n: [m] packets lost then; 0 if they don't count.
        o: the flow.
    """
    t, n = t[n > 0], n[n > 0]
    quiet = QUIET_RTTS * float(np.percentile(o.rtt, 95))
    if len(t):
        group = np.cumsum(np.diff(t, prepend=t[0]) > quiet)
        most = group == np.bincount(group, weights=n).argmax()
        heavy = n[most].sum() > OVERFLOW_SHARE * n.sum()
        if heavy and np.ptp(t[most]) < OVERFLOW_QUIETS * quiet:
            t = t[~most]
    return len(np.unique(t // quiet)) >= LEAST_TIMES


def _quiet(after: Floats, t: Floats, o: Observed) -> Bools:
    """Which of these times are long after every overflow?"""
    last = np.concatenate([[-np.inf], after])[np.searchsorted(after, t, side="right")]
    found: Bools = t - last > QUIET_RTTS * float(np.percentile(o.rtt, 95))
    return found


def _highest_around(queue: Floats) -> Floats:
    """[k] the highest of each sample, the `BEFORE` before it and the one after."""
    padded = np.concatenate([np.full(BEFORE, queue[0]), queue, queue[-1:]])
    around: Floats = np.lib.stride_tricks.sliding_window_view(padded, BEFORE + 2).max(axis=1)
    return around


def loss_levels(position: Ints, queue: Floats) -> Floats:
    """The queue around each of these samples: the highest of the last few; 0 before the first."""
    around = _highest_around(np.append(queue, queue[-1]))  # a loss may follow the last sample
    found: Floats = np.where(position > 0, around[position], 0.0)
    return found


def _edge(
    around: Floats, acked: Ints, level: Floats, blur: float, highest: float
) -> tuple[float, float]:
    """The length of the queue that parts overflow from random loss best, and the evidence.

    Each loss is one observation, however many packets were lost with it. Above the edge there are
    `share` of the packets; by chance as many of the losses.
    """
    best, edge = 0.0, 0.0
    if not len(level):
        return edge, best
    order = np.argsort(around)
    rank = around[order]
    above = 1 - np.cumsum(acked[order]) / max(1, acked.sum())
    tops = np.percentile(level, np.linspace(0, 100, CANDIDATES))
    for top in np.unique(tops[tops > FULL_SHARE * highest]):
        candidate = top - max(BAND_PACKETS, BAND * top) - blur
        share = float(above[max(0, np.searchsorted(rank, candidate) - 1)])
        evidence = _evidence(int((level > candidate).sum()), len(level), share)
        if evidence > best:
            best, edge = evidence, float(candidate)
    return edge, best


def _evidence(k: int, n: int, share: float) -> float:
    """G of k of n losses where `share` of the packets passed; 0: not more than by chance."""
    share = min(max(share, 1e-4), 1 - 1e-4)
    if k <= MORE_OFTEN * n * share:
        return 0.0
    rest = (n - k) * np.log((n - k) / (n * (1 - share))) if k < n else 0.0
    return float(2 * (k * np.log(k / (n * share)) + rest))


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
