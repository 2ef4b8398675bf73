# SPDX-License-Identifier: GPL-2.0-only
"""From what was found of a path to its model: units, kinds, intervals and notes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ndm_tcp import files
from ndm_tcp.datasets.rounds.flow import FlowRecords
from ndm_tcp.lab.paths.levels import mean
from ndm_tcp.paths import aqm, holds
from ndm_tcp.paths.losses import Losses
from ndm_tcp.paths.model import Kind, Level, PathModel, Rival, Value
from ndm_tcp.paths.observed import Observed, seen
from ndm_tcp.paths.order import Order
from ndm_tcp.paths.policers import Policer
from ndm_tcp.paths.rates import Rates
from ndm_tcp.paths.rivals import Shared
from ndm_tcp.paths.varying import Stretch

STAND_IN = "cubic"
"""Linux's default: the algorithm that stands for a rival"""
RATE_SLACK, BASE_SLACK, QUEUE_SLACK, QUEUE_SLACK_PACKETS = 0.005, 0.02, 0.04, 1.0
"""half of a 95 % interval beside what the scatter gives: shares, and packets of a full queue"""
JITTERED_RATE, JITTERED_BASE, JITTERED_QUEUE = 0.01, 1.2, 0.2
"""the same beside jitter: share, standard deviations, share"""
LEAST = 0.1
"""of a rate or an RTT: no interval reaches below, for there is no path without either"""
BUCKET_SLACK = 0.1
"""of a policer's bucket"""
ASSUMED_HOLD_S = 3e-3
"""as the hosts of the lab, whose programs read so late"""
SAME_RATE = 0.05
"""between windows and trains: both saw the link"""
LOSSY, LOSSY_SHORT, HIDDEN_PACKETS = 0.02, 0.01, 8
"""Random loss without a queue, and any loss beside a queue so short, from which on rivals are as
likely: their packets in such a queue cannot be told from the receiver's timer."""
SELDOM = 0.2
"""of the windows with a queue: steps of the rate in between are not seen"""
RECEIVER_LIMITED = 0.5
"""of the ACKs: from here on the receiver's window, not the path, held the flow back"""
HIDDEN_HOLD = 0.25
"""of the baseline RTT: ACKs gathered over so long a time may hide a timer that counts as RTT"""
HIDING_JITTER = 0.25
"""of the baseline RTT: jitter in order that hides queues, and how often the flow filled its path"""
HIDDEN_RATE = 0.1
"""what such jitter adds to half of the interval of a rate: the error measured was up to 0.085"""
LOCAL_S = 1e-3
"""Baseline RTT below which packets of up to 64 KB and pauses of the hosts look like rivals."""
UNKNOWN, ROUGH, JITTERED, UNFILLED, FILLED = 1.0, 0.4, 0.15, 0.1, 0.03
"""Expected |log2| errors of a target window, by what is known: docs/paths.md has those measured."""
KINDS = {False: Kind.MEASURED, True: Kind.AT_LEAST}
"""of a rate, by whether it is only a lower bound"""
Levels = tuple[tuple[float, float], ...]
"""(from s, packets/s delivered) of each"""


@dataclass(frozen=True)
class Found:
    """What one flow shows of its path."""

    order: Order
    hold: float
    """timer of the receiver's ACKs, s"""
    rates: Rates
    shared: Shared
    levels: Levels
    stretches: tuple[Stretch, ...]
    """beside jitter, where the rate changes: what is known of each level; else none"""
    unfilled: bool
    """the levels are lower bounds, all of them"""
    losses: Losses
    early: str
    """the queue that drops before it is full; empty: none does"""
    policer: Policer | None
    """instead of a queue"""
    fair: bool
    """the flow's algorithm shares a link evenly with its like"""
    begun: bool = False
    """it began before the capture, and a queue may have stood ever since"""
    gathered: float = 0.0
    """usually at most from one ACK that was held back to the next, s; by a timer or not"""
    guessed: bool = False
    """which packets were lost is guessed, as the capture has no SACK blocks"""

    @property
    def never_empty(self) -> bool:
        """May a queue have stood all the time? Then baseline RTT and queue are bounds."""
        return self.shared.joined or self.begun


def model(flow: FlowRecords, name: str, source: str, o: Observed, f: Found) -> PathModel:
    """The model of a flow's path."""
    levels, bits = (f.levels, o.wire_bits) if f.policer else _link_rate(o, f)
    rwnd = float(np.mean(flow.rwnd_limited)) if flow.rwnd_limited is not None else 0.0
    return PathModel(
        name=name,
        source=files.shown(source),
        flow_id=flow.flow_id,
        sampling=str(flow.sampling),
        cc=flow.cc_name,
        seconds=o.seconds,
        mss=o.mss,
        header_bytes=o.header_bytes,
        levels=_levels(f, levels, bits),
        rtt_us=_base(f),
        queue_packets=_queue(f, mean(levels, o.seconds)),
        qdisc=f.early or "droptail",
        loss=_loss(f),
        burst=f.losses.burst,
        jitter_us=_jitter(f),
        reorder=f.order.reorder,
        ack_hold_us=_hold(f.hold, mean(levels, o.seconds)),
        rivals=stand_ins(f.shared),
        joined=f.shared.joined,
        bucket_packets=_bucket(f.policer),
        app_limited=o.app_limited,
        rwnd_limited=rwnd,
        buffer_bytes=o.buffer_bytes,
        seen=seen(flow, o),
        label_error_log2=_label_error(f),
        notes=_notes(f, rwnd),
    )


def _levels(f: Found, levels: Levels, bits: float) -> tuple[Level, ...]:
    known = [(f.unfilled, _rate_error(f))] * len(levels)
    if f.stretches:
        known = [(not one.measured, JITTERED_RATE + one.error) for one in f.stretches]
    return tuple(
        Level(round(from_s, 3), around(pps * bits, error, KINDS[at_least]))
        for (from_s, pps), (at_least, error) in zip(levels, known, strict=True)
    )


def _link_rate(o: Observed, f: Found) -> tuple[Levels, float]:
    """The levels, and bits that one of their packets means.

    What is lost behind the bottleneck used it, too, but is not among the packets delivered. The
    clock counts it, so it stands for a single level that is near it.
    """
    clock, used = f.rates.clock.pps, 1 / (1 - f.losses.random)
    if f.shared.rivals:
        return f.levels, o.wire_bits * (1.0 if f.shared.by_clock else used)
    if clock and len(f.levels) == 1 and abs(f.levels[0][1] * used / clock - 1) < SAME_RATE:
        return ((0.0, clock),), o.wire_bits
    return f.levels, o.wire_bits * (1.0 if clock and not f.rates.levels else used)


def _rate_error(f: Found) -> float:
    """Half of a 95 % interval of a rate, relative."""
    independent = max(1.0, sum(len(level.windows) for level in f.rates.levels) / 4)
    error = RATE_SLACK + 2 * f.rates.scatter / float(np.sqrt(independent))
    if _hides_queues(f.order):
        return error + HIDDEN_RATE
    return error + (JITTERED_RATE if f.order.jitter else 0.0)


def around(value: float, error: float, kind: Kind) -> Value:
    """A rate with half of its interval, relative."""
    return Value(value, value * max(LEAST, 1 - error), value * (1 + error), kind)


def _base(f: Found) -> Value:
    base_us, slack = f.order.base * 1e6, JITTERED_BASE * f.order.jitter * 1e6
    if f.never_empty:
        return Value.exact(base_us, Kind.AT_MOST)
    # The lowest RTT has some queue in it, so the truth is rather below.
    low_us = max(LEAST * base_us, base_us * (1 - BASE_SLACK) - slack)
    return Value(base_us, low_us, base_us * 1.001 + slack)


def _queue(f: Found, pps: float) -> Value:
    lost = f.losses
    if f.policer:
        return Value.exact(1.0)
    # Where the baseline RTT is too high, or the rate too low, the queue is too short.
    low_rate = f.unfilled and f.shared.shown
    if not lost.overflow or f.never_empty or low_rate:
        # Jitter that hides the whole queue leaves less than nothing.
        return Value.exact(max(1.0, lost.queue), Kind.AT_LEAST)
    low, high = (float(value) for value in np.percentile(lost.at_overflow, [5, 99]))
    slack = QUEUE_SLACK_PACKETS + QUEUE_SLACK * lost.queue
    if f.order.jitter:
        slack += JITTERED_QUEUE * lost.queue + f.order.jitter * pps
    low, high = min(low, lost.queue - slack), max(high, lost.queue + slack)
    return Value(max(1.0, lost.queue), max(1.0, low), max(1.0, high))


def _bucket(policer: Policer | None) -> Value:
    """The first burst shows the depth, but for the packets that a round trip holds."""
    if policer is None:
        return Value.exact(1.0)
    if policer.at_least:
        return Value.exact(policer.bucket, Kind.ASSUMED)
    slack = BUCKET_SLACK * policer.bucket + QUEUE_SLACK_PACKETS
    bucket = max(1.0, policer.bucket)
    return Value(bucket, max(1.0, bucket - slack), bucket + slack)


def _jitter(f: Found) -> Value:
    """A factor of two: the shape of the jitter is not known. Without a clock less stays unseen."""
    sigma_us = f.order.jitter * 1e6
    if not sigma_us:
        return Value(0.0, 0.0, 0.0 if f.rates.clock.pps else f.order.noise * 1e6)
    return Value(sigma_us, sigma_us / 2, 2 * sigma_us)


def _loss(f: Found) -> Value:
    """Twice the square root of a count is a 95 % interval of a Poisson rate."""
    lost = f.losses
    slack = (2 * float(np.sqrt(lost.n_random + 1)) + 1) / max(lost.passed, 1)
    if f.guessed or slack > 1:  # too few packets passed where a loss is a random one
        return Value.exact(lost.random, Kind.ASSUMED)
    return Value(lost.random, max(0.0, lost.random - slack), min(1.0, lost.random + slack))


def _hold(hold: float, pps: float) -> Value:
    """Holds shorter than the time of two packets do not show, nor matter much."""
    if not hold and _too_slow_for_holds(pps):
        return Value.exact(ASSUMED_HOLD_S * 1e6, Kind.ASSUMED)
    return Value.exact(float(round(hold * 1e6)))


def _too_slow_for_holds(pps: float) -> bool:
    return pps * ASSUMED_HOLD_S < holds.AT_ONCE


def stand_ins(shared: Shared) -> tuple[Rival, ...]:
    """The rivals of a model."""
    from_s = 0.0 if shared.joined else round(shared.from_s, 3)
    return (Rival(STAND_IN, Kind.ASSUMED, from_s),) * shared.rivals


def beside(shared: Shared, at_least: bool) -> tuple[str, ...]:
    """What a model notes of rivals in the same capture or log; at_least: of the rate."""
    if not shared.shown:
        return ()
    others = "Another flow" if shared.rivals == 1 else f"{shared.rivals} other flows"
    of_all = "" if shared.by_clock else ": the rate is that of all"
    of_all += ", and a lower bound" * at_least
    return (f"{others} between the same hosts ran at the same time{of_all}.",)


def _label_error(f: Found) -> float:
    """Expected |log2| error of the target window, by what is known."""
    shared = f.shared
    if f.guessed:
        return UNKNOWN
    if f.policer and not f.unfilled:
        return FILLED
    by_share = shared.rivals > 0 and not shared.by_clock
    if f.begun or f.unfilled or not shared.counted or by_share:
        return UNKNOWN
    if f.order.base < LOCAL_S:
        return ROUGH
    if shared.rivals:
        return UNFILLED if shared.rivals == 1 and f.fair else ROUGH
    if _hides_rivals(f) or _hides_timer(f):
        return ROUGH
    if _hides_queues(f.order):
        return ROUGH
    if f.order.jitter:
        # Jitter makes levels, and packets that were only late count as lost.
        late = f.order.reorder and f.losses.random > 0
        return ROUGH if late or len(f.levels) > 1 else JITTERED
    return FILLED if f.losses.overflow else UNFILLED


def _hides_rivals(f: Found) -> bool:
    """Would rivals' packets be lost before they make a queue that shows?"""
    if not f.rates.levels and f.losses.random > LOSSY:
        return True
    pps = max(pps for _, pps in f.levels)
    shortest = max(HIDDEN_PACKETS, f.hold * pps + HIDDEN_PACKETS / 2)
    return f.losses.highest < shortest and f.losses.share > LOSSY_SHORT


def _hides_queues(order: Order) -> bool:
    return order.jitter > HIDING_JITTER * order.base and not order.reorder


def _hides_timer(f: Found) -> bool:
    """Are ACKs gathered, by no timer that shows, over a time that counts beside the RTT?"""
    slow = _too_slow_for_holds(max(pps for _, pps in f.levels))
    return not f.hold and not slow and f.gathered > HIDDEN_HOLD * f.order.base


def _seldom_filled(f: Found) -> bool:
    """Was there no queue, nor a train of packets, for most of the time?"""
    if f.stretches or f.policer or f.shared.rivals or f.rates.clock.pps:
        return False
    return bool(f.rates.busy.mean() < SELDOM)


def _notes(f: Found, rwnd: float) -> tuple[str, ...]:
    notes = []
    if f.guessed:
        notes.append(
            "No SACK blocks: the snaplen cut them off, or the hosts do without. Losses are "
            "guessed, and so are rivals, queue and rate as far as they follow from them."
        )
    if f.policer:
        notes.append(
            "A policer cuts the rate: beyond its bucket it drops packets, and has no queue."
        )
    if f.order.base < LOCAL_S:
        notes.append(
            "A local network: large packets and pauses of the hosts look like rivals or jitter; "
            "no value is certain."
        )
    if f.unfilled and not f.shared.rivals:
        notes.append("The flow never filled the path: the rate is a lower bound.")
    elif not all(one.measured for one in f.stretches):
        notes.append("At times the flow did not fill the path: these rates are lower bounds.")
    elif _seldom_filled(f):
        notes.append("The flow seldom filled the path: changes of its rate may not show.")
    notes += beside(f.shared, f.unfilled)
    if f.shared.joined and f.unfilled:
        notes.append("The flow joined rivals: its rate is a lower bound.")
    if f.shared.joined:
        notes.append("The flow was never alone: its baseline RTT is an upper bound.")
    if f.begun:
        notes.append(
            "The flow began before the capture, and a queue may have stood all the time: its "
            "baseline RTT is an upper bound, its queue a lower one."
        )
    if f.shared.rivals:
        notes.append("The rivals' algorithm is not known; CUBIC stands for them.")
        notes.append("Random loss beside rivals is not known; none is assumed.")
    if f.order.jitter and not f.shared.rivals:
        notes.append("Rivals cannot be told from jitter; none is assumed.")
    if f.early == aqm.CAKE:
        notes.append("The queue drops early, at the times of cake.")
    elif f.early:
        notes.append("The queue drops early; fq_codel stands for it.")
    elif not f.losses.overflow and not f.policer and not f.begun:
        notes.append("The queue was not seen to overflow: its size is a lower bound.")
    if not f.shared.rivals and not f.policer and _hides_rivals(f):
        notes.append("Rivals would look the same in a queue this short, with this much loss.")
    if f.order.reorder:
        notes.append(
            "Packets overtake one another: baseline RTT and queue are rough, and some packets "
            "counted as lost may have come late."
        )
    if rwnd > RECEIVER_LIMITED:
        notes.append("The receiver's window held the flow back at most of its ACKs.")
    return tuple(notes)
