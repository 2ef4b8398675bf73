# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's tcp:tcp_probe trace text: cwnd, ssthresh and srtt at every ACK.

Lines of `trace` or `trace_pipe`, of `trace-cmd report` and of `perf script`. The fields have
grown over the years (`length` became `data_len`, then `sock_cookie` and `family` came); they
are found by name. tcp_probe fires before the ACK is processed: all values are those before.
tcp_cong_state_set and tcp_retransmit_skb events in the same text are used too.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ndm_tcp import files
from ndm_tcp.datasets.readers import text_chunks
from ndm_tcp.datasets.readers.poll import (
    MISSING,
    Ints,
    PollColumns,
    Warn,
    flow,
    quiet,
    warn_of_times,
    whole,
)
from ndm_tcp.datasets.readers.text_chunks import PROBE_DTYPE
from ndm_tcp.datasets.rounds.flow import RECOVERY, FlowRecords, flow_id
from ndm_tcp.errors import NdmError

EVENT = re.compile(
    r"(\d+\.\d+): +(?:tcp:)?(tcp_probe|tcp_cong_state_set|tcp_retransmit_skb): +(.*)"
)
"""`perf script` pads names to the longest."""
WHOLE = re.compile(r"[\s\]](\d+): +(?:tcp:)?tcp_probe: ")
"""An event of a clock that does not count in seconds."""
PROBE = re.compile(
    r"src=(?P<src>\S+) dest=(?P<dest>\S+) .*?snd_nxt=(?P<nxt>\w+) snd_una=(?P<una>\w+) "
    r"snd_cwnd=(?P<cwnd>\d+) ssthresh=(?P<ssthresh>\d+) .*?srtt=(?P<srtt>\d+)"
    r"(?:.*? sock_cookie=(?P<cookie>\w+))?"
)
FIELD = re.compile(r"(\w+)=(\S+)")
LOST = re.compile(r"LOST (\d+) EVENTS")
SNIFF = re.compile(rb"\d: +(?:tcp:)?tcp_probe: [^\n]*snd_cwnd=")

Endpoints = tuple[str, int, str, int]
"""sender's address and port, receiver's address and port"""


@dataclass(frozen=True)
class ProbeColumns:
    """The trace of one sending socket; arrays [lines] unless noted, in order of time."""

    t_s: npt.NDArray[np.float64]
    """s, in the trace's clock"""
    snd_nxt: npt.NDArray[np.uint32]
    """next sequence number to send"""
    snd_una: npt.NDArray[np.uint32]
    """oldest sequence number not acknowledged"""
    cwnd: npt.NDArray[np.uint32]
    """packets"""
    ssthresh: npt.NDArray[np.uint32]
    """packets"""
    srtt_us: npt.NDArray[np.uint32]
    """us"""
    state_t_s: npt.NDArray[np.float64]
    """[changes of state] s"""
    ca_state: npt.NDArray[np.uint8]
    """[changes of state] 0 Open, 1 Disorder, 2 CWR, 3 Recovery, 4 Loss"""
    retransmit_t_s: npt.NDArray[np.float64]
    """[retransmitted socket buffers] s; a buffer may hold several segments"""


@dataclass
class _Socket:
    rows: list[npt.NDArray[Any]] = field(default_factory=list)
    """`PROBE_DTYPE`"""
    states: list[tuple[float, int]] = field(default_factory=list)
    retransmits: list[float] = field(default_factory=list)

    def columns(self) -> ProbeColumns:
        rows = np.concatenate([np.zeros(0, PROBE_DTYPE), *self.rows])
        rows = rows[np.argsort(rows["t_s"], kind="stable")]
        states = sorted(self.states, key=lambda state: state[0])
        return ProbeColumns(
            t_s=rows["t_s"].copy(),
            snd_nxt=rows["snd_nxt"].copy(),
            snd_una=rows["snd_una"].copy(),
            cwnd=rows["cwnd"].copy(),
            ssthresh=rows["ssthresh"].copy(),
            srtt_us=rows["srtt_us"].copy(),
            state_t_s=np.array([t_s for t_s, _ in states], dtype=np.float64),
            ca_state=np.array([state for _, state in states], dtype=np.uint8),
            retransmit_t_s=np.array(sorted(self.retransmits), dtype=np.float64),
        )

    def lines(self) -> int:
        return sum(map(len, self.rows))


@dataclass
class Trace:
    """Content of a trace's lines, by socket."""

    sockets: dict[tuple[Endpoints, str], _Socket] = field(default_factory=dict)
    early: dict[Endpoints, _Socket] = field(default_factory=dict)
    """events of connections whose first tcp_probe line is still to come"""
    newest: dict[Endpoints, _Socket] = field(default_factory=dict)
    lost_events: int = 0
    other_clock: int = 0
    """tcp_probe events whose time is a whole number"""
    cut: str | None = None
    """the error in the last line, if the file ends within it"""

    def socket(self, ends: Endpoints, cookie: str) -> _Socket:
        socket = self.sockets.get((ends, cookie))
        if socket is None:
            socket = self.early.pop(ends, None) or _Socket()
            self.sockets[(ends, cookie)] = self.newest[ends] = socket
        return socket

    @property
    def shows_losses(self) -> bool:
        """Were retransmissions traced, or changes of state, none of them to a repair of losses?"""
        sockets = [*self.sockets.values(), *self.early.values()]
        states = [state for socket in sockets for _, state in socket.states]
        return any(s.retransmits for s in sockets) or 0 < len(states) == sum(
            state < RECOVERY for state in states
        )

    def known(self, ends: Endpoints) -> _Socket:
        return self.newest.get(ends) or self.early.setdefault(ends, _Socket())


def sniff(head: bytes) -> bool:
    """True if these first bytes hold a tcp_probe event."""
    return SNIFF.search(head) is not None


def _endpoint(text: str) -> tuple[str, int]:
    address, _, port = text.rpartition(":")
    return _plain(address.strip("[]")), int(port)


def _plain(address: str) -> str:
    return address.removeprefix("::ffff:")


def _event_ends(body: str) -> tuple[Endpoints, dict[str, str]]:
    values: dict[str, str] = dict(FIELD.findall(body))
    ends = []
    for address, port in (("saddr", "sport"), ("daddr", "dport")):
        name = str(values.get(address + "v6", "::"))
        ends.append((_plain(name) if name != "::" else values[address], int(values[port])))
    return (*ends[0], *ends[1]), values


def _named(text: str) -> tuple[Endpoints, str]:
    """Endpoints and cookie from the name that C gives a socket."""
    src, dest, cookie = text.split(" ")
    return (*_endpoint(src), *_endpoint(dest)), cookie


def _parse(path: Path) -> Trace:
    trace = Trace()
    with text_chunks.names() as names:
        for piece in text_chunks.chunks(path):
            rows, others = text_chunks.probe_lines(piece, names)
            order = [_named(name) for name in names.all()]
            # sockets of this piece in order of their first line, between the other lines
            numbers, places = np.unique(rows["socket"], return_index=True)
            starts = sorted(zip(places.tolist(), numbers.tolist(), strict=True), reverse=True)
            for number, before, line in others:
                while starts and starts[-1][0] < before:
                    trace.socket(*order[starts.pop()[1]])
                ended = piece.text.endswith(b"\n") or number + 1 < piece.lines
                take_line(trace, f"{path}:{piece.first + number}", line, ended)
            while starts:
                trace.socket(*order[starts.pop()[1]])
            for number in numbers.tolist():
                trace.socket(*order[number]).rows.append(rows[rows["socket"] == number])
    return trace


def take_line(trace: Trace, where: str, line: str, ended: bool = True) -> None:
    """Add any line; C leaves those to it that are no tcp_probe event of usual form.

    Args:
        trace: content of the lines before.
        where: file and line.
        line: its text.
        ended: false for a last line without its end, which may be cut off.

    Raises:
        NdmError: an event that is not whole.
    """
    event = EVENT.search(line)
    if event is None:
        lost = LOST.search(line)
        trace.lost_events += int(lost[1]) if lost else 0
        trace.other_clock += WHOLE.search(line) is not None
        return
    t_s, name, body = float(event[1]), event[2], event[3]
    try:
        if name == "tcp_probe":
            _probe(trace, t_s, body)
            return
        ends, values = _event_ends(body)
        socket = trace.known(ends)
        if name == "tcp_retransmit_skb":
            socket.retransmits.append(t_s)
        else:
            socket.states.append((t_s, int(np.uint8(int(values["cong_state"])))))
    except (KeyError, ValueError, OverflowError):
        wrong = f"{where}: not a whole {name} event; cut the file before this line"
        if ended:
            raise NdmError(wrong) from None
        trace.cut = wrong


def _probe(trace: Trace, t_s: float, body: str) -> None:
    match = PROBE.search(body)
    if match is None:
        raise ValueError(body)
    src, dest, nxt, una, cwnd, ssthresh, srtt_us, cookie = match.groups()
    ends = (*_endpoint(src), *_endpoint(dest))
    row = (t_s, int(nxt, 16), int(una, 16), int(cwnd), int(ssthresh), int(srtt_us), 0)
    trace.socket(ends, cookie or "").rows.append(np.array([row], dtype=PROBE_DTYPE))


def _require_event(path: Path, trace: Trace) -> None:
    if trace.sockets:
        return
    if trace.cut:
        raise NdmError(trace.cut)
    if trace.other_clock:
        raise NdmError(
            f"{path}: the trace clock counts in whole numbers (counter, x86-tsc), not in seconds; "
            "write mono to /sys/kernel/tracing/trace_clock and trace again"
        )
    raise NdmError(f"{path}: no tcp_probe event; enable events/tcp/tcp_probe before the transfer")


def read_columns(path: Path) -> dict[tuple[int, int], ProbeColumns]:
    """(sender's port, receiver's port) to the trace of that socket.

    Where ports were used again, the connection with the most lines counts.

    Raises:
        NdmError: no tcp_probe event, or one that is not whole.
    """
    trace = _parse(path)
    _require_event(path, trace)
    longest: dict[tuple[int, int], _Socket] = {}
    for (ends, _), socket in trace.sockets.items():
        ports = (ends[1], ends[3])
        if ports not in longest or longest[ports].lines() < socket.lines():
            longest[ports] = socket
    return {ports: socket.columns() for ports, socket in longest.items()}


def _unwrapped(sequence: npt.NDArray[np.uint32]) -> Ints:
    """Sequence numbers as bytes since the first, without the 32-bit wrap."""
    steps = np.diff(sequence.astype(np.int64), prepend=np.int64(sequence[0]))
    steps[steps > 1 << 31] -= 1 << 32
    steps[steps < -(1 << 31)] += 1 << 32
    return np.asarray(np.cumsum(steps), dtype=np.int64)


def _segment_bytes(acked_bytes: Ints) -> int | None:
    """Payload of a full segment: the least step of snd_una that divides most of the steps."""
    steps = acked_bytes[acked_bytes >= 256]
    sizes, counts = np.unique(steps, return_counts=True)
    for size, count in zip(sizes.tolist(), counts.tolist(), strict=True):
        if count >= 3 and (steps % size == 0).mean() > 0.9:
            return int(size)
    return None


def _rttvar_us(srtt_us: Ints, sampled: npt.NDArray[np.bool_]) -> Ints:
    """The kernel's mean deviation from the steps of srtt, which moves by 1/8 of the error.

    Args:
        srtt_us: [lines] whole us, so an error is known to 8 us.
        sampled: [lines] whether an RTT sample may lie between this line and the one before.
    """
    rttvar = np.zeros(len(srtt_us), dtype=np.float64)
    value = 0.0
    errors = np.diff(srtt_us, prepend=srtt_us[:1]) * 8
    for number, (srtt, error, took) in enumerate(
        zip(srtt_us.tolist(), errors.tolist(), sampled.tolist(), strict=True)
    ):
        if value == 0.0:
            value = srtt / 2
        elif took:
            excess = abs(error) - value
            # an RTT below srtt raises the deviation eight times more slowly
            value += excess / (32 if error < 0 and excess > 0 else 4)
        rttvar[number] = value
    return np.asarray(rttvar.round(), dtype=np.int64)


def _flow(
    columns: ProbeColumns, name: str, lost_events: int, ends: Endpoints, counted: bool
) -> FlowRecords | None:
    """The records of a socket; counted: the trace shows its losses."""
    una, srtt_us = _unwrapped(columns.snd_una), columns.srtt_us.astype(np.int64)
    steps = np.diff(una, prepend=una[:1])
    mss = _segment_bytes(steps)
    if mss is None or una[-1] < 2 * mss:
        return None  # a receiver's socket
    time_us = whole(columns.t_s * 1e6)
    outstanding = (columns.snd_nxt - columns.snd_una).astype(np.int64)
    state = np.searchsorted(columns.state_t_s, columns.t_s, side="right") - 1
    ca_state = np.concatenate([columns.ca_state, [0]])[state].astype(np.int64)
    lost = np.searchsorted(columns.retransmit_t_s, columns.t_s, side="right").astype(np.int64)
    polls = PollColumns.filled(
        time_us,
        cwnd=columns.cwnd.astype(np.int64),
        srtt_us=srtt_us,
        rttvar_us=_rttvar_us(srtt_us, (steps > 0) | (np.diff(srtt_us, prepend=0) != 0)),
        ssthresh=columns.ssthresh.astype(np.int64),
        bytes_acked=una,
        retransmitted=lost if counted else np.full(len(lost), MISSING, dtype=np.int64),
        inflight=(outstanding + mss - 1) // mss,
        ca_state=ca_state,
    )
    facts: dict[str, int | float | str] = {"lost_events": lost_events}
    hosts = (ends[0], ends[2])
    return flow(polls, flow_id=name, format="tcp_probe", mss=mss, facts=facts, hosts=hosts)


def read(
    path: Path, parse: Callable[[Path], Trace] = _parse, warn: Warn = quiet
) -> list[FlowRecords]:
    """The sending sockets of a trace, one flow per socket.

    Delivered packets are snd_una in segments, so what is only SACKed counts later; losses are
    retransmitted socket buffers, and not known if the trace has neither those events nor
    changes of state; min_rtt is the lowest srtt.

    Args:
        path: plain, gzip or zstd.
        parse: reads the lines.
        warn: called for a last line that is cut off, and for times that repeat.

    Raises:
        NdmError: no event, one that is not whole, or no socket that sends.
    """
    trace, digest = parse(path), files.sha256(path)
    counted = trace.shows_losses
    _require_event(path, trace)
    try:
        found = [
            _flow(socket.columns(), flow_id(digest, str(number)), trace.lost_events, ends, counted)
            for number, ((ends, _), socket) in enumerate(trace.sockets.items())
        ]
    except ValueError as error:
        raise NdmError(f"{path}: a time is {error}; trace again") from None
    flows = [item for item in found if item is not None]
    if not flows:
        raise NdmError(f"{path}: no socket here sends data; trace the sender's machine")
    if trace.cut:
        warn("the last line is cut off and left out")
    if not counted:
        warn(
            "no tcp_retransmit_skb event: nothing was lost, or it was not traced; "
            "trace tcp_cong_state_set, too"
        )
    if trace.lost_events:
        warn(f"the tracer lost {trace.lost_events} events; give it a larger buffer_size_kb")
    warn_of_times(flows, warn)
    return flows
