# SPDX-License-Identifier: GPL-2.0-only
"""flent data files (.flent.gz) with socket statistics.

flent polls `ss` and keeps cwnd (packets), the smoothed RTT and its variation (ms), pacing and
delivery rate (Mbit/s) of the flows it sends; neither losses nor ssthresh. In place of delivered
packets stand the bytes that its generator reports per interval (Mbit/s over `dur` seconds). So
loss_rate and plasticity read 0.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import orjson

from ndm_tcp import files
from ndm_tcp.datasets.readers import streams
from ndm_tcp.datasets.readers.poll import (
    MISSING,
    PollColumns,
    Warn,
    flow,
    quiet,
    warn_of_times,
    whole,
)
from ndm_tcp.datasets.rounds.flow import FlowRecords, flow_id
from ndm_tcp.errors import NdmError

MSS_BYTES = 1448
VERSIONS = (1, 2, 3, 4)


def sniff(head: bytes) -> bool:
    """True if these first bytes look like a flent data file."""
    start = head.lstrip()[:1] == b"{"
    return start and b'"metadata"' in head and (b'"BATCH_' in head or b'"DATA_FILENAME"' in head)


def _ints(entries: list[dict[str, Any]], name: str, unit: float) -> np.ndarray[Any, Any]:
    values = [entry.get(name) for entry in entries]
    return np.array(
        [MISSING if value is None else round(float(value) * unit) for value in values],
        dtype=np.int64,
    )


def _bytes_sent(
    entries: list[dict[str, Any]], at_s: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any] | None:
    """Bytes the generator had sent at these times; None if it did not report."""
    reports = [(float(e["t"]), float(e["val"]) * float(e["dur"])) for e in entries if "dur" in e]
    if not reports:
        return None
    t_s, megabits = np.array(sorted(reports)).T
    sent = np.interp(at_s, t_s, np.cumsum(megabits) * 1e6 / 8)
    return whole(np.asarray(sent))


def _polls(entries: list[dict[str, Any]]) -> PollColumns:
    polls = [entry for entry in entries if entry.get("tcp_cwnd") is not None]
    at_s = np.array([float(entry["t"]) for entry in polls])
    sent = _bytes_sent(entries, at_s)
    return PollColumns.filled(
        whole(at_s * 1e6),
        cwnd=_ints(polls, "tcp_cwnd", 1),
        srtt_us=_ints(polls, "tcp_rtt", 1e3),
        rttvar_us=_ints(polls, "tcp_rtt_var", 1e3),
        delivery_rate_bps=_ints(polls, "tcp_delivery_rate", 1e6),
        **({} if sent is None else {"bytes_acked": sent}),
    )


def _hosts(metadata: dict[str, Any]) -> tuple[str, str]:
    return str(metadata.get("LOCAL_HOST") or ""), str(metadata.get("HOST") or "")


def read(path: Path, warn: Warn = quiet) -> list[FlowRecords]:
    """The sending flows of a flent file that have socket statistics.

    Raises:
        NdmError: damaged, another version, or without socket statistics.
    """
    with streams.open_bytes(path) as stream:
        data = streams.read_whole(path, stream)
    digest, flows = files.sha256(path), []
    try:
        document = orjson.loads(data)
        version = document.get("version")
        if version not in VERSIONS:
            raise NdmError(
                f"{path}: flent format {version}, known are 1 to {VERSIONS[-1]}; use flent 2"
            )
        series = sorted((document.get("raw_values") or {}).items())
        about = document["metadata"].get("SERIES_META") or {}
        for number, (name, entries) in enumerate(series):
            if not any(entry.get("tcp_cwnd") is not None for entry in entries):
                continue
            facts = about.get(name) or {}
            cc_name = facts.get("CONG_CONTROL")
            found = flow(
                _polls(entries),
                flow_id=flow_id(digest, str(number)),
                format="flent",
                cc_name=str(cc_name) if cc_name else None,
                mss=int(facts.get("TCP_MSS") or MSS_BYTES),
                hosts=_hosts(document["metadata"]),
            )
            if found is not None:
                found.facts["retransmitted"] = int(facts.get("TCP_RETRANSMIT") or 0)
                flows.append(found)
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise NdmError(
            f"{path}: not a flent data file as known here ({error!r}); run flent again"
        ) from None
    if not flows:
        raise NdmError(
            f"{path}: no socket statistics in this flent file; run flent with --socket-stats"
        )
    warn_of_times(flows, warn)
    return flows
