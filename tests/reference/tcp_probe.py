# SPDX-License-Identifier: GPL-2.0-only
"""tcp_probe traces with every line read by regular expressions, none by C."""

from __future__ import annotations

from pathlib import Path

from ndm_tcp.datasets.readers import streams, tcp_probe
from ndm_tcp.datasets.rounds.flow import FlowRecords


def _parse(path: Path) -> tcp_probe.Trace:
    trace = tcp_probe.Trace()
    with streams.open_text(path) as stream:
        for number, line in enumerate(stream, start=1):
            tcp_probe.take_line(trace, f"{path}:{number}", line, line.endswith("\n"))
    return trace


def read(path: Path) -> list[FlowRecords]:
    """As `tcp_probe.read`."""
    return tcp_probe.read(path, _parse)
