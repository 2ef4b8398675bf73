# SPDX-License-Identifier: GPL-2.0-only
"""Captures of any size for benchmarks: one simulated transfer, continued again and again."""

from __future__ import annotations

import heapq
import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

MSS = 1448
RTT_US, PER_SEGMENT_US, WINDOW = 20_000, 120, 160
PCAP_HEADER = struct.pack("<IHHIIII", 0xA1B2C3D4, 2, 4, 0, 0, 96, 1)
ETHERNET = bytes(12) + b"\x08\x00"
LOSS = 0.001


class _Block:
    """Packets as bytes, with the places of the numbers that grow from block to block."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.times: list[int] = []
        self.seqs: list[int] = []
        self.peers: list[int] = []

    def add(self, at_us: int, up: bool, seq: int, ack: int, size: int, sack: bytes) -> None:
        options = b"\x01\x01\x08\x0a" + struct.pack(">II", 1 + at_us // 1000, 1)
        if sack:
            options += b"\x01\x01\x05" + bytes([2 + len(sack)]) + sack
        ends = (b"\x0a\0\0\1", b"\x0a\0\0\2") if up else (b"\x0a\0\0\2", b"\x0a\0\0\1")
        ports = (40_000, 5201) if up else (5201, 40_000)
        total = 40 + len(options) + size
        ip = struct.pack(">BBHHHBBH", 0x45, 0, total, 0, 0x4000, 64, 6, 0) + ends[0] + ends[1]
        offset = (5 + len(options) // 4) << 4
        tcp = struct.pack(">HHIIBBHHH", *ports, seq, ack, offset, 16, 60_000, 0, 0) + options
        packet = (ETHERNET + ip + tcp + bytes(size))[:96]
        start = len(self.data) + 16
        self.times.append(len(self.data))
        mine, theirs = start + 38, start + 42
        (self.seqs if up else self.peers).append(mine)
        (self.peers if up else self.seqs).append(theirs)
        if sack:
            at = start + 14 + 20 + 20 + 16
            self.seqs += range(at, at + len(sack), 4)
        self.data += struct.pack("<IIII", at_us // 10**6, at_us % 10**6, len(packet), 14 + total)
        self.data += packet


def _runs(numbers: set[int]) -> list[tuple[int, int]]:
    """Segments in a row, as [(first, behind the last)]."""
    runs: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][1] == number:
            runs[-1] = (runs[-1][0], number + 1)
        else:
            runs.append((number, number + 1))
    return runs


def _simulate(packets: int) -> tuple[_Block, int, int]:
    """A block of packets, the bytes it acknowledges and the time it takes, us.

    The sender keeps `WINDOW` segments in flight, sends new ones as ACKs come, repeats a hole
    after three later ones were SACKed; the receiver acknowledges every second segment.
    """
    draw = random.Random(1)
    block, order = _Block(), 0
    events: list[tuple[int, int, str, Any]] = []
    now, free_at, nxt, una = 10_000_000, 0, 0, 0
    got: set[int] = set()
    expected, unacked = 0, 0
    resent: set[int] = set()

    def send(number: int) -> None:
        nonlocal free_at, order
        free_at = max(free_at, now) + PER_SEGMENT_US
        block.add(now, True, 1000 + number * MSS, 1, MSS, b"")
        # Repetitions and the last flight are never lost: the block must end by itself.
        if draw.random() >= LOSS or number in resent or number >= goal - WINDOW:
            order += 1
            heapq.heappush(events, (free_at + RTT_US // 2, order, "data", number))

    goal = packets * 2 // 3
    while nxt < WINDOW:
        send(nxt)
        nxt += 1
    while una < nxt:
        now, _, kind, number = heapq.heappop(events)
        if kind == "data":
            got.add(number)
            before = expected
            while expected in got:
                got.discard(expected)
                expected += 1
            unacked += expected - before
            if got or unacked >= 2 or expected >= goal:
                unacked = 0
                order += 1
                heapq.heappush(events, (now + RTT_US // 2, order, "ack", (expected, _runs(got))))
            continue
        ack, runs = number
        edges = [1000 + edge * MSS for run in runs[-3:][::-1] for edge in run]
        block.add(now, False, 1, 1000 + ack * MSS, 0, struct.pack(f">{len(edges)}I", *edges))
        una = max(una, ack)
        if sum(right - left for left, right in runs) >= 3 and una not in resent:
            resent.add(una)
            send(una)
        while nxt < goal and nxt - una < WINDOW:
            send(nxt)
            nxt += 1
    return block, una * MSS, now - 10_000_000 + 1000


def _shift(data: np.ndarray, places: list[int], by: int, big: bool) -> None:
    at = np.array(places)[:, None] + np.arange(4)
    kind = ">u4" if big else "<u4"
    values = data[at].copy().view(kind)[:, 0].astype(np.uint64) + by
    data[at] = (values & 0xFFFFFFFF).astype(kind).view(np.uint8).reshape(-1, 4)


def blocks(packets: int) -> Iterator[bytes]:
    """Endless pieces of the body of a classic pcap file, each of about so many packets."""
    block, acked, took_us = _simulate(packets)
    data = np.frombuffer(bytes(block.data), np.uint8).copy()
    times = np.array(block.times)
    stamps = data[times[:, None] + np.arange(8)].copy().view("<u4").astype(np.int64)
    start_us = stamps[:, 0] * 10**6 + stamps[:, 1]
    number = 0
    while True:
        yield data.tobytes()
        number += 1
        at_us = start_us + number * took_us
        split = np.stack([at_us // 10**6, at_us % 10**6], axis=1).astype("<u4")
        data[times[:, None] + np.arange(8)] = split.view(np.uint8).reshape(-1, 8)
        _shift(data, block.seqs, acked, True)


def write(path: Path, packets: int = 200_000, size: int = 0) -> int:
    """Write a capture of about so many packets, continued until it has `size` bytes.

    Returns:
        packets in the file.
    """
    with path.open("wb") as stream:
        stream.write(PCAP_HEADER)
        for piece in blocks(packets):
            stream.write(piece)
            if stream.tell() >= size:
                break
    return count(path)


def count(path: Path) -> int:
    """Packets of a classic little-endian pcap file."""
    total, rest = 0, b""
    with path.open("rb") as stream:
        stream.read(24)
        while piece := stream.read(1 << 24):
            piece, at = rest + piece, 0
            while at + 16 <= len(piece):
                at_next = at + 16 + int.from_bytes(piece[at + 8 : at + 12], "little")
                if at_next > len(piece):
                    break
                at, total = at_next, total + 1
            rest = piece[at:]
    return total
