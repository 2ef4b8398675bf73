# SPDX-License-Identifier: GPL-2.0-only
"""Packet captures to TCP headers. scapy's raw readers find the packets, struct reads them.

Knows pcap (both endians, us and ns) and pcapng with several interfaces; Ethernet, VLAN and
QinQ, Linux cooked v1 and v2, raw IP, BSD null; IPv4 and IPv6 with extension headers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NamedTuple

from scapy.error import Scapy_Exception
from scapy.utils import RawPcapNgReader

from ndm_tcp.datasets.readers import streams
from ndm_tcp.errors import NdmError

FIN, SYN, RST, PSH, ACK, URG, ECE, CWR = (1 << bit for bit in range(8))

LINK_NAMES = {0: "null", 1: "Ethernet", 12: "raw IP", 14: "raw IP", 101: "raw IP", 108: "loop"}
LINK_NAMES |= {113: "Linux cooked", 228: "raw IPv4", 229: "raw IPv6", 276: "Linux cooked v2"}
RAW_IP = 101
VLAN_TYPES = (0x8100, 0x88A8, 0x9100)
IPV6_EXTENSIONS = (0, 43, 60, 135)  # hop-by-hop, routing, destination options, mobility
FRAGMENT = 44


class Segment(NamedTuple):
    """One TCP packet of a capture."""

    time_ns: int
    source: tuple[bytes, int]
    """address and port"""
    target: tuple[bytes, int]
    link: int
    """VLAN ids folded into one number; 0 without VLAN"""
    seq: int
    ack: int
    flags: int
    window: int
    """unscaled"""
    payload: int
    """bytes; from the IP length, not from what was captured"""
    options: bytes
    options_cut: bool
    """by the snaplen"""


@dataclass
class CaptureReport:
    """What was read and what was left out, by reason."""

    packets: int = 0
    not_tcp: int = 0
    cut_headers: int = 0
    fragments: int = 0
    truncated_at: int | None = None
    """byte offset in the decompressed file of the record that is not whole"""
    links: set[int] = field(default_factory=set)


class _CountingStream:
    """Counts bytes and notices a read that came back short."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.stream = stream
        self.offset = 0
        self.short_at: int | None = None

    def read(self, size: int) -> bytes:
        data = self.stream.read(size)
        if 0 < len(data) < size:
            self.short_at = self.offset
        self.offset += len(data)
        return data

    def close(self) -> None:
        self.stream.close()


def sniff(head: bytes) -> bool:
    """True if these first bytes are those of a pcap or pcapng file."""
    magics = (b"\xa1\xb2\xc3\xd4", b"\xd4\xc3\xb2\xa1", b"\xa1\xb2\x3c\x4d", b"\x4d\x3c\xb2\xa1")
    return head[:4] in (*magics, b"\x0a\x0d\x0d\x0a")


def _open(path: Path, stream: _CountingStream) -> Any:
    try:
        reader = RawPcapNgReader(stream)  # type: ignore[arg-type]
    except Scapy_Exception as error:
        raise NdmError(f"{path}: not a readable pcap or pcapng file ({error})") from None
    return reader


def _check_classic(path: Path, head: bytes) -> None:
    if head[:4] == b"\x0a\x0d\x0d\x0a":
        return
    order = "<" if head[:4] in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1") else ">"
    if len(head) < 24:
        raise NdmError(f"{path}: cut short inside the file header ({len(head)} of 24 bytes)")
    major, minor = struct.unpack_from(order + "HH", head, 4)
    if (major, minor) < (2, 3):
        raise NdmError(
            f"{path}: pcap {major}.{minor} swaps two length fields; convert it: "
            "editcap -F pcap IN OUT"
        )


def _network(data: bytes, link: int) -> tuple[int, int]:
    """Offset of the IP header and the VLAN key; offset -1 if this is not IP."""
    vlan = 0
    if link == 1:
        offset = 14
        kind = int.from_bytes(data[12:14], "big")
        while kind in VLAN_TYPES and len(data) >= offset + 4:
            vlan = vlan << 12 | (int.from_bytes(data[offset : offset + 2], "big") & 0xFFF)
            kind = int.from_bytes(data[offset + 2 : offset + 4], "big")
            offset += 4
        return (offset, vlan) if kind in (0x0800, 0x86DD) else (-1, 0)
    if link == 113:
        return (16, 0) if data[14:16] in (b"\x08\x00", b"\x86\xdd") else (-1, 0)
    if link == 276:
        return (20, 0) if data[0:2] in (b"\x08\x00", b"\x86\xdd") else (-1, 0)
    if link in (0, 108):
        return 4, 0
    return 0, 0


def _inside(data: bytes, at: int, protocol: int) -> int | None:
    """Offset of the IP header inside a tunnel whose header begins at `at`."""
    if protocol in (4, 41):
        return at
    kind = None
    if protocol == 47 and len(data) >= at + 4 and not data[at + 1] & 7:
        flags, kind = data[at], int.from_bytes(data[at + 2 : at + 4], "big")
        at += 4 + sum(4 for bit in (0x80, 0x20, 0x10) if flags & bit)
        if kind in (0x88BE, 0x22EB):
            at += 12 if kind == 0x22EB else 8 if flags & 0x10 else 0
            kind = 0x6558
    elif protocol == 17 and len(data) >= at + 16:
        port, at = int.from_bytes(data[at + 2 : at + 4], "big"), at + 8
        if port in (4789, 8472) and data[at] & 8:
            kind, at = 0x6558, at + 8
        elif port == 6081 and data[at] < 64:
            kind = int.from_bytes(data[at + 2 : at + 4], "big")
            at += 8 + (data[at] & 63) * 4
        elif port == 2152 and data[at] & 0xF7 == 0x30 and data[at + 1] == 255:
            kind, at = 0x0800, at + 8
    if kind == 0x6558:
        start, _ = _network(data[at:], 1)
        return at + start if start >= 0 else None
    return at if kind in (0x0800, 0x86DD) else None


class _Packet(NamedTuple):
    """A packet of IP: `at` and `length` (bytes) are those of what it carries."""

    protocol: int
    at: int
    length: int
    source: bytes
    target: bytes
    fragment: bool


def _packet(data: bytes, wire: int, start: int) -> _Packet | None:
    """None: its header is cut off."""
    version = data[start] >> 4
    if version == 4 and len(data) >= start + 20:
        header = (data[start] & 15) * 4
        total = int.from_bytes(data[start + 2 : start + 4], "big") or wire - start
        fragment = int.from_bytes(data[start + 6 : start + 8], "big") & 0x3FFF > 0
        source, target = data[start + 12 : start + 16], data[start + 16 : start + 20]
        return _Packet(data[start + 9], start + header, total - header, source, target, fragment)
    if version == 6 and len(data) >= start + 40:
        protocol, at = data[start + 6], start + 40
        length = int.from_bytes(data[start + 4 : start + 6], "big") or wire - at
        source, target = data[start + 8 : start + 24], data[start + 24 : start + 40]
        while protocol in (*IPV6_EXTENSIONS, FRAGMENT) and len(data) >= at + 8:
            if protocol == FRAGMENT and int.from_bytes(data[at + 2 : at + 4], "big") & 0xFFF9:
                break
            size = 8 if protocol == FRAGMENT else (data[at + 1] + 1) * 8
            protocol, at, length = data[at], at + size, length - size
        return _Packet(protocol, at, length, source, target, protocol == FRAGMENT)
    return None


def _parse(
    data: bytes, wire: int, link: int, time_ns: int, report: CaptureReport
) -> Segment | None:
    start, vlan = _network(data, link)
    if not 0 <= start < len(data) or data[start] >> 4 not in (4, 6):
        report.not_tcp += 1
        return None
    packet = _packet(data, wire, start)
    if packet is None:
        report.cut_headers += 1
        return None
    protocol, tcp, length, source, target, fragment = packet
    if fragment:
        report.fragments += 1
        return None
    if protocol != 6:
        inner = _inside(data, tcp, protocol)
        if inner is None:
            report.not_tcp += 1
            return None
        return _parse(data[inner:], wire - inner, RAW_IP, time_ns, report)
    if len(data) < tcp + 20:
        report.cut_headers += 1
        return None
    sport, dport, seq, ack, offset_flags, window = struct.unpack_from(">HHIIHH", data, tcp)
    header = (offset_flags >> 12) * 4
    if header < 20 or length < header:
        report.cut_headers += 1
        return None
    return Segment(
        time_ns,
        (source, sport),
        (target, dport),
        vlan,
        seq,
        ack,
        offset_flags & 0xFF,
        window,
        length - header,
        data[tcp + 20 : tcp + header],
        len(data) < tcp + header,
    )


def segments(path: Path, report: CaptureReport, keep_going: bool = False) -> Iterator[Segment]:
    """The TCP packets of a capture, in file order.

    Args:
        path: pcap or pcapng, plain, gzip or zstd.
        report: filled while reading.
        keep_going: use the whole packets of a file that is cut short.

    Raises:
        NdmError: not a capture, unknown link type, or cut short without `keep_going`.
    """
    with streams.open_bytes(path) as raw:
        head = raw.read(24)
    if not head:
        raise NdmError(f"{path}: empty file, expected a packet capture")
    if not sniff(head):
        raise NdmError(f"{path}: not a packet capture (no pcap or pcapng magic number)")
    _check_classic(path, head)
    with streams.open_bytes(path) as raw:
        stream = _CountingStream(raw)
        reader = _open(path, stream)
        ng = isinstance(reader, RawPcapNgReader)
        while True:
            try:
                data, meta = reader._read_packet()
            except EOFError:
                break
            if stream.short_at is not None:
                break
            link = meta.linktype if ng else reader.linktype
            if link not in LINK_NAMES:
                raise NdmError(
                    f"{path}: packet {report.packets + 1} has link type {link}, known are "
                    f"{', '.join(f'{k} ({v})' for k, v in sorted(LINK_NAMES.items()))}"
                )
            report.links.add(link)
            report.packets += 1
            if ng:
                if meta.tshigh is None:
                    raise NdmError(f"{path}: packet {report.packets} has no time stamp")
                ticks = meta.tshigh << 32 | meta.tslow
                time_ns = ticks * 1_000_000_000 // meta.tsresol
            else:
                time_ns = meta.sec * 1_000_000_000 + meta.usec * (1 if reader.nano else 1000)
            segment = _parse(data, meta.wirelen, link, time_ns, report)
            if segment is not None:
                yield segment
    if stream.short_at is not None:
        report.truncated_at = stream.short_at
        if not keep_going:
            raise NdmError(
                f"{path}: cut short at byte {stream.short_at}, after {report.packets} whole "
                "packets; use --keep-going to take those"
            )


def is_data(segment: Segment) -> bool:
    """True if the packet carries sequence space the sender must get acknowledged."""
    return segment.payload > 0 and not segment.flags & SYN


def is_fin(segment: Segment) -> bool:
    """True if the packet ends its direction."""
    return bool(segment.flags & FIN) and not segment.flags & SYN


def is_ack(segment: Segment) -> bool:
    """True if the packet acknowledges and is no SYN."""
    return bool(segment.flags & ACK) and not segment.flags & SYN
