# SPDX-License-Identifier: GPL-2.0-only
"""Path models for tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ndm_tcp.paths.model import Kind, Level, PathModel, Seen, Value
from ndm_tcp.paths.predict import Prediction, Range

NONE = Value.exact(0.0)


def model(name: str = "mine", **changes: Any) -> PathModel:
    """A lone flow on 10 Mbit/s, 40 ms, 60 packets."""
    made = PathModel(
        name=name,
        source=f"{name}.pcap",
        flow_id="0" * 16,
        sampling="per_ack",
        cc="cubic",
        seconds=4.0,
        mss=1448,
        levels=(Level(0.0, Value(10e6, 9.9e6, 10.1e6)),),
        rtt_us=Value(40_000, 39_000, 40_500),
        queue_packets=Value(60, 58, 61),
        qdisc="droptail",
        loss=NONE,
        burst=None,
        jitter_us=NONE,
        reorder=False,
        ack_hold_us=Value.exact(3000),
        rivals=(),
        joined=False,
        bucket_packets=Value.exact(1.0),
        app_limited=0.0,
        rwnd_limited=0.0,
        seen=Seen(9.0, 60.0, 80.0, 0.01),
        label_error_log2=0.03,
        notes=(),
    )
    return replace(made, **changes)


def at_least(value: float) -> Value:
    """A lower bound."""
    return Value.exact(value, Kind.AT_LEAST)


def prediction(*goodput_mbps: float, rtt_ms: float = 50.0, lost: float = 0.0) -> Prediction:
    """An algorithm's runs, one a draw."""
    draws = tuple(Seen(mbps, rtt_ms, rtt_ms, lost) for mbps in goodput_mbps)
    goodput = Range(sum(goodput_mbps) / len(draws), min(goodput_mbps), max(goodput_mbps))
    rtt, share = Range(rtt_ms, rtt_ms, rtt_ms), Range(lost, lost, lost)
    return Prediction(goodput, rtt, rtt, share, draws)
