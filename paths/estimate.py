# SPDX-License-Identifier: GPL-2.0-only
"""From one flow's records to a model of its path."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ndm_tcp.datasets.rounds.flow import SACKS_CUT, FlowRecords, Sampling
from ndm_tcp.lab.paths.levels import mean
from ndm_tcp.paths import (
    aqm,
    assemble,
    holds,
    losses,
    order,
    policers,
    polls,
    rates,
    rivals,
    trains,
    varying,
)
from ndm_tcp.paths.assemble import Found
from ndm_tcp.paths.model import PathModel
from ndm_tcp.paths.observed import Floats, Observed, observe
from ndm_tcp.paths.order import Order
from ndm_tcp.paths.rates import Rates
from ndm_tcp.paths.rivals import Shared
from ndm_tcp.paths.trains import Clock, Gaps
from ndm_tcp.paths.varying import Stretch

SLOWEST_CLOCK = 0.9
"""of the best rate: no link is slower than what came over it"""
STRONG_JITTER = 0.1
"""of the baseline RTT"""
STEADY_SHARE = 0.8
"""of the windows, with a queue and at one level: beside jitter, too, nothing else is to be found"""


def estimate(flow: FlowRecords, source: str, others: Sequence[FlowRecords] = ()) -> PathModel:
    """The model of a flow's path.

    Args:
        flow: per ACK (a sender's capture) or per poll (tcp_info).
        source: name of its file.
        others: flows of the same file; those beside it at its time are its rivals.

    Raises:
        NdmError: the flow shows too little of its path; says what would help.
    """
    o = observe(flow)
    name, shared = name_of(source, flow), rivals.of_source(flow, others)
    if flow.sampling == Sampling.POLL:
        return polls.estimate(flow, o, name, source, shared)
    found = find(o, flow.cc_name, shared)
    if flow.facts.get("handshake") == 0 and not found.policer:
        pps = at(found.levels, found.rates.windows.middle)
        stood = rates.never_idle(o, found.rates, found.order.base, pps)
        found = replace(found, begun=stood or found.shared.rivals > 0)
    resent_without_sack = flow.facts.get("sack") == 0 and bool(flow.facts["retransmitted"])
    found = replace(found, guessed=resent_without_sack or SACKS_CUT in flow.facts)
    return assemble.model(flow, name, source, o, found)


def find(o: Observed, cc: str | None, known: Shared = rivals.NONE) -> Found:
    """All that the flow of this algorithm shows, beside rivals of the capture."""
    gaps = trains.gaps(o)
    clock = _clock(o, gaps)
    ordered = order.measure(o, clock)
    held = holds.measure(o)
    hold = held.timer
    rate = rates.measure(o, ordered, held.longest, clock)
    shared = known
    if shared.rivals and clock.pps >= SLOWEST_CLOCK * shared.pps:
        shared = replace(shared, pps=clock.pps, by_clock=True)
    if not shared.rivals:
        shared = rivals.measure(o, ordered, held.beyond, rate, gaps, cc)
    if not shared.rivals and _own_doing(o, rate, gaps):
        rate = replace(rate, levels=())
    levels, unfilled = _levels(o, ordered, rate, shared)
    steps = _stretches(o, ordered, rate, shared)
    if steps:
        levels = tuple((one.from_s, one.pps) for one in steps)
        unfilled = not any(one.measured for one in steps)
    if len(levels) == 1 and not shared.rivals:
        ordered = order.refined(o, ordered, 0.0 if unfilled else levels[0][1])
    queue = losses.queue_length(o, ordered, at(levels, o.at), lone=not shared.rivals)
    excess = o.rtt - ordered.base
    steady = len(levels) == 1 and not shared.rivals
    early = aqm.drops_early(o, excess, queue, steady)
    if early and shared.rivals:  # in a queue of its own a flow does not meet them
        shared = rivals.NONE
        levels, unfilled = _levels(o, ordered, rate, shared)
        queue = losses.queue_length(o, ordered, at(levels, o.at), lone=True)
    alone_s = shared.from_s if shared.rivals else np.inf
    later = np.array([from_s for from_s, _ in levels[1:]])
    lost = losses.measure(o, ordered, queue, mean(levels, o.seconds), alone_s, later)
    if not early and steady and not ordered.jitter and aqm.was_longer(o, excess, queue, lost):
        early = aqm.FQ_CODEL
    if early:
        lost = replace(losses.unknown(lost), queue=lost.highest)
    policer = policers.measure(o, ordered, rate) if not early else None
    if policer:
        levels, shared = ((0.0, policer.pps),), rivals.NONE
        lost = losses.unknown(lost)
        only = policer.at_least
        return Found(ordered, hold, rate, shared, levels, (), only, lost, "", policer, False)
    # A queue shorter than the receiver's timer cannot be told from it.
    unfilled |= not clock.pps and rate.queue_s < hold
    unfilled |= not clock.pps and steady and rivals.is_held(o, ordered)
    fair = cc in rivals.FAIR
    return Found(
        *(ordered, hold, rate, shared, levels, steps, unfilled, lost, early, None, fair),
        gathered=held.longest,
    )


def name_of(source: str, flow: FlowRecords) -> str:
    """Of a model: the file's name without its endings, and the flow's port or id."""
    stem = re.sub(r"(\.(pcap|pcapng|dmp|gz|zst|xz|bz2|jsonl?|txt|log))+$", "", source)
    part = str(flow.sender_port) if flow.sender_port is not None else flow.flow_id[:8]
    return re.sub(r"[^A-Za-z0-9._-]+", "-", f"{stem}-{part}").lstrip(".-") or part


def _clock(o: Observed, gaps: Gaps) -> Clock:
    """The link's clock, unless more came over the link: then it is jitter's, or others' doing."""
    clock = trains.clock(gaps)
    return clock if clock.pps >= SLOWEST_CLOCK * o.rough_rate else trains.NONE


def _own_doing(o: Observed, rate: Rates, gaps: Gaps) -> bool:
    """Are levels what the flow or its receiver did, not the link?"""
    if len(rate.levels) < 2:
        return rivals.is_no_link(rate)
    return rivals.is_gathered(o, rate) or rivals.clock_stays(o, rate, gaps)


def _levels(
    o: Observed, ordered: Order, rate: Rates, shared: Shared
) -> tuple[tuple[tuple[float, float], ...], bool]:
    """(from s, packets/s delivered) of each level; and whether these are only lower bounds."""
    if shared.rivals:
        whole = shared.by_clock or (shared.filled and not shared.joined)
        return ((0.0, shared.pps),), not whole
    if ordered.jitter and len(rate.levels) > _most_levels(ordered):
        return ((0.0, float(np.percentile(rate.windows.rate[rate.busy], 50))),), True
    if rate.levels:
        return tuple((level.from_s, level.pps) for level in rate.levels), False
    pps, at_least = rivals.unfilled_pps(o, ordered, rate)
    return ((0.0, pps),), at_least


def _stretches(o: Observed, ordered: Order, rate: Rates, shared: Shared) -> tuple[Stretch, ...]:
    """The rate over time beside jitter; none: it does not change, or nothing else is known."""
    if not ordered.jitter or ordered.reorder or shared.rivals:
        return ()
    if len(rate.levels) == 1 and rate.busy.mean() > STEADY_SHARE:
        return ()
    found = varying.measure(o, ordered)
    # One level is what the windows say, too, unless they saw steps that jitter made.
    return found if len(found) > 1 or len(rate.levels) > 1 else ()


def _most_levels(ordered: Order) -> int:
    """Beside jitter more steps of the rate are its doing."""
    return 2 if ordered.jitter > STRONG_JITTER * ordered.base else rivals.MOST_LEVELS


def at(levels: tuple[tuple[float, float], ...], t: Floats) -> Floats:
    """The rate at these times."""
    number = np.searchsorted([from_s for from_s, _ in levels], t, side="right") - 1
    found: Floats = np.array([pps for _, pps in levels])[number.clip(0)]
    return found
