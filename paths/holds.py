# SPDX-License-Identifier: GPL-2.0-only
"""ACKs that the receiver gathers: a program that reads late, a busy host, or Wi-Fi.

A receiver acknowledges every second packet at once. An ACK for more was held back, and a timer
that holds ACKs shows as the most frequent time between such ACKs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ndm_tcp.paths.observed import Observed
from ndm_tcp.paths.smooth import most_frequent

AT_ONCE = 2
"""packets that one ACK acknowledges without being held (RFC 5681, 4.2)"""
HELD_ACKS, HELD_PACKETS = 10, 0.02
"""gathered ACKs, and their share of the packets; fewer follow losses and SACKs"""
SHORT_S = 10e-3
"""RTT below which a receiver's timer may be longer than half of it: the lab's has 3 ms"""
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


@dataclass(frozen=True)
class Holds:
    """For how long ACKs are held, s."""

    timer: float
    """by a timer; 0: there is no rule"""
    longest: float
    """usually at most, from one ACK to the next; 0: ACKs are not held"""
    beyond: float
    """usually at most, after the second packet had come, if packets came evenly; or the timer's"""


NONE = Holds(0.0, 0.0, 0.0)


def measure(o: Observed) -> Holds:
    """What the receiver does with its ACKs."""
    gap = np.diff(o.at)
    acked = o.acked[1:]
    # In a flight's first ACK the gap is the sender's pause. Only with its queue a short path has
    # room for a timer.
    most = o.min_rtt / 2 if o.min_rtt > SHORT_S else o.rtt[1:] / 2
    held = (acked > AT_ONCE) & o.calm[1:] & (gap < most) & (gap > 0)
    if held.sum() < HELD_ACKS or acked[held].sum() < HELD_PACKETS * acked.sum():
        return NONE
    hold, count = most_frequent(gap[held], SAME)
    if count < LEAST_SHARE * held.sum():
        longest = float(np.percentile(gap[held], LONGEST_PERCENTILE))
        # At once the ACK would have come with the second packet. The last one's wait behind
        # others' packets is none of the receiver's.
        late = gap[held] * (1 - AT_ONCE / acked[held])
        return Holds(0.0, longest, float(np.percentile(late, LONGEST_PERCENTILE)))
    # Where two packets need longer than the timer, their ACK waits for its second or third end.
    for ends in (3, 2):
        at = gap[o.calm[1:]] * ends / hold
        once, beside = ((np.abs(at - to) < SAME).sum() for to in (1, 1 + 3 * SAME))
        if once >= max(HELD_ACKS, ONCE_SHARE * count, SHARP * beside):
            hold /= ends
            break
    return Holds(hold, hold, hold)
