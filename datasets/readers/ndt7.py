# SPDX-License-Identifier: GPL-2.0-only
"""ndt7 results of Measurement Lab: TCPInfo snapshots of the server.

One JSON object per test, one test or many in a file: as the archive has them, as rows of a
BigQuery export (the test lies under `raw`, 64-bit numbers are strings), or as the events that
`ndt7-client -format json` prints. In an upload the server receives: its few own packets are
limited by the application and are marked so.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from ndm_tcp import files
from ndm_tcp.datasets.readers.poll import MISSING, Poll, PollColumns, Warn, flow
from ndm_tcp.datasets.rounds.flow import FlowRecords, flow_id
from ndm_tcp.errors import NdmError

DIRECTIONS = ("Download", "Upload")
EVENT_KEYS = (b'"Key":"', b'"Key": "')


def sniff(head: bytes) -> bool:
    """True if these first bytes look like ndt7 results, or like the events of its client."""
    if head.lstrip()[:1] not in (b"{", b"["):
        return False
    if b'"ServerMeasurements"' in head:
        return True
    return any(key in head for key in EVENT_KEYS) and (b'"Test"' in head or b'"TCPInfo"' in head)


def _poll(info: dict[str, Any], upload: bool) -> Poll:
    def value(name: str) -> int:
        found = info.get(name)
        return MISSING if found is None else max(int(found), MISSING)

    inflight = int(info["Unacked"]) - int(info["Sacked"]) - int(info["Lost"]) + int(info["Retrans"])
    rate, limited = value("DeliveryRate"), value("AppLimited")
    return Poll(
        time_us=int(info["ElapsedTime"]),
        cwnd=value("SndCwnd"),
        srtt_us=value("RTT"),
        rttvar_us=value("RTTVar"),
        min_rtt_us=value("MinRTT"),
        ssthresh=value("SndSsThresh"),
        delivered=value("Delivered"),
        bytes_acked=value("BytesAcked"),
        retransmitted=value("TotalRetrans"),
        inflight=max(inflight, 0),
        delivery_rate_bps=rate if rate == MISSING else rate * 8,
        app_limited=1 if upload else limited if limited == MISSING else limited & 1,
        ca_state=value("CAState"),
        rwnd_limited_us=value("RWndLimited"),
    )


def _documents(path: Path, data: bytes, warn: Warn) -> list[Any]:
    """The JSON values of a file: one, a list of them, or one a line."""
    try:
        whole = orjson.loads(data)
        return whole if isinstance(whole, list) else [whole]
    except orjson.JSONDecodeError as error:
        first = error
    lines, found = data.split(b"\n"), []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            found.append(orjson.loads(line))
        except orjson.JSONDecodeError as error:
            if found and number == len(lines):
                warn("the last line is cut off and left out")
            else:
                shown = first if number == 1 else error
                raise NdmError(
                    f"{path}:{number}: not an ndt7 result ({shown}); fetch the file again"
                ) from None
    return found


@dataclass(frozen=True)
class _Test:
    key: str
    """distinguishes it from the other tests of the file"""
    direction: str
    infos: list[dict[str, Any]]
    bbr: bool
    hosts: tuple[str, str] | None


def _test(
    key: str,
    direction: str,
    entries: list[dict[str, Any]],
    bbr: bool,
    hosts: tuple[str, str] | None,
) -> _Test:
    infos = [entry["TCPInfo"] for entry in entries if entry.get("TCPInfo") is not None]
    bbr = bbr or any(entry.get("BBRInfo") for entry in entries)
    return _Test(key, direction, infos, bbr, hosts)


def _of_event(entries: list[dict[str, Any]]) -> tuple[str, str] | None:
    """Both ends as the client's events name them, with ports."""
    for entry in entries:
        if about := entry.get("ConnectionInfo"):
            ends = (str(about.get(name, "")).rpartition(":")[0] for name in ("Client", "Server"))
            client, server = (end.strip("[]") for end in ends)
            return client, server
    return None


class _Events:
    """What the client printed, run by run: a log may have been appended to."""

    def __init__(self) -> None:
        self.runs: dict[str, list[list[dict[str, Any]]]] = {name: [[]] for name in DIRECTIONS}

    def take(self, key: str, value: dict[str, Any]) -> None:
        """One event."""
        runs = self.runs.get(str(value.get("Test", "")).capitalize())
        if runs is None:
            return
        if key == "starting":
            runs.append([])
        elif value.get("Origin") == "server":
            if runs[-1] and 0 < _elapsed_us(value) < _elapsed_us(runs[-1][-1]):
                runs.append([])  # a log of measurements alone
            runs[-1].append(value)


def _elapsed_us(value: dict[str, Any]) -> int:
    return int((value.get("TCPInfo") or {}).get("ElapsedTime") or 0)


def _tests(documents: list[Any]) -> list[_Test]:
    """Every test of every result, and of every run whose events the client printed."""
    tests, events = [], _Events()
    for number, document in enumerate(documents):
        if "Key" in document:
            events.take(str(document["Key"]), document.get("Value") or {})
            continue
        result, bbr = document.get("raw") or document, False
        for direction in DIRECTIONS:
            if test := result.get(direction):
                key = direction if len(documents) == 1 else f"{number}:{direction}"
                entries = test.get("ServerMeasurements") or []
                hosts = str(result.get("ClientIP", "")), str(result.get("ServerIP", ""))
                tests.append(_test(key, direction, entries, bbr, hosts))
                bbr = tests[-1].bbr
    for name in DIRECTIONS:
        for number, entries in enumerate(run for run in events.runs[name] if run):
            key = f"{name}:{number}" if number else name
            tests.append(_test(key, name, entries, False, _of_event(entries)))
    return tests


def _window_scale(infos: list[dict[str, Any]], upload: bool) -> int:
    """Of the data's receiver: the server's own is in the upper half of the byte."""
    both = max(int(info.get("WScale") or 0) for info in infos)
    return both >> 4 if upload else both & 0xF


def read(path: Path, data: bytes, warn: Warn) -> list[FlowRecords]:
    """The transfers of a file of results.

    Args:
        path: its name.
        data: its bytes, decompressed.
        warn: called for a last line that is cut off.

    Raises:
        NdmError: malformed, or without a snapshot of the server.
    """
    digest, flows = files.sha256(path), []
    try:
        for test in _tests(_documents(path, data, warn)):
            if not test.infos:
                continue
            upload = test.direction == "Upload"
            found = flow(
                PollColumns.of([_poll(info, upload) for info in test.infos]),
                flow_id=flow_id(digest, test.key),
                format="ndt7",
                cc_name="bbr" if test.bbr else None,
                mss=max(int(info["SndMSS"]) for info in test.infos) or None,
                facts={
                    "direction": test.direction.lower(),
                    "window_scale": _window_scale(test.infos, upload),
                },
                hosts=test.hosts,
            )
            if found is not None:
                flows.append(found)
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise NdmError(f"{path}: not an ndt7 result ({error!r}); fetch the file again") from None
    if not flows:
        raise NdmError(
            f"{path}: no TCPInfo snapshot of the server in this ndt7 result; "
            "fetch that of a download"
        )
    return flows
