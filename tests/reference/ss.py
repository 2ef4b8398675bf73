# SPDX-License-Identifier: GPL-2.0-only
"""Logs of `ss -tin` or `ss -tinO`, called again and again.

`ss` prints no time. A log has it on a line before each call: seconds since the epoch
(`date +%s.%N`), `time:` with nanoseconds, or `Time:` with seconds; the last two may also
stand before the call's first socket. Values at their default are not printed; what is
missing is taken as that default. ca_state is not printed either and is concluded: Loss if
the timer has backed off, Recovery if segments are marked lost or are being retransmitted,
Disorder if some are SACKed, else Open.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from ndm_tcp import files
from ndm_tcp.datasets import streams
from ndm_tcp.datasets.poll import MISSING, Poll, PollColumns, flow
from ndm_tcp.datasets.records import INITIAL_SSTHRESH, FlowRecords, flow_id
from ndm_tcp.errors import NdmError

STAMP = re.compile(
    r"\s*(?:(?P<bare>\d{9,10}(?:\.\d+)?)\s*$|time:\s*(?P<ns>\d{16,20})\b\s*|"
    r"Time:\s*(?P<s>\d{9,10}(?:\.\d+)?)\b\s*)"
)
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
class _Flow:
    polls: list[Poll] = field(default_factory=list)
    mss: int = 0
    cc_name: str | None = None
    unknown: Counter[str] = field(default_factory=Counter)
    stamped: bool = False


@dataclass
class _Log:
    flows: dict[tuple[str, str, int], _Flow] = field(default_factory=dict)
    generation: Counter[tuple[str, str]] = field(default_factory=Counter)
    not_open: int = 0
    no_window: int = 0


def sniff(head: bytes) -> bool:
    """True if these first bytes look like the internal TCP information that `ss -i` prints."""
    return SNIFF_CWND.search(head) is not None and SNIFF_TIMER.search(head) is not None


def _ms_to_us(text: str) -> int:
    return round(float(text.removesuffix("ms")) * 1000)


def _rate_bps(text: str) -> int:
    match = RATE.fullmatch(text)
    if match is None:
        raise ValueError(text)
    return round(float(match[1]) * RATE_UNITS[match[2]])


def _split(tokens: list[str], flow: _Flow) -> tuple[dict[str, str], bool]:
    """The `key:value` and `key value` fields; counts tokens that nobody knows."""
    fields: dict[str, str] = {}
    app_limited = False
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
                flow.unknown[key] += 1
        elif token in RATE_WORDS:
            waiting = token
        elif token == "app_limited":
            app_limited = True
        elif token in FLAGS:
            continue
        elif flow.cc_name in (None, token) and "mss" not in fields and token.isidentifier():
            flow.cc_name = token
        else:
            flow.unknown[token] += 1
    return fields, app_limited


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


def _take(log: _Log, text: str, time_us: int | None) -> None:
    """Add one socket; raises ValueError with the reason if it is malformed."""
    tokens = USERS.sub("", text).split()
    first = next((n for n, token in enumerate(tokens) if ":" in token), len(tokens))
    if first + 1 >= len(tokens) or ":" not in tokens[first + 1]:
        raise ValueError("expected local and remote address:port")
    if NOT_OPEN & set(tokens[:first]):
        log.not_open += 1
        return
    ends = (tokens[first], tokens[first + 1])
    key = (*ends, log.generation[ends])
    known = log.flows.get(key, _Flow())
    fields, app_limited = _split(tokens[first + 2 :], known)
    if "cwnd" not in fields:
        log.no_window += 1
        return
    try:
        poll = _poll(fields, app_limited, time_us or 0)
        mss = int(fields.get("mss", "0"))
    except ValueError as error:
        raise ValueError(f"a value is not a number ({error})") from None
    if known.polls:
        if time_us is None and not known.stamped:
            raise ValueError("no time stamp; log `date +%s.%N` before each call of ss")
        if poll.bytes_acked < known.polls[-1].bytes_acked:  # the ports were used again
            log.generation[ends] += 1
            key, known = (*ends, log.generation[ends]), _Flow(cc_name=known.cc_name)
    known.stamped |= time_us is not None
    known.polls.append(poll)
    known.mss = max(known.mss, mss)
    log.flows[key] = known


def _parse(path: Path) -> _Log:
    log = _Log()
    time_us: int | None = None
    pending: list[str] = []
    pending_line = 0

    def flush() -> None:
        if not pending:
            return
        try:
            _take(log, " ".join(pending), time_us)
        except ValueError as error:
            raise NdmError(f"{path}:{pending_line}: {error}") from None
        pending.clear()

    with streams.open_text(path) as stream:
        for number, line in enumerate(stream, start=1):
            stamp = STAMP.match(line)
            if stamp:
                flush()
                if stamp["ns"]:
                    time_us = int(stamp["ns"]) // 1000
                else:
                    time_us = round(float(stamp["bare"] or stamp["s"]) * 1e6)
                line = line[stamp.end() :]
            if not line.strip() or line.startswith(("#", "State", "Netid", "Recv-Q")):
                continue
            if not (line[0].isspace() and pending):
                flush()
                pending_line = number
            pending.append(line)
        flush()
    return log


def _columns(polls: list[Poll]) -> PollColumns:
    """Columns; counters that the kernel has but ss leaves out at zero become zero."""
    columns = PollColumns.of(polls)
    for counter in (columns.delivered, columns.bytes_acked):
        if (counter != MISSING).any():
            counter[counter == MISSING] = 0
    return columns


def read(path: Path) -> list[FlowRecords]:
    """The open connections of a log, one flow each.

    Facts: unknown_tokens (fields this reader does not know), not_open (rows of connections
    not yet or no longer open, in the whole file).

    Raises:
        NdmError: a malformed line, samples without time stamps, or no open connection.
    """
    log, digest = _parse(path), files.sha256(path)
    flows = []
    for number, item in enumerate(log.flows.values()):
        found = flow(
            _columns(item.polls),
            flow_id=flow_id(digest, str(number)),
            format="ss",
            cc_name=item.cc_name,
            mss=item.mss or None,
            facts={"unknown_tokens": item.unknown.total(), "not_open": log.not_open},
        )
        if found is not None:
            flows.append(found)
    if not flows:
        raise NdmError(f"{path}: no open connection with cwnd; log `ss -tin` on the sender")
    return flows
