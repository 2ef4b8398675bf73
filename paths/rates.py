# SPDX-License-Identifier: GPL-2.0-only
"""The bottleneck's rate, piecewise constant in time.

While a queue stands, packets leave the bottleneck at its rate, and ACKs come back at it. So the
rate is that of windows in which the RTT never falls to the baseline.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ndm_tcp.paths import trains
from ndm_tcp.paths.observed import Bools, Floats, Ints, Observed, rates_of, stretches
from ndm_tcp.paths.order import (
    JITTER_WINDOW,
    Order,
)
from ndm_tcp.paths.smooth import spread
from ndm_tcp.paths.trains import Clock

MIN_WINDOWS = 6
"""a quarter of a window apart: two and a half windows without overlap"""
IN_WINDOW = 3
"""ACKs below which a window has no percentile"""
LEAST_QUEUE_PACKETS = 2.0
"""a receiver acknowledges two packets at a time, so one waits for the other"""
HOLD_SLACK, HOLD_SHARE = 1.3, 0.25
"""What waits for a gathered ACK is no queue. But at most a quarter of the highest excess, or short
queues would never count as queues."""
SLOW = 0.85
"""of the link's clock: a window so slow was not busy, unless others' packets waited"""
FASTER = 1.12
"""rate of a time without a queue above that of the busy times: the link was faster then"""
FAST_SHARE = 0.1
FAST_LEAST = 0.95
STEP = 0.12
"""smallest step of the log rate: 12 %, three times what windows scatter"""
STEP_S = 1.0
"""shortest time between two steps"""
MESH = 100
"""points at which a step may lie: the search takes their square"""
CANDIDATES = 41
"""levels that are tried as medians"""
NEAR_BASE, NEAR_TOP, NEAR_SLOWEST, NEVER_IDLE = 0.1, 95, 10, 0.9
"""Windows with RTTs in the lowest tenth, up to a percentile; the percentile of their rates, and the
part of the level from which on the link had no pause there."""
UNFILLED_PERCENTILE = 95
"""of the windows' rates, where no queue ever stood"""


@dataclass(frozen=True)
class Windows:
    """Overlapping stretches of time that begin and end at ACKs, a quarter apart; [w] each."""

    first: Ints
    last: Ints
    """index of the ACKs"""
    rate: Floats
    """packets per s"""
    middle: Floats
    """s"""
    width: float
    """s"""


@dataclass(frozen=True)
class Level:
    """A stretch of constant rate."""

    from_s: float
    pps: float
    windows: Ints
    """numbers of its windows"""


@dataclass(frozen=True)
class Rates:
    """The rate of a lone flow's bottleneck, or what a flow beside rivals got."""

    windows: Windows
    busy: Bools
    """[w] a queue stood all the time"""
    queue_s: float
    """excess of the RTT from which on a queue stands, s"""
    levels: tuple[Level, ...]
    """empty: no queue ever stood"""
    scatter: float
    """of the log rate around its levels"""
    clock: Clock
    """by trains of packets"""


def windows(o: Observed, width: float) -> Windows:
    """The windows of a width in s."""
    starts = np.arange(o.t[0], max(o.t[-1] - width, o.t[0] + width / 8), width / 4)
    i, j = stretches(o, starts, width)
    return Windows(i, j, rates_of(o, i, j), (o.t[i] + o.t[j]) / 2, width)


def measure(o: Observed, order: Order, hold: float, clock: Clock) -> Rates:
    """Rates of a flow by the levels of its busy windows.

    Args:
        hold: for how long ACKs are held, s.
        clock: of the link, by trains.
    """
    width = max(o.window_s, 0.0 if order.reorder else JITTER_WINDOW * order.jitter)
    w = windows(o, width)
    excess = o.rtt - order.base
    held = min(HOLD_SLACK * hold, HOLD_SHARE * float(np.percentile(excess, 99)))
    queue_s = max(LEAST_QUEUE_PACKETS / o.rough_rate, held) + order.jitter
    queued = busy = _queued(o, w, excess, queue_s)
    if clock.pps and not order.jitter:
        slow = busy & (w.rate < SLOW * clock.pps)
        foreign = excess - trains.own_wait(o, clock.pps)
        crowded = slow & _queued(o, w, foreign, max(queue_s, HOLD_SLACK * hold))
        busy = queued & (~slow | crowded)
    use = np.flatnonzero(_used(w, busy))
    if len(use) < MIN_WINDOWS:
        return Rates(w, busy, queue_s, (), 0.0, clock)
    log_rate = np.log(w.rate[use].clip(1))
    least = max(5, min(len(use) // 8, int(STEP_S / (width / 4))))
    levels, scatters, sizes = list[Level](), [], []
    for p, q in segments(log_rate, least):
        pps = float(np.median(w.rate[use[p:q]]))
        begin = _begin(w, queued, levels[-1].windows, int(use[p]), pps) if levels else 0.0
        levels.append(Level(begin, pps, use[p:q]))
        scatters.append(spread(log_rate[p:q]))
        sizes.append(q - p)
    scatter = float(np.average(scatters, weights=sizes))
    return Rates(w, busy, queue_s, tuple(levels), scatter, clock)


def _begin(w: Windows, queued: Bools, before: Ints, first: int, pps: float) -> float:
    """When a level begins, s: between the windows of the level before and its own.

    Windows in between that are as fast, with a queue, are its own, too: what the queue drops after
    a step looks like a rival's doing.

    Args:
        queued: [w] a queue stood.
        before: windows of the level before; the first of them stays its own.
        first: window of the level.
        pps: its rate.
    """
    own = queued & (np.abs(np.log(w.rate.clip(1) / pps)) < STEP / 2)
    while first > before[0] + 1 and own[first - 1]:
        first -= 1
    last = int(before[before < first][-1])
    # A link that becomes faster empties its queue, so the level begins where no queue stands.
    at = last + 1 if pps > w.rate[last] else first
    return float(w.middle[at - 1] + w.middle[at]) / 2


def _span(o: Observed, w: Windows) -> tuple[Ints, Ints]:
    """First and last sample of each window."""
    return np.searchsorted(o.at, o.t[w.first]), np.searchsorted(o.at, o.t[w.last])


def _queued(o: Observed, w: Windows, excess: Floats, queue_s: float) -> Bools:
    """[w] the RTT's excess is above `queue_s`, but for a tenth of the samples in a window."""
    first, last = _span(o, w)
    low = np.concatenate([[0], np.cumsum(excess <= queue_s)])
    found: Bools = low[last] - low[first] <= (last - first) // 10
    return found & (last > first + IN_WINDOW)


def never_idle(o: Observed, rates: Rates, base: float, pps: Floats) -> bool:
    """Did the flow get its level even at its lowest RTTs? Then a queue may have stood all the time.

    Args:
        base: the lowest RTT, s.
        pps: [w] the level of each window.
    """
    first, last = _span(o, rates.windows)
    some = last > first
    lowest = np.array([o.rtt[i:j].min() for i, j in zip(first[some], last[some], strict=True)])
    near = lowest < base + NEAR_BASE * (np.percentile(o.rtt, NEAR_TOP) - base)
    share = (rates.windows.rate / pps)[some][near]
    return bool(len(share) and np.percentile(share, NEAR_SLOWEST) >= NEVER_IDLE)


def of_busy(o: Observed, rates: Rates) -> tuple[float, float]:
    """Packets an ACK in busy windows, and the share of these ACKs outside recovery; 0: none."""
    first, last = (ends[rates.busy] for ends in _span(o, rates.windows))
    acks = max(1, int((last - first).sum()))
    found = []
    for of_ack in (o.acked, o.calm):
        total = np.concatenate([[0], np.cumsum(of_ack)])
        found.append(float((total[last] - total[first]).sum() / acks))
    return found[0], found[1]


def mean_excess(o: Observed, w: Windows, excess: Floats) -> Floats:
    """[w] mean of the RTT's excess in each window; -1: too few samples."""
    first, last = _span(o, w)
    total = np.concatenate([[0.0], np.cumsum(excess)])
    mean = (total[last] - total[first]) / np.maximum(last - first, 1)
    return np.where(last > first + IN_WINDOW, mean, -1.0)


def _used(w: Windows, busy: Bools) -> Bools:
    """The busy windows, and those without a queue whose rate says that the link was faster."""
    idle = ~busy
    if busy.sum() < MIN_WINDOWS or idle.sum() < MIN_WINDOWS:
        return busy
    fast = idle & (w.rate > FASTER * np.median(w.rate[busy]))
    if fast.sum() < max(MIN_WINDOWS, FAST_SHARE * len(w.rate)):
        return busy
    return busy | (w.rate > FAST_LEAST * np.percentile(w.rate[fast], 75))


def segments(x: Floats, least: int) -> list[tuple[int, int]]:
    """The best partition into pieces of constant value.

    Summed distance to the pieces' medians, plus a price per piece; on at most `MESH` points.

    Args:
        x: [n] log rates.
        least: values in a piece.

    Returns:
        (from, to) of each piece; neighbours differ by `STEP` at least.
    """
    price = STEP * least
    if np.abs(x - np.median(x)).sum() <= price:
        return [(0, len(x))]  # no second piece pays
    mesh = np.unique(np.linspace(0, len(x), min(len(x), MESH) + 1).astype(int))
    m = len(mesh) - 1
    need = max(1, int(np.ceil(least * m / len(x))))
    cost = _distances(x, mesh)
    best, back = np.full(m + 1, np.inf), np.zeros(m + 1, int)
    best[0] = -price
    for b in range(need, m + 1):
        sums = best[: b - need + 1] + price + cost[: b - need + 1, b]
        back[b] = int(np.argmin(sums))
        best[b] = sums[back[b]]
    parts: list[tuple[int, int]] = []
    b = m
    while b > 0:
        parts.insert(0, (int(mesh[back[b]]), int(mesh[b])))
        b = int(back[b])
    while len(parts) > 1:
        middle = [np.median(x[p:q]) for p, q in parts]
        gap = np.abs(np.diff(middle))
        k = int(np.argmin(gap))
        if gap[k] >= STEP:
            break
        parts[k : k + 2] = [(parts[k][0], parts[k + 1][1])]
    return parts


def _distances(x: Floats, mesh: Ints) -> Floats:
    """[m + 1, m + 1] summed distance of the values between two points to their median.

    The median is the best of `CANDIDATES` values, which lie as close as those of x do.
    """
    levels = np.percentile(x, np.linspace(0, 100, CANDIDATES))
    best = np.full((len(mesh), len(mesh)), np.inf)
    for level in levels:
        total = np.concatenate([[0.0], np.cumsum(np.abs(x - level))])[mesh]
        np.minimum(best, total[None, :] - total[:, None], out=best)
    return best
