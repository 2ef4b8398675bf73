# SPDX-License-Identifier: GPL-2.0-only
"""Competing flows, as one flow's RTT and rate show them.

A lone flow gets the bottleneck's rate whenever a queue stands, and no more waits than it has in
flight. Beside rivals its rate scatters, and more waits than its own packets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ndm_tcp.datasets.rounds.flow import FlowRecords
from ndm_tcp.paths import trains
from ndm_tcp.paths.observed import Bools, Floats, Ints, Observed
from ndm_tcp.paths.order import Order
from ndm_tcp.paths.rates import MIN_WINDOWS, UNFILLED_PERCENTILE, Rates, mean_excess, of_busy
from ndm_tcp.paths.smooth import spread
from ndm_tcp.paths.trains import Gaps

BEST_PERCENTILE = 97
"""of the windows' rates: what the flow got when the rivals sent least"""
SCATTER = 0.022
"""of a lone flow's log rate: receivers gather ACKs, sources pause"""
SCATTER_PACKETS = 0.3
"""packets by which a window's ends move it"""
SCATTER_LOSSES = 1.5
"""standard deviations of the number of random losses in a window"""
SCATTER_JITTER = 0.06
GATHERED, RECOVERING = 5, 0.9
"""Packets an ACK, and share of the ACKs in recovery, while a queue seems to stand. Beside rivals
there are up to 3.7 packets an ACK."""
MOST_LEVELS = 4
"""Links seldom change more often in one capture; rivals do."""
OWN_SLACK, OWN_SLACK_PACKETS = 1.1, 5
"""over the packets in flight: bursts, and what the receiver gathers"""
OWN_SLACK_JITTER = 4
"""standard deviations of jitter"""
LEAST_FOREIGN_S = 3e-3
"""of queue: below, it may be ACKs that the receiver gathers"""
LONGEST_GAP_S = 0.02
"""between ACKs, counted as time in which others' packets waited"""
PAUSE_S = 0.02
"""A host pauses for as long; rivals stay."""
CROWDED_SHARE = 0.12
"""of the ACKs at which more waited than the flow's own packets; lone flows have up to 0.05, for
packets that the queue dropped and pauses of the host"""
CROWDED_PACKETS, CROWDED_HOLDS = 4.0, 1.3
"""waits from which on others' packets are behind it, packets and holds of the receiver"""
OWN_CLOCK, WHOLE_LINK = 0.98, 0.93
"""of the link's clock: the slowest that it may be, and rates that are the whole link's"""
SLOW_LEVEL = 0.85
"""of the link's clock: a level below is a step of the rate, or a rival's doing"""
OLD_GAPS, OLD_GAPS_SHARE = 2, 0.3
"""Trains at such a level that still show the link's clock: the rate is as it was."""
OLD_CLOCK = 0.03
MOST_RIVALS = 15
FAIR = ("reno", "cubic")
"""Algorithms whose share of a link tells how many share it; BBR takes more, or less."""
ALONE_SHARE = 0.75
"""of the best rate: below, somebody else has a share"""
TOGETHER, TOGETHER_LEAST, LEAST_TIME = 0.5, 0.1, 0.25
"""Flows of a capture compete if the other, since it began, sends in half of the time that is left,
and a tenth as much; a quarter of all time must be left."""
TOGETHER_US = 500_000
"""of time for a rate of all of them"""
JOINED_S = 1.0
"""Rivals seen within the first second were probably there before."""
LEVEL_ACKS = 40
"""at a level, for its highest delay"""
STEADY = 0.01
"""of the log rate: so even are levels of the link, not shares of it"""
SAME_DELAY = 0.5
"""how much less the highest delay varies from level to level than the highest queue in packets"""


@dataclass(frozen=True)
class Shared:
    """What other flows do on the path."""

    rivals: int
    """how many flows; 0: none"""
    pps: float
    """the bottleneck's rate with rivals; 0: none"""
    from_s: float
    by_clock: bool
    """the rate is the link's clock, else that of the flow's best time"""
    joined: bool
    """the flow was never alone"""
    counted: bool
    """the flow's share tells how many rivals there are"""
    shown: bool = False
    """the rivals are in the capture, too"""
    filled: bool = True
    """all of them together had an even rate: the link's"""


NONE = Shared(0, 0.0, 0.0, False, False, True)


def of_source(flow: FlowRecords, others: Sequence[FlowRecords]) -> Shared:
    """The flows of a capture or log that compete with one: between the same hosts, at its time."""
    if flow.start_us is None or flow.group is None or not flow.mss:
        return NONE
    end_us = int(flow.acks["now_us"][-1])
    at = np.arange(0.0, end_us + 1, TOGETHER_US)
    sent = _bytes_until(flow, 0, at)
    total, begins = sent.copy(), []
    for one in others:
        if one is flow or one.group != flow.group or one.start_us is None:
            continue
        later_us = one.start_us - flow.start_us
        if not -int(one.acks["now_us"][-1]) < later_us < end_us:
            continue
        theirs = _bytes_until(one, later_us, at)
        since = int(np.searchsorted(at, later_us).clip(0, len(at) - 2))
        sends = np.diff(theirs[since:]) > 0
        much = theirs[-1] - theirs[0] >= TOGETHER_LEAST * (sent[-1] - sent[since])
        if len(sends) >= LEAST_TIME * len(at) and np.mean(sends) >= TOGETHER and much:
            total += theirs
            begins.append(max(0.0, later_us / 1e6))
    if not begins:
        return NONE
    pps = float(np.median(np.diff(total))) / flow.mss * 1e6 / TOGETHER_US
    beside = np.diff(total[int(min(begins) * 1e6 / TOGETHER_US) :])
    filled = spread(np.log(beside.clip(1))) < SCATTER
    return Shared(len(begins), pps, min(begins), False, min(begins) < JOINED_S, True, True, filled)


def _bytes_until(flow: FlowRecords, later_us: int, at_us: Floats) -> Floats:
    """What a flow that begins so much later delivered until these times."""
    at = flow.acks["now_us"].astype(np.int64) + later_us
    found: Floats = np.interp(at_us, at, flow.acks["delivered"] * float(flow.mss or 0))
    return found


def measure(
    o: Observed, order: Order, hold: float, rates: Rates, gaps: Gaps, cc: str | None
) -> Shared:
    """Rivals of a flow of this algorithm, and the link's rate beside them."""
    if not _present(o, order, hold, rates, gaps):
        return NONE
    w = rates.windows
    near = rates.busy if rates.busy.sum() >= MIN_WINDOWS else np.ones(len(w.rate), dtype=bool)
    best = float(np.percentile(w.rate[near], BEST_PERCENTILE))
    pps = rates.clock.pps or best
    crowded = near & (w.rate < ALONE_SHARE * pps)
    from_s = float(w.middle[crowded][0]) if crowded.any() else 0.0
    share = float(np.median(w.rate[crowded])) / pps if crowded.any() else 1.0
    count = min(MOST_RIVALS, max(1, round(1 / max(share, 1e-3)) - 1))
    sure = count == 1 or cc in FAIR
    return Shared(count if sure else 1, pps, from_s, rates.clock.pps > 0, from_s < JOINED_S, sure)


def _present(o: Observed, order: Order, hold: float, rates: Rates, gaps: Gaps) -> bool:
    excess = o.rtt - order.base
    best = float(np.percentile(rates.windows.rate, BEST_PERCENTILE))
    scattered = rates.scatter > _scatter_limit(o, order, rates, excess, best)
    if rates.clock.pps and not order.reorder:
        if rates.busy.sum() < MIN_WINDOWS:  # too few ACKs to show how many the receiver gathers
            hold = max(hold, LEAST_FOREIGN_S)
        foreign = _foreign(o, excess, hold, rates.clock.pps)
        if len(rates.levels) < 2:
            # Alone a flow gets the whole link, whatever a small error of the clock adds up to.
            less = np.interp(o.at, rates.windows.middle, rates.windows.rate)
            crowded = foreign & (less < WHOLE_LINK * rates.clock.pps)
            return _share(o, crowded) > CROWDED_SHARE or (
                scattered and _share(o, foreign) > CROWDED_SHARE
            )
        slow = _slow(o, rates)
        if slow.any() and np.mean(foreign[slow]) <= CROWDED_SHARE:
            return False
    if rates.busy.sum() < MIN_WINDOWS or order.jitter:  # jitter looks like rivals
        return False
    if is_gathered(o, rates):
        return False
    if scattered or len(rates.levels) > MOST_LEVELS:
        return True
    if len(rates.levels) == 1:
        return _foreign_s(o, order, excess, best) > max(order.base, PAUSE_S)
    return clock_stays(o, rates, gaps) or _levels_are_rivals(o, rates, excess)


def is_gathered(o: Observed, rates: Rates) -> bool:
    """Do ACKs come when holes are filled, so that only trains would show the link?"""
    packets, calm = of_busy(o, rates)
    return not rates.clock.pps and packets > GATHERED and calm < 1 - RECOVERING


def _slow(o: Observed, rates: Rates) -> Bools:
    """[k] outside recovery, at a level that is slower than the link's clock?"""
    pps = np.array([level.pps for level in rates.levels])[_level_at(o, rates)]
    slow: Bools = o.calm & (pps < SLOW_LEVEL * rates.clock.pps)
    return slow


def _level_at(o: Observed, rates: Rates) -> Ints:
    """[k] number of the level."""
    number: Ints = np.searchsorted([level.from_s for level in rates.levels], o.at, side="right") - 1
    return number.clip(0)


def _foreign(o: Observed, excess: Floats, hold: float, pps: float) -> Bools:
    """[k] did more wait than the flow's own packets explain?"""
    own = trains.own_wait(o, OWN_CLOCK * pps)
    foreign: Bools = excess - own > max(CROWDED_PACKETS / pps, CROWDED_HOLDS * hold)
    return foreign


def _share(o: Observed, which: Bools) -> float:
    """Of the ACKs outside recovery."""
    return float(np.mean(which[o.calm])) if o.calm.any() else 0.0


def is_no_link(rates: Rates) -> bool:
    """Is the only level far slower than the link's clock? A lone flow gets the whole link."""
    return len(rates.levels) == 1 and rates.levels[0].pps < SLOW_LEVEL * rates.clock.pps


def clock_stays(o: Observed, rates: Rates, gaps: Gaps) -> bool:
    """Do trains at a slow level still show the link's clock? Then the link is as fast as before.

    Beside rivals such a level is the flow's share; alone it is what the flow sent.
    """
    ends = [*(level.from_s for level in rates.levels[1:]), o.seconds]
    for level, end in zip(rates.levels, ends, strict=True):
        here = gaps.each[(gaps.t >= level.from_s) & (gaps.t < end)]
        if level.pps > SLOW_LEVEL * rates.clock.pps or not len(here):
            continue
        old = int((np.abs(here * rates.clock.pps - 1) < OLD_CLOCK).sum())
        if old >= max(OLD_GAPS, OLD_GAPS_SHARE * len(here)):
            return True
    return False


def _scatter_limit(o: Observed, order: Order, rates: Rates, excess: Floats, best: float) -> float:
    """Scatter of the log rate that a lone flow may have."""
    losses = np.flatnonzero(o.lost)
    at = np.searchsorted(o.at, o.t[losses]).clip(0, len(o.at) - 1)
    low = excess[at] < 0.5 * np.percentile(excess, 99)
    random = o.lost[losses][low].sum() / max(1, o.packets)
    width = rates.windows.width
    jitter = SCATTER_JITTER if order.reorder or order.jitter else 0.0
    return float(
        SCATTER
        + SCATTER_PACKETS / (width * best)
        + SCATTER_LOSSES * np.sqrt(random / (width * best))
        + order.jitter / width
        + jitter
    )


def _foreign_s(o: Observed, order: Order, excess: Floats, best: float) -> float:
    """For how long more waited than the flow had in flight, s."""
    own = OWN_SLACK * o.flight + OWN_SLACK_PACKETS + OWN_SLACK_JITTER * order.jitter * best
    more = (excess * best > own) & (excess > LEAST_FOREIGN_S) & o.calm
    return float((np.minimum(np.diff(o.at), LONGEST_GAP_S) * (more[1:] & more[:-1])).sum())


def _levels_are_rivals(o: Observed, rates: Rates, excess: Floats) -> bool:
    """Is a level a rival's doing?

    A queue overflows at the same number of packets before and after a step of the rate, but at
    the same delay beside a rival.
    """
    if len(rates.levels) < 2 or not o.lost.any() or rates.scatter < STEADY:
        return False
    at = _level_at(o, rates)
    highest, pps = [], []
    for number, level in enumerate(rates.levels):
        here = excess[at == number]
        if len(here) > LEVEL_ACKS:
            highest.append(np.percentile(here, 98))
            pps.append(level.pps)
    if len(pps) < 2:
        return False
    delay, rate = np.array(highest).clip(1e-6), np.array(pps)
    steady = np.std(np.log(delay)) < SAME_DELAY * np.std(np.log(delay * rate))
    return bool(steady and rate[-1] < rate[0])


CONSTANT, CONSTANT_PACKETS, CONSTANT_SHARE = 0.05, 2, 0.9
"""part of the packets in flight by which they vary; or packets; and of the ACKs"""
LOW_PERCENTILE, LOW_PART, BEGUN_RTTS = 0.5, 0.5, 2
"""of the RTT's excess; of its median; and round trips after which a queue that stands all the time
is never as short as that"""


def is_held(o: Observed, order: Order) -> bool:
    """Does a window of constant size hold the flow, with no queue that stands all the time?

    Its rate is then as even as a link's, but it is the window's size over the RTT.
    """
    usual = float(np.median(o.flight))
    even = np.abs(o.flight - usual) <= max(CONSTANT_PACKETS, CONSTANT * usual)
    if o.lost.any() or np.mean(even) < CONSTANT_SHARE:
        return False
    begun = o.sent > o.sent[even][0] + BEGUN_RTTS * float(np.median(o.rtt))
    excess = (o.rtt - order.base)[begun]
    if not len(excess):
        return True
    return bool(np.percentile(excess, LOW_PERCENTILE) < LOW_PART * np.median(excess))


UNFILLED_SCATTER = 0.1
"""of the log rate: a flow that paces at the link's rate is steady, others are not"""


def unfilled_pps(o: Observed, order: Order, rates: Rates) -> tuple[float, bool]:
    """The rate where no queue stood for long, and whether it is only a lower bound."""
    if rates.clock.pps:
        return rates.clock.pps, False
    w = rates.windows
    near = mean_excess(o, w, o.rtt - order.base) > rates.queue_s / 2
    used = w.rate[near] if near.sum() >= MIN_WINDOWS else w.rate
    steady = near.sum() >= MIN_WINDOWS and spread(np.log(used.clip(1))) < UNFILLED_SCATTER
    return float(np.percentile(used, UNFILLED_PERCENTILE)), not steady
