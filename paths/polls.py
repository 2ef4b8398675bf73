# SPDX-License-Identifier: GPL-2.0-only
"""What polls of tcp_info say of a path: rate and baseline RTT well, the queue roughly.

A poll has no RTT of its own: the smoothed one lags behind the queue by some round trips, so the
highest queue shows too low.
"""

from __future__ import annotations

import numpy as np

from ndm_tcp import files
from ndm_tcp.datasets.rounds.flow import FlowRecords
from ndm_tcp.errors import NdmError
from ndm_tcp.paths.model import Kind, Level, PathModel, Value
from ndm_tcp.paths.observed import Observed, rates_of, seen, stretches
from ndm_tcp.paths.smooth import spread

WINDOW_S, WINDOW_RTTS = 0.25, 2.0
"""at least two polls of 100 ms in a window"""
MOST_WIDTHS = 4
"""Polls further apart say nothing of a window."""
MIN_WINDOWS = 4
QUEUE_S, QUEUE_PACKETS = 2e-3, 3.0
"""excess of the smoothed RTT from which on a queue stands"""
RATE_PERCENTILE = 90
TOP_PERCENTILE = 99
LABEL_ERROR = 0.3
"""|log2|; the queue is only known to be longer than it seemed"""


def estimate(flow: FlowRecords, o: Observed, name: str, source: str) -> PathModel:
    """The model of a polled flow's path.

    Raises:
        NdmError: polls too rare for a rate.
    """
    acks = flow.acks
    srtt = acks["srtt_us"] / 1e6
    minima = acks["min_rtt_us"][acks["min_rtt_us"] > 0]
    base = float(minima.min() if len(minima) else acks["srtt_us"][srtt > 0].min()) / 1e6
    width = max(WINDOW_S, WINDOW_RTTS * base)
    starts = np.arange(o.t[0], max(o.t[-1] - width, o.t[0] + width / 8), width / 2)
    i, j = stretches(o, starts, width)
    close = o.t[j] - o.t[i] < MOST_WIDTHS * width
    i, j = i[close], j[close]
    if len(i) < MIN_WINDOWS:
        raise NdmError(f"polls too rare: {len(i)} windows of {width:.2f} s; poll every 100 ms")
    rate = rates_of(o, i, j)
    excess = np.array([np.median(srtt[p : q + 1]) - base for p, q in zip(i, j, strict=True)])
    top = max(float(np.percentile(rate, RATE_PERCENTILE)), 1.0)
    busy = (excess > max(QUEUE_PACKETS / top, QUEUE_S)) & (rate > 0)
    unfilled = busy.sum() < MIN_WINDOWS
    used = rate if unfilled else rate[busy]
    pps = max(float(np.percentile(used, RATE_PERCENTILE)), 1.0)
    packets = max(int(o.delivered[-1] - o.delivered[0]), 1)
    loss = float(o.lost.sum()) / packets
    queue = max(float(np.percentile(srtt[srtt > 0], TOP_PERCENTILE) - base) * pps, 1.0)
    bps = pps * o.wire_bits
    error = 0.02 + 2 * spread(np.log(used.clip(1))) / float(np.sqrt(len(used)))
    kind = Kind.AT_LEAST if unfilled else Kind.MEASURED
    notes = ["Polls show no single RTT: jitter, reordering, rivals and ACK groups are not known."]
    notes.append("The queue is a lower bound: the smoothed RTT lags behind it.")
    if unfilled:
        notes.append("The flow never filled the path: the rate is a lower bound.")
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
        levels=(Level(0.0, Value(bps, bps * (1 - error), bps * (1 + error), kind)),),
        rtt_us=Value(base * 1e6, base * 0.98e6, base * 1e6),
        queue_packets=Value.exact(queue, Kind.AT_LEAST),
        qdisc="droptail",
        loss=Value.exact(loss, Kind.AT_MOST),
        burst=None,
        jitter_us=Value.exact(0.0, Kind.ASSUMED),
        reorder=False,
        ack_hold_us=Value.exact(0.0, Kind.ASSUMED),
        rivals=(),
        joined=False,
        bucket_packets=Value.exact(1.0, Kind.ASSUMED),
        app_limited=float(np.mean(acks["app_limited"])),
        rwnd_limited=float(np.mean(rwnd)) if rwnd is not None else 0.0,
        buffer_bytes=o.buffer_bytes,
        seen=seen(flow, o),
        label_error_log2=1.0 if unfilled else LABEL_ERROR,
        notes=tuple(notes),
    )
