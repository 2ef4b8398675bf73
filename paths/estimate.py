# SPDX-License-Identifier: GPL-2.0-only
"""From one flow's records to a model of its path."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from ndm_tcp import files
from ndm_tcp.datasets.rounds.flow import FlowRecords, Sampling
from ndm_tcp.paths import aqm, holds, losses, order, polls, rates, rivals, trains
from ndm_tcp.paths.losses import Losses
from ndm_tcp.paths.model import Kind, Level, PathModel, Rival, Value
from ndm_tcp.paths.observed import Floats, Observed, observe, seen
from ndm_tcp.paths.order import Order
from ndm_tcp.paths.rates import Rates
from ndm_tcp.paths.rivals import Shared

STAND_IN = "cubic"
"""Linux's default: the algorithm that stands for a rival"""
SLOWEST_CLOCK = 0.9
"""of the best rate: no link is slower than what came over it"""
ASSUMED_HOLD_S = 3e-3
"""as the hosts of the lab, whose programs read so late"""
SAME_RATE = 0.05
"""between windows and trains: both saw the link"""
EARLY = "fq_codel"
"""stands for all queues that drop early: Linux's default, and CoDel drops in cake, too"""
RECEIVER_LIMITED = 0.5
"""of the ACKs: from here on the receiver's window, not the path, held the flow back"""


def estimate(flow: FlowRecords, source: str) -> PathModel:
    """The model of a flow's path.

    Args:
        flow: per ACK (a sender's capture) or per poll (tcp_info).
        source: name of its file.

    Raises:
        NdmError: the flow shows too little of its path; says what would help.
    """
    o = observe(flow)
    if flow.sampling == Sampling.POLL:
        return polls.estimate(flow, o, name_of(source, flow), source)
    gaps = trains.gaps(o)
    clock = trains.clock(gaps)
    if clock.pps < SLOWEST_CLOCK * order.rough_rate(o):  # jitter, or a train of somebody else's
        clock = trains.NONE
    ordered = order.measure(o, clock)
    hold = holds.measure(o)
    rate = rates.measure(o, ordered, hold, clock)
    shared = rivals.measure(o, ordered, hold, rate, gaps, flow.cc_name)
    levels, unfilled = _levels(o, ordered, rate, shared)
    queue = losses.queue_length(o, ordered, _at(levels, o.at), lone=not shared.rivals)
    early = aqm.drops_early(o, o.rtt - ordered.base, queue)
    if early and shared.rivals:  # in a queue of its own a flow does not meet them
        shared = rivals.NONE
        levels, unfilled = _levels(o, ordered, rate, shared)
        queue = losses.queue_length(o, ordered, _at(levels, o.at), lone=True)
    alone_s = shared.from_s if shared.rivals else np.inf
    lost = losses.measure(o, ordered, queue, _mean(levels, o.seconds), alone_s)
    if early:
        lost = replace(lost, queue=lost.highest, overflow=False, random=0.0, n_random=0, burst=None)
    return _model(flow, source, o, ordered, hold, rate, shared, levels, unfilled, lost, early)


def name_of(source: str, flow: FlowRecords) -> str:
    """Of a model: the file's name without its endings, and the flow's port or id."""
    stem = re.sub(r"(\.(pcap|pcapng|dmp|gz|zst|xz|bz2|jsonl?|txt|log))+$", "", source)
    part = str(flow.sender_port) if flow.sender_port is not None else flow.flow_id[:8]
    return re.sub(r"[^A-Za-z0-9._-]+", "-", f"{stem}-{part}").lstrip(".-") or part


def _levels(
    o: Observed, ordered: Order, rate: Rates, shared: Shared
) -> tuple[tuple[tuple[float, float], ...], bool]:
    """(from s, packets/s delivered) of each level; and whether these are only lower bounds."""
    if shared.rivals:
        return ((0.0, shared.pps),), shared.joined and not shared.by_clock
    if rate.levels:
        return tuple((level.from_s, level.pps) for level in rate.levels), False
    pps, at_least = rivals.unfilled_pps(o, ordered, rate)
    return ((0.0, pps),), at_least


def _at(levels: tuple[tuple[float, float], ...], t: Floats) -> Floats:
    """The rate at these times."""
    number = np.searchsorted([from_s for from_s, _ in levels], t, side="right") - 1
    found: Floats = np.array([pps for _, pps in levels])[number.clip(0)]
    return found


def _mean(levels: tuple[tuple[float, float], ...], seconds: float) -> float:
    ends = [*(from_s for from_s, _ in levels[1:]), seconds]
    spans = [max(end - from_s, 1e-9) for (from_s, _), end in zip(levels, ends, strict=True)]
    return float(np.average([pps for _, pps in levels], weights=spans))


def _model(
    flow: FlowRecords,
    source: str,
    o: Observed,
    ordered: Order,
    hold: float,
    rate: Rates,
    shared: Shared,
    levels: tuple[tuple[float, float], ...],
    unfilled: bool,
    lost: Losses,
    early: bool,
) -> PathModel:
    levels, bits = _link_rate(o, rate, shared, levels, lost)
    kind = Kind.AT_LEAST if unfilled else Kind.MEASURED
    error = _rate_error(rate)
    base_us = ordered.base * 1e6
    rwnd = float(np.mean(flow.rwnd_limited)) if flow.rwnd_limited is not None else 0.0
    return PathModel(
        name=name_of(source, flow),
        source=files.shown(source),
        flow_id=flow.flow_id,
        sampling=str(flow.sampling),
        cc=flow.cc_name,
        seconds=o.seconds,
        mss=o.mss,
        levels=tuple(
            Level(round(from_s, 3), _around(pps * bits, error, kind)) for from_s, pps in levels
        ),
        rtt_us=_base(base_us, ordered, shared),
        queue_packets=_queue(lost),
        qdisc=EARLY if early else "droptail",
        loss=_loss(lost, o),
        burst=lost.burst,
        jitter_us=Value(
            ordered.jitter * 1e6, ordered.jitter * 0.6e6, ordered.jitter * 1.6e6, Kind.MEASURED
        ),
        reorder=ordered.reorder,
        ack_hold_us=_hold(hold, _mean(levels, o.seconds)),
        rivals=(Rival(STAND_IN, Kind.ASSUMED, _start(shared)),) * shared.rivals,
        joined=shared.joined,
        policer=False,
        app_limited=float(np.mean(flow.acks["app_limited"])),
        rwnd_limited=rwnd,
        seen=seen(flow, o),
        label_error_log2=_label_error(ordered, shared, unfilled, lost, flow.cc_name in rivals.FAIR),
        notes=_notes(ordered, shared, unfilled, lost, rwnd),
    )


def _link_rate(
    o: Observed,
    rate: Rates,
    shared: Shared,
    levels: tuple[tuple[float, float], ...],
    lost: Losses,
) -> tuple[tuple[tuple[float, float], ...], float]:
    """The levels, and bits that one of their packets means.

    What is lost behind the bottleneck used it, too, but is not among the packets delivered. The
    clock counts it, so it stands for a single level that is near it.
    """
    clock, used = rate.clock.pps, 1 / (1 - lost.random)
    if shared.rivals:
        return levels, o.wire_bits * (1.0 if shared.by_clock else used)
    if clock and len(levels) == 1 and abs(levels[0][1] * used / clock - 1) < SAME_RATE:
        return ((0.0, clock),), o.wire_bits
    return levels, o.wire_bits * (1.0 if clock and not rate.levels else used)


def _hold(hold: float, pps: float) -> Value:
    """Holds shorter than the time of two packets do not show, nor matter much."""
    if not hold and pps * ASSUMED_HOLD_S < holds.AT_ONCE:
        return Value.exact(ASSUMED_HOLD_S * 1e6, Kind.ASSUMED)
    return Value.exact(float(round(hold * 1e6)))


def _start(shared: Shared) -> float:
    return 0.0 if shared.joined else round(shared.from_s, 3)


def _rate_error(rate: Rates) -> float:
    """Half of a 95 % interval of a rate, relative."""
    independent = max(1.0, sum(len(level.windows) for level in rate.levels) / 4)
    return 0.005 + 2 * rate.scatter / float(np.sqrt(independent))


def _around(value: float, error: float, kind: Kind) -> Value:
    return Value(value, value * (1 - error), value * (1 + error), kind)


def _base(base_us: float, ordered: Order, shared: Shared) -> Value:
    if shared.joined:
        return Value.exact(base_us, Kind.AT_MOST)
    slack = 0.6 * ordered.jitter * 1e6
    return Value(base_us, max(0.0, base_us * 0.98 - slack), base_us * 1.001 + slack)


def _queue(lost: Losses) -> Value:
    if not lost.overflow:
        return Value.exact(lost.highest, Kind.AT_LEAST)
    low, high = (float(value) for value in np.percentile(lost.at_overflow, [25, 99]))
    return Value(lost.queue, min(low, lost.queue), max(high, lost.queue))


def _loss(lost: Losses, o: Observed) -> Value:
    """Twice the square root of a count is a 95 % interval of a Poisson rate."""
    slack = (2 * float(np.sqrt(lost.n_random + 1)) + 1) / o.packets
    return Value(lost.random, max(0.0, lost.random - slack), lost.random + slack)


def _label_error(ordered: Order, shared: Shared, unfilled: bool, lost: Losses, fair: bool) -> float:
    """Expected |log2| error of the target window, by what is known."""
    if unfilled or not shared.counted or (shared.rivals and not shared.by_clock):
        return 1.0
    if shared.rivals:
        return 0.1 if shared.rivals == 1 and fair else 0.4
    if ordered.jitter:
        return 0.15
    return 0.03 if lost.overflow else 0.1


def _notes(
    ordered: Order, shared: Shared, unfilled: bool, lost: Losses, rwnd: float
) -> tuple[str, ...]:
    notes = []
    if unfilled and not shared.rivals:
        notes.append("The flow never filled the path: the rate is a lower bound.")
    if shared.joined:
        notes.append(
            "The flow joined rivals: its rate is a lower bound, its baseline RTT an upper one."
        )
    if shared.rivals:
        notes.append("The rivals' algorithm is not known; CUBIC stands for them.")
    if not lost.overflow:
        notes.append("The queue was not seen to overflow: its size is a lower bound.")
    if ordered.reorder:
        notes.append("Packets overtake one another: the baseline RTT and the queue are rough.")
    if rwnd > RECEIVER_LIMITED:
        notes.append("The receiver's window held the flow back at most of its ACKs.")
    return tuple(notes)
