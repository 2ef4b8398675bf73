# SPDX-License-Identifier: GPL-2.0-only
"""Logs as engineers hand them in: times of every form, other lines between, cut, wrapped."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ndm_tcp.datasets.readers import iperf3, mlab, sources, ss, tcp_probe
from ndm_tcp.datasets.rounds.flow import FlowRecords
from ndm_tcp.errors import NdmError

from .reference import ss as ss_twin
from .reference import tcp_probe as probe_twin

RECORD = (
    "ESTAB 0 37 10.0.0.1:40000 10.0.0.2:5201\n"
    "\t cubic wscale:7,7 rto:240 rtt:{rtt}/2 mss:1448 cwnd:{cwnd} bytes_acked:{acked} "
    "delivered:{n} minrtt:28\n"
)
STEP_S = 0.25


def record(n: int, port: int = 40_000) -> str:
    text = RECORD.format(rtt=40 + n % 7, cwnd=10 + n, acked=1449 * n, n=n)
    return text.replace("40000", str(port))


def read(path: Path, text: str) -> tuple[list[FlowRecords], list[str]]:
    """With C and its twin, which agree."""
    warnings: list[str] = []
    path.write_text(text, encoding="utf-8")
    flows = ss.read(path, warn=warnings.append)
    theirs = ss_twin.read(path)
    assert len(flows) == len(theirs)
    for mine, other in zip(flows, theirs, strict=True):
        assert np.array_equal(mine.acks, other.acks) and mine.facts == other.facts
    return flows, warnings


def clock(second: float, fraction: str) -> str:
    whole = int(second)
    text = f"{18 + whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}"
    return text + (f".{round(second % 1 * 10**9):09d}"[: 1 + int(fraction)] if fraction else "")


def half(second: float) -> str:
    return clock(second, "").replace("18:", "06:", 1)


EPOCH = 1_669_057_200  # Mon Nov 21 19:00:00 UTC 2022, less an hour: 18:00:00 is 3600 before
FORMS: dict[str, Callable[[float], str]] = {
    "seconds": lambda s: f"{EPOCH + s:.9f}",
    "seconds, comma": lambda s: f"{EPOCH + s:.6f}".replace(".", ","),
    "milliseconds": lambda s: str(round((EPOCH + s) * 10**3)),
    "microseconds": lambda s: str(round((EPOCH + s) * 10**6)),
    "nanoseconds": lambda s: str(EPOCH * 10**9 + round(s * 10**9)),
    "time: nanoseconds": lambda s: f"time:{EPOCH * 10**9 + round(s * 10**9)}",
    "Time: seconds": lambda s: f"Time: {EPOCH + s:.6f}",
    "timestamp=": lambda s: f"timestamp={EPOCH + s:.6f}",
    "ISO, offset": lambda s: f"2022-11-21T{clock(s, '9')}+00:00",
    "ISO, short offset": lambda s: f"2022-11-21T{clock(s, '6')}-0130",
    "ISO, comma": lambda s: f"2022-11-21T{clock(s, '9')}+01:00".replace(".", ","),
    "ISO, Z": lambda s: f"2022-11-21T{clock(s, '3')}Z",
    "ISO, none": lambda s: f"2022-11-21T{clock(s, '3')}",
    "RFC 3339": lambda s: f"2022-11-21 {clock(s, '9')}+00:00",
    "slashes": lambda s: f"2022/11/21 {clock(s, '6')}",
    "bracketed": lambda s: f"[2022-11-21 {clock(s, '3')}]",
    "bracketed seconds": lambda s: f"[{EPOCH + s:.3f}]",
    "in equals signs": lambda s: f"=== {EPOCH + s:.3f} ===",
    "comment": lambda s: f"# {EPOCH + s:.3f}",
    "clock": lambda s: clock(s, "9"),
    "compact": lambda s: f"20221121T{clock(s, '3').replace(':', '')}Z",
    "an echo around it": lambda s: f"--- {EPOCH + s:.3f} ---",
}
WHOLE: dict[str, Callable[[float], str]] = {
    "whole seconds": lambda s: str(EPOCH + int(s)),
    "date": lambda s: f"Mon Nov 21 {clock(s, '')} UTC 2022",
    "date, another zone": lambda s: f"Tue Nov  1 {clock(s, '')} CEST 2022",
    "date, number of a zone": lambda s: f"Tue Nov  1 {clock(s, '')} +03 2022",
    "date, English locale": lambda s: f"Mon 21 Nov 2022 {half(s)} PM UTC",
    "date, American locale": lambda s: f"Mon Nov 21 {half(s)} PM UTC 2022",
    "date, British locale": lambda s: f"Mon 21 Nov {clock(s, '')} GMT 2022",
    "echo of date": lambda s: f"==== Mon Nov 21 {clock(s, '')} UTC 2022 ====",
    "file name": lambda s: f"20221121-{clock(s, '').replace(':', '')}",
    "ctime": lambda s: f"[Mon Nov 21 {clock(s, '')} 2022]",
    "RFC 2822": lambda s: f"Mon, 21 Nov 2022 {clock(s, '')} +0100",
    "ISO": lambda s: f"2022-11-21T{clock(s, '')}+01:00",
    "ts": lambda s: f"Nov 21 {clock(s, '')}",
    "clock": lambda s: clock(s, ""),
}  # fmt: skip
NOT_BEFORE_A_LINE = ("in equals signs", "comment", "an echo around it")
PREFIXES = {
    **{name: form for name, form in FORMS.items() if name not in NOT_BEFORE_A_LINE},
    **{name: WHOLE[name] for name in ("whole seconds", "ctime", "ISO", "ts", "clock")},
}  # fmt: skip


@pytest.mark.parametrize("forms", [FORMS, WHOLE], ids=["fraction", "whole"])
def test_times_before_each_call(tmp_path: Path, forms: dict[str, Any]) -> None:
    for name, form in forms.items():
        wanted = [round(k * (STEP_S if forms is FORMS else 1) * 1e6) for k in range(8)]
        log = "".join(form(us / 1e6) + "\n" + record(k + 1) for k, us in enumerate(wanted))
        (flow,), warnings = read(tmp_path / "log", log)
        assert flow.acks["now_us"].tolist() == wanted, name
        assert not warnings, name


@pytest.mark.parametrize("name", PREFIXES)
@pytest.mark.parametrize("header", [False, True])
def test_times_before_every_line(tmp_path: Path, name: str, header: bool) -> None:
    form = PREFIXES[name]
    step = 1.0 if name in WHOLE and form is WHOLE[name] else STEP_S
    wanted, lines = [round(k * step * 1e6) for k in range(8)], []
    for k, us in enumerate(wanted):
        text = "State Recv-Q Send-Q Local Address:Port\n" * header + record(k + 1)
        text += record(k + 1, 40_002)
        lines += [f"{form(us / 1e6)} {line}\n" for line in text.splitlines()]
    flows, warnings = read(tmp_path / "log", "".join(lines))
    assert [flow.acks["now_us"].tolist() for flow in flows] == [wanted, wanted]
    assert not warnings


@pytest.mark.parametrize("size", [700, 5000])
def test_times_before_every_line_in_small_pieces(
    tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [
        f"{EPOCH + k / 4:.6f} {line}\n" for k in range(60) for line in record(k + 1).splitlines()
    ]
    whole, _ = read(tmp_path / "log", "".join(lines))
    monkeypatch.setattr("ndm_tcp.datasets.readers.text_chunks.CHUNK_BYTES", size)
    pieces, _ = read(tmp_path / "log", "".join(lines))
    assert np.array_equal(whole[0].acks, pieces[0].acks) and len(whole[0].acks) == 60


@pytest.mark.parametrize(
    "stamps",
    [
        ["23:59:58", "23:59:59", "00:00:00", "00:00:01"],
        ["Dec 31 23:59:58", "Dec 31 23:59:59", "Jan  1 00:00:00", "Jan  1 00:00:01"],
        ["Feb 29 23:59:58", "Feb 29 23:59:59", "Mar  1 00:00:00", "Mar  1 00:00:01"],
        ["Mon Jul 04 11:59:58 AM UTC 2022", "Mon Jul 04 11:59:59 AM UTC 2022",
         "Mon Jul 04 12:00:00 PM UTC 2022", "Mon Jul 04 12:00:01 PM UTC 2022"],
        ["2022-11-21T18:59:59+01:00", "2022-11-21T18:00:00Z", "2022-11-21T20:00:01+02:00",
         "2022-11-21T12:30:02-05:30"],
    ],
)  # fmt: skip
def test_times_go_on_over_midnight_the_year_and_zones(tmp_path: Path, stamps: list[str]) -> None:
    log = "".join(f"{stamp}\n{record(k + 1)}" for k, stamp in enumerate(stamps))
    (flow,), _ = read(tmp_path / "log", log)
    assert flow.acks["now_us"].tolist() == [0, 10**6, 2 * 10**6, 3 * 10**6]


@pytest.mark.parametrize(
    "line",
    [" 18:57:42 up 3 days,  4:05,  2 users,  load average: 0.1, 0.1, 0.1", "18:57:42", "1.5:",
     "Nov 21 18:57:42 host sshd[12]: closed", "2001-01-01 00:00:00 began", "1700000000 packets"],
)  # fmt: skip
@pytest.mark.parametrize("form", ["seconds", "ISO, Z"])
def test_what_else_begins_with_a_time_is_none(tmp_path: Path, line: str, form: str) -> None:
    log = "".join(f"{FORMS[form](k / 4)}\n{line}\n{record(k + 1)}" for k in range(8))
    (flow,), _ = read(tmp_path / "log", log)
    assert flow.acks["now_us"].tolist() == [k * 250_000 for k in range(8)]


def test_a_line_that_could_be_a_time_is_named(tmp_path: Path) -> None:
    log = "".join(f"lun. 21 nov. 2022 18:00:0{k}\n{record(k + 1)}" for k in range(4))
    with pytest.raises(NdmError, match=r"no time stamp \(line 1 is not understood as one\)"):
        read(tmp_path / "log", log)


# --- other lines -----------------------------------------------------------------------------
def timed(k: int) -> str:
    return f"{EPOCH + k / 4:.6f}\n{record(k + 1)}"


@pytest.mark.parametrize(
    "line",
    ["--", "$ ss -tin dst 10.0.0.2", "root@host:~# ss -tin", "+ ss -tin", "sample 5 of 9",
     "Cannot open netlink socket: Permission denied", "é", "{}", "*" * 300],
)  # fmt: skip
def test_lines_that_are_no_output_of_ss_are_left_out(tmp_path: Path, line: str) -> None:
    log = "".join(timed(k) + f"{line}\n" * (k % 2) for k in range(40))
    (flow,), warnings = read(tmp_path / "log", log)
    assert len(flow.acks) == 40
    assert warnings == ["20 lines that ss did not print were left out, the first is line 7"]


def test_a_damaged_record_is_left_out_and_many_refuse_the_log(tmp_path: Path) -> None:
    log = [timed(k) for k in range(100)]
    log[50] = log[50].replace("rtt:", "rtt:x")
    (flow,), warnings = read(tmp_path / "log", "".join(log))
    assert len(flow.acks) == 99
    assert warnings == ["1 sockets with a damaged value were left out, the first is in line 152"]
    log = [text.replace("rtt:", "rtt:x") if k % 10 == 0 else text for k, text in enumerate(log)]
    with pytest.raises(NdmError, match=":2: a value is not a number"):
        read(tmp_path / "log", "".join(log))


@pytest.mark.parametrize("cut", [1, 2, 8, 20, 60, 100, 125])
@pytest.mark.parametrize("form", ["seconds", "ISO, Z"])
def test_a_log_that_is_cut_keeps_its_whole_records(tmp_path: Path, cut: int, form: str) -> None:
    """A socket has the field that the one before ends with, or it is cut off."""
    text = "".join(f"{FORMS[form](k / 4)}\n{record(k + 1)}" for k in range(20))
    (flow,), warnings = read(tmp_path / "log", text[:-cut])
    n = 20 if cut <= 2 else 19
    assert flow.acks["cwnd"].tolist() == list(range(11, 11 + n))
    assert warnings == ["the last line is cut off and left out"] * (cut > 2)


def test_a_form_is_known_however_late_it_shows(tmp_path: Path) -> None:
    listener = 'LISTEN 0 4096 0.0.0.0:80 0.0.0.0:* users:(("srv",pid=1,fd=3))\n\t cubic cwnd:10\n'
    path = tmp_path / "log"
    for n in (40, 2000, 40_000):
        path.write_text(f"{EPOCH}.5\n" + listener * n + "".join(timed(k + 9) for k in range(10)))
        assert sources._kind(path) == "ss"
        (flow,) = ss.read(path)
        assert len(flow.acks) == 10 and flow.facts["not_open"] == n
    other = "  x-1 [001] ..s1. 4999.{:06d}: tcp_send_reset: src=10.0.0.1:1 dest=10.0.0.2:2\n"
    for n in (100, 30_000):
        path.write_text("".join(other.format(k) for k in range(n)) + probes())
        assert sources._kind(path) == "tcp_probe"
    path.write_text("words about 1.5: nothing\n" * 5000 + record(1))
    assert sources._kind(path) is None, "a text that quotes ss is no log"


@pytest.mark.parametrize("per_second", [20, 3])
def test_times_that_repeat_are_warned_of(tmp_path: Path, per_second: int) -> None:
    log = "".join(f"{EPOCH + k // per_second}\n{record(k + 1)}" for k in range(60))
    _, (warning,) = read(tmp_path / "log", log)
    assert warning.startswith(
        f"{60 - 60 // per_second} of 60 polls have the time of the previous poll"
    )


# --- tcp_probe -------------------------------------------------------------------------------
def probe(k: int, before: str = "x-1 [001] ..s. {}: ", time: str = "") -> str:
    return (
        before.format(time or f"100.{k * 1000:06d}")
        + "tcp_probe: family=AF_INET src=10.0.0.1:4000 dest=10.0.0.2:80 mark=0x0 data_len=0 "
        f"snd_nxt={k * 1000 + 4000:#x} snd_una={k * 1000:#x} snd_cwnd=10 ssthresh=9 snd_wnd=65160 "
        f"srtt={40_000 + k} rcv_wnd=29312 sock_cookie=5\n"
    )


def probes(n: int = 30, **form: str) -> str:
    return "".join(probe(k, **form) for k in range(n))


RETRANSMIT = (
    "family=AF_INET sport=4000 dport=80 saddr=10.0.0.1 daddr=10.0.0.2 "
    "saddrv6=::ffff:10.0.0.1 daddrv6=::ffff:10.0.0.2 state=1\n"
)


@pytest.mark.parametrize(
    "before",
    ["x 1 [001] {}: tcp:", "x 1 [001] {}:          tcp:", "x 1 [001]  {}:                  ",
     "iperf3  7 {}: tcp:", "x-1 [001] ..s. {}: "],
)  # fmt: skip
def test_perf_script_pads_as_it_likes(tmp_path: Path, before: str) -> None:
    behind = "tcp_probe:" + " " * (1 + 7 * ("x-1" in before))  # trace-cmd pads behind names
    lines = [probe(k, before).replace("tcp_probe: ", behind) for k in range(30)]
    lines.insert(20, f"x 1 [001] 100.019500:   tcp:tcp_retransmit_skb:   {RETRANSMIT}")
    path = tmp_path / "trace"
    path.write_text("".join(lines))
    assert sources._kind(path) == "tcp_probe"
    (flow,), (twin,) = tcp_probe.read(path), probe_twin.read(path)
    assert len(flow.acks) == 30 and flow.facts["retransmitted"] == 1
    assert np.array_equal(flow.acks, twin.acks)


STATE = "family=AF_INET sport=4000 dport=80 saddr=10.0.0.1 daddr=10.0.0.2 cong_state={}\n"


@pytest.mark.parametrize(
    ("event", "known", "retransmitted"),
    [
        ("", False, 0),
        (f"tcp_retransmit_skb: {RETRANSMIT}", True, 1),
        (f"tcp_retransmit_skb: {RETRANSMIT.replace('4000', '5000')}", True, 0),
        (f"tcp_cong_state_set: {STATE.format(0)}", True, 0),
        (f"tcp_cong_state_set: {STATE.format(3)}", False, 0),
    ],
    ids=["none", "own", "another socket's", "no recovery", "a recovery of what?"],
)
def test_a_trace_without_events_of_losses_says_so(
    event: str, known: bool, retransmitted: int, tmp_path: Path
) -> None:
    """Read as a path without loss, it predicted thrice the goodput for CUBIC."""
    lines = [probe(k) for k in range(30)]
    if event:
        lines.insert(20, f"x-1 [001] ..s. 100.019500: {event}")
    path, warnings = tmp_path / "trace", list[str]()
    path.write_text("".join(lines))
    (flow,) = tcp_probe.read(path, warn=warnings.append)
    assert flow.facts["retransmitted"] == retransmitted
    assert ("losses_not_counted" not in flow.facts) == known
    assert (warnings == []) == known and all("tcp_retransmit_skb" in text for text in warnings)


@pytest.mark.parametrize("before", ["x-1 [001] ..s. {}: ", "x 1 [001] {}:      tcp:"])
def test_a_trace_clock_without_seconds_is_named(tmp_path: Path, before: str) -> None:
    path = tmp_path / "trace"
    path.write_text("".join(probe(k, before, str(10**12 + k * 4001)) for k in range(30)))
    assert sources._kind(path) == "tcp_probe"
    with pytest.raises(NdmError, match="trace clock counts in whole numbers"):
        tcp_probe.read(path)


def test_a_trace_that_is_cut_keeps_its_whole_lines(tmp_path: Path) -> None:
    path, warnings = tmp_path / "trace", list[str]()
    path.write_text(probes()[:-150])
    (flow,) = tcp_probe.read(path, warn=warnings.append)
    assert len(flow.acks) == 29
    cut, losses = warnings
    assert cut == "the last line is cut off and left out" and "tcp_retransmit_skb" in losses
    assert np.array_equal(probe_twin.read(path)[0].acks, flow.acks)


# --- iperf3 ----------------------------------------------------------------------------------
def interval(k: int, **more: Any) -> dict[str, Any]:
    stream = {"socket": 5, "start": k, "end": k + 1.0001, "seconds": 1, "bytes": 1_448_000}
    stream |= {"retransmits": 1, "snd_cwnd": 14_480 * (k + 1), "rtt": 40_000 + k, "rttvar": 900}
    stream |= {"omitted": False, "sender": True} | more
    kept = {name: value for name, value in stream.items() if value is not None}
    return {"streams": [kept], "sum": kept}


START = {
    "connected": [{"socket": 5, "local_host": "10.0.0.1", "remote_host": "10.0.0.2"}],
    "version": "iperf 3.16",
    "tcp_mss_default": 1448,
    "test_start": {"protocol": "TCP", "reverse": 0},
}
END = {"sender_tcp_congestion": "cubic"}


def report(intervals: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {"start": START, "intervals": intervals, "end": END, **more}


def as_stream(document: dict[str, Any]) -> str:
    events = [("start", document["start"])]
    events += [("interval", interval) for interval in document["intervals"]]
    if "server_output_json" in document:
        events.append(("server_output_json", document["server_output_json"]))
    events.append(("end", document["end"]))
    return "".join(json.dumps({"event": name, "data": data}) + "\n" for name, data in events)


DUMPS: list[Callable[[dict[str, Any]], str]] = [json.dumps, as_stream]


def iperf(path: Path, text: str) -> tuple[list[FlowRecords], list[str]]:
    warnings: list[str] = []
    path.write_text(text)
    assert sources._kind(path) == "iperf3"
    return iperf3.read(path, warn=warnings.append), warnings


@pytest.mark.parametrize("dump", DUMPS)
def test_what_iperf3_omits_is_left_out(tmp_path: Path, dump: Any) -> None:
    omitted = [interval(k, omitted=True, snd_cwnd=14_480, retransmits=5) for k in range(3)]
    text = dump(report(omitted + [interval(k) for k in range(10)]))
    (flow,), _ = iperf(tmp_path / "a.json", text)
    assert flow.acks["cwnd"].tolist() == list(range(10, 110, 10))
    assert flow.facts["retransmitted"] == 10 and set(flow.acks["lost"][1:].tolist()) == {1}
    assert set(np.diff(flow.acks["now_us"].astype(int)).tolist()) == {10**6}
    with pytest.raises(NdmError, match="all intervals were omitted"):
        iperf(tmp_path / "a.json", dump(report(omitted)))


@pytest.mark.parametrize("dump", DUMPS)
def test_the_servers_report_is_read(tmp_path: Path, dump: Any) -> None:
    received = [interval(k, sender=False, snd_cwnd=None, rtt=None) for k in range(10)]
    inner = report([interval(k) for k in range(10)])
    (flow,), _ = iperf(tmp_path / "a.json", dump(report(received, server_output_json=inner)))
    assert len(flow.acks) == 10 and flow.acks["cwnd"][-1] == 100
    with pytest.raises(NdmError, match="no sending TCP stream.*--get-server-output"):
        iperf(tmp_path / "a.json", dump(report(received)))


@pytest.mark.parametrize("dump", DUMPS)
@pytest.mark.parametrize("says_sender", [True, None])
def test_a_system_without_cwnd_is_named(tmp_path: Path, dump: Any, says_sender: Any) -> None:
    without = [interval(k, snd_cwnd=None, rtt=None, sender=says_sender) for k in range(10)]
    with pytest.raises(NdmError, match="this system's iperf3 gives no snd_cwnd"):
        iperf(tmp_path / "a.json", dump(report(without)))
    udp = report(without) | {"start": START | {"test_start": {"protocol": "UDP"}}}
    with pytest.raises(NdmError, match="not -u"):
        iperf(tmp_path / "a.json", dump(udp))


@pytest.mark.parametrize("left", [1, 40, 200])
def test_a_cut_json_stream_keeps_its_whole_events(tmp_path: Path, left: int) -> None:
    lines = as_stream(report([interval(k) for k in range(11)])).splitlines(keepends=True)[:-1]
    (flow,), warnings = iperf(tmp_path / "a.json", "".join(lines[:-1]) + lines[-1][:left])
    assert len(flow.acks) == 10
    assert warnings == ["the last object is cut off and left out"] * (left > 1)
    damaged = "".join([*lines[:5], lines[5][:40] + "\n", *lines[6:]])
    with pytest.raises(NdmError, match=":6: JSON breaks off"):
        iperf(tmp_path / "a.json", damaged)


# --- M-Lab -----------------------------------------------------------------------------------
def snapshots(n: int = 20, text: bool = False) -> list[dict[str, Any]]:
    found = []
    for k in range(n):
        info: dict[str, Any] = {"ElapsedTime": 250_000 * (k + 1), "SndMSS": 1448, "SndCwnd": 10 + k}
        info |= {"RTT": 40_000 + k, "RTTVar": 900, "MinRTT": 39_000, "SndSsThresh": 2**31 - 1}
        info |= {"Unacked": 9, "Sacked": 0, "Lost": 0, "Retrans": 0, "TotalRetrans": k // 10}
        info |= {"Delivered": 100 * k, "AppLimited": 0, "CAState": 0, "MaxPacingRate": -1}
        info |= {"DeliveryRate": 10**6, "BytesAcked": 144_800 * k}
        found.append({"TCPInfo": {name: str(v) if text else v for name, v in info.items()}})
    return found


def result(text: bool = False, direction: str = "Download") -> dict[str, Any]:
    test = {"UUID": "u", "ServerMeasurements": snapshots(text=text)}
    return {"ClientIP": "192.0.2.1", "ServerIP": "198.51.100.1", direction: test}


def row(k: int) -> dict[str, Any]:
    return {"id": f"ndt7-{k}", "a": {"UUID": "u"}, "parser": {"Notes": "x" * 9000},
            "date": "2022-11-30", "raw": result(text=True)}  # fmt: skip


def events() -> list[dict[str, Any]]:
    ends = {"Client": "192.0.2.1:1", "Server": "[2001:db8::1]:443", "UUID": "u"}
    found: list[dict[str, Any]] = [{"Key": "starting", "Value": {"Test": "download"}}]
    for entry in snapshots():
        app = {"NumBytes": 1, "ElapsedTime": 1}
        value = {"AppInfo": app, "Origin": "client", "Test": "download"}
        found.append({"Key": "measurement", "Value": value})
        value = {"ConnectionInfo": ends, **entry, "Origin": "server", "Test": "download"}
        found.append({"Key": "measurement", "Value": value})
    return [*found, {"Key": "complete", "Value": {"Test": "download"}}]


def lines(documents: list[Any]) -> str:
    return "".join(json.dumps(document) + "\n" for document in documents)


RESULTS = {
    "one result": (json.dumps(result()), 1),
    "a result a line": (lines([result(), result(direction="Upload"), result()]), 3),
    "BigQuery rows": (lines([row(k) for k in range(3)]), 3),
    "a list of BigQuery rows": (json.dumps([row(k) for k in range(3)]), 3),
    "events of the client": (lines(events()), 1),
    "events of two runs": (lines(events() * 2), 2),
    "events of two runs without their beginnings": (lines(events()[1:] * 2), 2),
    "a last line that is cut": (lines([result()] * 3) + json.dumps(result())[:-300], 3),
}


@pytest.mark.parametrize("name", RESULTS)
def test_results_of_ndt7_in_all_their_wrappings(tmp_path: Path, name: str) -> None:
    text, n = RESULTS[name]
    path, warnings = tmp_path / "x.jsonl", list[str]()
    path.write_text(text)
    assert sources._kind(path) == "mlab"
    flows = mlab.read(path, warn=warnings.append)
    assert len(flows) == n == len({flow.flow_id for flow in flows})
    for flow in flows:
        assert len(flow.acks) == 20 and flow.facts["retransmitted"] == 1
        assert flow.acks["cwnd"].tolist() == list(range(10, 30))
    assert warnings == ["the last line is cut off and left out"] * ("cut" in name)
    assert "192.0.2.1" not in repr(flows)


def test_a_line_in_the_middle_that_is_no_result_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(lines([result()]) + "{broken\n" + lines([result()]))
    with pytest.raises(NdmError, match=":2: not an ndt7 result"):
        mlab.read(path)


@pytest.mark.parametrize("stamp", ["2019-07-01T00:00:12.5Z", "2019-07-01T02:00:12.5+02:00",
                                   "2019-06-30T18:30:12.500000-05:30"])  # fmt: skip
def test_times_of_archives_may_have_an_offset(stamp: str) -> None:
    assert mlab._time_us(stamp) == 1_561_939_212_500_000
