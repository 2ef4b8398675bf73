# SPDX-License-Identifier: GPL-2.0-only
"""The flows of logs of `ss -tin`, with the reader that the datasets use.

ss prints neither the sent segments that the kernel counts nor, in this reader, the time with
data in flight. Sent are the delivered and the retransmitted segments; busy are the polls with
segments in flight, or new bytes acknowledged.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from ndm_tcp.ab.flows import Ends, Flow, Poll, Watched, measure, plain
from ndm_tcp.datasets.readers import ss, streams
from ndm_tcp.datasets.readers.poll import MISSING, PollColumns
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


@dataclass(frozen=True)
class _Part:
    """The polls of one flow in one log."""

    log: ss.Log
    rows: np.ndarray[tuple[int], np.dtype[np.intp]]

    @cached_property
    def columns(self) -> PollColumns:
        """The polls, in the order of the log."""
        return ss.columns(self.log.rows[self.rows])

    @cached_property
    def span(self) -> tuple[float, float, int, int]:
        """Time in us and acknowledged bytes, of the first and of the last poll."""
        times, acked = self.columns.time_us, self.columns.bytes_acked
        return float(times[0]), float(times[-1]), int(acked[0]), int(acked[-1])

    def goes_on(self, parts: Sequence[_Part]) -> bool:
        """Is it of the flow of these parts? Then it is in another log, and counts from there on."""
        if any(part.log is self.log for part in parts):
            return False
        first_us, _, acked, _ = self.span
        past = [part.span[3] if part.span[1] < first_us else part.span[2] for part in parts]
        return acked >= max(past)

    def polls(self) -> Iterator[Poll]:
        """In order of time."""
        rows, log, columns = self.log.rows[self.rows], self.log, self.columns
        delivered = columns.delivered
        if (delivered == MISSING).any():
            delivered = columns.bytes_acked // max(int(rows["mss"].max()), 1)
        for k in range(len(rows)):
            cc = int(rows["cc"][k])
            yield Poll(
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


def _joined(each: Sequence[_Part]) -> list[list[_Part]]:
    """The parts of each flow between these ends."""
    flows: list[list[_Part]] = []
    for part in sorted(each, key=lambda part: part.span[0]):
        mine = next((parts for parts in reversed(flows) if part.goes_on(parts)), None)
        if mine is None:
            flows.append([part])
        else:
            mine.append(part)
    return flows


def _watched(parts: Sequence[_Part]) -> Watched:
    """A flow over its logs; a poll that two of them have counts once."""
    polls = heapq.merge(*(part.polls() for part in parts), key=lambda poll: poll.time_s)
    first = next(polls)
    seen = Watched(first)
    for poll in polls:
        if len(parts) == 1 or poll.time_s > seen.last.time_s:
            seen.add(poll)
    return seen


def read(paths: list[Path], least_s: float) -> list[Flow]:
    """The flows of all logs under these paths; one that several logs have counts once.

    Args:
        paths: logs, plain or compressed, and folders of them.
        least_s: flows that were watched for less are left out.

    Raises:
        NdmError: another kind of file, a damaged log, times are missing, or no flow.
    """
    found: dict[Ends, list[_Part]] = {}
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
            found.setdefault(ends, []).append(_Part(log, item))
    if not found:
        raise NdmError(f"{paths[0]}: no open connection with cwnd; log ss -tin on the sender")
    return [
        measure(ends, _watched(parts), least_s)
        for ends, each in found.items()
        for parts in _joined(each)
    ]
