# SPDX-License-Identifier: GPL-2.0-only
"""The common parts of recordings of the host and of the lab's kernel."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import orjson
import zstandard

from ndm_tcp import files
from ndm_tcp.errors import NdmError


def compress(path: Path, data: bytes, level: int) -> None:
    """Write a zstd file, all of it or none."""
    with files.replacing(path) as temporary:
        temporary.write_bytes(zstandard.ZstdCompressor(level=level).compress(data))


def iperf3_report(output: bytes, said: str, name: str) -> dict[str, Any]:
    """iperf3's report without facts about the machine.

    Args:
        output: of `iperf3 -J`.
        said: its last words, for the message.
        name: of the transfer, for the message.

    Raises:
        NdmError: no report, or one of failure.
    """
    try:
        report = orjson.loads(output)
    except orjson.JSONDecodeError:
        raise NdmError(f"{name}: iperf3 gave no report: {said or 'no output'}") from None
    if "error" in report:
        raise NdmError(f"{name}: iperf3: {report['error']}")
    for key in ("system_info", "cookie"):
        report["start"].pop(key, None)
    report["end"].pop("cpu_utilization_percent", None)
    assert isinstance(report, dict)
    return report


def toml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value) if isinstance(value, str) else repr(value)
