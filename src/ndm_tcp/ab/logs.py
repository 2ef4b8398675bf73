# SPDX-License-Identifier: GPL-2.0-only
"""The flows of logs of `ss -tin`, with the reader that the datasets use.

ss prints neither the sent segments that the kernel counts nor, in this reader, the time with
data in flight. Sent are the delivered and the retransmitted segments; busy are the polls with
segments in flight, or new bytes acknowledged.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ndm_tcp.ab.flows import Ends, Flow, Poll, Watched, measure, plain
from ndm_tcp.datasets.readers import ss, streams
from ndm_tcp.datasets.readers.poll import MISSING
from ndm_tcp.datasets.readers.sources import discover
from ndm_tcp.errors import NdmError

UNKNOWN = "unknown"
"""algorithm of a flow whose log does not name it"""


def _ends(text: str) -> Ends:
    (address, port), (peer, peer_port) = (
        (end.rpartition(":")[0], end.rpartition(":")[2]) for end in text.split(" ")
    )
    return Ends(plain(address), _port(port), plain(peer), _port(peer_port))


def _port(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def _watched(log: ss.Log, item: np.ndarray[tuple[int], np.dtype[np.intp]]) -> Watched:
    rows = log.rows[item]
    columns = ss.columns(rows)
    order = np.argsort(columns.time_us, kind="stable")
    delivered = columns.delivered
    if (delivered == MISSING).any():
        delivered = columns.bytes_acked // max(int(rows["mss"].max()), 1)
    seen: Watched | None = None
    for k in order.tolist():
        cc = int(rows["cc"][k])
        poll = Poll(
            time_s=float(columns.time_us[k]) / 1e6,
            cc=log.ccs[cc] if cc >= 0 else UNKNOWN,
            acked_bytes=int(columns.bytes_acked[k]),
            sent=int(delivered[k] + columns.retransmitted[k]),
            retransmitted=int(columns.retransmitted[k]),
            rtt_us=int(columns.srtt_us[k]),
            min_rtt_us=int(columns.min_rtt_us[k]),
            inflight=int(columns.inflight[k]),
            app_limited=bool(columns.app_limited[k] == 1),
            busy_us=None,
            rwnd_limited_us=int(columns.rwnd_limited_us[k]),
            sndbuf_limited_us=0,
        )
        if seen is None:
            seen = Watched(poll)
        else:
            seen.add(poll)
    assert seen is not None
    return seen


def read(paths: list[Path], least_s: float) -> list[Flow]:
    """The flows of all logs under these paths.

    Args:
        paths: logs, plain or compressed, and folders of them.
        least_s: flows that were watched for less are left out.

    Raises:
        NdmError: another kind of file, a damaged log, times are missing, or no flow.
    """
    found = []
    for path in discover(paths):
        if path.is_dir():
            raise NdmError(f"{path}: a recorded run; name logs of ss -tin")
        with streams.open_bytes(path) as stream:
            if not ss.sniff(stream.read(ss.HEAD)):
                raise NdmError(f"{path}: no log of ss -tin with cwnd and rtt; see docs/ab.md")
        log = ss.parse(path)
        ss.refuse_damaged(path, log)
        if len(log.rows) and (log.rows["bytes_acked"] == MISSING).all():
            raise NdmError(f"{path}: ss printed no bytes_acked; log with iproute2 4.1 or newer")
        for item in ss.flows_of(path, log):
            ends = _ends(log.ends[log.rows["ends"][item[0]]])
            found.append(measure(ends, _watched(log, item), least_s))
    if not found:
        raise NdmError(f"{paths[0]}: no open connection with cwnd; log ss -tin on the sender")
    return found
