# SPDX-License-Identifier: GPL-2.0-only
"""Path models and flows for tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ndm_tcp.datasets.rounds.flow import ACK_DTYPE, AckArray, CwndSource, FlowRecords, Sampling
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


def captured(acks: AckArray) -> FlowRecords:
    """CUBIC's flow of these ACKs, as a capture has it."""
    return FlowRecords(
        flow_id="0" * 16,
        sampling=Sampling.PER_ACK,
        cwnd_source=CwndSource.INFLIGHT,
        acks=acks,
        format="pcap",
        cc_name="cubic",
        mss=1448,
    )


def jittered(
    levels: tuple[tuple[float, float], ...],
    jitter_s: float,
    window: int,
    base_s: float = 0.06,
    seconds: float = 8.0,
    seed: int = 1,
    saw: int = 0,
) -> FlowRecords:
    """A flow with a window over a link, and behind it normal jitter in order.

    Args:
        levels: (from s, packets/s) of the link.
        jitter_s: standard deviation.
        window: packets in flight.
        base_s: RTT without queue and jitter.
        seconds: duration.
        seed: of the jitter.
        saw: packets after which the window falls to the half that it grew from; 0: it is constant.
    """
    rng = np.random.default_rng(seed)
    begins, rates = zip(*levels, strict=True)
    sent: list[float] = []
    acked: list[float] = []
    rtts: list[float] = []
    flights: list[int] = []
    busy, arrived = 0.0, 0.0
    while not acked or acked[-1] < seconds:
        k = len(sent)
        now = round(window * (1 + k % saw / saw) / 2) if saw else window
        sent.append(max(sent[-1], acked[(k - now) // 2]) if k >= now else 0.0)
        begin = max(busy, sent[k])
        busy = begin + 1 / rates[int(np.searchsorted(begins, begin, side="right")) - 1]
        delay = base_s + jitter_s * float(np.clip(rng.standard_normal(), -4, 4))
        arrived = max(arrived, busy + delay)
        if k % 2:  # receivers acknowledge two packets at a time
            acked.append(arrived)
            rtts.append(arrived - sent[k])
            flights.append(now - 2)
    acks = np.zeros(len(acked), ACK_DTYPE)
    acks["now_us"] = np.round((np.array(acked) - acked[0]) * 1e6)
    acks["rtt_us"] = acks["srtt_us"] = np.round(np.array(rtts) * 1e6)
    acks["acked"], acks["inflight"] = 2, flights
    acks["delivered"] = 2 * np.arange(1, len(acked) + 1)
    return captured(acks)
