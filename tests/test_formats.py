# SPDX-License-Identifier: GPL-2.0-only
"""One transfer in every file format, link type and IP dress gives the same records."""

from __future__ import annotations

import gzip
import json
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import zstandard

from ndm_tcp.cli import run_command
from ndm_tcp.datasets.readers import capture, flent, pcap, sources
from ndm_tcp.datasets.rounds.flow import FlowRecords
from ndm_tcp.datasets.store import store
from ndm_tcp.errors import NdmError

from . import captures
from .captures import (
    RECEIVER,
    SENDER,
    Captured,
    block,
    enhanced,
    interface,
    option,
    pcap_header,
    section,
    tcp_packet,
)

N = 120
ROWS = N + 1  # every ACK, and the handshake
MAC = bytes(12)
Dress = Callable[[bytes], bytes]
V6 = (bytes.fromhex("20010db8000000000000000000000001"), 1000)


def transfer(path: Path, sender: tuple[bytes, int] | None = None) -> Captured:
    made = Captured(path, sender) if sender else Captured(path)
    made.handshake(1_000_000, 1_020_000, 1_020_050)
    made.transfer(1_021_000, N)
    return made


def only(path: Path) -> FlowRecords:
    report = pcap.CaptureReport()
    (flow,), _ = capture.read(path, None, report)
    assert report.truncated_at is None
    return flow


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: pytest.TempPathFactory) -> FlowRecords:
    flow = only(transfer(tmp_path_factory.mktemp("formats") / "x.pcap").write())
    assert flow.facts["segments"] == N and len(flow.acks) == ROWS
    return flow


def same(flow: FlowRecords, wanted: FlowRecords) -> None:
    assert np.array_equal(flow.acks, wanted.acks) and flow.mss == wanted.mss
    assert {**flow.facts} == {**wanted.facts}


# --- classic pcap --------------------------------------------------------------------------
@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize(
    ("magic", "version"),
    [
        (0xA1B2C3D4, (2, 4)),
        (0xA1B23C4D, (2, 4)),
        (0xA1B2CD34, (2, 4)),
        (0xA1B2C3D4, (2, 2)),
        (0xA1B2C3D4, (2, 3)),
    ],
)
def test_pcap(
    tmp_path: Path, wanted: FlowRecords, order: str, magic: int, version: tuple[int, int]
) -> None:
    path = tmp_path / "x.pcap"
    out = pcap_header(101, magic, order, version)
    for at_us, data, wire in transfer(path).frames():
        fraction = at_us % 10**6 * (1000 if magic == 0xA1B23C4D else 1)
        lengths = (wire, len(data)) if version < (2, 4) else (len(data), wire)
        out += struct.pack(order + "IIII", at_us // 10**6, fraction, *lengths)
        out += bytes(8) if magic == 0xA1B2CD34 else b""
        out += data
    path.write_bytes(out)
    assert pcap.sniff(out)
    same(only(path), wanted)


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.ZstdCompressor().compress])
def test_compressed(tmp_path: Path, wanted: FlowRecords, pack: Callable[[bytes], bytes]) -> None:
    path = transfer(tmp_path / "x.pcap").write()
    path.write_bytes(pack(path.read_bytes()))
    same(only(path), wanted)


# --- pcapng ----------------------------------------------------------------------------------
@pytest.mark.parametrize("order", "<>")
def test_pcapng_with_interfaces_of_their_own_link_and_clock(
    tmp_path: Path, wanted: FlowRecords, order: str
) -> None:
    """Packets alternate between four interfaces: us, ns, 2^-20 s, and us with an offset."""
    path = tmp_path / "x.pcapng"
    out = section(order) + block(order, 5, b"statistics!!") + block(order, 0x0BAD, bytes(100))
    out += interface(order, 101)
    out += interface(order, 1, option(order, 2, b"eth0"), option(order, 9, b"\x09"))
    out += interface(order, 113, option(order, 9, b"\x94"))
    out += interface(order, 0, option(order, 14, struct.pack(order + "q", 1)))
    for number, (at_us, data, wire) in enumerate(transfer(path).frames()):
        which = number % 4
        ticks = (at_us, at_us * 1000, -(-at_us * 2**20 // 10**6), at_us - 10**6)[which]
        dress = (b"", MAC + b"\x08\x00", bytes(14) + b"\x08\x00", bytes(4))[which]
        out += enhanced(order, which, ticks, dress + data, len(dress) + wire)
    path.write_bytes(out)
    same(only(path), wanted)


def test_pcapng_sections_may_change_their_order(tmp_path: Path, wanted: FlowRecords) -> None:
    path = tmp_path / "x.pcapng"
    frames, out = transfer(path).frames(), b""
    for order, part in (("<", frames[:50]), (">", frames[50:])):
        out += section(order) + interface(order, 101)
        out += b"".join(enhanced(order, 0, *frame) for frame in part)
    path.write_bytes(out)
    same(only(path), wanted)


def test_packets_of_the_obsolete_block_and_of_unknown_interfaces(
    tmp_path: Path, wanted: FlowRecords
) -> None:
    path = tmp_path / "x.pcapng"
    out = section("<") + interface("<", 101)
    for at_us, data, wire in transfer(path).frames():
        head = struct.pack("<HHIIII", 0, 0, at_us >> 32, at_us & 0xFFFFFFFF, len(data), wire)
        out += block("<", 2, head + data) + enhanced("<", 7, at_us, data, wire)
    path.write_bytes(out)
    same(only(path), wanted)


def test_pcapng_without_times_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.pcapng"
    path.write_bytes(section("<") + interface("<", 101) + block("<", 3, bytes(44)))
    with pytest.raises(NdmError, match="has no time stamp"):
        capture.read(path)


@pytest.mark.parametrize("size", [0, 8, 13, 2**31, 2**32 - 4])
def test_pcapng_with_impossible_block_lengths_keeps_what_was_whole(
    tmp_path: Path, size: int
) -> None:
    path = tmp_path / "x.pcapng"
    out = section("<") + interface("<", 101)
    out += b"".join(enhanced("<", 0, *frame) for frame in transfer(path).frames())
    path.write_bytes(out + struct.pack("<II", 6, size) + bytes(100))
    report = pcap.CaptureReport()
    (flow,), _ = capture.read(path, None, report)
    assert report.truncated_at == len(out) and len(flow.acks) == ROWS


# --- link types and IP -----------------------------------------------------------------------
def ethernet(kind: int, inner: bytes = b"") -> Dress:
    return lambda data: MAC + struct.pack(">H", kind) + inner + data


IPV4 = b"\x08\x00"
DRESSES: dict[str, tuple[int, Dress]] = {
    "Ethernet": (1, ethernet(0x0800)),
    "VLAN": (1, ethernet(0x8100, b"\x00\x07" + IPV4)),
    "QinQ": (1, ethernet(0x88A8, b"\x00\x07\x81\x00\x00\x09" + IPV4)),
    "PPPoE": (1, ethernet(0x8864, b"\x11\x00\x00\x01\x00\x2a\x00\x21")),
    "PPPoE in VLAN": (1, ethernet(0x8100, b"\x00\x07\x88\x64\x11\x00\x00\x01\x00\x2a\x00\x21")),
    "MPLS": (1, ethernet(0x8847, b"\x00\x01\x00\x40\x00\x02\x01\x40")),
    "Linux cooked": (113, lambda data: bytes(14) + IPV4 + data),
    "Linux cooked, VLAN": (113, lambda data: bytes(14) + b"\x81\x00\x00\x07" + IPV4 + data),
    "Linux cooked v2": (276, lambda data: IPV4 + bytes(18) + data),
    "null": (0, lambda data: b"\x02\0\0\0" + data),
    "loop": (108, lambda data: b"\0\0\0\x02" + data),
    "raw 12": (12, bytes),
    "raw 14": (14, bytes),
    "raw IPv4": (228, bytes),
    "PPP, by scapy": (9, lambda data: b"\x00\x21" + data),
    "802.11, by scapy": (
        105,
        lambda data: b"\x08\x01\0\0" + bytes(20) + b"\xaa\xaa\x03\0\0\0" + IPV4 + data,
    ),
    "IPv4 options": (101, lambda data: _with_options(data)),
}


def _with_options(data: bytes) -> bytes:
    total = int.from_bytes(data[2:4], "big") + 8
    return b"\x47" + data[1:2] + struct.pack(">H", total) + data[4:20] + b"\x01" * 8 + data[20:]


@pytest.mark.parametrize("name", DRESSES)
def test_link_types(tmp_path: Path, wanted: FlowRecords, name: str) -> None:
    link, dress = DRESSES[name]
    path = tmp_path / "x.pcap"
    out = pcap_header(link)
    for at_us, data, wire in transfer(path).frames():
        dressed = dress(data)
        lengths = (len(dressed), wire + len(dressed) - len(data))
        out += struct.pack("<IIII", at_us // 10**6, at_us % 10**6, *lengths) + dressed
    path.write_bytes(out)
    same(only(path), wanted)


EXTENSIONS = {
    "plain": (6, b""),
    "hop by hop": (0, b"\x06\x00" + bytes(6)),
    "routing, destination": (43, b"\x3c\x01" + bytes(14) + b"\x06\x00" + bytes(6)),
    "atomic fragment": (44, b"\x06\xff" + bytes(2) + b"\0\0\0\7"),
    "hop by hop, atomic fragment": (0, b"\x2c\x00" + bytes(6) + b"\x06\x00" + bytes(6)),
    "mobility": (135, b"\x06\x02" + bytes(22)),
}


@pytest.mark.parametrize("name", EXTENSIONS)
def test_ipv6(tmp_path: Path, wanted: FlowRecords, name: str) -> None:
    kind, headers = EXTENSIONS[name]
    path = tmp_path / "x.pcap"
    made = transfer(path, V6)
    out = pcap_header(101)
    for at_us, data, wire in made.frames():
        length = int.from_bytes(data[4:6], "big") + len(headers)
        data = data[:4] + struct.pack(">HB", length, kind) + data[7:40] + headers + data[40:]
        lengths = (len(data), wire + len(headers))
        out += struct.pack("<IIII", at_us // 10**6, at_us % 10**6, *lengths) + data
    path.write_bytes(out)
    same(only(path), wanted)


def test_the_same_ports_in_two_vlans_are_two_flows(tmp_path: Path) -> None:
    path = tmp_path / "x.pcap"
    out = pcap_header(1)
    for at_us, data, wire in transfer(path).frames():
        for vlan in (b"\x00\x07", b"\x00\x08"):
            head = struct.pack("<IIII", at_us // 10**6, at_us % 10**6, len(data) + 18, wire + 18)
            out += head + MAC + b"\x81\x00" + vlan + IPV4 + data
    path.write_bytes(out)
    flows, _ = capture.read(path)
    assert [len(flow.acks) for flow in flows] == [ROWS, ROWS]


def tagged(path: Path, made: Captured, tags: tuple[bytes, bytes]) -> bytes:
    """Records over Ethernet with these VLAN tags, of what the sender sends and of what it gets."""
    out = b""
    for at_us, data, wire in made.frames():
        tag = tags[data[12:16] != SENDER[0]]
        tag = b"\x81\x00" + tag if tag else b""
        more = len(MAC + tag + IPV4)
        head = struct.pack("<IIII", at_us // 10**6, at_us % 10**6, len(data) + more, wire + more)
        out += head + MAC + tag + IPV4 + data
    path.write_bytes(pcap_header(1) + out)
    return out


V7, V8, V9 = b"\x00\x07", b"\x00\x08", b"\x00\x09"


@pytest.mark.parametrize("tags", [(V7, V8), (V8, V7), (V7, b""), (b"", V7), (b"", b"\xe0\x00")])
def test_directions_with_other_vlan_tags_are_one_flow(
    tmp_path: Path, wanted: FlowRecords, tags: tuple[bytes, bytes]
) -> None:
    """A mirror port (RSPAN), or a card that strips the tag of what it receives."""
    path = tmp_path / "x.pcap"
    tagged(path, transfer(path), tags)
    same(only(path), wanted)


def test_so_are_two_of_them_over_the_same_ports(tmp_path: Path, wanted: FlowRecords) -> None:
    made = transfer(tmp_path / "x.pcap")
    made.packet(1_200_000, False, flags=captures.RST)
    # Nobody answers this one.
    made.packet(
        40_000_000, True, flags=captures.SYN, seq=3_000_000_000, options=b"\x02\x04\x03\xe8"
    )
    made.handshake(61_000_000, 61_020_000, 61_020_050, 2_000_000_000)
    made.transfer(61_021_000, N, 2_000_000_001)
    tagged(made.path, made, (V7, V8))
    flows, skipped = capture.read(made.path)
    assert [len(flow.acks) for flow in flows] == [ROWS, ROWS] and not skipped
    assert all(np.array_equal(flow.acks, wanted.acks) for flow in flows)


def test_halves_of_two_connections_between_the_same_addresses_stay_apart(tmp_path: Path) -> None:
    """Private addresses that two VLANs have: of each connection one direction was captured."""
    path = tmp_path / "x.pcap"
    made, other = transfer(path), Captured(path)
    other.handshake(1_000_000, 1_020_000, 1_020_050, 2_000_000_000)
    other.transfer(1_021_000, N, 2_000_000_001)
    made.records = [r for r in made.records if r[16 + 12 : 16 + 16] == SENDER[0]]
    made.records += [r for r in other.records if r[16 + 12 : 16 + 16] != SENDER[0]]
    tagged(path, made.sort(), (V7, V8))
    flows, skipped = capture.read(path)
    assert not flows and dict(skipped) == {capture.REASONS[1]: 1, capture.REASONS[12]: 1}


def test_a_third_tag_of_the_same_ends_joins_nothing(tmp_path: Path) -> None:
    path = tmp_path / "x.pcap"
    whole = tagged(path, transfer(path), (V9, V9)) + tagged(path, transfer(path), (V7, V8))
    path.write_bytes(pcap_header(1) + whole)
    flows, _ = capture.read(path)
    assert [len(flow.acks) for flow in flows] == [ROWS]


@pytest.mark.parametrize("tagged_first", [True, False])
def test_a_flow_with_and_without_its_vlan_tag_is_one(tagged_first: bool, tmp_path: Path) -> None:
    """`tcpdump -i any`, or on the card that carries a VLAN's interface: each packet twice."""
    path = tmp_path / "x.pcap"
    out = pcap_header(1)
    for at_us, data, wire in transfer(path).frames():
        for tag in sorted((b"", b"\x81\x00\x00\x07"), reverse=tagged_first):
            length = 14 + len(tag)
            head = struct.pack(
                "<IIII", at_us // 10**6, at_us % 10**6, len(data) + length, wire + length
            )
            out += head + MAC + tag + IPV4 + data
    path.write_bytes(out)
    (flow,), skipped = capture.read(path)
    assert len(flow.acks) == ROWS and flow.facts["retransmitted"] == 0
    assert dict(skipped) == {capture.REASONS[9]: 1}


def test_a_snaplen_below_the_headers_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "x.pcap"
    out = pcap_header(101)
    for at_us, data, wire in transfer(path).frames():
        out += struct.pack("<IIII", at_us // 10**6, at_us % 10**6, 38, wire) + data[:38]
    path.write_bytes(out)
    report = pcap.CaptureReport()
    flows, _ = capture.read(path, None, report)
    assert not flows and report.cut_headers == report.packets == N * 2 + 3


def test_super_packets_are_segments(tmp_path: Path) -> None:
    """TSO: one packet of many segments; BIG TCP: the IP length says 0."""
    made = Captured(tmp_path / "x.pcap")
    made.handshake(1_000_000, 1_020_000, 1_020_050)
    for i in range(20):
        made.data(1_021_000 + i * 1000, 1 + i * 5000, 5000)
        made.ack(1_041_000 + i * 1000, 1 + (i + 1) * 5000)
    made.records.sort(key=lambda record: struct.unpack_from("<II", record))
    flow = only(made.write())
    assert (flow.mss, flow.facts["segments"], flow.facts["retransmitted"]) == (1000, 100, 0)
    big, wire = tcp_packet((b"\x0a\0\0\1", 1000), RECEIVER, seq=100_001, payload=60_500)
    big = big[:2] + b"\0\0" + big[4:]
    record = struct.pack("<IIII", 2, 0, len(big), wire) + big
    path = made.write()
    path.write_bytes(path.read_bytes() + record)
    assert only(path).facts["segments"] == 100 + 61


# --- flent -----------------------------------------------------------------------------------
def test_flent(realdata: Path, tmp_path: Path) -> None:
    path = realdata / "flent_rrul_be_socket_stats.flent.gz"
    assert sources._kind(path) == "flent"
    flows = flent.read(path)
    assert [flow.facts["polls"] for flow in flows] == [925, 924, 927, 930]
    assert {(flow.cc_name, flow.mss) for flow in flows} == {("cubic-sce", 1448)}
    assert [flow.facts["retransmitted"] for flow in flows][1] == 34
    for flow in flows:
        assert 0.8 < float(flow.facts["rate_agreement"]) < 1.2
        assert 20_000 < np.median(flow.acks["srtt_us"]) < 150_000
    assert run_command(["dataset", "build", str(path), "-o", str(tmp_path / "out")]) == 0
    card = (tmp_path / "out" / "DATASET_CARD.md").read_text()
    assert "In rounds marked flent these inputs have no data and are 0: `loss_rate`" in card
    rows = store.load(tmp_path / "out").rounds
    assert not any(rows["loss_rate"].to_pylist()) and not any(rows["entropy"].to_pylist())


def flent_document(**last: float) -> str:
    """Twenty polls, of which the last has these values."""
    entry = {"val": 1, "dur": 0.2, "tcp_cwnd": 10, "tcp_rtt": 40}
    entries = [entry | {"t": 1.0 + k / 4} for k in range(20)]
    entries[-1] |= last
    raw = {"metadata": {"BATCH_UUID": 1}, "version": 4, "raw_values": {"TCP": entries}}
    return json.dumps(raw)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"metadata": {"BATCH_UUID": 1}, "version": 9}', "flent format 9"),
        ('{"metadata": {"BATCH_UUID": 1}, "version": 4, "raw_values": {}}', "--socket-stats"),
        ('{"metadata": {"BATCH_UUID": 1}, "version": 4, "raw_values": [1]}', "not a flent data"),
        ('{"metadata": {"BATCH_UUID": 1}, "ver', "not a flent data file"),
        *(
            (flent_document(**{name: value}), "not a flent data file.*63 bits")
            for name in ("t", "val")
            for value in (1e19, 1e300)
        ),
    ],
)
def test_flent_refuses(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "x.flent"
    path.write_text(text)
    assert flent.sniff(text.encode())
    with pytest.raises(NdmError, match=message):
        flent.read(path)
