# SPDX-License-Identifier: GPL-2.0-only
"""Finds what can be read under the paths a user names, and reads one source at a time."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Generic, TypeVar

from ndm_tcp import files
from ndm_tcp.datasets.readers import (
    archive,
    capture,
    flent,
    iperf3,
    mlab,
    pcap,
    run_folder,
    simulated,
    ss,
    streams,
    tcp_probe,
)
from ndm_tcp.datasets.rounds.compute import rounds_of
from ndm_tcp.datasets.rounds.flow import Flow, FlowRecords, FlowRounds, Label
from ndm_tcp.errors import NdmError

HEAD_BYTES = 4096
LONG_HEAD_BYTES = 1 << 16
"""of a JSON document, whose first members may be long"""
SNIFF_BYTES = 64 << 20
"""Listeners, or other events, may fill the beginning of a log."""
SS_BEGINS = re.compile(
    rb"(?m)^(?:[^\n]*\s)?(?:LISTEN|ESTAB|TIME-WAIT|UNCONN|CLOSE-WAIT)\s|^State\s"
)
TRACE_BEGINS = re.compile(rb"\d: +[\w:]+: |^# tracer:")

UNKNOWN = (
    "neither a packet capture nor a log that ss, iperf3 -J, tcp_probe, flent or M-Lab writes; "
    "capture with: tcpdump -w FILE"
)
Warn = Callable[[str], None]
Reader = Callable[..., list[FlowRecords]]
"""path and `warn`"""

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
    """Result of reading one source."""

    name: str
    sha256: str
    flows: list[SomeFlow]
    skipped: Counter[str] = field(default_factory=Counter)
    """connections left out, by reason"""
    report: pcap.CaptureReport = field(default_factory=pcap.CaptureReport)
    """packets of a capture; all zero for a log"""
    numbers: list[int] = field(default_factory=list)
    """of the flows in their source; a shard has some"""
    warnings: list[str] = field(default_factory=list)
    """warnings about the source"""


def discover(
    paths: list[Path], left_out: dict[str, str] | None = None, stdin: bool = False
) -> list[Path]:
    """Every source under the named paths, sorted: recorded runs as folders, the rest as files.

    A file named by the user is a source whatever it holds; in folders only what some reader
    knows counts. Folders are entered once, however many links lead to them.

    Args:
        paths: files and folders.
        left_out: receives unreadable files and the reason; None: an unreadable file is an error.
        stdin: does the caller take - for standard input?

    Raises:
        NdmError: a path does not exist or cannot be looked at, or nothing readable lies below.
    """
    found: set[Path] = set()
    refused: dict[str, str] = {}
    entered: set[tuple[int, int]] = set()
    for path in paths:
        try:
            if path.is_file():
                found.add(path)
            elif path.is_dir():
                found |= set(_inside(path, entered, refused))
            elif path.exists():
                instead = f"name - instead, and redirect: < {path}"
                refused[str(path)] = (
                    f"{path}: a pipe or device, not a file; "
                    f"{instead if stdin else 'write what it gives to a file, and name that'}"
                )
            else:
                refused[str(path)] = f"{path}: no such file or folder"
        except OSError as error:
            refused[str(path)] = f"{path}: {files.why(error)}"
        if refused and left_out is None:
            raise NdmError(next(iter(refused.values())))
    if left_out is not None:
        left_out |= refused
    if not found:
        if len(paths) == 1 and str(paths[0]) in refused:
            raise NdmError(refused[str(paths[0])])
        named = ", ".join(str(p) for p in paths)
        more = f" ({next(iter(refused.values()))})" if refused else ""
        raise NdmError(
            f"{named}: no capture, run folder or tcp_info log found here{more}; name one"
        )
    return sorted(found)


def _inside(top: Path, entered: set[tuple[int, int]], refused: dict[str, str]) -> Iterator[Path]:
    """The sources in a folder and those below; a list, as folders may be deep."""
    waiting = [top]
    while waiting:
        folder = waiting.pop()
        try:
            about = folder.stat()
            if (about.st_dev, about.st_ino) in entered:
                continue
            entered.add((about.st_dev, about.st_ino))
            if run_folder.is_run(folder):
                yield folder
                continue
            entries = sorted(p for p in folder.iterdir() if not p.name.startswith("."))
        except OSError as error:
            refused[str(folder)] = f"{folder}: {files.why(error)}"
            continue
        for path in entries:
            try:
                if path.is_dir():
                    waiting.append(path)
                elif path.is_file():
                    kind = _kind(path)
                    if kind and (kind != "tar" or archive.holds(path, _is_known)):
                        yield path
                elif path.is_symlink():
                    refused[str(path)] = f"{path}: a link to nothing; remove it, or --keep-going"
            except NdmError as error:
                refused[str(path)] = str(error)
            except OSError as error:
                refused[str(path)] = f"{path}: {files.why(error)}"


def _kind(path: Path) -> str | None:
    """The reader that knows this file: pcap, tar, one of `POLL_READERS`, or None."""
    with streams.open_bytes(path) as stream:
        head = stream.read(HEAD_BYTES)
        if pcap.sniff(head):
            return "pcap"
        if archive.sniff(head):
            return "tar"
        if known := _poll_kind(head):
            return known
        if head.lstrip()[:1] in (b"{", b"["):
            return _poll_kind(head + stream.read(LONG_HEAD_BYTES))
        return _later(stream, head)


def _is_known(path: Path) -> bool:
    return _kind(path) not in (None, "tar")


def _poll_kind(head: bytes) -> str | None:
    return next((name for name, sniff, _ in POLL_READERS if sniff(head)), None)


def _later(stream: IO[bytes], head: bytes) -> str | None:
    """The reader of a log that begins with other lines of its kind."""
    sniffs = [(SS_BEGINS, "ss", ss.sniff), (TRACE_BEGINS, "tcp_probe", tcp_probe.sniff)]
    likely = [(name, sniff) for begins, name, sniff in sniffs if begins.search(head)]
    seen = len(head)
    while likely and seen < SNIFF_BYTES and (piece := stream.read(1 << 20)):
        head = head[-HEAD_BYTES:] + piece
        seen += len(piece)
        for name, sniff in likely:
            if sniff(head):
                return name
    return None


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
        raise NdmError(
            f"{path}: empty file, expected a packet capture or a tcp_info log; capture again"
        )
    kind = _kind(path)
    if kind is None and path.name.startswith(simulated.STEM):
        raise NdmError(f"{path}: part of a recorded run; name its folder: {path.parent}")
    if kind is None:
        raise NdmError(f"{path}: {UNKNOWN}")
    return kind


def _read_records(
    path: Path, kind: str, report: pcap.CaptureReport, warn: Warn
) -> tuple[list[FlowRecords], Counter[str]]:
    if kind == "run":
        flows, skipped = run_folder.read(path, report)
        if others := run_folder.other_captures(path):
            warn(
                f"sender.pcap makes this folder one run, so its {len(others)} other captures are "
                f"left out, first {files.shown(others[0])}; move them to another folder"
            )
        for flow in flows:
            if n := flow.facts.get(capture.NOT_TRACED):
                warn(
                    f"tcp_probe has no event of {n} of {len(flow.acks)} ACKs of a flow, so its "
                    "windows are taken from what is in flight; trace all of the transfer"
                )
        return flows, skipped
    if kind == "pcap":
        return capture.read(path, None, report)
    reader = next(read for name, _, read in POLL_READERS if name == kind)
    return reader(path, warn=warn), Counter()


def read(path: Path) -> SourceResult[FlowRecords]:
    """Read one source, ACK by ACK (or poll by poll).

    Args:
        path: a file, or the folder of a recorded run; no archive.

    Raises:
        NdmError: empty, unknown or damaged.
    """
    report, warnings = pcap.CaptureReport(), list[str]()
    kind = _reader(path)
    if kind == "tar":
        raise NdmError(f"{path}: a tar archive; unpack it first: tar xf {path}")
    flows, skipped = _read_records(path, kind, report, warnings.append)
    name = files.shown(path.name)
    warnings += report.warnings()
    return SourceResult(name, digest(path), flows, skipped, report, warnings=warnings)


def read_rounds(
    path: Path, sha256: str, shard: tuple[int, int] = (0, 1), label: Label | None = None
) -> SourceResult[FlowRounds]:
    """Read one source, round by round; captures in bounded memory.

    Args:
        path: a file, an archive of files, or the folder of a recorded run.
        sha256: its `digest`.
        shard: (k, n): of a capture, only the flows whose number is k modulo n.
        label: gives flows without a known path the one that their records show.

    Raises:
        NdmError: empty, unknown or damaged.
    """
    kind = _reader(path)
    if kind == "tar":
        return _read_archive(path, sha256, label)
    report, warnings = pcap.CaptureReport(), list[str]()
    if kind == "pcap":
        numbered, skipped = capture.read_rounds(path, sha256, report, shard, label)
        numbers, flows = [n for n, _ in numbered], [flow for _, flow in numbered]
    else:
        records, skipped = _read_records(path, kind, report, warnings.append)
        flows = [rounds_of(label(flow, records) if label else flow) for flow in records]
        numbers = list(range(len(flows)))
    warnings += report.warnings()
    name = files.shown(path.name)
    return SourceResult(name, sha256, flows, skipped, report, numbers, warnings)


def _read_archive(path: Path, sha256: str, label: Label | None) -> SourceResult[FlowRounds]:
    """The flows of all files of an archive that some reader knows."""
    whole: SourceResult[FlowRounds] = SourceResult(files.shown(path.name), sha256, [])
    unread, first, again, seen = 0, "", 0, set[str]()
    for name, member in archive.members(path):
        if name.startswith(("sender.pcap", simulated.STEM)):
            raise NdmError(f"{path}: holds a recorded run; unpack it first: tar xf {path}")
        try:
            if not _is_known(member):
                raise NdmError(f"{member}: expected a capture or a log")
            part = read_rounds(member, files.sha256(member), label=label)
        except NdmError as error:
            unread += 1
            first = first or str(error).replace(str(member), name)
            continue
        names = [{flow.flow_id, flow.fingerprint or flow.flow_id} for flow in part.flows]
        new = [f for f, of in zip(part.flows, names, strict=True) if seen.isdisjoint(of)]
        again += len(part.flows) - len(new)
        seen.update(*names)  # after the file: two VLANs may have flows that look alike
        whole.flows.extend(new)
        whole.skipped.update(part.skipped)
        whole.report.add(part.report)
        whole.warnings.extend(f"{name}: {warning}" for warning in part.warnings)
    whole.numbers.extend(range(len(whole.flows)))
    if unread and not whole.flows:
        raise NdmError(f"{path}: nothing to read in this archive ({first})")
    if again:
        said = f"{again} flows are in another file of the archive, too; used once"
        whole.warnings.append(said)
    if unread:
        whole.warnings.append(f"{unread} files of the archive were left out, first {first}")
    return whole


def can_be_shared(path: Path, least_bytes: int, labelled: bool = False) -> bool:
    """True for a capture so large, and so quickly read, that several processes may read it.

    To label a flow takes those beside it, so one process reads them all.
    """
    try:
        size = path.stat().st_size
        if size < least_bytes or (labelled and size <= capture.LABELLED_BYTES):
            return False
        with path.open("rb") as stream:
            return pcap.sniff(stream.read(4))
    except OSError:
        return False  # the reader reports why
