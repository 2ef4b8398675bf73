# SPDX-License-Identifier: GPL-2.0-only
"""What polls of tcp_info say of a path: rate and baseline RTT well, the queue roughly.

A poll has no RTT of its own: the smoothed one lags behind the queue by some round trips, so the
highest queue shows too low.
"""

from __future__ import annotations

import numpy as np

from ndm_tcp import files
from ndm_tcp.datasets.readers.poll import NOT_COUNTED
from ndm_tcp.datasets.rounds.flow import FlowRecords
from ndm_tcp.errors import NdmError
from ndm_tcp.paths.assemble import around, beside, stand_ins
from ndm_tcp.paths.model import Kind, Level, PathModel, Value
from ndm_tcp.paths.observed import Bools, Ints, Observed, rates_of, seen, stretches
from ndm_tcp.paths.rivals import Shared
from ndm_tcp.paths.smooth import spread

WINDOW_S, WINDOW_RTTS = 0.25, 2.0
"""at least two polls of 100 ms in a window"""
WRITTEN = ("iperf3",)
"""formats that count what the program wrote, not what arrived"""
WRITE_BYTES = 1 << 17
"""at a time"""
WRITTEN_S = 1.0
"""a window of many writes; the first of all fill the sender's buffer"""
LEAST_OF_SRTT = 0.7
"""of the lowest smoothed RTT; a flow that keeps a queue never shows the baseline"""
MOST_WIDTHS = 4
"""Polls further apart say nothing of a window."""
MIN_WINDOWS = 4
QUEUE_S, QUEUE_PACKETS = 2e-3, 3.0
"""excess of the smoothed RTT from which on a queue stands"""
RATE_PERCENTILE = 90
TOP_PERCENTILE = 99
HELD_SHARE = 0.5
"""of the polls: the application or the receiver's window set the rate, not the path"""
LABEL_ERROR = 0.3
"""|log2|; the queue is only known to be longer than it seemed"""


def _baseline_us(flow: FlowRecords) -> Value:
    minima, srtt = flow.acks["min_rtt_us"], flow.acks["srtt_us"]
    lowest = float(minima[minima > 0].min() if minima.any() else srtt[srtt > 0].min())
    # The reader takes the lowest smoothed RTT so far where the log has no min RTT.
    so_far = np.minimum.accumulate(np.where(srtt > 0, srtt, srtt.max()))
    if (minima != so_far)[minima > 0].any():
        return Value(lowest, 0.98 * lowest, lowest)
    return Value(lowest, LEAST_OF_SRTT * lowest, lowest, Kind.AT_MOST)


def _held(flow: FlowRecords, i: Ints, j: Ints) -> Bools:
    """Did application or receiver hold the flow back in most polls from i to j, or of all?"""
    held = flow.acks["app_limited"] != 0
    if flow.rwnd_limited is not None:
        held = held | flow.rwnd_limited
    total = np.concatenate([[0], np.cumsum(held)])
    # A poll is of the time before.
    found: Bools = total[j + 1] - total[i + 1] > HELD_SHARE * (j - i)
    found |= bool(np.mean(held) > HELD_SHARE)
    return found


def _notes(bounded: bool, written: bool, unfilled: bool, counted: bool) -> tuple[str, ...]:
    """What cannot be known; bounded: the baseline RTT; counted: the losses."""
    notes = {
        "Polls show no single RTT: jitter, reordering, rivals and ACK groups are not known.": True,
        "The queue is a lower bound: the smoothed RTT lags behind it.": True,
        "The log has no min RTT: its lowest smoothed RTT is an upper bound.": bounded,
        "The log counts what the program wrote: the rate is that of long stretches.": written,
        "The flow never filled the path: the rate is a lower bound.": unfilled,
        "The log has no retransmissions over time: losses are not known.": not counted,
    }
    return tuple(note for note, holds in notes.items() if holds)


def _rate(flow: FlowRecords, o: Observed, base: float, shared: Shared) -> tuple[float, float, bool]:
    """The link's rate, packets/s; half of its 95 % interval, relative; is it a lower bound?

    Args:
        flow: polled.
        o: the same.
        base: its baseline RTT, s.
        shared: with others of its log.

    Raises:
        NdmError: polls too rare.
    """
    srtt, written = flow.acks["srtt_us"] / 1e6, flow.format in WRITTEN
    width = max(WRITTEN_S if written else WINDOW_S, WINDOW_RTTS * base)
    first_s = o.t[0] + width / 2 * written
    starts = np.arange(first_s, max(o.t[-1] - width, first_s + width / 8), width / 2)
    i, j = stretches(o, starts, width)
    close = o.t[j] - o.t[i] < MOST_WIDTHS * width
    i, j = i[close], j[close]
    if len(i) < MIN_WINDOWS:
        raise NdmError(f"polls too rare: {len(i)} windows of {width:.2f} s; poll every 100 ms")
    rate = rates_of(o, i, j)
    excess = np.array([np.median(srtt[p : q + 1]) - base for p, q in zip(i, j, strict=True)])
    top = max(float(np.percentile(rate, RATE_PERCENTILE)), 1.0)
    busy = (excess > max(QUEUE_PACKETS / top, QUEUE_S)) & (rate > 0) & ~_held(flow, i, j)
    unfilled = bool(busy.sum() < MIN_WINDOWS)
    used = rate if unfilled else rate[busy]
    pps = max(float(np.percentile(used, 50 if written else RATE_PERCENTILE)), 1.0)
    within = spread(np.log(used.clip(1))) + WRITE_BYTES / o.mss / (pps * width) / 2 * written
    error = 0.02 + 2 * within / float(np.sqrt(len(used)))
    if shared.rivals:
        return max(pps, shared.pps), error, shared.joined or not shared.filled
    return pps, error, unfilled


def estimate(flow: FlowRecords, o: Observed, name: str, source: str, shared: Shared) -> PathModel:
    """The model of a polled flow's path; shared: with others of its log.

    Raises:
        NdmError: polls too rare for a rate.
    """
    srtt = flow.acks["srtt_us"] / 1e6
    written = flow.format in WRITTEN
    rtt_us = _baseline_us(flow)
    base = rtt_us.value / 1e6
    pps, error, unfilled = _rate(flow, o, base, shared)
    packets = max(int(o.delivered[-1] - o.delivered[0]), 1)
    loss = min(float(o.lost.sum()) / packets, 1.0)
    counted = NOT_COUNTED not in flow.facts
    queue = max(float(np.percentile(srtt[srtt > 0], TOP_PERCENTILE) - base) * pps, 1.0)
    kind = Kind.AT_LEAST if unfilled else Kind.MEASURED
    rwnd = flow.rwnd_limited
    return PathModel(
        name=name,
        source=files.shown(source),
        flow_id=flow.flow_id,
        sampling=str(flow.sampling),
        cc=flow.cc_name,
        seconds=o.seconds,
        mss=o.mss,
        header_bytes=o.header_bytes,
        levels=(Level(0.0, around(pps * o.wire_bits, error, kind)),),
        rtt_us=rtt_us,
        queue_packets=Value.exact(queue, Kind.AT_LEAST),
        qdisc="droptail",
        loss=Value.exact(loss, Kind.AT_MOST if counted else Kind.ASSUMED),
        burst=None,
        jitter_us=Value.exact(0.0, Kind.ASSUMED),
        reorder=False,
        ack_hold_us=Value.exact(0.0, Kind.ASSUMED),
        rivals=stand_ins(shared),
        joined=shared.joined,
        bucket_packets=Value.exact(1.0, Kind.ASSUMED),
        app_limited=o.app_limited,
        rwnd_limited=float(np.mean(rwnd)) if rwnd is not None else 0.0,
        buffer_bytes=o.buffer_bytes,
        seen=seen(flow, o),
        label_error_log2=1.0 if unfilled else LABEL_ERROR,
        notes=_notes(rtt_us.kind == Kind.AT_MOST, written, unfilled and not shared.rivals, counted)
        + beside(shared, unfilled),
    )
