# SPDX-License-Identifier: GPL-2.0-only
"""Queues that drop early: CoDel, alone or in fq_codel and cake (RFC 8289, RFC 8290).

CoDel drops while the queue delays packets by more than 5 ms, and one packet after an interval that
shrinks slowly. So no loss comes below 5 ms of queue, losses come at even intervals or never soon
after another, and the queue was longer at other times: a full queue drops at its full length only.
"""

from __future__ import annotations

import numpy as np

from ndm_tcp.paths.losses import loss_levels
from ndm_tcp.paths.observed import Floats, Observed

TARGET_S, TARGET_SLACK = 5e-3, 0.9
"""CoDel's default target; what a measured delay may lack"""
BELOW_SHARE = 0.02
"""of the losses below the target: stray ones"""
LEAST_LOSSES = 8
ONE_DROP_S = 2e-3
"""losses so close together are one drop and its neighbours"""
EVEN = 0.35
"""median change of the log of the time between drops; 0.5 to 2.8 where losses are random"""
SHORTEST_PERCENTILE, APART, APART_LOSSES = 5, 0.4, 30
"""of the time between drops, over its median: CoDel waits before the next drop, however the flow
changes. Of 30 random losses chance makes it so in one of 500 flows, of 16 in one of 30."""
NOT_FULL, NOT_FULL_PACKETS = 0.7, 4
"""of the longest queue, and below it by packets: half of the drops come there; at a full queue they
come at 0.9 to 1"""
LONGEST_PERCENTILE = 99.7


def drops_early(o: Observed, excess: Floats, queue: Floats) -> bool:
    """Does the queue drop before it is full?

    Args:
        excess: [k] RTT above the baseline, s.
        queue: [k] packets in the queue.
    """
    at = np.flatnonzero(o.lost)
    if len(at) < LEAST_LOSSES:
        return False
    position = np.searchsorted(o.at, o.t[at])
    below = loss_levels(position, excess) < TARGET_SLACK * TARGET_S
    if below.mean() > BELOW_SHARE:
        return False
    longest = np.percentile(queue, LONGEST_PERCENTILE)
    if np.median(loss_levels(position, queue)) > min(
        NOT_FULL * longest, longest - NOT_FULL_PACKETS
    ):
        return False
    times = o.t[at][np.concatenate([[True], np.diff(o.t[at]) > ONE_DROP_S])]
    if len(times) < LEAST_LOSSES:
        return False
    waits = np.diff(times)
    if np.median(np.abs(np.diff(np.log(waits)))) < EVEN:
        return True
    shortest = np.percentile(waits, SHORTEST_PERCENTILE)
    return len(times) >= APART_LOSSES and bool(shortest >= APART * np.median(waits))
