# SPDX-License-Identifier: GPL-2.0-only
"""Logs of ss with every time stamp and record read by Python, none by C."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ndm_tcp.datasets.readers import ss
from ndm_tcp.datasets.readers.text_chunks import SS_DTYPE
from ndm_tcp.datasets.rounds.flow import FlowRecords

STAMP = re.compile(
    r"\s*(?:(?P<bare>\d{9,10}(?:\.\d+)?)\s*$|time:\s*(?P<ns>\d{16,20})\b\s*|"
    r"Time:\s*(?P<s>\d{9,10}(?:\.\d+)?)\b\s*)"
)


def _records(path: Path) -> Iterator[tuple[int, int, str]]:
    """Number of the first line, us since the epoch (-1: unknown) and text of each record."""
    time_us, first = -1, 0
    pending: list[str] = []
    text = b"".join(piece.text for piece, _ in ss.pieces(path)).decode("utf-8", errors="replace")
    with io.StringIO(text, newline=None) as stream:
        for number, line in enumerate(stream, start=1):
            stamp = STAMP.match(line)
            line = line[stamp.end() :] if stamp else line
            is_noise = not line.strip() or line.startswith(ss.NOISE)
            if pending and (stamp or not (is_noise or line[0].isspace())):
                yield first, time_us, "".join(pending)
                pending.clear()
            if stamp:
                text = stamp["bare"] or stamp["s"]
                time_us = round(float(text) * 1e6) if text else int(stamp["ns"]) // 1000
            if not is_noise:
                first = first if pending else number
                pending.append(line)
    if pending:
        yield first, time_us, "".join(pending)


def _parse(path: Path) -> ss.Log:
    reader = ss.SocketReader()
    rows, unknown, foreign, malformed = [], [], [], []
    for number, time_us, text in _records(path):
        row = np.zeros(1, SS_DTYPE)
        row["line"], row["time_us"] = number, time_us
        try:
            count = reader.take(text, row[0])
        except ss.ForeignLineError:
            foreign.append(number)
            continue
        except ValueError as error:
            malformed.append((number, str(error)))
            continue
        if count >= 0:
            rows.append(row)
            unknown.append(count)
    return ss.Log(
        np.concatenate([np.zeros(0, SS_DTYPE), *rows]),
        np.array(unknown, dtype=np.int64),
        list(reader.ccs),
        reader.not_open,
        list(reader.ends),
        foreign,
        malformed,
    )


def read(path: Path) -> list[FlowRecords]:
    """As `ss.read`."""
    return ss.read(path, _parse)
