# SPDX-License-Identifier: GPL-2.0-only
"""Finds what can be read under the paths a user names, and reads one source at a time."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ndm_tcp import files
from ndm_tcp.datasets import capture, iperf3, mlab, pcap, run_folder, ss, streams, tcp_probe
from ndm_tcp.datasets.records import FlowRecords
from ndm_tcp.errors import NdmError

HEAD_BYTES = 4096

Reader = Callable[[Path], list[FlowRecords]]

POLL_READERS: tuple[tuple[str, Callable[[bytes], bool], Reader], ...] = (
    ("iperf3", iperf3.sniff, iperf3.read),
    ("mlab", mlab.sniff, mlab.read),
    ("tcp_probe", tcp_probe.sniff, tcp_probe.read),
    ("ss", ss.sniff, ss.read),
)


@dataclass(frozen=True)
class SourceResult:
    """What one source gave."""

    name: str
    sha256: str
    flows: list[FlowRecords]
    skipped: Counter[str] = field(default_factory=Counter)
    """connections left out, by reason"""
    truncated_at: int | None = None


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


def _digest(path: Path) -> str:
    """SHA-256 of a file, or of the names and hashes of a run's files."""
    if path.is_file():
        return files.sha256(path)
    parts = [f"{f.name}:{files.sha256(f)}" for f in sorted(path.iterdir()) if f.is_file()]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def read(path: Path, keep_going: bool = False) -> SourceResult:
    """Read one source.

    Args:
        path: a file, or the folder of a recorded run.
        keep_going: take the whole packets of a capture that is cut short.

    Raises:
        NdmError: empty, unknown or damaged.
    """
    report = pcap.CaptureReport()
    if path.is_dir():
        flows, skipped = run_folder.read(path, keep_going, report)
    else:
        if path.stat().st_size == 0:
            raise NdmError(f"{path}: empty file, expected a packet capture or a tcp_info log")
        kind = _kind(path)
        if kind is None:
            raise NdmError(
                f"{path}: neither a packet capture nor a log that ss, iperf3 -J, tcp_probe or "
                "M-Lab writes"
            )
        if kind == "pcap":
            flows, skipped = capture.read(path, None, keep_going, report)
        else:
            reader = next(read for name, _, read in POLL_READERS if name == kind)
            flows, skipped = reader(path), Counter()
    return SourceResult(path.name, _digest(path), flows, skipped, report.truncated_at)
