# SPDX-License-Identifier: GPL-2.0-only
"""A sender-side capture to the records of its flows."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from math import gcd
from pathlib import Path

import numpy as np

from ndm_tcp import files
from ndm_tcp.datasets.readers.tcp_probe import ProbeColumns
from ndm_tcp.datasets.rounds.flow import CwndSource, FlowRecords, Sampling, flow_id

from .pcap import ACK, SYN, CaptureReport, Segment, is_ack, is_data, is_fin, segments
from .sender import SenderReplay
from .tcp_options import Options, parse_options

INITIAL_WINDOW = 10  # packets, RFC 6928

MIN_SEGMENTS = 64
"""A flow with fewer data segments has too few rounds to learn from."""

PACED = ("bbr", "bbr2", "bbr3")
"""Algorithms that steer by pacing: their cwnd is only a cap, so what is in flight is taken
as the window even where the kernel's is known."""

TIMESTAMP_BYTES = 12  # what the option takes from every segment's payload


@dataclass(frozen=True)
class Truth:
    """What the machine that made the capture recorded beside it."""

    cc_name: str | None = None
    """of every flow that `cc_by_port` does not name"""
    cc_by_port: dict[int, str] = field(default_factory=dict)
    """sender's port to congestion control"""
    path: str | None = None
    probes: dict[tuple[int, int], ProbeColumns] = field(default_factory=dict)
    """(sender's port, receiver's port) to the kernel's own cwnd and ssthresh"""
    probe_offset_s: float = 0.0
    """capture clock - tcp_probe clock"""
    drops: dict[int, list[tuple[int, int]]] | None = None
    """32-bit sequence number to [(capture clock in us, LossCause)]"""


@dataclass
class _Connection:
    packets: list[tuple[Segment, bool]] = field(default_factory=list)
    """the packet, and whether it goes from the first-seen endpoint to the other"""
    payload: list[int] = field(default_factory=lambda: [0, 0])


def _handshake(packets: list[tuple[Segment, bool]]) -> tuple[int, int, int] | None:
    """When SYN, SYN-ACK and its ACK were captured, ns; None if not.

    Of a retransmitted SYN-ACK, the copy whose time stamp the ACK echoes, if one of the last two.
    """
    syn = synack = None
    copies: list[tuple[int, int]] = []
    for segment, _ in packets[:16]:
        if segment.flags & SYN and not segment.flags & ACK:
            syn = segment.time_ns
        elif segment.flags & SYN and syn is not None:
            synack = segment.time_ns
            ts = parse_options(segment.options).ts
            copies = [*copies[-1:], (ts[0] if ts else 0, synack)]
        elif synack is not None and segment.flags & ACK and syn is not None:
            ts = parse_options(segment.options).ts
            (old, old_ns), (new, _) = copies[0], copies[-1]
            synack = old_ns if ts and ts[1] == old != new else synack
            return syn, synack, segment.time_ns
    return None


def _gaps(opening: tuple[int, int, int]) -> tuple[int, int]:
    return max(opening[1] - opening[0], 0), opening[2] - opening[1]


def _segment_size(packets: list[tuple[Segment, bool]], forward: bool) -> int:
    """Payload of a full segment: what both ends offered, else by the commonest payloads."""
    offers, stamps = [], False
    for segment, _ in packets[:16]:
        if segment.flags & SYN and not segment.options_cut:
            options = parse_options(segment.options)
            offers.append(options.mss or 536)
            stamps = options.ts is not None
    if len(offers) >= 2:
        return min(offers) - (TIMESTAMP_BYTES if stamps else 0)
    sizes = Counter(s.payload for s, way in packets if way == forward and s.payload >= 256)
    if not sizes:
        return 536
    common = sizes.most_common(4)
    full = min(size for size, count in common if count * 4 >= common[0][1])
    if full <= 1500:
        return full
    # With segmentation offload a packet holds several segments.
    divisor = gcd(*(size for size, n in common if n > 1 and n * 1024 >= common[0][1]))
    return divisor if divisor >= 256 else full


def _syns_resent(packets: list[tuple[Segment, bool]], forward: bool) -> int:
    """SYNs (or SYN-ACKs) of the sender with the number of the one before."""
    syns = [s.seq for s, way in packets if way == forward and s.flags & SYN]
    return sum(a == b for a, b in pairwise(syns))


def _scale(packets: list[tuple[Segment, bool]], forward: bool) -> int | None:
    """Window scale of the receiver's ACKs; None if the handshake is missing."""
    offers = {
        way: parse_options(segment.options).wscale
        for segment, way in packets[:16]
        if segment.flags & SYN and not segment.options_cut
    }
    if len(offers) < 2:
        return None
    if offers[forward] is None:
        return 0
    return offers[not forward] or 0


def _replay(
    connection: _Connection,
    forward: bool,
    opening: tuple[int, int, int] | None,
    truth: Truth,
    mss: int | None = None,
) -> SenderReplay:
    packets = connection.packets
    size = mss or _segment_size(packets, forward)
    replay = SenderReplay(size, _scale(packets, forward), truth.drops)
    rtt_us = max(max(_gaps(opening)) // 1000, 1) if opening else 0
    if opening:
        replay.rtt.update(rtt_us)
        replay.min_rtt.update(packets[0][0].time_ns // 1000, rtt_us)
    nothing = Options()
    for segment, way in packets:
        now_us = segment.time_ns // 1000
        if way == forward:
            if is_data(segment):
                options = parse_options(segment.options) if segment.options else nothing
                replay.sent(now_us, segment.seq, segment.payload, options)
            if is_fin(segment):
                replay.finished(segment.seq + segment.payload, not segment.payload)
        elif is_ack(segment):
            options = parse_options(segment.options) if segment.options else nothing
            replay.acked(now_us, segment.ack, segment.window, options)
    if mss is None and (smaller := replay.edges.smaller_mss()):
        return _replay(connection, forward, opening, truth, smaller)
    # Like the kernel module: with the handshake, or behind a request that came alone and
    # did not fill the window.
    if opening and replay.rows and (replay.rows[0][4] or replay.rows[0][2] >= INITIAL_WINDOW):
        ended_ns = opening[1] if packets[0][1] == forward else opening[2]
        replay.begin_with(min(ended_ns // 1000, replay.rows[0][0]), rtt_us)
    return replay


def _true_windows(
    records: FlowRecords, start_us: int, probe: ProbeColumns, offset_s: float
) -> None:
    """Overwrite the estimated windows by the kernel's, by time.

    tcp_probe fires when the ACK is received, just after the capture point saw it.
    """
    at_s = (records.acks["now_us"].astype(np.float64) + start_us) / 1e6 - offset_s
    index = np.searchsorted(probe.t_s, at_s, side="left").clip(0, len(probe.t_s) - 1)
    records.acks["cwnd"] = probe.cwnd[index]
    records.acks["ssthresh"] = probe.ssthresh[index]


def read(
    path: Path,
    truth: Truth | None = None,
    keep_going: bool = False,
    report: CaptureReport | None = None,
) -> tuple[list[FlowRecords], Counter[str]]:
    """The flows of a capture, as their senders saw them.

    Args:
        path: a pcap or pcapng file.
        truth: what was recorded beside the capture, if anything.
        keep_going: use the whole packets of a file that is cut short.
        report: filled with packet counts.

    Returns:
        the flows, and how many connections were left out, by reason.

    Raises:
        NdmError: see `pcap.segments`.
    """
    truth = truth or Truth()
    digest = files.sha256(path)
    connections: dict[tuple[object, ...], _Connection] = {}
    for segment in segments(path, report or CaptureReport(), keep_going):
        ends = (segment.source, segment.target)
        key = (segment.link, *sorted(ends))
        connection = connections.setdefault(key, _Connection())
        forward = ends == key[1:]
        connection.packets.append((segment, forward))
        connection.payload[forward] += segment.payload
    flows, skipped = [], Counter[str]()
    for number, connection in enumerate(connections.values()):
        forward = connection.payload[True] >= connection.payload[False]
        packets = connection.packets
        opening = _handshake(packets)
        # At the sender the far end takes the round trip to answer, in either direction.
        opened_by_sender = bool(packets) and packets[0][1] == forward
        answered = any(is_ack(s) for s, way in packets if way != forward)
        if connection.payload[forward] and not answered:
            skipped["no ACK direction captured: no RTT"] += 1
            continue
        replay = _replay(connection, forward, opening, truth)
        if replay.sent_segments < MIN_SEGMENTS or len(replay.rows) < 8:
            skipped[f"fewer than {MIN_SEGMENTS} data segments"] += 1
            continue
        gaps = _gaps(opening) if opening else None
        if gaps and (gaps[0] < gaps[1]) == opened_by_sender and min(gaps) * 4 < max(gaps):
            why = "the sender's RTT is not visible; capture where data are sent"
            skipped[f"captured near the receiver: {why}"] += 1
            continue
        flows.append(_records(flow_id(digest, str(number)), connection, forward, replay, truth))
    return flows, skipped


def _records(
    name: str, connection: _Connection, forward: bool, replay: SenderReplay, truth: Truth
) -> FlowRecords:
    """What a replay says of a connection."""
    packets = connection.packets
    sender = next(s for s, way in packets if way == forward)
    ports = (sender.source[1], sender.target[1])
    cc_name = truth.cc_by_port.get(ports[0], truth.cc_name)
    probe = None if cc_name in PACED else truth.probes.get(ports)
    records = FlowRecords(
        flow_id=name,
        sampling=Sampling.PER_ACK,
        cwnd_source=CwndSource.KERNEL if probe is not None else CwndSource.INFLIGHT,
        acks=replay.records(),
        format="pcap",
        cc_name=cc_name,
        path=truth.path,
        mss=replay.mss,
        loss_cause=np.array(replay.cause_rows, dtype=np.uint8),
        rwnd_limited=np.array(replay.rwnd_rows, dtype=np.bool_),
        captured_rtt_us=np.array(replay.rtt_rows, dtype=np.int32),
        facts={
            "packets": len(packets),
            "segments": replay.sent_segments,
            "retransmitted": replay.retransmitted
            + replay.fins_resent
            + _syns_resent(packets, forward),
            "rtos": replay.rtos,
            "dsacks": replay.dsacks,
        },
    )
    if probe is not None:
        _true_windows(records, replay.rows[0][0], probe, truth.probe_offset_s)
    return records
