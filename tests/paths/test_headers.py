# SPDX-License-Identifier: GPL-2.0-only
"""The bytes that a full segment takes on the wire: IPv6 has 20 more, time stamps 12."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
import zstandard

from ndm_tcp.datasets.readers import capture
from ndm_tcp.paths.estimate import estimate

from ..captures import ACK, SYN, Captured, stamps
from ..conftest import TRACES

CAPTURE = TRACES / "lab" / "train-00-clean--cubic--1" / "sender.pcap.zst"
RAW_IP = 101
IPV4_BYTES, IPV6_BYTES = 20, 40


def ipv6(packet: bytes) -> bytes:
    """The same TCP segment between addresses that begin with the IPv4 ones."""
    length = struct.unpack_from(">H", packet, 2)[0] - IPV4_BYTES
    ends = packet[12:16] + bytes(12) + packet[16:20] + bytes(12)
    return struct.pack(">IHBB", 0x60000000, length, 6, 64) + ends + packet[IPV4_BYTES:]


def as_ipv6(data: bytes) -> bytes:
    """A raw IP capture with other IP headers."""
    order = "<" if data[0] in (0xD4, 0x4D) else ">"
    assert struct.unpack_from(order + "I", data, 20)[0] == RAW_IP
    made, at = [data[:24]], 24
    while at < len(data):
        s, us, caught, wire = struct.unpack_from(order + "IIII", data, at)
        packet = data[at + 16 : at + 16 + caught]
        assert packet[0] == 0x45
        longer = ipv6(packet)
        apart = IPV6_BYTES - IPV4_BYTES
        made += [struct.pack(order + "IIII", s, us, len(longer), wire + apart), longer]
        at += 16 + caught
    return b"".join(made)


def test_ipv6_packets_carry_less(tmp_path: Path) -> None:
    data = zstandard.ZstdDecompressor().decompressobj().decompress(CAPTURE.read_bytes())
    models = []
    for name, content in (("4", data), ("6", as_ipv6(data))):
        path = tmp_path / f"{name}.pcap"
        path.write_bytes(content)
        (flow,), _ = capture.read(path)
        models.append(estimate(flow, name))
    four, six = models
    assert (four.header_bytes, six.header_bytes) == (52, 72)
    longer = (six.mss + 72) / (four.mss + 52)
    assert longer > 1.01 and six.rate_bps == pytest.approx(four.rate_bps * longer, rel=1e-9)
    assert six.packets_per_s == pytest.approx(four.packets_per_s)


@pytest.mark.parametrize(("with_stamps", "header_bytes"), [(True, 52), (False, 40)])
def test_without_time_stamps_packets_carry_more(
    with_stamps: bool, header_bytes: int, tmp_path: Path
) -> None:
    option = stamps(1, 1) if with_stamps else b""
    offer = b"\x02\x04\x05\xb4" + option
    made = Captured(tmp_path / "made.pcap")
    made.packet(0, True, flags=SYN, options=offer)
    made.packet(10_000, False, flags=SYN | ACK, ack=1, options=offer)
    size = 1460 - len(option)
    for n in range(300):
        at_us, seq = 20_000 + n * 10_000, 1 + n * size
        made.packet(at_us, True, seq=seq, ack=1, payload=size, options=option)
        made.packet(at_us + 9_000, False, seq=1, ack=seq + size, options=option)
    (flow,), _ = capture.read(made.write())
    assert (flow.mss, flow.header_bytes) == (size, header_bytes)
