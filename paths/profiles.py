# SPDX-License-Identifier: GPL-2.0-only
"""Path models of others: iBoxNet's profiles, and traces in mahimahi's format.

iBoxNet (Ashok et al., HotNets 2020) has a rate, a delay, a buffer, and the rate of other traffic
second by second. The lab's rivals react, that traffic does not, so the model takes it off the
rate. A mahimahi trace has nothing but a rate over time: RTT and queue have to be given.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

import msgspec

from ndm_tcp import files
from ndm_tcp.errors import NdmError
from ndm_tcp.lab.paths import mahimahi
from ndm_tcp.paths.model import Kind, Level, PathModel, Value

MSS = 1448
LEAST_SHARE = 0.05
"""of the rate that other traffic leaves: a link at 0 would never carry anything"""
SAME = 0.02
"""Levels that differ by less are one."""
SECONDS = 30.0
"""duration of a profile's flow: iBoxNet's patterns last so long"""


@dataclass(frozen=True)
class Direction:
    """A direction of an iBoxNet profile."""

    bottleneck_bandwidth: float
    """kbit/s"""
    buffer_size_packets: int
    propagation_delay: float
    """ms"""
    cross_traffic_pattern: list[float]
    """kbit/s, second by second"""


@dataclass(frozen=True)
class Directions:
    """Both."""

    uplink: Direction
    downlink: Direction


@dataclass(frozen=True)
class Profile:
    """What a model takes from an iBoxNet profile."""

    data_flow_direction: str
    config: Directions


def read(path: Path, rtt_ms: float | None, queue_packets: int | None) -> PathModel:
    """The model of an iBoxNet profile (JSON) or of a mahimahi trace.

    Args:
        path: the file.
        rtt_ms: baseline RTT of a trace, ms.
        queue_packets: queue of a trace, packets.

    Raises:
        NdmError: no such file, neither of both, or a trace without RTT or queue.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise NdmError(f"{path}: {files.why(error)}") from None
    if data.lstrip().startswith(b"{"):
        return _of_profile(path, data)
    times_ms = mahimahi.read(path)
    if rtt_ms is None or queue_packets is None:
        raise NdmError(
            f"{path}: a trace has no RTT and no queue; add --rtt-ms MS --queue-packets PACKETS"
        )
    seconds = min(SECONDS, max(1.0, times_ms[-1] / 1e3))
    rates = [(at_s, float(bps)) for at_s, bps in mahimahi.rates(times_ms, seconds)]
    note = "A trace has the rate over time; RTT and queue were given, loss and jitter are unknown."
    return _model(path, rates, 1e3 * rtt_ms, queue_packets, seconds, note)


def _of_profile(path: Path, data: bytes) -> PathModel:
    try:
        found = msgspec.json.decode(data, type=Profile)
    except msgspec.DecodeError as error:
        raise NdmError(
            f"{path}: neither an iBoxNet profile ({error}) nor a mahimahi trace; name one of these"
        ) from None
    up, down = found.config.uplink, found.config.downlink
    one = down if found.data_flow_direction == "download" else up
    kbps = one.bottleneck_bandwidth
    rates: list[tuple[float, float]] = []
    for second, others in enumerate(one.cross_traffic_pattern or [0.0]):
        bps = 1e3 * max(kbps - others, LEAST_SHARE * kbps)
        if not rates or abs(bps - rates[-1][1]) > SAME * rates[-1][1]:
            rates.append((float(second), bps))
    rtt_us = 1e3 * (up.propagation_delay + down.propagation_delay)
    note = "iBoxNet's other traffic is taken off the rate; it knows no random loss and no jitter."
    return _model(path, rates, rtt_us, one.buffer_size_packets, SECONDS, note)


def _model(
    path: Path,
    rates: list[tuple[float, float]],
    rtt_us: float,
    queue_packets: int,
    seconds: float,
    note: str,
) -> PathModel:
    rate_bps = rates[0][1]
    if not (1 <= rtt_us < math.inf and queue_packets >= 1 and 0 < rate_bps < math.inf):
        raise NdmError(
            f"{path}: rate and queue must be above 0, the RTT 1 us or more; give others, or leave "
            "this profile out"
        )
    given, none = Kind.ASSUMED, Value.exact(0.0, Kind.ASSUMED)
    # A trace's ending may be a direction: ATT-LTE-driving.up.
    name = (
        "-".join((*path.absolute().parent.parts[-2:], path.stem))
        if path.suffix == ".json"
        else path.name
    )
    return PathModel(
        name=re.sub(r"[^A-Za-z0-9._-]", "-", name),
        source=path.name,
        flow_id=files.sha256(path)[:16],
        sampling="profile",
        cc=None,
        seconds=seconds,
        mss=MSS,
        levels=tuple(Level(at_s, Value.exact(bps, given)) for at_s, bps in rates),
        rtt_us=Value.exact(rtt_us, given),
        queue_packets=Value.exact(queue_packets, Kind.MEASURED),
        qdisc="droptail",
        loss=none,
        burst=None,
        jitter_us=none,
        reorder=False,
        ack_hold_us=none,
        rivals=(),
        joined=False,
        bucket_packets=Value.exact(1.0, given),
        app_limited=0.0,
        rwnd_limited=0.0,
        seen=None,
        label_error_log2=1.0,
        notes=(note,),
    )
