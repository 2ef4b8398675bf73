# SPDX-License-Identifier: GPL-2.0-only
"""Reports of `iperf3 -J` and `iperf3 --json-stream`, at the sender.

Per interval iperf3 gives cwnd in bytes, the smoothed RTT and its variation in us, and
retransmitted segments; neither ssthresh nor what was delivered. In place of delivered packets
stand the bytes written to the socket: right over many round trips, rough within a few, and
too many while the socket's buffer grows.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from ndm_tcp import files
from ndm_tcp.datasets.readers import streams
from ndm_tcp.datasets.readers.poll import (
    MISSING,
    Poll,
    PollColumns,
    Warn,
    flow,
    quiet,
    warn_of_times,
)
from ndm_tcp.datasets.rounds.flow import FlowRecords, flow_id
from ndm_tcp.errors import NdmError

SNIFF = re.compile(rb'\{\s*"(?:start|event)"\s*:')
SNIFF_NAMES = (b'"connected"', b'"tcp_mss', b'"version"', b'"test_start"')
LATER = re.compile(r"^\{", re.MULTILINE)
OBJECT = re.compile(r'\{\s*"')
DEFAULT_MSS_BYTES = 1448


@dataclass
class _Report:
    """The common part of the two forms of output."""

    start: dict[str, Any] = field(default_factory=dict)
    intervals: list[dict[str, Any]] = field(default_factory=list)
    end: dict[str, Any] = field(default_factory=dict)
    error: str | None = None
    omitted: int = 0
    """streams of intervals before -O was over"""
    without_window: int = 0
    """streams of intervals of a sender whose system reports no window"""


def sniff(head: bytes) -> bool:
    """True if these first bytes look like an iperf3 report."""
    return SNIFF.search(head) is not None and any(name in head for name in SNIFF_NAMES)


def _documents(path: Path, data: bytes, warn: Warn) -> list[dict[str, Any]]:
    """The JSON objects of a file; text around them is left out, and an event that is cut off.

    Raises:
        NdmError: an object is not whole.
    """
    try:
        whole = orjson.loads(data)
        return [whole] if isinstance(whole, dict) else []
    except orjson.JSONDecodeError:
        pass
    text = data.decode("utf-8", errors="replace")
    decoder, at = json.JSONDecoder(), 0
    found: list[dict[str, Any]] = []
    # an object starts a line or follows terminal control characters; what follows it does not
    while match := OBJECT.search(text, at):
        try:
            value, at = decoder.raw_decode(text, match.start())
        except (json.JSONDecodeError, RecursionError) as error:
            if found and not LATER.search(text, match.end()):
                warn("the last object is cut off and left out")
                break
            before = text[: getattr(error, "pos", match.start())].rstrip()
            line = before.count("\n") + 1
            why = getattr(error, "msg", "nested too deeply")
            raise NdmError(
                f"{path}:{line}: JSON breaks off or is damaged ({why}); let iperf3 end by itself"
            ) from None
        found.append(value)
    return found


def _reports(path: Path, warn: Warn) -> list[_Report]:
    with streams.open_bytes(path) as stream:
        documents = _documents(path, streams.read_whole(path, stream), warn)
    reports: list[_Report] = []
    # with --get-server-output the far end's report lies in the near one's
    for document in [*documents]:
        inner = document.get("server_output_json")
        if isinstance(inner, dict):
            documents.append(inner)
    for document in documents:
        if "event" in document:
            event, data = document["event"], document.get("data") or {}
            if event == "start" or not reports:
                reports.append(_Report())
            report = reports[-1]
            if event == "interval":
                report.intervals.append(data)
            elif event == "error":
                report.error = str(data)
            elif event == "server_output_json" and isinstance(data, dict):
                inner = {name: data.get(name) or {} for name in ("start", "end")}
                intervals = data.get("intervals") or []
                reports.insert(len(reports) - 1, _Report(intervals=intervals, **inner))
            elif event in ("start", "end"):
                setattr(report, event, data)
        elif "start" in document or "intervals" in document:
            reports.append(
                _Report(
                    document.get("start") or {},
                    document.get("intervals") or [],
                    document.get("end") or {},
                    document.get("error"),
                )
            )
    return reports


def _value(stream: dict[str, Any], name: str) -> int:
    """A counter; iperf3 writes -1 for one the system does not give."""
    value = stream.get(name, MISSING)
    return int(value) if value >= 0 else MISSING


def _sends_tcp(report: _Report, stream: dict[str, Any]) -> bool:
    """Old versions do not mark a stream as sending."""
    test = report.start.get("test_start") or {}
    if str(test.get("protocol", "TCP")).upper() != "TCP":
        return False
    return bool(stream.get("sender", not test.get("reverse")))


def _streams(path: Path, report: _Report, mss: int) -> dict[int, list[Poll]]:
    """Socket number to the polls of the streams that send."""
    polls: dict[int, list[Poll]] = {}
    totals: dict[int, list[int]] = {}
    version = str(report.start.get("version", "iperf of unknown version"))
    for interval in report.intervals:
        for stream in interval.get("streams") or []:
            if not stream.get("sender", True):
                continue
            if "snd_cwnd" not in stream:
                report.without_window += _sends_tcp(report, stream)
                continue
            if stream.get("omitted"):
                report.omitted += 1  # times begin again at 0 where -O is over
                continue
            if "rtt" not in stream:
                raise NdmError(f"{path}: {version} reports no rtt; measure with iperf 3.1 or newer")
            socket = int(stream["socket"])
            total = totals.setdefault(socket, [0, 0])
            total[0] += int(stream["bytes"])
            total[1] += max(_value(stream, "retransmits"), 0)
            polls.setdefault(socket, []).append(
                Poll(
                    time_us=round(float(stream["end"]) * 1e6),
                    cwnd=round(max(_value(stream, "snd_cwnd"), 0) / mss),
                    srtt_us=_value(stream, "rtt"),
                    rttvar_us=_value(stream, "rttvar"),
                    bytes_acked=total[0],
                    retransmitted=total[1] if "retransmits" in stream else MISSING,
                )
            )
    return polls


def read(path: Path, warn: Warn = quiet) -> list[FlowRecords]:
    """The sending streams of a report, one flow each; intervals that -O omits are left out.

    Args:
        path: plain, gzip or zstd.
        warn: called for a last event that is cut off.

    Raises:
        NdmError: damaged JSON, an error that iperf3 reports, a version without rtt, a system
            without cwnd, or no sending TCP stream.
    """
    digest, flows = files.sha256(path), []
    reports = _reports(path, warn)
    for number, report in enumerate(reports):
        try:
            mss = int(report.start.get("tcp_mss") or report.start.get("tcp_mss_default") or 0)
            cc_name = report.end.get("sender_tcp_congestion")
            streams_found = _streams(path, report, mss or DEFAULT_MSS_BYTES)
            columns = {s: PollColumns.of(polls) for s, polls in streams_found.items()}
            hosts = _hosts(report)
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
            raise NdmError(
                f"{path}: not a report of iperf3 as known here ({error!r}); use iperf 3.1 or newer"
            ) from None
        for socket, polls in columns.items():
            found = flow(
                polls,
                flow_id=flow_id(digest, f"{number}:{socket}"),
                format="iperf3",
                cc_name=cc_name,
                mss=mss or DEFAULT_MSS_BYTES,
                hosts=hosts,
            )
            if found is not None:
                flows.append(found)
    if not flows:
        raise NdmError(f"{path}: {_why_none(reports)}")
    warn_of_times(flows, warn)
    return flows


def _hosts(report: _Report) -> tuple[str, str] | None:
    """Both ends, the same for all streams of a test."""
    for about in report.start.get("connected") or []:
        if isinstance(about, dict) and "local_host" in about and "remote_host" in about:
            return str(about["local_host"]), str(about["remote_host"])
    return None


def _why_none(reports: list[_Report]) -> str:
    """Why these reports have no flow."""
    errors = [report.error for report in reports if report.error]
    if errors:
        return f"iperf3 reports an error: {errors[-1].partition(chr(10))[0]}"
    if any(report.without_window for report in reports):
        return (
            "this system's iperf3 gives no snd_cwnd (Linux and FreeBSD give it); let the sender "
            "be one of these"
        )
    if any(report.omitted for report in reports):
        return "all intervals were omitted (-O); let the test last longer"
    return "no sending TCP stream; take the sender's report (not -u), or --get-server-output"
