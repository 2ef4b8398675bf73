# SPDX-License-Identifier: GPL-2.0-only
"""Captures that were not taken where data are sent, or not of all packets: each says which."""

from __future__ import annotations

import csv
import random
import struct
from collections import Counter
from pathlib import Path

import pytest

from ndm_tcp.cli import run_command
from ndm_tcp.datasets.readers import capture

from .captures import ACK, SENDER, SYN, Captured, captured, stamps
from .conftest import TRACES
from .test_capture_twin import compare
from .test_field_captures import RTT_US, at, connection, outward, time_us

BEHIND, ONLY_ACKS, MIDWAY, AHEAD = (capture.REASONS[number] for number in (11, 12, 13, 14))
FRAGMENTS = capture.REASONS[15]
RUNS = ("cubic-01-clean", "reno-03-lossy", "bbr-04-lossy", "reno-06-lossy-jitter")


def seq_and_payload(record: bytes) -> tuple[int, int]:
    """Of a TCP segment over IPv4."""
    ip = record[16:]
    head = 4 * (ip[0] & 15)
    (size,) = struct.unpack_from(">H", ip, 2)
    (seq,) = struct.unpack_from(">I", ip, head + 4)
    return seq, size - head - 4 * (ip[head + 12] >> 4)


def skipped(path: Path) -> dict[str, int]:
    return dict(capture.read(path)[1])


def dropped_records(run: str, whole: list[bytes]) -> list[int]:
    """Numbers of the records whose packets the queue or the link dropped."""
    with (TRACES / run / "drops.csv").open() as stream:
        dropped = Counter(int(row["seq"]) for row in csv.DictReader(stream))
    found = []
    for k, record in enumerate(whole):
        seq, payload = seq_and_payload(record)
        if payload and dropped[seq] > 0:
            dropped[seq] -= 1
            found.append(k)
    return found


def without(path: Path, header: bytes, whole: list[bytes], lost: set[int]) -> Path:
    path.write_bytes(header + b"".join(r for k, r in enumerate(whole) if k not in lost))
    return path


@pytest.mark.parametrize("run", RUNS)
def test_a_capture_behind_what_drops_packets_is_refused(run: str, tmp_path: Path) -> None:
    """As on a router behind its shaper: what was dropped is not in it, until it comes again."""
    header, whole = captured(TRACES / run)
    lost = {*dropped_records(run, whole)}
    assert len(lost) > 8
    assert skipped(without(tmp_path / "behind.pcap", header, whole, lost)) == {BEHIND: 1}


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("together", [1, 20])
def test_packets_that_the_capture_lost_are_no_such_sign(
    run: str, together: int, tmp_path: Path
) -> None:
    """A busy host's tcpdump leaves some out, of which a few are lost by the network, too."""
    header, whole = captured(TRACES / run)
    draw = random.Random(together)
    lost = {
        k + j
        for k in range(200, len(whole), together)
        if draw.random() < 0.03
        for j in range(together)
    }
    # Of these a dozen that the network lost, too: seen for the first time when retransmitted.
    both = lost | {*dropped_records(run, whole)[:12]}
    assert not skipped(without(tmp_path / "lossy.pcap", header, whole, both))


@pytest.mark.parametrize("late_us", [200, 3000])
def test_overtaken_records_are_no_such_sign(late_us: int, tmp_path: Path) -> None:
    """Queues of a network card: data packets are captured up to a part of the RTT late."""
    made = connection(tmp_path / "x.pcap", 400)
    data = [k for k, record in enumerate(made.records) if outward(record)]
    for k in data[20:400:20]:
        made.records[k] = at(made.records[k], time_us(made.records[k]) + 1000 + late_us)
    (flow,), refused = capture.read(made.sort().write())
    assert not refused
    # What overtook them is no hole before them, and they are no retransmissions.
    lost = int(flow.acks["lost"].sum()), flow.facts["retransmitted"], flow.facts["capture_holes"]
    assert lost == (0, 0, 0) and int(flow.acks["delivered"][-1]) == 400
    compare(made.path)


@pytest.mark.parametrize("handshake", [True, False])
def test_a_capture_of_acks_alone_says_so(handshake: bool, tmp_path: Path) -> None:
    """Of a filter on the size, or on `src host`, with and without the sender's SYN."""
    made = connection(tmp_path / "x.pcap", 400)
    first, rest = made.records[:3], made.records[3:]
    made.records = first * handshake + [record for record in rest if not outward(record)]
    assert skipped(made.write()) == {ONLY_ACKS: 1}


def test_an_idle_connection_is_none_of_these(tmp_path: Path) -> None:
    """Keep-alives for an hour: ACKs go both ways, and no data."""
    made = Captured(tmp_path / "x.pcap")
    made.handshake(1_000_000, 1_020_000, 1_020_050)
    for k in range(200):
        made.data(2_000_000 + 15_000_000 * k, 0, 0)
        made.ack(2_020_000 + 15_000_000 * k, 1)
    (reason,) = skipped(made.write())
    assert reason.startswith("fewer than")


def parts(path: Path, names: tuple[str, ...]) -> list[Path]:
    """A transfer cut into files as by tcpdump -C."""
    made = connection(path / "whole.pcap", 3000)
    whole = made.records
    size = -(-len(whole) // len(names))
    found = []
    for k, name in enumerate(names):
        made.path, made.records = path / name, whole[k * size : (k + 1) * size]
        found.append(made.write())
    return found


def test_parts_of_a_flow_are_named_with_how_to_join_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = parts(tmp_path, ("a.pcap", "a.pcap1", "a.pcap10", "a.pcap2"))
    # Other flows: later on the same ports, and at that time on other ones.
    again = Captured(tmp_path / "again.pcap")
    again.handshake(4_050_000, 4_070_000, 4_070_050)
    again.transfer(4_071_000, 1200)
    other = Captured(tmp_path / "other.pcap", (SENDER[0], 4321))
    other.transfer(2_000_000, 1200)
    names = [again.sort().write(), other.sort().write()]
    run_command(["path", "estimate", *map(str, [*found, *names]), "-o", str(tmp_path / "out")])
    told = [line for line in capsys.readouterr().err.splitlines() if "parts of one flow" in line]
    joined = " ".join(map(str, found))
    assert len(told) == 1 and told[0].endswith(f"mergecap -w whole.pcap {joined}")


@pytest.mark.parametrize(("from_sender_us", "refused"), [(8_000, True), (1_000, False)])
@pytest.mark.parametrize("run", RUNS[:2])
def test_a_capture_midway_is_refused(
    run: str, from_sender_us: int, refused: bool, tmp_path: Path
) -> None:
    """On a router: of the RTT it shows only what lies behind it."""
    header, whole = captured(TRACES / run)
    sender = whole[0][16 + 12 : 16 + 16]  # it opens the connection
    moved = []
    for record in whole:
        out = record[16 + 12 : 16 + 16] == sender
        seconds, ns = struct.unpack_from("<II", record)
        ns += 10**9 * seconds + (1 if out else -1) * 1000 * from_sender_us
        moved.append((ns, struct.pack("<II", ns // 10**9, ns % 10**9) + record[8:]))
    moved.sort(key=lambda one: one[0])
    path = without(tmp_path / "midway.pcap", header, [record for _, record in moved], set())
    assert skipped(path) == ({MIDWAY: 1} if refused else {})


def test_a_sender_that_waits_with_its_first_ack_is_not_midway(tmp_path: Path) -> None:
    """Linux sends that ACK with the first data, if it may; it echoes time stamps at once."""
    made, rtt_us = Captured(tmp_path / "x.pcap"), 20_000
    mss = b"\x02\x04\x03\xe8"
    made.packet(1_000_000, True, flags=SYN, options=mss + stamps(0, 0))
    made.packet(1_020_000, False, flags=SYN | ACK, ack=1, options=mss + stamps(500, 0))
    for k in range(150):
        at_us, back = 1_055_000 + 1000 * k, k - rtt_us // 1000
        echo = 500 if back < 0 else 535 + back
        made.data(at_us, 1 + 1000 * k, 1000, options=stamps(55 + k, echo))
        made.ack(at_us + rtt_us - 100, 1001 + 1000 * k, options=stamps(535 + k, 55 + k))
    assert not skipped(made.sort().write())


@pytest.mark.parametrize("beyond_us", [500, 5_000, 100_000])
@pytest.mark.parametrize("handshake", [True, False])
def test_acks_whose_clock_is_behind_by_more_than_the_rtt_are_refused(
    beyond_us: int, handshake: bool, tmp_path: Path
) -> None:
    """Two taps, or two files of one direction each: nearly no ACK comes behind its data."""
    made = connection(tmp_path / "x.pcap", 400)
    for k, record in enumerate(made.records):
        if not outward(record):
            made.records[k] = at(record, time_us(record) - RTT_US - beyond_us)
    made.records = made.records[0 if handshake else 3 :]
    assert skipped(made.sort().write()) == {AHEAD: 1}
    assert "editcap -t" in AHEAD and "\n" not in AHEAD


@pytest.mark.parametrize(("early", "refused"), [(20, False), (21, True)])
def test_one_early_ack_in_twenty_is_accepted(early: int, refused: bool, tmp_path: Path) -> None:
    made = connection(tmp_path / "x.pcap", 400)
    acks = [k for k, record in enumerate(made.records) if not outward(record)]
    for k in acks[100 : 100 + 10 * early : 10]:
        made.records[k] = at(made.records[k], time_us(made.records[k]) - RTT_US - 500)
    assert skipped(made.sort().write()) == ({AHEAD: 1} if refused else {})


def in_fragments(record: bytes) -> list[bytes]:
    """The record as that of two fragments, the second without a TCP header."""
    ip = bytearray(record[16:])
    (total,) = struct.unpack_from(">H", ip, 2)
    found = []
    for part, flags in ((520, 0x2000), (total - 500, 63)):
        ip[2:4], ip[6:8] = struct.pack(">H", part), struct.pack(">H", flags)
        found.append(record[:8] + struct.pack("<II", len(ip), part) + bytes(ip))
    return found


@pytest.mark.parametrize("request_bytes", [0, 300])
def test_data_in_fragments_are_named(request_bytes: int, tmp_path: Path) -> None:
    """With a request, which is whole, its sender looks like the sender of the data."""
    made = connection(tmp_path / "x.pcap", 400)
    first, rest = made.records[:3], made.records[3:]
    made.records = first
    if request_bytes:
        made.packet(1_020_400, False, seq=1, ack=1, payload=request_bytes)
    for record in rest:
        made.records += in_fragments(record) if outward(record) else [record]
    assert skipped(made.write()) == {FRAGMENTS: 1}
