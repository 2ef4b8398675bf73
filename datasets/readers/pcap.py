# SPDX-License-Identifier: GPL-2.0-only
"""Packet captures through the C engine (native/capture.h), piece by piece.

Knows pcap (both endians, us and ns, swapped lengths of 2.2) and pcapng with several interfaces
and clocks, plain, gzip or zstd; the link types of `network` in native/packet.c; IPv4 and IPv6
with extension headers, also inside VXLAN, GENEVE, GRE, ERSPAN, IP in IP and GTP-U. Other link
types go through scapy. Records out of order are sorted, and steps of the clock are followed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from ndm_tcp.core import ffi, lib
from ndm_tcp.datasets.readers import scapy_frames, streams
from ndm_tcp.datasets.rounds.compute import ROUND_DTYPE
from ndm_tcp.datasets.rounds.flow import ACK_DTYPE
from ndm_tcp.errors import NdmError

MAGICS = (
    *(b"\xa1\xb2\xc3\xd4", b"\xd4\xc3\xb2\xa1", b"\xa1\xb2\x3c\x4d", b"\x4d\x3c\xb2\xa1"),
    *(b"\xa1\xb2\xcd\x34", b"\x34\xcd\xb2\xa1", b"\x0a\x0d\x0d\x0a"),
)
MAGIC_BYTES, HEADER_BYTES = 4, 24
ROW_DTYPE = np.dtype(
    {
        "names": ["ack", "cause", "rwnd_limited", "rtt_us"],
        "formats": [ACK_DTYPE, "u1", "u1", "<i4"],
        "offsets": [0, 64, 65, 68],
        "itemsize": 72,
    }
)
"""`struct ndm_ack_row` of native/sender.h"""
SNAPLEN, TUNNELLED_SNAPLEN = 128, 192
"""bytes of a packet that hold all of its headers, those of a tunnel (VXLAN over IPv6) too"""
END = -1
ERRORS = {
    -2: "a packet has no time stamp (simple packet block); capture with tcpdump",
    -3: "a time stamp's resolution is beyond 64 bits",
    -4: "this version of the format is unknown; convert it: editcap -F pcap IN OUT",
    -5: "out of memory",
    -6: "not a packet capture (no pcap or pcapng magic number)",
    -8: "more than 1,048,576 connections; split it: editcap -c 10000000 IN OUT",
}


@dataclass
class CaptureReport:
    """Counts of packets read and left out, by reason."""

    packets: int = 0
    not_tcp: int = 0
    cut_headers: int = 0
    """TCP or IP headers that the snaplen cut off, or that are impossible"""
    fragments: int = 0
    duplicates: int = 0
    """packets that the capture shows twice (same IP id and header)"""
    bad_times: int = 0
    """packets with a time before 1970 or after 2262"""
    tunnelled: int = 0
    """TCP packets read inside a tunnel (VXLAN, GENEVE, GRE, IP in IP, GTP-U)"""
    cut_options: int = 0
    """TCP packets whose options are cut off by the snaplen, with all SACK blocks"""
    moved: int = 0
    """packets that stood too late in the file and were sorted to their time"""
    clock_steps: int = 0
    """times that the capture's clock was set back"""
    other_links: int = 0
    """packets of a link type that cannot be read"""
    truncated_at: int | None = None
    """byte offset in the decompressed file of the record that is not whole"""

    def counters(self) -> dict[str, int]:
        """Packets read, and left out by reason."""
        return {name: n for name, n in asdict(self).items() if name != "truncated_at"}

    def add(self, other: CaptureReport) -> None:
        """Count another capture's packets too; which of several was cut is not kept."""
        for name, n in other.counters().items():
            setattr(self, name, getattr(self, name) + n)

    def warnings(self) -> list[str]:
        """Warnings about the clock and about unreadable packets."""
        said = []
        if self.clock_steps:
            said.append(
                f"the capture's clock was set back {self.clock_steps} times; no RTT is taken "
                "across such a step"
            )
        if self.cut_options:
            enough = TUNNELLED_SNAPLEN if self.tunnelled else SNAPLEN
            said.append(
                f"{self.cut_options} packets have their TCP options cut off, so losses are "
                f"guessed; capture {enough} bytes of each: tcpdump -s {enough}"
            )
        if self.other_links:
            said.append(f"{self.other_links} packets have a link type that cannot be read")
        return said

    def unread(self) -> str:
        """The kinds of packets that no flow can come from; empty where there are none."""
        kinds = {
            "are not TCP, or encrypted": self.not_tcp,
            "are IP fragments": self.fragments,
            "have headers that were cut off; capture more of each: "
            f"tcpdump -s {TUNNELLED_SNAPLEN}": self.cut_headers,
            "have a link type that cannot be read": self.other_links,
        }
        return "; ".join(f"{n} packets {what}" for what, n in kinds.items() if n)


def cut_short(at: int, packets: int) -> str:
    """What is said of a capture whose record at that byte is not whole."""
    return f"cut short or damaged at byte {at}; its {packets} whole packets are used"


@dataclass(frozen=True)
class CapturedFlow:
    """One connection of a capture; see `struct ndm_flow_info`."""

    number: int
    status: int
    """enum ndm_flow_status"""
    sender_port: int
    receiver_port: int
    hosts: tuple[bytes, bytes]
    """both addresses, the lower one first; never stored"""
    first_us: int
    """capture clock at the first row"""
    mss: int
    header_bytes: int
    """IP and TCP, of a full segment"""
    facts: dict[str, int]
    n_rows: int
    rows: npt.NDArray[Any]
    """`ROW_DTYPE` [ACKs], if the caller requested them"""
    rounds: npt.NDArray[Any]
    """`ROUND_DTYPE` [rounds], else"""


def sniff(head: bytes) -> bool:
    """True if these first bytes are those of a pcap or pcapng file."""
    return head[:MAGIC_BYTES] in MAGICS


class Engine:
    """The passes over one capture, two or three. Use `engine`; every array is a copy."""

    def __init__(self, keep_rows: bool, min_segments: int, min_rows: int) -> None:
        seed = int.from_bytes(os.urandom(8), "little")
        self.c = lib.ndm_capture_new(seed, keep_rows, min_segments, min_rows)
        if self.c == ffi.NULL:
            raise MemoryError
        self.kept: list[Any] = []
        self.by_scapy = self.replaying = False
        self.order = 0

    def drops(self, drops: dict[int, list[tuple[int, int]]]) -> None:
        """32-bit sequence number to [(capture clock in us, LossCause)], in order of time."""
        rows = [(seq, at_us, cause) for seq in sorted(drops) for at_us, cause in drops[seq]]
        seq = np.array([row[0] for row in rows], dtype=np.uint32)
        at_us = np.array([row[1] for row in rows], dtype=np.int64)
        cause = np.array([row[2] for row in rows], dtype=np.uint8)
        self.kept = [seq, at_us, cause]
        lib.ndm_capture_drops(
            self.c,
            len(rows),
            ffi.cast("uint32_t *", seq.ctypes.data),
            ffi.cast("int64_t *", at_us.ctypes.data),
            ffi.cast("uint8_t *", cause.ctypes.data),
        )

    def _feed(self, stream: IO[bytes]) -> int:
        room = ffi.new("size_t *")
        while True:
            pointer = lib.ndm_capture_room(self.c, room)
            piece = ffi.buffer(pointer, room[0])
            n = stream.readinto1(piece)  # type: ignore[attr-defined]
            if not n:
                return END if lib.ndm_capture_left(self.c) else 0
            status = int(lib.ndm_capture_take(self.c, n))
            if status:
                return status

    def _read(self, path: Path) -> int:
        if self.by_scapy:
            status = 0
            for time_ns, data, wire in scapy_frames.frames(path):
                link = scapy_frames.RAW_IP
                status = lib.ndm_capture_packet(self.c, time_ns, link, data, len(data), wire)
                if status:
                    break
        else:
            with streams.open_bytes(path) as stream:
                try:
                    status = self._feed(stream)
                except streams.BrokenStream:
                    if not lib.ndm_capture_counters(self.c).packets:
                        raise
                    status = END
        flushed = int(lib.ndm_capture_flush(self.c)) if status in (0, END) else 0
        return flushed or status

    def one_pass(self, path: Path, report: CaptureReport) -> None:
        """Read the whole file.

        Raises:
            NdmError: not a capture, or one that cannot be read on.
        """
        status = self._read(path)
        counters = lib.ndm_capture_counters(self.c)
        links = int(counters.other_links)
        if links and links == counters.packets and not self.by_scapy:
            link = int(counters.bad_link_type)
            if not scapy_frames.knows(link, path):
                raise NdmError(
                    f"{path}: link type {link} of its {links} packets cannot be read here; capture "
                    "with tcpdump -i any, or on the Ethernet or IP interface below"
                )
            self.by_scapy = True
            lib.ndm_capture_again(self.c, 0)
            status = self._read(path)
        order = int(lib.ndm_capture_order(self.c))
        if order and not self.order and not self.replaying:
            self.order = order
            lib.ndm_capture_again(self.c, order)
            status = self._read(path)
        if not self.replaying and lib.ndm_capture_pair(self.c):
            lib.ndm_capture_again(self.c, self.order)
            status = self._read(path)
        offset = int(lib.ndm_capture_offset(self.c))
        if status == END and not offset and not self.by_scapy:
            raise NdmError(
                f"{path}: cut short inside the file header "
                f"({lib.ndm_capture_left(self.c)} of {HEADER_BYTES} bytes); capture again"
            )
        if status not in (0, END):
            raise NdmError(f"{path}: {ERRORS[status]}")
        for name in report.counters():
            setattr(report, name, int(getattr(counters, name)))
        report.truncated_at = offset if status == END else None

    def second_pass(self, path: Path, report: CaptureReport, shard: tuple[int, int]) -> None:
        """Replay the senders of one shard (number, of how many) of the flows."""
        lib.ndm_capture_second_pass(self.c, *shard)
        self.replaying = True
        self.one_pass(path, report)
        if lib.ndm_capture_third_pass(self.c):
            self.one_pass(path, report)
        lib.ndm_capture_end(self.c)

    def flows(self) -> Iterator[CapturedFlow]:
        """The connections, in order of their first packet."""
        info = ffi.new("struct ndm_flow_info *")
        for number in range(lib.ndm_capture_flows(self.c)):
            lib.ndm_capture_flow(self.c, number, info)
            n_rows = 0 if info.row == ffi.NULL else info.rows
            facts = {
                "packets": info.packets,
                "segments": info.segments,
                "retransmitted": info.retransmitted + info.resent_control,
                "rtos": info.rtos,
                "handshake": info.handshake,
                "window_scale": info.window_scale,
                "sack": info.sack,
                "capture_holes": info.gaps + info.unseen,
                "capture_duplicates": info.duplicates,
                "zero_windows": info.zero_windows,
                "keepalives": info.keepalives,
                "dsacks": info.dsacks,
            }
            yield CapturedFlow(
                number,
                info.status,
                info.sender_port,
                info.receiver_port,
                (_address(info, 0), _address(info, 1)),
                info.first_us,
                info.mss,
                info.header_bytes,
                facts,
                info.rows,
                _copy(info.row, n_rows, ROW_DTYPE),
                _copy(info.round, info.rounds, ROUND_DTYPE),
            )


def _address(info: Any, end: int) -> bytes:
    return bytes(ffi.buffer(info.host[end]))[: 4 if info.family == 4 else 16]


def _copy(pointer: Any, n: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    if not n:
        return np.zeros(0, dtype)
    return np.frombuffer(ffi.buffer(pointer, n * dtype.itemsize), dtype).copy()


@contextmanager
def engine(keep_rows: bool, min_segments: int, min_rows: int) -> Iterator[Engine]:
    """An engine whose memory is given back at the end."""
    made = Engine(keep_rows, min_segments, min_rows)
    try:
        yield made
    finally:
        lib.ndm_capture_free(made.c)


if ffi.sizeof("struct ndm_ack_row") != ROW_DTYPE.itemsize:  # pragma: no cover
    raise NdmError("ndm_tcp._core: struct ndm_ack_row has another size here; run: make setup")
