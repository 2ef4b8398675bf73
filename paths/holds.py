# SPDX-License-Identifier: GPL-2.0-only
"""ACKs that the receiver gathers: a program that reads late, a busy host, or Wi-Fi.

A receiver acknowledges every second packet at once. An ACK for more was held back, and a timer
that holds ACKs shows as the most frequent time between such ACKs.
"""

from __future__ import annotations

import numpy as np

from ndm_tcp.paths.observed import Observed
from ndm_tcp.paths.smooth import most_frequent

AT_ONCE = 2
"""packets that one ACK acknowledges without being held (RFC 5681, 4.2)"""
HELD_ACKS, HELD_PACKETS = 10, 0.02
"""gathered ACKs, and their share of the packets; fewer follow losses and SACKs"""
SAME = 0.03
"""relative; timers are that exact"""
LONGEST_PERCENTILE = 75
"""of the times without a rule: the others are pauses"""
ONCE_SHARE = 0.05
"""of the ACKs at the most frequent time; as many at its half or third show the timer itself"""
SHARP = 4
"""times as many as a little later: a timer's ends are a peak"""
LEAST_SHARE = 0.3
"""of the gathered ACKs at the same distance; jitter and rivals gather ACKs at all distances"""


def measure(o: Observed) -> tuple[float, float]:
    """For how long ACKs are held by a timer, and at most, s.

    Returns:
        the timer's time, 0 if there is no rule; and the longest usual time, 0 if ACKs are not held.
    """
    gap = np.diff(o.at)
    acked = o.acked[1:]
    # In a flight's first ACK the gap is the sender's pause.
    held = (acked > AT_ONCE) & o.calm[1:] & (gap < o.min_rtt / 2) & (gap > 0)
    if held.sum() < HELD_ACKS or acked[held].sum() < HELD_PACKETS * acked.sum():
        return 0.0, 0.0
    hold, count = most_frequent(gap[held], SAME)
    longest = float(np.percentile(gap[held], LONGEST_PERCENTILE))
    if count < LEAST_SHARE * held.sum():
        return 0.0, longest
    # Where two packets need longer than the timer, their ACK waits for its second or third end.
    for ends in (3, 2):
        at = gap[o.calm[1:]] * ends / hold
        once, beside = ((np.abs(at - to) < SAME).sum() for to in (1, 1 + 3 * SAME))
        if once >= max(HELD_ACKS, ONCE_SHARE * count, SHARP * beside):
            return hold / ends, hold / ends
    return hold, hold
