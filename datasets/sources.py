# SPDX-License-Identifier: GPL-2.0-only
"""Finds what can be read under the paths a user names, and reads one source at a time."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from ndm_tcp import files
from ndm_tcp.datasets import (
    capture,
    flent,
    iperf3,
    mlab,
    pcap,
    rounds,
    run_folder,
    ss,
    streams,
    tcp_probe,
)
from ndm_tcp.datasets.records import Flow, FlowRecords, FlowRounds
from ndm_tcp.errors import NdmError

HEAD_BYTES = 4096

Reader = Callable[[Path], list[FlowRecords]]

POLL_READERS: tuple[tuple[str, Callable[[bytes], bool], Reader], ...] = (
    ("flent", flent.sniff, flent.read),
    ("iperf3", iperf3.sniff, iperf3.read),
    ("mlab", mlab.sniff, mlab.read),
    ("tcp_probe", tcp_probe.sniff, tcp_probe.read),
    ("ss", ss.sniff, ss.read),
)


SomeFlow = TypeVar("SomeFlow", bound=Flow)


@dataclass(frozen=True)
class SourceResult(Generic[SomeFlow]):
    """What one source gave."""

    name: str
    sha256: str
    flows: list[SomeFlow]
    skipped: Counter[str] = field(default_factory=Counter)
    """connections left out, by reason"""
    report: pcap.CaptureReport = field(default_factory=pcap.CaptureReport)
    """packets of a capture; all zero for a log"""
    numbers: list[int] = field(default_factory=list)
    """of the flows in their source; a shard has some"""


def discover(paths: list[Path]) -> list[Path]:
    """Every source under the named paths, sorted: recorded runs as folders, the rest as files.

    A file named by the user is a source whatever it holds; in folders only what some reader
    knows counts.

    Raises:
        NdmError: a path does not exist, or nothing readable lies under them.
    """
    found: set[Path] = set()
    for path in paths:
        if not path.exists():
            raise NdmError(f"{path}: no such file or folder")
        found |= {path} if path.is_file() else set(_inside(path))
    if not found:
        named = ", ".join(str(p) for p in paths)
        raise NdmError(f"{named}: no capture, run folder or tcp_info log found here")
    return sorted(found)


def _inside(folder: Path) -> list[Path]:
    if run_folder.is_run(folder):
        return [folder]
    found = []
    for path in sorted(p for p in folder.iterdir() if not p.name.startswith(".")):
        if path.is_dir():
            found += _inside(path)
        elif _kind(path):
            found.append(path)
    return found


def _kind(path: Path) -> str | None:
    """The reader that knows this file: pcap, one of `POLL_READERS`, or None."""
    with streams.open_bytes(path) as stream:
        head = stream.read(HEAD_BYTES)
    if pcap.sniff(head):
        return "pcap"
    return next((name for name, sniff, _ in POLL_READERS if sniff(head)), None)


def digest(path: Path) -> str:
    """SHA-256 of a file, or of the names and hashes of a run's files."""
    if path.is_file():
        return files.sha256(path)
    parts = [f"{f.name}:{files.sha256(f)}" for f in sorted(path.iterdir()) if f.is_file()]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _reader(path: Path) -> str:
    """run, pcap, or the name of one of `POLL_READERS`.

    Raises:
        NdmError: empty or unknown.
    """
    if path.is_dir():
        return "run"
    if path.stat().st_size == 0:
        raise NdmError(f"{path}: empty file, expected a packet capture or a tcp_info log")
    kind = _kind(path)
    if kind is None:
        raise NdmError(
            f"{path}: neither a packet capture nor a log that ss, iperf3 -J, tcp_probe, flent or "
            "M-Lab writes"
        )
    return kind


def _read_records(
    path: Path, kind: str, report: pcap.CaptureReport
) -> tuple[list[FlowRecords], Counter[str]]:
    if kind == "run":
        return run_folder.read(path, report)
    if kind == "pcap":
        return capture.read(path, None, report)
    reader = next(read for name, _, read in POLL_READERS if name == kind)
    return reader(path), Counter()


def read(path: Path) -> SourceResult[FlowRecords]:
    """Read one source, ACK by ACK (or poll by poll).

    Args:
        path: a file, or the folder of a recorded run.

    Raises:
        NdmError: empty, unknown or damaged.
    """
    report = pcap.CaptureReport()
    flows, skipped = _read_records(path, _reader(path), report)
    return SourceResult(path.name, digest(path), flows, skipped, report)


def read_rounds(
    path: Path, sha256: str, shard: tuple[int, int] = (0, 1)
) -> SourceResult[FlowRounds]:
    """Read one source, round by round; captures in bounded memory.

    Args:
        path: a file, or the folder of a recorded run.
        sha256: its `digest`.
        shard: (k, n): of a capture, only the flows whose number is k modulo n.

    Raises:
        NdmError: empty, unknown or damaged.
    """
    report = pcap.CaptureReport()
    kind = _reader(path)
    if kind == "pcap":
        numbered, skipped = capture.read_rounds(path, sha256, report, shard)
        numbers, flows = [n for n, _ in numbered], [flow for _, flow in numbered]
        return SourceResult(path.name, sha256, flows, skipped, report, numbers)
    records, skipped = _read_records(path, kind, report)
    flows = [rounds.of(flow) for flow in records]
    return SourceResult(path.name, sha256, flows, skipped, report, list(range(len(flows))))


def can_be_shared(path: Path, least_bytes: int) -> bool:
    """True for a capture so large, and so quickly read, that several processes may read it."""
    if path.stat().st_size < least_bytes:
        return False
    with path.open("rb") as stream:
        return pcap.sniff(stream.read(4))
