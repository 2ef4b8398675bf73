# SPDX-License-Identifier: GPL-2.0-only
"""Logs of `ss -tin` or `ss -tinO`, called again and again.

`ss` prints no time. A log has it on a line before each call or before every line, in one of the
forms of `ss_stamps`. Lines that are no output of ss are left out and counted. Values at their
default are not printed; what is missing is taken as that default. ca_state is not printed either
and is concluded: Loss if the timer has backed off, Recovery if segments are marked lost or are
being retransmitted, Disorder if some are SACKed, else Open.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ndm_tcp import files
from ndm_tcp.datasets.readers import ss_stamps, streams, text_chunks
from ndm_tcp.datasets.readers.poll import (
    MISSING,
    Poll,
    PollColumns,
    Warn,
    flow,
    prevailing,
    quiet,
    steady,
    tally,
    warn_of_times,
)
from ndm_tcp.datasets.readers.text_chunks import SS_DTYPE, SS_POLL
from ndm_tcp.datasets.rounds.flow import INITIAL_SSTHRESH, FlowRecords, flow_id
from ndm_tcp.errors import NdmError

MALFORMED_SHARE = 20
"""A log with one damaged record in 20 is refused: it has a form that this reader does not know."""
HEAD = 1 << 16
"""Bytes that show the form of a log's times."""
NOISE = ("#", "State", "Netid", "Recv-Q")
SNIFF_CWND = re.compile(rb"[ \t]cwnd:\d+")
SNIFF_TIMER = re.compile(rb"[ \t](?:rto|rtt|mss):\d+")
USERS = re.compile(r"users:\(\(.*?\)\)(?=\s|$)")
RATE = re.compile(r"(\d+(?:\.\d+)?(?:e\+?\d+)?)([KkMGT]?)bps")
RATE_UNITS = {"": 1.0, "K": 1e3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}

NOT_OPEN = {"SYN-SENT", "SYN-RECV", "LISTEN", "TIME-WAIT", "UNCONN"}
FLAGS = {"ts", "sack", "ecn", "ecnseen", "usec_ts", "fastopen", "app_limited", "<->", "-->", "<--"}
RATE_WORDS = {"send", "pacing_rate", "delivery_rate", "max_pacing_rate"}
KEYS = {
    *("wscale", "rto", "backoff", "rtt", "ato", "qack", "bidir", "mss", "pmtu", "rcvmss"),
    *("advmss", "cwnd", "ssthresh", "bytes_sent", "bytes_retrans", "bytes_acked"),
    *("bytes_received", "segs_out", "segs_in", "data_segs_out", "data_segs_in", "lastsnd"),
    *("lastrcv", "lastack", "busy", "rwnd_limited", "sndbuf_limited", "unacked", "retrans"),
    *("lost", "sacked", "dsack_dups", "reordering", "reord_seen", "rcv_rtt", "rcv_space"),
    *("rcv_ssthresh", "notsent", "minrtt", "rcv_ooopack", "snd_wnd", "rcv_wnd", "rehash"),
    *("delivered", "delivered_ce", "fackets", "timer", "uid", "ino", "sk", "cgroup", "skmem"),
    *("bbr", "dctcp", "vegas", "fwmark", "dev", "tos", "tclass", "class_id", "opt", "total_rto"),
    *("total_rto_recoveries", "total_rto_time", "unacked", "tcp-ulp-mptcp"),
}


@dataclass
class Log:
    """All records of a log in order: columns, and the names behind their numbers."""

    rows: npt.NDArray[Any]
    """`SS_DTYPE`"""
    unknown: npt.NDArray[np.int64]
    """[records] fields that nobody knows"""
    ccs: list[str]
    not_open: int
    ends: list[str] = field(default_factory=list)
    """local and remote address:port, by number"""
    foreign: list[int] = field(default_factory=list)
    """numbers of lines that begin something else than a socket"""
    malformed: list[tuple[int, str]] = field(default_factory=list)
    """number of the first line of a socket with a value that is none, and which"""
    cut: bool = False
    """the file ends within a line, which is left out"""


def sniff(head: bytes) -> bool:
    """True if these first bytes look like the internal TCP information that `ss -i` prints."""
    return SNIFF_CWND.search(head) is not None and SNIFF_TIMER.search(head) is not None


class ForeignLineError(ValueError):
    """A line that ss did not print: grep's line between matches, a prompt, a note."""


def _is_cut(before: bytes, text: bytes) -> bool:
    """True if the last line has no end, nor the field that the socket before it ends with."""
    last = text.rpartition(b"\n")[2]
    if not last.strip() or ss_stamps.USUAL.fullmatch(last):
        return False
    if b"cwnd:" not in last:
        return True
    lines = [line for line in (before + b"\n" + text).split(b"\n") if b"cwnd:" in line]
    return len(lines) > 1 and lines[-2].split()[-1].partition(b":")[0] + b":" not in last


def pieces(path: Path) -> Iterator[tuple[text_chunks.Piece, bool]]:
    """The text in pieces of whole records, times as C reads them; and whether its end is cut off.

    Raises:
        NdmError: a line is longer than any log's, or the compressed stream breaks.
    """
    with streams.open_bytes(path) as stream:
        change = ss_stamps.Stamps().rewrite if ss_stamps.unusual(stream.read(HEAD)) else bytes
    before = b""
    for piece in text_chunks.chunks(path, records=True, change=change):
        cut = _is_cut(before, piece.text)
        at = piece.text.rfind(b"cwnd:")
        before = piece.text[piece.text.rfind(b"\n", 0, at) + 1 :].partition(b"\n")[0]
        if cut:
            end = piece.text.rfind(b"\n") + 1
            piece = text_chunks.Piece(piece.text[:end], piece.first, piece.lines - 1)
        yield piece, cut


def _ms_to_us(text: str) -> int:
    return round(float(text.removesuffix("ms")) * 1000)


def _rate_bps(text: str) -> int:
    match = RATE.fullmatch(text)
    if match is None:
        raise ValueError(text)
    return round(float(match[1]) * RATE_UNITS[match[2]])


def _split(tokens: list[str]) -> tuple[dict[str, str], bool, list[str], int]:
    """The `key:value` and `key value` fields, app_limited, bare words, unknown fields."""
    fields: dict[str, str] = {}
    app_limited, bare, unknown = False, [], 0
    waiting: str | None = None
    for token in tokens:
        key, colon, value = token.partition(":")
        if waiting:
            fields[waiting] = token
            waiting = None
        elif colon:
            if key in KEYS:
                fields[key] = value
            else:
                unknown += 1
        elif token in RATE_WORDS:
            waiting = token
        elif token == "app_limited":
            app_limited = True
        elif token in FLAGS:
            continue
        elif "mss" not in fields and token.isidentifier():
            bare.append(token)
        else:
            unknown += 1
    return fields, app_limited, bare, unknown


def _poll(fields: dict[str, str], app_limited: bool, time_us: int) -> Poll:
    """One socket at one time; raises ValueError if a number is none."""
    get = fields.get
    srtt_us = rttvar_us = MISSING
    if "rtt" in fields:
        srtt, _, rttvar = fields["rtt"].partition("/")
        srtt_us, rttvar_us = _ms_to_us(srtt), _ms_to_us(rttvar)
    resending, _, retransmitted = get("retrans", "0/0").partition("/")
    lost, sacked = int(get("lost", "0")), int(get("sacked", "0"))
    if int(get("backoff", "0")):
        ca_state = 4
    elif lost or int(resending):
        ca_state = 3
    else:
        ca_state = 1 if sacked else 0
    rwnd_limited = get("rwnd_limited")
    return Poll(
        time_us=time_us,
        cwnd=int(fields["cwnd"]),
        srtt_us=srtt_us,
        rttvar_us=rttvar_us,
        min_rtt_us=_ms_to_us(fields["minrtt"]) if "minrtt" in fields else MISSING,
        ssthresh=int(get("ssthresh", INITIAL_SSTHRESH)),
        delivered=int(get("delivered", MISSING)),
        bytes_acked=int(get("bytes_acked", MISSING)),
        retransmitted=int(retransmitted),
        inflight=max(int(get("unacked", "0")) - sacked - lost + int(resending), 0),
        delivery_rate_bps=_rate_bps(fields["delivery_rate"])
        if "delivery_rate" in fields
        else MISSING,
        app_limited=int(app_limited),
        ca_state=ca_state,
        rwnd_limited_us=_ms_to_us(rwnd_limited.partition("(")[0]) if rwnd_limited else 0,
    )


class SocketReader:
    """Reads any record; C leaves those of unusual form to it. Numbers names by itself."""

    def __init__(self) -> None:
        self.ends: dict[str, int] = {}
        self.ccs: dict[str, int] = {}
        self.not_open = 0

    def take(self, text: str, row: npt.NDArray[Any]) -> int:
        """Fill in the record's row; returns unknown fields, or -1 if it is to be left out.

        Raises:
            ValueError: malformed.
        """
        lines = [line for line in text.split("\n") if line.strip() and not line.startswith(NOISE)]
        tokens = USERS.sub("", "\n".join(lines)).split()
        first = next((n for n, token in enumerate(tokens) if ":" in token), len(tokens))
        if first + 1 >= len(tokens) or ":" not in tokens[first + 1]:
            raise ForeignLineError("expected local and remote address:port")
        if NOT_OPEN & set(tokens[:first]):
            self.not_open += 1
            return -1
        fields, app_limited, bare, unknown = _split(tokens[first + 2 :])
        if "cwnd" not in fields:
            return -1
        try:
            poll = _poll(fields, app_limited, int(row["time_us"]))
            for name in SS_POLL:
                row[name] = getattr(poll, name)
            row["mss"] = int(fields.get("mss", "0"))
            row["window_scale"] = int(fields.get("wscale", "0").partition(",")[0] or 0)
        except (ValueError, OverflowError) as error:
            raise ValueError(f"a value is not a number ({error})") from None
        name = " ".join(tokens[first : first + 2])
        row["ends"] = self.ends.setdefault(name, len(self.ends))
        row["cc"] = self.ccs.setdefault(bare[0], len(self.ccs)) if bare else -1
        return unknown + sum(word != bare[0] for word in bare)


def parse(path: Path) -> Log:
    """All records of a log; damaged ones are named, not kept."""
    odd, kept_rows, kept_unknown = SocketReader(), [np.zeros(0, SS_DTYPE)], [np.zeros(0, np.int64)]
    with text_chunks.names() as ends, text_chunks.names() as ccs:
        text = text_chunks.SsText(ends, ccs)
        of_odd, foreign, malformed, cut = [], list[int](), list[tuple[int, str]](), False
        for piece, ends_cut in pieces(path):
            cut |= ends_cut
            rows = text.take(piece)
            rows["line"] += piece.first
            unknown = np.zeros(len(rows), np.int64)
            left = np.flatnonzero(rows["ends"] < 0)
            for number in left.tolist():
                row = rows[number]
                record = piece.text[row["at"] : row["at"] + row["n"]].decode(
                    "utf-8", errors="replace"
                )
                try:
                    unknown[number] = odd.take(record, row)
                except ForeignLineError:
                    unknown[number] = -1
                    foreign.append(int(row["line"]))
                except ValueError as error:
                    unknown[number] = -1
                    malformed.append((int(row["line"]), str(error)))
            is_odd = np.zeros(len(rows), bool)
            is_odd[left] = True
            kept = unknown >= 0
            kept_rows.append(rows[kept])
            kept_unknown.append(unknown[kept])
            of_odd.append(is_odd[kept])
        rows, from_odd = np.concatenate(kept_rows), np.concatenate([np.zeros(0, bool), *of_odd])
        named: dict[str, list[str]] = {}
        for column, names, own in (("ends", ends.all(), odd.ends), ("cc", ccs.all(), odd.ccs)):
            numbers = {name: number for number, name in enumerate(names)}
            for name in own:
                numbers.setdefault(name, len(numbers))
            mapped = np.array([*(numbers[name] for name in own), -1], dtype=np.int32)
            rows[column][from_odd] = mapped[rows[column][from_odd]]
            named[column] = list(numbers)
    not_open = text.not_open + odd.not_open
    unknown_fields = np.concatenate(kept_unknown)
    return Log(rows, unknown_fields, named["cc"], not_open, named["ends"], foreign, malformed, cut)


def flows_of(path: Path, log: Log) -> list[npt.NDArray[np.intp]]:
    """Record numbers of each flow, flows in order of their first record.

    A counter that goes back means that the ports were reused, unless the records are in the wrong
    order. Records before a flow's first time stamp are left out: of a log that has the times behind
    the calls.
    """

    def begins(item: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
        rows, back = log.rows[item], np.zeros(max(len(item) - 1, 0), dtype=bool)
        for counter in ("bytes_acked", "retransmitted"):
            back |= np.diff(rows[counter]) < 0
        return np.flatnonzero(back) + 1

    flows = []
    order = np.argsort(log.rows["ends"], kind="stable")
    starts = np.flatnonzero(np.diff(log.rows["ends"][order], prepend=-1))
    for of_ends in np.split(order, starts[1:]):
        item, cuts = of_ends, begins(of_ends)
        if len(cuts):
            by_time = item[np.argsort(log.rows["time_us"][item], kind="stable")]
            item, cuts = min((item, cuts), (by_time, begins(by_time)), key=lambda one: len(one[1]))
        flows += np.split(item, cuts)
    flows = sorted((item for item in flows if len(item)), key=lambda item: int(item[0]))
    for number, item in enumerate(flows):
        timed = log.rows["time_us"][item] >= 0
        flows[number] = item[np.argmax(timed) :]
        if not timed[1:].all() and not timed[0]:
            hint = f" (line {log.foreign[0]} is not understood as one)" if log.foreign else ""
            raise NdmError(
                f"{path}:{log.rows['line'][item[1:][~timed[1:]][0]]}: no time stamp{hint}; log "
                "`date +%s.%N` before each call of ss"
            )
    return flows


def columns(rows: npt.NDArray[Any]) -> PollColumns:
    """Columns of one of `flows_of`, with times that never go back where its order is sure.

    Counters that the kernel has but ss leaves out at zero become zero.
    """
    values = {name: rows[name].copy() for name in SS_POLL}
    values["time_us"] = np.maximum(values["time_us"], 0)
    if (values["bytes_acked"] != MISSING).any():  # by which `flows_of` knows the order
        values["time_us"] = steady(values["time_us"])
    for counter in (values["delivered"], values["bytes_acked"]):
        if (counter != MISSING).any():
            counter[counter == MISSING] = 0
    return PollColumns(**values)


def refuse_damaged(path: Path, log: Log) -> None:
    """Refuse a log whose form this reader does not know.

    Raises:
        NdmError: naming the first damaged line.
    """
    if len(log.malformed) * MALFORMED_SHARE > len(log.rows):
        line, wrong = log.malformed[0]
        raise NdmError(f"{path}:{line}: {wrong}")


def _hosts(ends: str) -> tuple[str, str]:
    local, _, remote = (end.rpartition(":")[0].strip("[]") for end in ends.partition(" "))
    return local, remote


def read(path: Path, parse: Callable[[Path], Log] = parse, warn: Warn = quiet) -> list[FlowRecords]:
    """The open connections of a log, one flow each.

    Facts: unknown_tokens (fields this reader does not know), not_open (rows of connections
    not yet or no longer open, in the whole file).

    Args:
        path: plain, gzip or zstd.
        parse: reads the lines.
        warn: called for lines that were left out, and for times that repeat.

    Raises:
        NdmError: a malformed value, samples without time stamps, or no open connection.
    """
    log, digest = parse(path), files.sha256(path)
    refuse_damaged(path, log)
    flows, set_back = [], 0
    for number, item in enumerate(flows_of(path, log)):
        rows = log.rows[item]
        if (rows["bytes_acked"] != MISSING).any():  # else the times give the order
            set_back = max(set_back, int((np.diff(rows["time_us"]) < 0).sum()))
        cc_name = prevailing(tally(rows["cc"], log.ccs))
        # Bare words that are not its name; before its first they are what the socket began with.
        other = np.array(log.ccs)[rows["cc"][rows["cc"] >= 0]] != cc_name
        stray = int(other[np.argmin(other) :].sum()) if len(other) else 0
        found = flow(
            columns(rows),
            flow_id=flow_id(digest, str(number)),
            format="ss",
            cc_name=cc_name,
            mss=int(rows["mss"].max()) or None,
            hosts=_hosts(log.ends[rows["ends"][0]]),
            facts={
                "unknown_tokens": int(log.unknown[item].sum()) + stray,
                "not_open": log.not_open,
                "window_scale": int(rows["window_scale"].max()),
            },
        )
        if found is not None:
            flows.append(found)
    if not flows and log.foreign:
        raise NdmError(
            f"{path}:{log.foreign[0]}: expected local and remote address:port; log `ss -tin`"
        )
    if not flows:
        raise NdmError(f"{path}: no open connection with cwnd; log `ss -tin` on the sender")
    if log.foreign:
        n, first = len(log.foreign), log.foreign[0]
        warn(f"{n} lines that ss did not print were left out, the first is line {first}")
    if log.malformed:
        n, first = len(log.malformed), log.malformed[0][0]
        warn(f"{n} sockets with a damaged value were left out, the first is in line {first}")
    if log.cut:
        warn("the last line is cut off and left out")
    untimed = int((log.rows["time_us"] < 0).sum())
    if untimed and untimed < len(log.rows):
        warn(f"{untimed} sockets before the first time stamp were left out")
    if set_back:
        warn(
            f"the log's clock was set back {set_back} times; the usual time between two polls "
            "stands for what passed"
        )
    warn_of_times(flows, warn)
    return flows
