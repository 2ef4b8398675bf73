# SPDX-License-Identifier: GPL-2.0-only
"""M-Lab's tcp-info JSONL with every line read by orjson and base64, none by C."""

from __future__ import annotations

from pathlib import Path

from ndm_tcp.datasets.readers import mlab, streams
from ndm_tcp.datasets.rounds.flow import FlowRecords


def _parse(path: Path) -> mlab.Archive:
    archive = mlab.Archive()
    with streams.open_bytes(path) as stream:
        for number, line in enumerate(stream, start=1):
            archive.take_line(f"{path}:{number}", line, line.endswith(b"\n"))
    return archive


def read(path: Path) -> list[FlowRecords]:
    """As `mlab.read`."""
    return mlab.read(path, _parse)
