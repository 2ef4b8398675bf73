# SPDX-License-Identifier: GPL-2.0-only
"""Captures made packet by packet, in any of the formats."""

from __future__ import annotations

import struct
from pathlib import Path

from ndm_tcp.datasets.readers import streams

FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16
SENDER, RECEIVER = (b"\x0a\0\0\1", 1000), (b"\x0a\0\0\2", 2000)


def tcp_packet(
    source: tuple[bytes, int],
    target: tuple[bytes, int],
    *,
    flags: int = ACK,
    seq: int = 0,
    ack: int = 0,
    window: int = 1000,
    options: bytes = b"",
    payload: int = 0,
    ip_id: int = 0,
    ttl: int = 64,
) -> tuple[bytes, int]:
    """IPv4 or IPv6 and TCP headers, and the bytes on the wire."""
    options += b"\0" * (-len(options) % 4)
    offset = (5 + len(options) // 4) << 4
    ports_seq = (source[1], target[1], seq & 0xFFFFFFFF, ack & 0xFFFFFFFF)
    tcp = struct.pack(">HHIIBBHHH", *ports_seq, offset, flags, window, 0, 0) + options
    length = len(tcp) + payload
    if len(source[0]) == 4:
        ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + length, ip_id, 0, ttl, 6, 0)
    else:
        ip = struct.pack(">IHBB", 0x60000000, length, 6, ttl)
    ip += source[0] + target[0]
    return ip + tcp, len(ip) + length


def pcap_header(
    link: int = 101, magic: int = 0xA1B2C3D4, order: str = "<", version: tuple[int, int] = (2, 4)
) -> bytes:
    """The 24 bytes a classic file begins with."""
    return struct.pack(order + "IHHIIII", magic, *version, 0, 0, 262_144, link)


def block(order: str, kind: int, body: bytes) -> bytes:
    """A block of pcapng."""
    body += bytes(-len(body) % 4)
    size = len(body) + 12
    return struct.pack(order + "II", kind, size) + body + struct.pack(order + "I", size)


def option(order: str, code: int, value: bytes) -> bytes:
    """An option of a block."""
    return struct.pack(order + "HH", code, len(value)) + value + bytes(-len(value) % 4)


def section(order: str) -> bytes:
    """The header of a section."""
    body = struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1)
    return block(order, 0x0A0D0D0A, body)


def interface(order: str, link: int, *options: bytes) -> bytes:
    """An interface, of microseconds if no option changes that."""
    return block(order, 1, struct.pack(order + "HHI", link, 0, 0) + b"".join(options) + bytes(4))


def enhanced(order: str, number: int, ticks: int, data: bytes, wire: int) -> bytes:
    """A packet of an interface."""
    head = struct.pack(order + "IIIII", number, ticks >> 32, ticks & 0xFFFFFFFF, len(data), wire)
    return block(order, 6, head + data)


def stamps(value: int, echo: int) -> bytes:
    """The time stamps option."""
    return b"\x01\x01\x08\x0a" + struct.pack(">II", value & 0xFFFFFFFF, echo & 0xFFFFFFFF)


def sack(*edges: int) -> bytes:
    """The SACK option."""
    return b"\x01\x01\x05" + struct.pack(
        f">B{len(edges)}I", 2 + 4 * len(edges), *(edge & 0xFFFFFFFF for edge in edges)
    )


class Captured:
    """One connection between `SENDER` and `RECEIVER`, in a raw IP capture in us."""

    def __init__(self, path: Path, sender: tuple[bytes, int] = SENDER) -> None:
        self.path = path
        self.sender = sender
        self.records: list[bytes] = []
        self.ip_id = 0

    def packet(self, at_us: int, outward: bool, repeat: int = 1, **fields: object) -> None:
        """Add a packet, `repeat` times with the same IP id."""
        self.ip_id = self.ip_id % 65_535 + 1
        receiver = RECEIVER if len(self.sender[0]) == 4 else (RECEIVER[0] * 4, RECEIVER[1])
        ends = (self.sender, receiver) if outward else (receiver, self.sender)
        if "ip_id" not in fields:
            fields["ip_id"] = self.ip_id
        data, wire = tcp_packet(*ends, **fields)  # type: ignore[arg-type]
        seconds = struct.pack("<IIII", at_us // 10**6, at_us % 10**6, len(data), wire)
        self.records += [seconds + data] * repeat

    def handshake(self, syn_us: int, synack_us: int, ack_us: int, seq: int = 0) -> None:
        """SYN from the sender, SYN-ACK, ACK; segments of 1000 bytes."""
        mss = b"\x02\x04\x03\xe8"
        self.packet(syn_us, True, flags=SYN, seq=seq, options=mss)
        self.packet(synack_us, False, flags=SYN | ACK, ack=seq + 1, options=mss)
        self.packet(ack_us, True, seq=seq + 1, ack=1)

    def data(self, at_us: int, seq: int, size: int, **fields: object) -> None:
        """A data packet."""
        self.packet(at_us, True, seq=seq, ack=1, payload=size, **fields)

    def ack(self, at_us: int, ack: int, **fields: object) -> None:
        """An ACK of the receiver."""
        self.packet(at_us, False, seq=1, ack=ack, **fields)

    def transfer(self, start_us: int, n: int, seq: int = 1, rtt_us: int = 20_000) -> None:
        """n segments of 1000 bytes a millisecond apart, each acknowledged after an RTT."""
        events = [(start_us + i * 1000, True, i) for i in range(n)]
        events += [(start_us + i * 1000 + rtt_us, False, i) for i in range(n)]
        for at_us, outward, i in sorted(events):
            if outward:
                self.data(at_us, seq + i * 1000, 1000)
            else:
                self.ack(at_us, seq + (i + 1) * 1000)

    def sort(self) -> Captured:
        """Put the records in order of time, as a capture has them."""
        self.records.sort(key=lambda record: struct.unpack_from("<II", record))
        return self

    def frames(self) -> list[tuple[int, bytes, int]]:
        """(time in us, bytes, wire length) of every packet, from the IP header on."""
        found = []
        for record in self.records:
            seconds, us, _, wire = struct.unpack_from("<IIII", record)
            found.append((seconds * 10**6 + us, record[16:], wire))
        return found

    def write(self) -> Path:
        """Write the file."""
        self.path.write_bytes(pcap_header() + b"".join(self.records))
        return self.path


def captured(folder: Path) -> tuple[bytes, list[bytes]]:
    """The header and the records of a recorded run's capture, which is one of raw IP."""
    with streams.open_bytes(folder / "sender.pcap.zst") as stream:
        data = stream.read()
    found, at = [], 24
    while at < len(data):
        (length,) = struct.unpack_from("<I", data, at + 8)
        found.append(data[at : at + 16 + length])
        at += 16 + length
    return data[:24], found
