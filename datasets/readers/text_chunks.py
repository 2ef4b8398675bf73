# SPDX-License-Identifier: GPL-2.0-only
"""Log text in pieces of whole lines, and the C that reads the lines of usual form (text.h)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ndm_tcp.core import ffi, lib
from ndm_tcp.datasets.readers import streams
from ndm_tcp.errors import NdmError

CHUNK_BYTES = 4 << 20
LINE_BYTES = 1 << 20
"""No log has longer lines; a file without line ends is refused instead of held in memory."""

PROBE_DTYPE = np.dtype(
    [
        ("t_s", "<f8"),
        *((name, "<u4") for name in ("snd_nxt", "snd_una", "cwnd", "ssthresh", "srtt_us")),
        ("socket", "<i4"),
    ],
    align=True,
)
LINE_DTYPE = np.dtype([(name, "<u8") for name in ("at", "n", "number", "row")])
SS_POLL = (
    *("time_us", "cwnd", "srtt_us", "rttvar_us", "min_rtt_us", "ssthresh", "delivered"),
    *("bytes_acked", "retransmitted", "inflight", "delivery_rate_bps", "app_limited"),
    *("ca_state", "rwnd_limited_us"),
)
"""Columns of `Poll` in their order in `struct ndm_ss_row`"""
SS_DTYPE = np.dtype(
    [
        ("line", "<i8"),
        *((name, "<i8") for name in (*SS_POLL, "mss", "window_scale", "at", "n")),
        *((name, "<i4") for name in ("ends", "cc")),
    ],
    align=True,
)
TCP_INFO_BYTES = 280
"""Longest known struct tcp_info (Linux 6.18)."""
TCP_INFO_DTYPE = np.dtype(
    [("time_us", "<i8"), ("size", "<i4"), ("cc", "<i4"), ("info", "u1", (TCP_INFO_BYTES,))]
)
SIZES = {
    "struct ndm_tcp_info_row": TCP_INFO_DTYPE,
    "struct ndm_probe_row": PROBE_DTYPE,
    "struct ndm_line": LINE_DTYPE,
    "struct ndm_ss_row": SS_DTYPE,
}
for _name, _dtype in SIZES.items():
    if ffi.sizeof(_name) != _dtype.itemsize:  # pragma: no cover
        raise NdmError(f"ndm_tcp._core: {_name} has another size here; run: make setup")


class Piece(NamedTuple):
    """Whole lines of a file."""

    text: bytes
    first: int
    """number of its first line, from 1"""
    lines: int


class Names:
    """Strings that C gave numbers to."""

    def __init__(self) -> None:
        self.c = lib.ndm_names_new(int.from_bytes(os.urandom(8), "little"))
        if self.c == ffi.NULL:
            raise MemoryError

    def all(self) -> list[str]:
        """The strings, by number."""
        size, found = ffi.new("size_t *"), []
        for number in range(lib.ndm_names_count(self.c)):
            pointer = lib.ndm_names_text(self.c, number, size)
            found.append(bytes(ffi.buffer(pointer, size[0])).decode("ascii"))
        return found


@contextmanager
def names() -> Iterator[Names]:
    """Names whose memory is given back at the end."""
    made = Names()
    try:
        yield made
    finally:
        lib.ndm_names_free(made.c)


def chunks(
    path: Path, records: bool = False, change: Callable[[bytes], bytes] = bytes
) -> Iterator[Piece]:
    """The text of a file in pieces of whole lines.

    Args:
        path: plain, gzip or zstd.
        records: end pieces before a line that does not begin with a blank.
        change: makes other lines of whole lines, as many as they were.

    Raises:
        NdmError: a line is longer than any log's.
    """
    raw, rest, number = b"", b"", 1
    with streams.open_bytes(path) as stream:
        while piece := stream.read(CHUNK_BYTES):
            raw += piece
            end = raw.rfind(b"\n") + 1
            rest += change(raw[:end])
            raw = raw[end:]
            end = _last_start(rest) if records else rest.rfind(b"\n") + 1
            if end:
                whole = Piece(rest[:end], number, rest.count(b"\n", 0, end))
                yield whole
                number, rest = number + whole.lines, rest[end:]
            elif len(rest) + len(raw) > LINE_BYTES:
                raise NdmError(f"{path}:{number}: line of over {LINE_BYTES} bytes; is this a log?")
    rest += change(raw)
    if rest:
        yield Piece(rest, number, rest.count(b"\n") + 1)


def _last_start(text: bytes) -> int:
    """Where the last line that begins without a blank begins; 0: only the first does."""
    at = len(text)
    while (at := text.rfind(b"\n", 0, at)) >= 0:
        if at + 1 < len(text) and text[at + 1 : at + 2] not in (b" ", b"\t", b"\n", b"\r"):
            return at + 1
    return 0


def _pointer(kind: str, array: npt.NDArray[Any]) -> Any:
    return ffi.cast(kind, array.ctypes.data)


Other = tuple[int, int, str]
"""A line that C left: its number in the piece from 0, rows before it, its text"""


def _lines(
    function: Any, kind: str, dtype: np.dtype[Any], piece: Piece, names: Names
) -> tuple[npt.NDArray[Any], list[Other]]:
    text, room = piece.text, piece.lines
    rows, others = np.empty(room, dtype), np.empty(room, LINE_DTYPE)
    done = ffi.new("struct ndm_chunk *")
    function(
        ffi.from_buffer(text),
        len(text),
        names.c,
        _pointer(kind, rows),
        _pointer("struct ndm_line *", others),
        done,
    )
    left = [
        (number, row, text[at : at + n].decode("utf-8", errors="replace"))
        for at, n, number, row in others[: done.others].tolist()
    ]
    return rows[: done.rows], left


def probe_lines(piece: Piece, sockets: Names) -> tuple[npt.NDArray[Any], list[Other]]:
    """tcp_probe lines of usual form, `PROBE_DTYPE`, and the other lines."""
    return _lines(lib.ndm_probe_lines, "struct ndm_probe_row *", PROBE_DTYPE, piece, sockets)


def tcp_info_lines(piece: Piece, ccs: Names) -> tuple[npt.NDArray[Any], list[Other]]:
    """Records of tcp-info JSONL of usual form, `TCP_INFO_DTYPE`, and the other lines."""
    kind = "struct ndm_tcp_info_row *"
    return _lines(lib.ndm_tcp_info_lines, kind, TCP_INFO_DTYPE, piece, ccs)


class SsText:
    """Records of ss, piece by piece; keeps the time stamp from piece to piece."""

    def __init__(self, ends: Names, ccs: Names) -> None:
        self.ends, self.ccs = ends, ccs
        self.done = ffi.new("struct ndm_ss_chunk *", {"time_us": -1})
        self.not_open = 0

    def take(self, piece: Piece) -> npt.NDArray[Any]:
        """`SS_DTYPE` [records]; `ends` -1: of unusual form, its bytes are at `at`."""
        text = piece.text
        rows = np.zeros(piece.lines + 1, SS_DTYPE)
        lib.ndm_ss_lines(
            ffi.from_buffer(text),
            len(text),
            self.ends.c,
            self.ccs.c,
            _pointer("struct ndm_ss_row *", rows),
            self.done,
        )
        self.not_open += self.done.not_open
        return rows[: self.done.rows]
