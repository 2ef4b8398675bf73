# SPDX-License-Identifier: GPL-2.0-only
"""Measurement Lab's tcp-info archives: JSONL with raw struct tcp_info.

One JSON object per line; a line with Metadata begins a connection, the others
carry the payloads of the INET_DIAG attributes in base64. A snapshot is written only when a
counter changed. struct tcp_info grew with the kernel; fields beyond the end of a shorter one
are missing, not zero.

A last line that is cut off is left out.
"""

from __future__ import annotations

import base64
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from ndm_tcp import files
from ndm_tcp.datasets.readers import ndt7, streams, text_chunks
from ndm_tcp.datasets.readers.poll import (
    MISSING,
    Ints,
    PollColumns,
    Warn,
    flow,
    prevailing,
    quiet,
    tally,
    warn_of_times,
)
from ndm_tcp.datasets.readers.text_chunks import TCP_INFO_BYTES, TCP_INFO_DTYPE
from ndm_tcp.datasets.rounds.flow import FlowRecords, flow_id
from ndm_tcp.errors import NdmError

TCP_INFO, CONG = 2, 4  # INET_DIAG attribute numbers
SHORTEST = 104
"""Bytes of struct tcp_info up to Linux 3.14."""
ESTABLISHED_OR_CLOSING = (1, 4, 5, 8, 9, 11)

OFFSETS: dict[str, tuple[int, str]] = {
    "ca_state": (1, "u1"),
    "window_scales": (6, "u1"),
    "options": (7, "u1"),
    "mss": (16, "<u4"),
    "unacked": (24, "<u4"),
    "sacked": (28, "<u4"),
    "lost": (32, "<u4"),
    "resending": (36, "<u4"),
    "srtt_us": (68, "<u4"),
    "rttvar_us": (72, "<u4"),
    "ssthresh": (76, "<u4"),
    "cwnd": (80, "<u4"),
    "retransmitted": (100, "<u4"),
    "bytes_acked": (120, "<u8"),
    "min_rtt_us": (148, "<u4"),
    "delivery_rate": (160, "<u8"),
    "rwnd_limited_us": (176, "<u8"),
    "delivered": (192, "<u4"),
}
"""Byte offset and type of the fields used here, little endian."""

RECEIVERS_SCALE = 0xF
"""of the byte with both scales: tcpi_snd_wscale"""

TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)")


def sniff(head: bytes) -> bool:
    """True if these first bytes look like tcp-info JSONL or an ndt7 result."""
    return _is_tcp_info(head) or ndt7.sniff(head)


def _is_tcp_info(head: bytes) -> bool:
    return head.lstrip()[:1] == b"{" and (b'"RawIDM"' in head or b'"Metadata":{"UUID"' in head)


@dataclass
class Connection:
    """The snapshots of one connection."""

    rows: list[npt.NDArray[Any]] = field(default_factory=list)
    """`TCP_INFO_DTYPE`"""
    ccs: Counter[str] = field(default_factory=Counter)
    """algorithm to snapshots that name it"""


def _time_us(text: str) -> int:
    match = TIME.fullmatch(text)
    if match is None:
        raise ValueError(f"time {text!r}")
    offset = "+00:00" if match[3] == "Z" else match[3]
    seconds = int(datetime.fromisoformat(match[1] + offset).timestamp())
    return seconds * 1_000_000 + int((match[2] or "0").ljust(9, "0")) // 1000


def _snapshot(connection: Connection, record: dict[str, Any]) -> None:
    """Add one record; raises ValueError if it is malformed."""
    attributes = record.get("Attributes") or []
    if len(attributes) <= TCP_INFO or not attributes[TCP_INFO]:
        return
    info = base64.b64decode(attributes[TCP_INFO], validate=True)
    if len(info) < SHORTEST:
        raise ValueError(f"struct tcp_info of {len(info)} bytes, expected {SHORTEST}")
    if len(attributes) > CONG and attributes[CONG]:
        name = base64.b64decode(attributes[CONG], validate=True)
        if said := name.rstrip(b"\0").decode("ascii", errors="replace"):
            connection.ccs[said] += 1
    row = np.zeros(1, TCP_INFO_DTYPE)
    row["time_us"], row["size"] = _time_us(record["Timestamp"]), len(info)
    row["info"][0, : len(info)] = np.frombuffer(info[:TCP_INFO_BYTES], np.uint8)
    connection.rows.append(row)


def _column(data: npt.NDArray[np.uint8], sizes: Ints, name: str) -> Ints:
    """One field of all records, int64; `MISSING` where the struct is too short."""
    offset, kind = OFFSETS[name]
    end = offset + np.dtype(kind).itemsize
    values = np.ascontiguousarray(data[:, offset:end]).view(kind)[:, 0]
    # a delivery rate beyond int64 is no rate
    signed = values.astype(np.int64)
    return np.where((sizes >= end) & (signed >= 0), signed, MISSING)


def _polls(rows: npt.NDArray[Any]) -> tuple[PollColumns, int | None, int]:
    """The polls of a connection, its segment size, and the receiver's window scale."""
    data, sizes = rows["info"], rows["size"].astype(np.int64)
    values = {name: _column(data, sizes, name) for name in OFFSETS}
    inflight = values["unacked"] - values["sacked"] - values["lost"] + values["resending"]
    rate = values["delivery_rate"]
    polls = PollColumns.filled(
        rows["time_us"].copy(),
        **{
            name: values[name]
            for name in (
                *("cwnd", "srtt_us", "rttvar_us", "min_rtt_us", "ssthresh", "delivered"),
                *("bytes_acked", "retransmitted", "ca_state", "rwnd_limited_us"),
            )
        },
        inflight=np.maximum(inflight, 0),
        delivery_rate_bps=np.where(rate == MISSING, MISSING, rate * 8),
        app_limited=np.where(sizes >= 168, values["options"] & 1, MISSING),
    )
    scale = int((values["window_scales"] & RECEIVERS_SCALE).max())
    return polls, int(values["mss"].max()) or None, scale


def _take(connection: Connection, rows: npt.NDArray[Any], names: list[str]) -> None:
    """Add records that C has read."""
    connection.rows.append(rows)
    connection.ccs += tally(rows["cc"], names)


@dataclass
class Archive:
    """The connections of a file, in order."""

    connections: dict[str, Connection] = field(default_factory=dict)
    current: Connection = field(default_factory=Connection)
    cut: str | None = None
    """the error in the last line, if the file ends within it"""

    def begun(self) -> Connection:
        """The connection that a snapshot belongs to; a file may begin within one."""
        if not self.connections:
            self.connections[""] = self.current
        return self.current

    def take_line(self, where: str, line: str | bytes, ended: bool = True) -> None:
        """Add any line; C leaves those to it that are no snapshot of usual form.

        Args:
            where: file and line.
            line: its text.
            ended: false for a last line without its end, which may be cut off.

        Raises:
            NdmError: no tcp-info record.
        """
        if not line.strip():
            return
        try:
            record = orjson.loads(line)
            if record.get("Metadata"):
                uuid = str(record["Metadata"]["UUID"])
                self.current = self.connections.setdefault(uuid, Connection())
            _snapshot(self.begun(), record)
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
            wrong = f"{where}: not a tcp-info record ({error}); fetch the file again"
            if ended:
                raise NdmError(wrong) from None
            self.cut = wrong


def _parse(path: Path) -> Archive:
    archive = Archive()
    with text_chunks.names() as ccs:
        for piece in text_chunks.chunks(path):
            rows, others = text_chunks.tcp_info_lines(piece, ccs)
            names, taken = ccs.all(), 0
            for number, before, line in [*others, (-1, len(rows), "")]:
                if before > taken:
                    _take(archive.begun(), rows[taken:before], names)
                    taken = before
                ended = piece.text.endswith(b"\n") or number + 1 < piece.lines
                archive.take_line(f"{path}:{piece.first + number}", line, ended)
    return archive


def _flows(path: Path, archive: Archive, warn: Warn) -> list[FlowRecords]:
    digest, flows = files.sha256(path), []
    for number, item in enumerate(archive.connections.values()):
        rows = np.concatenate([np.zeros(0, TCP_INFO_DTYPE), *item.rows])
        is_open = np.isin(rows["info"][:, 0], ESTABLISHED_OR_CLOSING)
        if not is_open.any():
            continue
        polls, mss, scale = _polls(rows[is_open])
        found = flow(
            polls,
            flow_id=flow_id(digest, str(number)),
            format="mlab_tcpinfo",
            cc_name=prevailing(item.ccs),
            mss=mss,
            facts={"not_open": int((~is_open).sum()), "window_scale": scale},
        )
        if found is not None:
            flows.append(found)
    if not flows:
        wrong = f"{path}: no snapshot of an open connection in this tcp-info file"
        raise NdmError(archive.cut or wrong)
    if archive.cut:
        warn("the last line is cut off and left out")
    warn_of_times(flows, warn)
    return flows


def read(
    path: Path, parse: Callable[[Path], Archive] = _parse, warn: Warn = quiet
) -> list[FlowRecords]:
    """The connections of an archived file.

    Args:
        path: plain, gzip or zstd.
        parse: reads the lines of tcp-info.
        warn: called for a last line that is cut off, and for times that repeat.

    Raises:
        NdmError: a malformed line or object, or no snapshot of an open connection.
    """
    with streams.open_bytes(path) as stream:
        head = stream.read(4096)
        if not head.strip():
            raise NdmError(
                f"{path}: empty, expected tcp-info JSONL or an ndt7 result; fetch it again"
            )
        if _is_tcp_info(head):
            return _flows(path, parse(path), warn)
        return ndt7.read(path, head + streams.read_whole(path, stream), warn)
