# SPDX-License-Identifier: GPL-2.0-only
"""The rate over time beside jitter: cellular links, Wi-Fi.

Jitter lifts the RTT as a queue does, so windows alone do not show whether one stands. Here each
rate says how long the flow's own packets waited (Lindley 1952). What then is left of the RTT is
jitter, and the rate that leaves least is the link's. Stretches of constant rate are cut where that
saves more than a stretch costs.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np

from ndm_tcp.paths.jitter import lifts
from ndm_tcp.paths.observed import WINDOW_RTTS, Bools, Floats, Ints, Observed
from ndm_tcp.paths.order import JITTER_WINDOW, Order
from ndm_tcp.paths.rates import STEP, STEP_S, Windows, windows
from ndm_tcp.paths.smooth import running_median

CELL_S, CELL_RTTS, CELL_JITTER, CELL_PACKETS = 0.1, 1.2, 12, 12
"""A cell of time is as long as all of these: s, round trips, sigmas of jitter, packets."""
MOST_CELLS = 400
"""The search takes their square."""
IN_CELL = 4
"""ACKs below which a cell says nothing"""
RATES = 2.0 ** np.linspace(-3, 1.5, 46)
"""that are tried, of the flow's best rate: 7 % apart"""
SMOOTHED = 9
"""ACKs of the running median that takes jitter out of the queue"""
MOST_REST = 4
"""sigmas; what is further off, such as a pause of the host, counts as so much"""
OVERFLOWN = 0.1
"""Losses per packet: what the queue dropped did not use the link, and retransmissions of what
arrived did. Such a cell says how fast the link is at least."""
REST_TIME = 6
"""Jitter is independent after so many times of what it leaves; one such time is one observation."""
LEAST_REST = 0.5
"""sigmas: what a rate that is right leaves"""
EXPLAINED = 0.7
"""sigmas; where more is left, rivals or another kind of jitter do what no rate explains"""
PRICE = 10.0
"""of a stretch, in observations as far off as the usual one: at 4 jitter makes steps, at 14 a step
by a fifth for two seconds is missed"""
STANDING, STANDING_CELLS = 2.0, 3
"""sigmas above what jitter adds, and cells of it: a queue stood, so the rate is measured"""
FASTER, REFUTED = 8, 40.0
"""The flow got the rate found, and one so many places of `RATES` above (1.7 times) leaves so much
more: short queues came and went, so the rate is measured, too."""
SLACK, BLUR = 0.03, 3.0
"""half of a 95 % interval: share, for rates 7 % apart, and sigmas that blur the time of a queue"""
BOUND_PERCENTILE, BOUND_S = 90, 0.5
"""of the rates of windows so long, at least, in a stretch without a queue: jitter makes shorter
ones seem faster than the link"""


@dataclass(frozen=True)
class Stretch:
    """A stretch of constant rate."""

    from_s: float
    to_s: float
    pps: float
    """packets per s"""
    measured: bool
    """else the flow did not fill the link, and the rate is a lower bound"""
    error: float
    """half of a 95 % interval, relative, as the jitter makes it"""


@dataclass(frozen=True)
class _Cells:
    """[c] cells of time, and [c, r] what each rate leaves of the RTT in them."""

    edges: Floats
    """[c + 1] s"""
    rest: Floats
    """[c, r] mean absolute rest, s"""
    standing: Bools
    """[c] a queue stood all the time"""
    rates: Floats
    """[r] packets per s"""


def measure(o: Observed, order: Order) -> tuple[Stretch, ...]:
    """The stretches of a lone flow beside jitter in order; none: no rates explain its RTT."""
    cells = _cells(o, order)
    long = windows(o, max(BOUND_S, WINDOW_RTTS * o.min_rtt, JITTER_WINDOW * order.jitter))
    told = cells.rest.any(axis=1)
    if told.sum() < 2 or not len(long.rate):
        return ()
    usual = float(np.median(cells.rest.min(axis=1)[told]))
    if usual > EXPLAINED * order.jitter:
        return ()
    usual = max(usual, LEAST_REST * order.jitter)
    width = float(cells.edges[1] - cells.edges[0])
    total = np.cumsum(cells.rest * width / (REST_TIME * usual**2), axis=0)
    total = np.concatenate([np.zeros((1, len(cells.rates))), total])
    found = [
        _stretch(order, cells, long, total[q] - total[p], p, q)
        for p, q in _parts(total, max(1, int(np.ceil(STEP_S / width))))
    ]
    return joined(found)


def _cells(o: Observed, order: Order) -> _Cells:
    width = max(
        *(CELL_S, CELL_RTTS * o.min_rtt, CELL_JITTER * order.jitter),
        *(CELL_PACKETS * o.seconds / o.packets, o.seconds / MOST_CELLS),
    )
    edges = np.arange(0.0, o.seconds + width / 2, width)
    at = np.searchsorted(o.at, edges)
    lost = np.diff(np.concatenate([[0], np.cumsum(o.lost)])[np.searchsorted(o.t, edges)])
    rates = RATES * o.rough_rate
    used = np.cumsum(o.acked)
    recent = used - used[np.searchsorted(np.maximum.accumulate(o.sent), o.sent - order.jitter)] + 1
    queue = running_median(o.rtt - order.base - order.lift, SMOOTHED)
    rest = np.zeros((len(edges) - 1, len(rates)))
    standing = np.zeros(len(rest), dtype=bool)
    for c, (p, q) in enumerate(itertools.pairwise(at)):
        if q - p < IN_CELL:
            continue
        rest[c] = _rest(o, order, slice(p, q), used, recent, rates, max(float(queue[p]), 0.0))
        if lost[c] > OVERFLOWN * (used[q - 1] - used[p]):
            rest[c] = np.minimum.accumulate(rest[c])
        standing[c] = queue[p:q].min() > STANDING * order.jitter
    return _Cells(edges, rest, standing, rates)


def _rest(
    o: Observed,
    order: Order,
    cell: slice,
    used: Ints,
    recent: Ints,
    rates: Floats,
    before_s: float,
) -> Floats:
    """[r] mean absolute RTT, s, that neither the flow's own packets explain nor usual jitter.

    Args:
        cell: of samples.
        used: [k] packets that the link sent on until then.
        recent: [k] packets that left within a sigma of jitter before.
        rates: [r] packets per s.
        before_s: wait of the cell's first packet.
    """
    sent = o.sent[cell] - o.sent[cell.start]
    ahead = (used[cell] - used[cell.start])[None, :] / rates[:, None] - sent[None, :]
    wait = ahead - np.minimum(np.minimum.accumulate(ahead, axis=1), -before_s)
    # Packets that follow each other closely are held up by one another's jitter.
    near = np.maximum(recent[cell][None, :], rates[:, None] * wait)
    near = np.minimum(near, rates[:, None] * order.jitter)
    rest = o.rtt[cell][None, :] - order.base - wait - lifts(near, order.jitter)
    sigma = order.jitter
    rest -= np.median(rest, axis=1).clip(-sigma, sigma)[:, None]  # the baseline RTT is rough
    left: Floats = np.minimum(np.abs(rest), MOST_REST * sigma).mean(axis=1)
    return left


def _parts(total: Floats, least: int) -> list[tuple[int, int]]:
    """The best partition of cells into stretches.

    Args:
        total: [c + 1, r] running sums of what each rate leaves.
        least: cells in a stretch.

    Returns:
        (from, to) of each stretch.
    """
    n = len(total) - 1
    best, back = np.full(n + 1, np.inf), np.zeros(n + 1, int)
    best[0] = -PRICE
    for b in range(min(least, n), n + 1):
        starts = slice(0, max(1, b - least + 1))
        sums = best[starts] + PRICE + (total[b] - total[starts]).min(axis=1)
        back[b] = int(np.argmin(sums))
        best[b] = sums[back[b]]
    parts: list[tuple[int, int]] = []
    b = n
    while b > 0:
        parts.insert(0, (int(back[b]), b))
        b = int(back[b])
    return parts


def _stretch(order: Order, cells: _Cells, w: Windows, left: Floats, p: int, q: int) -> Stretch:
    """Cells p to q, of which each rate leaves this [r]."""
    from_s, to_s = float(cells.edges[p]), float(cells.edges[q])
    inside = (w.middle > from_s) & (w.middle < to_s)
    got = float(np.percentile(w.rate[inside] if inside.any() else w.rate, BOUND_PERCENTILE))
    k = int(np.argmin(left))
    pps, more = _lowest(cells.rates, left), left[min(k + FASTER, len(left) - 1)] - left[k]
    standing = int(cells.standing[p:q].sum())
    if standing >= STANDING_CELLS or (more > REFUTED and abs(np.log(got / pps)) < STEP):
        busy_s = max(standing, STANDING_CELLS) * float(cells.edges[1] - cells.edges[0])
        return Stretch(from_s, to_s, pps, True, SLACK + BLUR * order.jitter / busy_s)
    return Stretch(from_s, to_s, got, False, 0.0)


def _lowest(rates: Floats, left: Floats) -> float:
    """The rate at the vertex of the parabola through the lowest value and its neighbours."""
    k = int(np.clip(np.argmin(left), 1, len(left) - 2))
    one, two, three = left[k - 1 : k + 2]
    bend = one - 2 * two + three
    shift = float(np.clip((one - three) / (2 * bend), -1, 1)) if bend > 0 else 0.0
    return float(np.exp(np.interp(k + shift, np.arange(len(rates)), np.log(rates))))


def joined(found: list[Stretch]) -> tuple[Stretch, ...]:
    """Stretches that differ.

    One without a queue goes on as the one before, or begins the next, unless it was faster.
    """
    kept: list[Stretch] = []
    for one in found:
        if kept and (_same(kept[-1], one) or _allows(kept[-1], one)):
            kept[-1] = _merged(kept[-1], one)
        elif kept and _allows(one, kept[-1]):
            kept[-1] = replace(one, from_s=kept[-1].from_s)
        else:
            kept.append(one)
    return tuple(kept)


def _same(one: Stretch, other: Stretch) -> bool:
    return one.measured == other.measured and bool(abs(np.log(one.pps / other.pps)) < STEP)


def _allows(level: Stretch, other: Stretch) -> bool:
    """Was the other not seen to be faster than this level?"""
    return not other.measured and other.pps < level.pps * (1 + STEP)


def _merged(one: Stretch, other: Stretch) -> Stretch:
    if not one.measured:
        return replace(one, to_s=other.to_s, pps=max(one.pps, other.pps))
    if not other.measured:
        return replace(one, to_s=other.to_s)
    a, b = one.to_s - one.from_s, other.to_s - other.from_s
    pps, error = (one.pps * a + other.pps * b) / (a + b), min(one.error, other.error)
    return replace(one, to_s=other.to_s, pps=pps, error=error)
