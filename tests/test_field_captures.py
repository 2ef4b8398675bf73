# SPDX-License-Identifier: GPL-2.0-only
"""Captures as engineers hand them in: read to the right numbers, or refused by name."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ndm_tcp.datasets.readers import capture, pcap
from ndm_tcp.datasets.rounds.flow import FlowRecords

from . import captures
from .captures import (
    ACK,
    FIN,
    RECEIVER,
    SENDER,
    Captured,
    enhanced,
    interface,
    pcap_header,
    section,
)
from .test_capture_twin import compare

RTT_US = 20_300
"""No ACK comes in the microsecond in which data leaves: then either may be first."""
MERGED = "two capture points are merged in one file; take the sender's capture alone"
V6 = (bytes.fromhex("20010db8000000000000000000000001"), 1000)
Record = bytes
Change = Callable[[int, Record], Record]


def connection(path: Path, n: int = 150, sender: tuple[bytes, int] = SENDER) -> Captured:
    """A whole transfer of n segments of 1000 bytes, 1 ms apart, without a loss."""
    made = Captured(path, sender)
    made.handshake(1_000_000, 1_000_000 + RTT_US, 1_000_050 + RTT_US)
    made.transfer(1_021_000, n, rtt_us=RTT_US)
    return made.sort()


def read(made: Captured) -> tuple[list[FlowRecords], dict[str, int], pcap.CaptureReport]:
    report = pcap.CaptureReport()
    flows, skipped = capture.read(made.write(), None, report)
    return flows, dict(skipped), report


def alone(made: Captured) -> FlowRecords:
    (flow,), skipped, _ = read(made)
    assert not skipped
    return flow


def at(record: Record, us: int) -> Record:
    """The record at another time."""
    return struct.pack("<II", us // 10**6, us % 10**6) + record[8:]


def time_us(record: Record) -> int:
    seconds, us = struct.unpack_from("<II", record)
    return int(seconds) * 10**6 + int(us)


def outward(record: Record) -> bool:
    return record[16 + 12 : 16 + 16] == SENDER[0]


def end_seq(n: int) -> int:
    return 1 + n * 1000


# --- FIN -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("with_data", [False, True])
@pytest.mark.parametrize("answers", [1, 40])
def test_acks_of_a_fin_are_no_holes(tmp_path: Path, with_data: bool, answers: int) -> None:
    """Half closed: the peer goes on sending, and acknowledges the FIN each time."""
    made, end = connection(tmp_path / "x.pcap"), end_seq(150)
    made.data(1_300_000, end, 1000 if with_data else 0, flags=FIN | ACK)
    end += 1000 if with_data else 0
    for k in range(answers):
        made.packet(1_320_000 + k * 500, False, seq=1 + k * 100, ack=end + 1, payload=100)
    flow = alone(made)
    assert flow.facts["segments"] == 150 + with_data
    assert flow.facts["capture_holes"] == flow.facts["retransmitted"] == 0
    assert flow.acks["delivered"][-1] == 150 + with_data
    compare(made.path)


def test_a_fin_that_few_large_packets_end_with(tmp_path: Path) -> None:
    made = Captured(tmp_path / "x.pcap")
    made.handshake(1_000_000, 1_020_000, 1_020_050)
    for k in range(16):
        made.data(1_021_000 + k * 1000, 1 + k * 5000, 5000)
        made.ack(1_041_000 + k * 1000, 1 + (k + 1) * 5000)
    made.data(1_100_000, 80_001, 0, flags=FIN | ACK)
    made.ack(1_120_000, 80_002, flags=FIN | ACK)
    made.packet(1_120_050, True, seq=80_002, ack=2)
    flow = alone(made.sort())
    assert (flow.facts["segments"], flow.facts["capture_holes"]) == (80, 0)
    compare(made.path)


def test_syn_and_fin_sent_again_are_retransmissions_as_the_kernel_counts(tmp_path: Path) -> None:
    made, end = connection(tmp_path / "x.pcap"), end_seq(150)
    made.packet(500_000, True, flags=captures.SYN, options=b"\x02\x04\x03\xe8")
    for k in range(3):
        made.data(1_300_000 + k * 300_000, end, 0, flags=FIN | ACK)
    made.ack(1_920_000, end + 1)
    flow = alone(made.sort())
    assert (flow.facts["retransmitted"], flow.facts["segments"]) == (1 + 2, 150)
    compare(made.path)


def test_data_that_was_lost_before_a_fin_is_one_hole(tmp_path: Path) -> None:
    made, end = connection(tmp_path / "x.pcap"), end_seq(150) + 3000
    made.data(1_300_000, end, 0, flags=FIN | ACK)
    for k in range(30):
        made.packet(1_320_000 + k * 500, False, seq=1 + k * 100, ack=end + 1, payload=100)
    assert alone(made).facts["capture_holes"] == 1


# --- keep-alives and probes ----------------------------------------------------------------------
@pytest.mark.parametrize("size", [0, 1])
def test_keep_alives_are_no_retransmissions(tmp_path: Path, size: int) -> None:
    made, end = connection(tmp_path / "x.pcap"), end_seq(150)
    made.data(1_190_500, end - 1000, 1000)  # a true one, before it was acknowledged
    made.ack(1_210_500, end)
    for k in range(20):
        made.data(3_000_000 + k * 10**6, end - 1, size)
        made.ack(3_020_000 + k * 10**6, end)
    made.transfer(30_000_000, 10, end)
    flow = alone(made.sort())
    assert flow.facts["retransmitted"] == 1 and flow.facts["segments"] == 161
    assert flow.facts["keepalives"] == 20 * size and flow.facts["capture_holes"] == 0
    compare(made.path)


@pytest.mark.parametrize("taken", [False, True])
def test_window_probes_of_one_byte_are_no_retransmissions(tmp_path: Path, taken: bool) -> None:
    """New data beyond a closed window; the receiver takes the byte, or not."""
    made, end = connection(tmp_path / "x.pcap"), end_seq(150)
    made.ack(1_300_000, end, window=0)
    for k in range(8):
        made.data(2_000_000 + k * 10**6, end, 1)
        end += taken
        made.ack(2_020_000 + k * 10**6, end, window=0)
    made.ack(11_000_000, end, window=1000)
    made.transfer(11_000_100, 10, end)
    flow = alone(made.sort())
    assert flow.facts["retransmitted"] == flow.facts["capture_holes"] == 0
    assert flow.facts["segments"] == 160 and flow.facts["keepalives"] == 8
    compare(made.path)


# --- one transfer twice in a file ----------------------------------------------------------------
def two_points(path: Path, far_ttl: int, ids: bool, ahead_us: int, v6: bool) -> Captured:
    """What the sender and the receiver captured, the receiver's clock ahead, merged by time."""
    made = connection(path, sender=V6 if v6 else SENDER)
    merged = []
    for record in made.records:
        there = record[16 + 8 : 16 + 24] == V6[0] if v6 else outward(record)
        for near in (there, not there):
            us = time_us(record)
            ttl = 64 if near else far_ttl
            header = bytearray(record)
            header[16 + (7 if v6 else 8)] = ttl
            if not ids and not v6:
                header[16 + 4 : 16 + 6] = b"\0\0"
            seen_by_receiver = near != there
            shift = RTT_US // 2 * (1 if there else -1) + ahead_us if seen_by_receiver else 0
            merged.append(at(bytes(header), us + shift))
    made.records = merged
    return made.sort()


@pytest.mark.parametrize("far_ttl", [59, 64])
@pytest.mark.parametrize("ids", [True, False])
@pytest.mark.parametrize("ahead_us", [0, 700_000, -700_000])
@pytest.mark.parametrize("v6", [False, True])
def test_two_capture_points_in_one_file_are_refused(
    tmp_path: Path, far_ttl: int, ids: bool, ahead_us: int, v6: bool
) -> None:
    made = two_points(tmp_path / "x.pcap", far_ttl, ids, ahead_us, v6)
    assert read(made)[:2] == ([], {MERGED: 1})


def test_a_route_that_changes_is_no_second_capture_point(tmp_path: Path) -> None:
    """Every other packet had another TTL, and each of them is there once."""
    made = connection(tmp_path / "x.pcap")
    for k, record in enumerate(made.records):
        made.records[k] = record[: 16 + 8] + bytes([64 - k % 4]) + record[16 + 9 :]
    assert alone(made).facts["retransmitted"] == 0


def translated(record: Record, old: bytes, new: bytes, later_us: int) -> Record:
    addresses = record[16 + 12 : 16 + 20].replace(old, new)
    return at(record[: 16 + 12] + addresses + record[16 + 20 :], time_us(record) + later_us)


@pytest.mark.parametrize("old", [SENDER[0], RECEIVER[0]])
@pytest.mark.parametrize("later_us", [0, 4, 300])
@pytest.mark.parametrize("missing", [0, 2])
def test_copies_under_a_translated_address_are_left_out(
    tmp_path: Path, old: bytes, later_us: int, missing: int
) -> None:
    """SNAT or DNAT on the capturing host: each packet before and after."""
    made = connection(tmp_path / "x.pcap")
    copies = [translated(r, old, b"\xc0\0\2\1", later_us) for r in made.records]
    made.records += copies[missing:]
    (flow,), skipped, _ = read(made.sort())
    assert skipped == {"a copy of another connection under another address (NAT) or VLAN tag": 1}
    assert flow.facts["segments"] == 150 and flow.facts["retransmitted"] == 0


def test_two_transfers_to_two_hosts_are_no_copies(tmp_path: Path) -> None:
    made = connection(tmp_path / "x.pcap")
    other = connection(tmp_path / "y.pcap")
    other.records = [translated(r, RECEIVER[0], b"\xc0\0\2\1", 0) for r in other.records]
    # other sequence numbers, as two connections have
    for k, record in enumerate(other.records):
        seq, ack = struct.unpack_from(">II", record, 16 + 24)
        shift = (77_000, 0) if outward(record) else (0, 77_000)
        numbers = struct.pack(">II", seq + shift[0], ack + shift[1])
        other.records[k] = record[: 16 + 24] + numbers + record[16 + 32 :]
    made.records += other.records
    assert len(read(made.sort())[0]) == 2


# --- times ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("back_us", [40, 900, 1200, 20_000, 400_000, 900_000])
@pytest.mark.parametrize("place", [100, 101])
def test_no_rtt_is_taken_across_a_step_of_the_clock(
    tmp_path: Path, back_us: int, place: int
) -> None:
    made = connection(tmp_path / "x.pcap")
    gap = time_us(made.records[place]) - time_us(made.records[place - 1])
    for k in range(place, len(made.records)):
        made.records[k] = at(made.records[k], time_us(made.records[k]) - back_us - gap)
    flows, skipped, report = read(made)
    assert not skipped and report.clock_steps == 1 and report.moved == 0
    assert set(flows[0].acks["min_rtt_us"].tolist()) == {RTT_US}
    assert flows[0].facts["retransmitted"] == flows[0].facts["capture_holes"] == 0
    assert not flows[0].acks["lost"].any()
    assert "the capture's clock was set back 1 times" in report.warnings()[0]


@pytest.mark.parametrize("back_us", [1, 3, 9])
def test_two_records_a_little_older_are_no_step_of_the_clock(tmp_path: Path, back_us: int) -> None:
    """Two processors stamp packets: nothing is said, and no RTT or rate is lost."""
    made = connection(tmp_path / "x.pcap")
    wanted = alone(made)
    for k in (100, 201):
        made.records[k] = at(made.records[k], time_us(made.records[k - 1]) - back_us)
    flow = alone(made)
    assert not read(made)[2].warnings() and len(flow.acks) == len(wanted.acks)
    assert np.array_equal(flow.acks["rtt_us"] > 0, wanted.acks["rtt_us"] > 0)


@pytest.mark.parametrize("places", [2, 6, 60, 400])
def test_records_out_of_order_are_sorted(tmp_path: Path, places: int) -> None:
    made, draw = connection(tmp_path / "x.pcap", 600), random.Random(places)
    wanted = alone(made)
    slots = [(k + draw.random() * places, r) for k, r in enumerate(made.records)]
    made.records = [record for _, record in sorted(slots, key=lambda slot: slot[0])]
    flows, skipped, report = read(made)
    assert not skipped and report.moved > 100 and report.clock_steps == 0
    assert np.array_equal(flows[0].acks, wanted.acks)


@pytest.mark.parametrize("late", [True, False])
def test_a_direction_that_another_ring_wrote_is_sorted_in(tmp_path: Path, late: bool) -> None:
    """Each direction is in order, and one comes eight packets later or earlier than it should."""
    made = connection(tmp_path / "x.pcap", 400)
    wanted = alone(made)
    slots = [(k + (8.5 if outward(r) == late else 0), r) for k, r in enumerate(made.records)]
    made.records = [record for _, record in sorted(slots, key=lambda slot: slot[0])]
    flows, skipped, report = read(made)
    assert not skipped and report.moved > 0
    assert np.array_equal(flows[0].acks, wanted.acks)


def test_acks_whose_time_is_before_their_data_are_no_holes(tmp_path: Path) -> None:
    """Two interfaces with clocks a little apart: sorting cannot help, and nothing is lost."""
    made = Captured(tmp_path / "x.pcap")
    made.handshake(1_000_000, 1_000_030, 1_000_060)
    for k in range(150):
        late_us = 10 if k % 3 == 0 else -10
        made.data(1_001_000 + k * 1000 + late_us, 1 + k * 1000, 1000)
        made.ack(1_001_000 + k * 1000, 1 + (k + 1) * 1000)
    flow = alone(made.sort())
    assert flow.facts["capture_holes"] == 0 and flow.facts["segments"] == 150
    compare(made.path)


def test_directions_one_behind_the_other_are_refused_with_what_helps(tmp_path: Path) -> None:
    """`mergecap -a` of two interfaces: too far apart to be sorted in bounded memory."""
    made = connection(tmp_path / "x.pcap", 6000)
    made.records.sort(key=outward)
    flows, skipped, _ = read(made)
    reason = "packets not in time order, too far apart to sort; run: reordercap IN OUT"
    assert not flows and skipped == {reason: 1}
    assert alone(made.sort()).facts["segments"] == 6000


# --- what the snaplen cut off --------------------------------------------------------------------
@pytest.mark.parametrize("caught", [40, 42, 44, 48, 52])
def test_an_option_that_is_cut_off_is_not_taken_as_left_out(tmp_path: Path, caught: int) -> None:
    """Nothing of the options, half of the first, or the first but not the time stamps."""
    made = Captured(tmp_path / "x.pcap")
    offer = b"\x02\x04\x05\xb4" + b"\x04\x02" + captures.stamps(1, 0)[2:] + b"\x01\x03\x03\x07"
    made.packet(1_000_000, True, flags=captures.SYN, seq=0, options=offer)
    made.packet(1_020_000, False, flags=captures.SYN | ACK, ack=1, options=offer)
    made.packet(1_020_050, True, seq=1, ack=1, options=captures.stamps(2, 2))
    for k in range(100):
        made.data(1_021_000 + k * 1000, 1 + k * 1448, 1448, options=captures.stamps(3 + k, 2))
        ack = 1 + (k + 1) * 1448
        made.ack(1_041_000 + k * 1000, ack, options=captures.stamps(3 + k, 3 + k))
    made.data(1_130_000, 1 + 99 * 1448, 1448, options=captures.stamps(200, 2))
    made.sort()
    for k, record in enumerate(made.records):
        n = min(caught, len(record) - 16)
        made.records[k] = record[:8] + struct.pack("<I", n) + record[12 : 16 + n]
    flow = alone(made)
    assert (flow.mss, flow.facts["segments"], flow.facts["retransmitted"]) == (1448, 101, 1)
    compare(made.path)


# --- tunnels and links ---------------------------------------------------------------------------
MAC = bytes(12)


def ipv4(protocol: int, data: bytes) -> bytes:
    head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(data), 9, 0, 64, protocol, 0)
    return head + b"\xac\x10\0\1\xac\x10\0\2" + data


def ipv6(protocol: int, data: bytes) -> bytes:
    return struct.pack(">IHBB", 0x60000000, len(data), protocol, 64) + bytes(32) + data


def udp(port: int, data: bytes) -> bytes:
    return struct.pack(">HHHH", 50_000, port, 8 + len(data), 0) + data


def ethernet(data: bytes) -> bytes:
    return MAC + (b"\x08\x00" if data[0] >> 4 == 4 else b"\x86\xdd") + data


def kind(data: bytes) -> bytes:
    return ethernet(data)[12:14]


GTP = b"\x30\xff\0\0\0\0\0\1"
TUNNELS: dict[str, Callable[[bytes], bytes]] = {
    "IPIP, 6in4": lambda d: ipv4(4 if d[0] >> 4 == 4 else 41, d),
    "4in6, 6in6": lambda d: ipv6(4 if d[0] >> 4 == 4 else 41, d),
    "4in6 with a destination option": lambda d: ipv6(
        60, bytes([4 if d[0] >> 4 == 4 else 41, 0, 4, 1, 4, 1, 0, 0]) + d
    ),
    "VXLAN": lambda d: ipv4(17, udp(4789, b"\x08\0\0\0\0\0\7\0" + ethernet(d))),
    "VXLAN, first port of Linux": lambda d: ipv4(17, udp(8472, b"\x08" + bytes(7) + ethernet(d))),
    "VXLAN over IPv6, VLAN inside": lambda d: ipv6(
        17, udp(4789, b"\x08" + bytes(7) + MAC + b"\x81\0\0\5" + ethernet(d)[12:])
    ),
    "GENEVE": lambda d: ipv4(17, udp(6081, b"\0\0\x65\x58\0\0\7\0" + ethernet(d))),
    "GENEVE with options": lambda d: ipv4(
        17, udp(6081, b"\2\0\x65\x58\0\0\7\0" + bytes(8) + ethernet(d))
    ),
    "GENEVE without Ethernet": lambda d: ipv4(17, udp(6081, b"\0\0" + kind(d) + bytes(4) + d)),
    "GRE": lambda d: ipv4(47, b"\0\0" + kind(d) + d),
    "GRE with key, sum, number": lambda d: ipv4(47, b"\xb0\0" + kind(d) + bytes(12) + d),
    "GRE, Ethernet": lambda d: ipv6(47, b"\x20\0\x65\x58" + bytes(4) + ethernet(d)),
    "ERSPAN I": lambda d: ipv4(47, b"\0\0\x88\xbe" + ethernet(d)),
    "ERSPAN II": lambda d: ipv4(47, b"\x10\0\x88\xbe" + bytes(4) + bytes(8) + ethernet(d)),
    "ERSPAN III": lambda d: ipv4(47, b"\x10\0\x22\xeb" + bytes(4) + bytes(12) + ethernet(d)),
    "GTP-U": lambda d: ipv4(17, udp(2152, GTP + d)),
    "VXLAN in GRE": lambda d: ipv4(
        47, b"\0\0\x08\0" + ipv4(17, udp(4789, b"\x08" + bytes(7) + ethernet(d)))
    ),
}
ONLY_IN_C: dict[str, Callable[[bytes], bytes]] = {
    "ERSPAN III with a subheader": lambda d: ipv4(
        47, b"\x10\0\x22\xeb" + bytes(4) + bytes(11) + b"\1" + bytes(8) + ethernet(d)
    ),
    "GTP-U with extensions": lambda d: ipv4(
        17, udp(2152, b"\x34\xff" + bytes(6) + b"\0\0\0\x85" + b"\1\0\0\0" + d)
    ),
    "AH": lambda d: ipv4(51, bytes([4, 4]) + bytes(22) + d),
}


def dressed(made: Captured, link: int, dress: Callable[[bytes], bytes]) -> Path:
    out = pcap_header(link)
    for us, data, wire in made.frames():
        data = dress(data + bytes(wire - len(data)))
        out += struct.pack("<IIII", us // 10**6, us % 10**6, len(data), len(data)) + data
    made.path.write_bytes(out)
    return made.path


@pytest.mark.parametrize("sender", [SENDER, V6])
@pytest.mark.parametrize("name", [*TUNNELS, *ONLY_IN_C])
def test_tcp_inside_a_tunnel(tmp_path: Path, name: str, sender: tuple[bytes, int]) -> None:
    made = connection(tmp_path / "x.pcap", 80, sender)
    wanted = alone(made)
    path = dressed(made, 101, (TUNNELS | ONLY_IN_C)[name])
    report = pcap.CaptureReport()
    (flow,), _ = capture.read(path, None, report)
    assert np.array_equal(flow.acks, wanted.acks)
    assert report.tunnelled == report.packets == 2 * 80 + 3
    if name in TUNNELS:
        compare(path)


def test_more_tunnels_than_anybody_builds_are_left_alone(tmp_path: Path) -> None:
    def deep(data: bytes) -> bytes:
        for _ in range(40):
            data = ipv4(4, data)
        return data

    report = pcap.CaptureReport()
    path = dressed(connection(tmp_path / "x.pcap", 80), 101, deep)
    assert capture.read(path, None, report)[0] == [] and report.not_tcp == 163


def tlv(data: bytes, order: str) -> bytes:
    """An attribute before the packet, as nflog writes, and the packet."""
    mark = struct.pack(order + "HHI", 8, 5, 0)
    return mark + struct.pack(order + "HH", 4 + len(data), 9) + data


LINKS: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "NFLOG": (239, lambda d: b"\2\0\0\0" + tlv(d, "<")),
    "NFLOG of a big-endian host": (239, lambda d: b"\2\0\0\0" + tlv(d, ">")),
    "PKTAP, Ethernet": (258, lambda d: struct.pack("<III", 108, 1, 1) + bytes(96) + ethernet(d)),
    "PKTAP, raw IP": (258, lambda d: struct.pack("<III", 108, 1, 12) + bytes(96) + d),
    "Cisco HDLC": (104, lambda d: b"\x0f\0\x08\0" + d),
    "Frame Relay": (107, lambda d: b"\x18\x41\x03\xcc" + d),
    "Frame Relay, SNAP": (107, lambda d: b"\x18\x41\x03\0\x80\0\0\0\x08\0" + d),
    "Frame Relay, Cisco": (107, lambda d: b"\x18\x41\x08\0" + d),
    "IPoIB": (242, lambda d: bytes(40) + b"\x08\0\0\0" + d),
    "Broadcom tag": (281, lambda d: MAC + bytes(4) + b"\x08\0" + d),
    "Broadcom tag before": (282, lambda d: bytes(4) + MAC + b"\x08\0" + d),
    "DSA": (284, lambda d: MAC + bytes(4) + b"\x08\0" + d),
    "EDSA": (285, lambda d: MAC + b"\xda\xda" + bytes(6) + b"\x08\0" + d),
}


@pytest.mark.parametrize("name", LINKS)
def test_links_that_users_capture_on(tmp_path: Path, name: str) -> None:
    made = connection(tmp_path / "x.pcap", 80)
    wanted = alone(made)
    link, dress = LINKS[name]
    (flow,), _ = capture.read(dressed(made, link, dress))
    assert np.array_equal(flow.acks, wanted.acks)


@pytest.mark.parametrize("link", [147, 220, 253, 65_000])
def test_other_links_are_refused_without_advice_that_does_not_help(
    tmp_path: Path, link: int
) -> None:
    path = dressed(connection(tmp_path / "x.pcap", 80), link, bytes)
    with pytest.raises(pcap.NdmError, match=f"link type {link} of its 163 packets") as caught:
        capture.read(path)
    assert "editcap" not in str(caught.value) and "tcpdump -i any" in str(caught.value)


def test_packets_of_another_link_beside_good_ones_are_counted(tmp_path: Path) -> None:
    made = connection(tmp_path / "x.pcapng", 80)
    out = section("<") + interface("<", 220) + interface("<", 101)
    for us, data, wire in made.frames():
        out += enhanced("<", 0, us, bytes(60), 60) + enhanced("<", 1, us, data, wire)
    made.path.write_bytes(out)
    report = pcap.CaptureReport()
    (flow,), _ = capture.read(made.path, None, report)
    assert flow.facts["segments"] == 80 and report.other_links == 163
    assert report.warnings() == ["163 packets have a link type that cannot be read"]
