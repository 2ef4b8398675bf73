# SPDX-License-Identifier: GPL-2.0-only
"""A path model as a scenario of the lab, and draws of a model from its intervals."""

from __future__ import annotations

import math
import zlib
from dataclasses import replace
from typing import Any

import numpy as np

from ndm_tcp.datasets.rounds.flow import Sampling
from ndm_tcp.lab.guest.scrub import toml
from ndm_tcp.lab.paths.scenario import (
    MIN_RATE_BPS,
    RECEIVE_BYTES,
    UNDER_TEST,
    Host,
    Scenario,
    parse,
)
from ndm_tcp.paths import aqm
from ndm_tcp.paths.model import Kind, PathModel, Rival, Value

FIRST_ACK_RTTS = 4.5
"""Round trips from the start of a run to the flow's first ACK: iperf3's control connection, then
the flow's handshake and first data."""
RIVAL_LEAD_S = 1.0
"""A rival that was there before the flow starts so much earlier, s: time to fill the queue."""
UNSEEN_QUEUE = 1.25
"""A queue that never overflowed is taken to be so many times what it held..."""
UNSEEN_QUEUE_BDP = 1.0
"""...and at least so many bandwidth-delay products: what a lone Reno needs for a full link."""
MIN_QUEUE_PACKETS = 2
FQ_CODEL_PACKETS = 10_240
"""Linux's default limit; CoDel keeps the queue shorter"""
READ_WAIT_US = 10_000
"""ACK gathering up to this is the receiving program's, more is the link's"""
UNSEEN_WAIT_SHARE = 0.1
"""of the baseline RTT: receivers gather for less than that unseen, as the lab's own do for 3 ms"""
WINDOW_BDP, BUFFER_OVERHEAD = 2.0, 2.0
"""what an algorithm has in flight besides the queue, at most; bytes of a buffer for a byte of
data"""
SPREAD = 1.96
"""standard deviations of a normal distribution on each side of a 95 % interval"""


def _drawn(value: Value, rng: Normals) -> Value:
    """A value from its interval: log-normal on either side, so that no draw changes the sign."""
    away = rng.normal()
    if value.value <= 0 or value.high <= value.low:
        return value
    low = max(value.low, value.value / 100)
    end = value.high if away > 0 else low
    drawn = value.value * (end / value.value) ** (abs(away) / SPREAD)
    return replace(value, value=min(max(drawn, low), value.high))


class Normals:
    """Normal numbers of a model and a draw; two draws in a row have the same with other signs.

    So a few draws are not all on one side of the model, and those of two models have nothing in
    common. Antithetic variates: Hammersley and Morton, 1956.
    """

    def __init__(self, name: str, draw: int) -> None:
        number, second = divmod(draw - 1, 2)
        self.rng = np.random.default_rng([zlib.crc32(name.encode()), number])
        self.sign = -1 if second else 1

    def normal(self) -> float:
        """Within two standard deviations."""
        return self.sign * float(np.clip(self.rng.standard_normal(), -2, 2))

    def even(self) -> float:
        """Between -1 and 1, each as likely."""
        return self.sign * float(self.rng.uniform(-1, 1))


def draw(model: PathModel, seed: int) -> PathModel:
    """A model whose values are drawn from their intervals; seed 0: the model itself."""
    if seed == 0:
        return model
    rng = Normals(model.name, seed)
    # One factor for all levels: their errors have one cause, the clock and the gathering.
    factor = _drawn(model.levels[0].rate_bps, rng).value / model.levels[0].rate_bps.value
    rivals = tuple(
        Rival(r.cc, r.kind, max(0.0, r.start_s + 0.25 * rng.even())) if r.start_s else r
        for r in model.rivals
    )
    loss, burst = _drawn(model.loss, rng), model.burst
    if burst and model.loss.value > 0:
        more = loss.value / model.loss.value
        burst = replace(burst, start=min(burst.start * more, 1.0))
    return replace(
        model,
        levels=model.times(factor).levels,
        rivals=rivals,
        rtt_us=_drawn(model.rtt_us, rng),
        queue_packets=_drawn(model.queue_packets, rng),
        loss=loss,
        burst=burst,
        jitter_us=_drawn(model.jitter_us, rng),
        bucket_packets=_drawn(model.bucket_packets, rng),
    )


def queue_packets(model: PathModel) -> int:
    """The queue of the scenario: as measured, or a guess above what the capture saw."""
    packets = model.queue_packets.value
    return max(MIN_QUEUE_PACKETS, round(_queue(model, packets, model.bdp_packets)))


def _queue(model: PathModel, packets: float, bdp_packets: float) -> float:
    if model.queue_packets.kind == Kind.MEASURED:
        return packets
    return max(UNSEEN_QUEUE * packets, UNSEEN_QUEUE_BDP * bdp_packets)


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{k} = {_toml(v)}" for k, v in value.items()) + " }"
    return f"{value:.6g}" if isinstance(value, float) else toml(value)


def _table(title: str, values: dict[str, Any]) -> list[str]:
    return ["", title, *(f"{name} = {_toml(value)}" for name, value in values.items())]


def _lead_s(model: PathModel) -> float:
    """How long rivals that were there before send alone."""
    return RIVAL_LEAD_S if any(rival.start_s == 0 for rival in model.rivals) else 0.0


def first_ack_s(model: PathModel) -> float:
    """When the scenario's flow under test gets its first ACK, s since the start of the run."""
    return _lead_s(model) + FIRST_ACK_RTTS * model.rtt_us.value / 1e6


def _lab_packets(model: PathModel, packets: float) -> int:
    """As many bytes as so many packets of the flow have."""
    return max(1, round(model.lab_packets * packets))


def _link(model: PathModel) -> dict[str, Any]:
    offset_s = first_ack_s(model)
    first, *later = model.levels
    rtt_us = max(0, round(model.rtt_us.value))
    link: dict[str, Any] = {"rate_bps": _rate(first.rate_bps.value), "rtt_us": rtt_us}
    if model.qdisc != "cake":
        early = model.qdisc == aqm.FQ_CODEL and model.queue_packets.kind != Kind.MEASURED
        packets = _lab_packets(model, queue_packets(model))
        link["queue_packets"] = max(packets, FQ_CODEL_PACKETS if early else 0)
    if model.bucket_packets.value > 1:
        bucket = _lab_packets(model, model.bucket_packets.value)
        link |= {"queue_packets": 1, "bucket_packets": bucket}
    if model.qdisc != "droptail":
        link["qdisc"] = model.qdisc
    if model.loss.value > 0 and model.burst is None:
        link["loss"] = float(model.loss.value)
    if model.burst:
        b = model.burst
        link["burst"] = {"start": float(b.start), "end": float(b.end), "loss": float(b.loss)}
    if model.jitter_us.value >= 1:
        link |= {"jitter_us": round(model.jitter_us.value), "reorder": model.reorder}
    if model.window_bdp:
        link["window_bdp"] = round(model.window_bdp, 4)
    if later:
        link["steps"] = [[round(v.from_s + offset_s, 3), _rate(v.rate_bps.value)] for v in later]
    hold_us = round(model.ack_hold_us.value)
    if hold_us > READ_WAIT_US:
        link["ack_hold_us"] = [hold_us // 2, hold_us]
    return link


def _rate(bps: float) -> int:
    return max(MIN_RATE_BPS, round(bps))


def _buffer_decides(model: PathModel) -> bool:
    """May the receiver's buffer, unlike the lab's, be what limits an algorithm?

    By the upper ends of the intervals, which all draws of a model have.
    """
    packet_bits = 8 * (model.mss + model.header_bytes)
    bps = max(level.rate_bps.high for level in model.levels)
    bdp = bps * model.rtt_us.high / 1e6 / packet_bits
    # Other queues than droptail keep a flow's share short, whatever their limit.
    queue = _queue(model, model.queue_packets.high, bdp) if model.qdisc == "droptail" else 0.0
    needed = BUFFER_OVERHEAD * (WINDOW_BDP * bdp + queue) * model.mss
    known = model.buffer_bytes not in (0, RECEIVE_BYTES)
    return known and needed > min(model.buffer_bytes, RECEIVE_BYTES)


def queued_s(model: PathModel) -> float:
    """How long the captured flow's last packets waited in the queue; a log ends with a poll."""
    if model.seen is None or model.sampling == Sampling.POLL:
        return 0.0
    return max(0.0, model.seen.rtt_mean_ms / 1e3 - model.rtt_us.value / 1e6)


def sent_s(model: PathModel) -> int:
    """For how long the captured flow sent, whole seconds.

    A second too much shifts predictions: BBR leaves the path almost empty in its eleventh second.
    """
    return max(1, round(model.seconds - queued_s(model)))


def text(model: PathModel, seconds: float | None = None) -> str:
    """The scenario's TOML.

    Args:
        model: of a path.
        seconds: duration of the flow under test; None: as captured, in whole seconds.
    """
    lasts = sent_s(model) if seconds is None else math.ceil(seconds) or 1
    lead_s = _lead_s(model)
    lines = [f'title = "path model {model.name}"', f"seconds = {lasts}", 'topology = "path"']
    lines += _table("[link]", _link(model))
    hold_us = round(model.ack_hold_us.value)
    unseen_us = min(Host.read_wait_us, UNSEEN_WAIT_SHARE * model.rtt_us.value)
    wait_us = max(1, round(hold_us or unseen_us)) if hold_us <= READ_WAIT_US else 1
    buffer = {"buffer_bytes": model.buffer_bytes} if _buffer_decides(model) else {}
    lines += _table("[host]", {"read_wait_us": wait_us, **buffer})
    lines += _table("[[flows]]", {"cc": UNDER_TEST, "start_s": lead_s, "seconds": lasts})
    for rival in model.rivals:
        start_s = rival.start_s + lead_s if rival.start_s else 0.0
        rest = max(1, math.ceil(lasts + lead_s - start_s))
        flow = {"cc": rival.cc, "sender": 1, "start_s": round(start_s, 3), "seconds": rest}
        lines += _table("[[flows]]", flow)
    return "\n".join(lines) + "\n"


def scenario(model: PathModel, name: str | None = None, seconds: float | None = None) -> Scenario:
    """The scenario itself; see `text`.

    Raises:
        NdmError: the lab cannot make this path.
    """
    name = name or model.name
    return parse(text(model, seconds), name, f"path model {name}")
