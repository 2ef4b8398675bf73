# SPDX-License-Identifier: GPL-2.0-only
"""Jitter that keeps the order of packets.

It holds a packet until the one before it has left, so delays of neighbouring packets are alike and
their highest ones dominate. How much of it the RTTs show depends on when the flow's packets left
the link: those of a paced flow hold up one another, those of bursts less. So jitter of many sizes
is added to the times of just this flow, and the size that leaves as much in the RTTs as was seen is
the path's.
"""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt

from ndm_tcp.paths.observed import Floats, Ints, Observed
from ndm_tcp.paths.smooth import running_median, spread
from ndm_tcp.paths.trains import waits

ACKS = 2000
"""in the middle of a flow, that show its jitter; more say the same"""
SIZES = np.geomspace(0.05, 200, 20)
"""sigmas that are tried, packets at the rate"""
RATES = 2.0 ** np.arange(0, 2.25, 0.5)
"""times the rough rate: a flow that never fills its link shows only a lower bound"""
SEED = 1


def in_order(o: Observed, rate: float, near: int) -> float:
    """Standard deviation, s, of the jitter that explains the flow's RTTs.

    Args:
        o: the flow.
        rate: of its best moments, packets per s.
        near: ACKs of the running median around which the RTTs spread.
    """
    k = len(o.rtt)
    part = slice(max(0, (k - ACKS) // 2), (k + ACKS) // 2)
    newest, sent = _packets(o.acked[part], o.sent[part])
    number = np.arange(len(sent))

    def seen(x: Floats) -> float:
        return spread(x - running_median(x, near))

    def unexplained(rate: float) -> float:
        return seen(o.rtt[part] - waits(number, sent, rate)[newest])

    noise, rate = min((unexplained(pps), pps) for pps in rate * RATES)
    left = sent + waits(number, sent, rate)
    normal, sigmas = _normal(np.random.default_rng(SEED), len(sent)), SIZES / rate
    shows = [seen(_late(left, s * normal)[newest]) for s in sigmas]
    return float(np.interp(noise, np.maximum.accumulate(shows), sigmas))


def added(o: Observed, wait: Floats, sigma: float, reorder: bool) -> Floats:
    """[k] s that one draw of jitter adds to the RTTs.

    Args:
        o: the flow.
        wait: [k] s before the newest packets left the link.
        sigma: standard deviation of the jitter, s.
        reorder: packets overtake one another.
    """
    newest, left = _packets(o.acked, o.sent + wait)
    delay = sigma * _normal(np.random.default_rng(SEED), len(left))
    found: Floats = (delay if reorder else _late(left, delay))[newest]
    return found


def _packets(acked: Ints, at: Floats) -> tuple[Ints, Floats]:
    """[k] numbers of the newest packets, and [n] the time of each packet."""
    newest = np.cumsum(acked.clip(1)) - 1
    # Those that one ACK acknowledges come between its newest and the newest of the ACK before.
    return newest, np.interp(np.arange(newest[-1] + 1), newest, np.maximum.accumulate(at))


def _late(left: Floats, delay: Floats) -> Floats:
    """[n] s by which packets come late that keep their order."""
    found: Floats = np.maximum.accumulate(left + delay) - left
    return found


def _normal(rng: np.random.Generator, n: int) -> Floats:
    """[n] as netem draws it."""
    found: Floats = rng.standard_normal(n).clip(-4, 4)
    return found


def lifts(near: npt.ArrayLike, sigma: float) -> Floats:
    """Median delay, s, that jitter of this sigma adds to packets with so many within a sigma."""
    sizes, excess = _excess()
    found: Floats = sigma * np.interp(np.asarray(near), sizes, excess)
    return found


@functools.cache
def _excess() -> tuple[Floats, Floats]:
    """[40] each: sigma in packets that are evenly spaced; the median delay it adds, in sigma."""
    sizes = np.geomspace(0.05, 200, 40)
    n, median = 20000, []
    rng = np.random.default_rng(SEED)
    for size in sizes:
        due = np.arange(n) / size
        median.append(float(np.median(_late(due, _normal(rng, n)))))
    return sizes, np.array(median)
