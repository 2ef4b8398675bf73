# SPDX-License-Identifier: GPL-2.0-only
"""Readers of polled formats, one by one: units, forms, and what they refuse."""

from __future__ import annotations

import base64
import gzip
import json
import math
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ndm_tcp.datasets.readers import iperf3, mlab, ss, streams, tcp_probe
from ndm_tcp.datasets.rounds.flow import (
    ACK_DTYPE,
    INITIAL_SSTHRESH,
    CwndSource,
    FlowRecords,
    Sampling,
)
from ndm_tcp.errors import NdmError

from .reference import mlab as mlab_twin

READERS = (iperf3, mlab, tcp_probe, ss)


def _write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def _sniffed(path: Path) -> list[str]:
    with streams.open_bytes(path) as stream:
        head = stream.read(4096)
    return [reader.__name__.rpartition(".")[2] for reader in READERS if reader.sniff(head)]


def _check(item: FlowRecords, format: str) -> None:
    assert item.sampling is Sampling.POLL and item.cwnd_source is CwndSource.KERNEL
    assert item.format == format
    assert item.acks.dtype == ACK_DTYPE
    assert item.acks["now_us"][0] == 0
    assert (np.diff(item.acks["now_us"].astype(np.int64)) >= 0).all()
    assert (item.acks["rtt_us"] == -1).all()
    assert re.fullmatch("[0-9a-f]{16}", item.flow_id)
    assert "." not in repr(sorted(map(str, item.facts)))


# --- ss --------------------------------------------------------------------------------------
SS_LINE = (
    "ESTAB 0 37 10.0.0.1:40000 10.0.0.2:5201 cubic wscale:9,7 rto:240 rtt:{rtt} mss:1448 "
    "cwnd:{cwnd} bytes_acked:{acked} send 9.1Mbps pacing_rate 1.2Gbps delivery_rate {rate} "
    "delivered:{delivered} {more} minrtt:28"
)


def _ss_line(**values: Any) -> str:
    known = {"rtt": "40.5/2", "cwnd": 10, "acked": 1449, "rate": "8Mbps", "delivered": 2}
    return SS_LINE.format(**({"more": ""} | known | values))


def test_ss_units_and_omitted_fields(tmp_path: Path) -> None:
    log = "\n".join(
        [
            "1700000000.250000000",
            _ss_line(),
            "1700000000.350000000",
            _ss_line(
                rtt="41/1.25",
                cwnd=20,
                acked=14_481,
                delivered=11,
                rate="950.5kbps",
                more="app_limited unacked:9 retrans:2/3 lost:1 sacked:4 ssthresh:8 "
                "rwnd_limited:80ms(40.1%)",
            ),
            "1700000000.450000000",
            _ss_line(delivered=12, acked=15_929, more="unacked:1 retrans:0/5 backoff:1"),
        ]
    )
    (item,) = ss.read(_write(tmp_path / "log", log))
    _check(item, "ss")
    acks = item.acks
    assert item.cc_name == "cubic" and item.mss == 1448
    assert item.facts["window_scale"] == 9  # the receiver's, not the own
    assert acks["now_us"].tolist() == [0, 100_000, 200_000]
    assert acks["srtt_us"].tolist() == [40_500, 41_000, 40_500]
    assert acks["rttvar_us"].tolist() == [2000, 1250, 2000]
    assert acks["min_rtt_us"].tolist() == [28_000] * 3
    assert acks["ssthresh"].tolist() == [INITIAL_SSTHRESH, 8, INITIAL_SSTHRESH]
    assert acks["lost"].tolist() == [0, 3, 2]
    assert acks["acked"].tolist() == [0, 9, 1]
    assert acks["inflight"].tolist() == [0, 9 - 4 - 1 + 2, 1]
    assert acks["ca_state"].tolist() == [0, 3, 4]
    assert acks["app_limited"].tolist() == [0, 1, 0]
    assert acks["interval_us"].tolist() == [-1, 100_000, 100_000]
    assert item.rwnd_limited is not None and item.rwnd_limited.tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("text", "bps"),
    [
        ("7bps", 7),
        ("1.5Kbps", 1500),
        ("1.5kbps", 1500),
        ("2.6Mbps", 2_600_000),
        ("17034.3Mbps", 17_034_300_000),
        ("1.2Gbps", 1_200_000_000),
        ("1Tbps", 10**12),
    ],
)
def test_ss_rates(text: str, bps: int) -> None:
    assert ss._rate_bps(text) == bps


@pytest.mark.parametrize(
    "stamp",
    ["{s}.{ns:09d}\n", "time:{s}{ns:09d}\n", "Time: {s}.{ns:09d}\n", "time:{s}{ns:09d} "],
)
def test_ss_time_stamps(tmp_path: Path, stamp: str) -> None:
    log = "".join(
        stamp.format(s=1_700_000_000, ns=ns) + _ss_line(delivered=n) + "\n"
        for n, ns in ((2, 5_000_000), (3, 45_000_000))
    )
    (item,) = ss.read(_write(tmp_path / "log", log))
    assert item.acks["now_us"].tolist() == [0, 40_000]


def test_ss_names_the_algorithm_that_was_chosen_after_the_first_poll(tmp_path: Path) -> None:
    ccs = ("bbr", "cubic", "cubic", "word", "cubic")
    log = "".join(
        f"time:{1_700_000_000_000_000_000 + n * 40_000_000}\n"
        + _ss_line(delivered=n + 1).replace("cubic", cc)
        + "\n"
        for n, cc in enumerate(ccs)
    )
    (item,) = ss.read(_write(tmp_path / "log", log))
    assert item.cc_name == "cubic"
    assert item.facts["unknown_tokens"] == 1, "the word; what the socket began with is no such"


def test_ss_two_lines_users_ipv6_header_and_unknown_tokens(tmp_path: Path) -> None:
    log = """State Recv-Q Send-Q Local Address:Port Peer Address:Port Process
time:1700000000000000000
SYN-SENT 0 1 [2001:db8::1]:40000 [2001:db8::2]:5201
\t cubic rto:1000 mss:524 cwnd:10 segs_out:1
ESTAB 0 0 [2001:db8::1]:40002 [2001:db8::2]:5201 users:(("a b: c",pid=1,fd=4)) timer:(on,1.2ms,0)
\t ts sack bbr wscale:7,7 rto:204 rtt:0.213/0.318 mss:1428 cwnd:10 novelty:3 shiny delivered:5
ESTAB 0 0 [2001:db8::1]:40004 [2001:db8::2]:5201
\t reno rto:204 rtt:3/1 mss:1428 cwnd:4 bbr:(bw:5bps,mrtt:1) delivered:1
"""
    first, second = ss.read(_write(tmp_path / "log", log))
    assert (first.cc_name, second.cc_name) == ("bbr", "reno")
    assert first.acks["srtt_us"].tolist() == [213]
    assert first.facts["unknown_tokens"] == 2 and second.facts["unknown_tokens"] == 0
    assert first.facts["not_open"] == 1
    assert first.flow_id != second.flow_id


def test_ss_port_reuse_begins_a_flow(tmp_path: Path) -> None:
    log = "".join(
        f"17000000{n:02d}.5\n" + _ss_line(acked=acked, delivered=acked // 1448) + "\n"
        for n, acked in enumerate((1449, 14_481, 1449, 2897))
    )
    assert [len(item.acks) for item in ss.read(_write(tmp_path / "log", log))] == [2, 2]


@pytest.mark.parametrize(
    ("log", "message"),
    [
        (_ss_line() + "\n" + _ss_line(delivered=3) + "\n", ":2: no time stamp"),
        ("1700000000.5\nESTAB 0 0 nonsense cwnd:5\n", ":2: expected local and remote"),
        ("1700000000.5\n" + _ss_line(cwnd="ten"), ":2: a value is not a number"),
        ("1700000000.5\n" + _ss_line(rate="8parsecs"), ":2: a value is not a number"),
        ("1700000000.5\nSYN-SENT 0 1 10.0.0.1:4 10.0.0.2:5 cubic cwnd:10\n", "no open connection"),
    ],
)
def test_ss_refuses(tmp_path: Path, log: str, message: str) -> None:
    _refused(ss.read, _write(tmp_path / "log", log), message)


def _refused(read: Callable[[Path], list[FlowRecords]], path: Path, message: str) -> None:
    with pytest.raises(NdmError) as caught:
        read(path)
    text = str(caught.value)
    assert message in text and "\n" not in text and str(path) in text
    assert "10.0.0" not in text.replace(str(path), "")


# --- iperf3 ----------------------------------------------------------------------------------
def _iperf3(version: str = "iperf 3.12", **changes: Any) -> dict[str, Any]:
    def stream(number: int) -> dict[str, Any]:
        values = {"socket": 5, "start": (number - 1) / 10, "end": number / 10, "seconds": 0.1}
        values |= {"bytes": 144_800, "retransmits": number - 1, "snd_cwnd": 144_800 * number}
        values |= {"rtt": 20_000 + number, "rttvar": 300, "sender": True}
        return {k: v for k, v in (values | changes).items() if v is not None}

    return {
        "start": {"connected": [], "version": version, "tcp_mss_default": 1448, "cookie": "x"},
        "intervals": [{"streams": [stream(n)], "sum": {}} for n in (1, 2, 3)],
        "end": {"sender_tcp_congestion": "cubic"},
    }


def _check_iperf3(item: FlowRecords) -> None:
    _check(item, "iperf3")
    assert item.cc_name == "cubic" and item.mss == 1448
    assert item.acks["cwnd"].tolist() == [100, 200, 300]
    assert item.acks["srtt_us"].tolist() == [20_001, 20_002, 20_003]
    assert item.acks["rttvar_us"].tolist() == [300] * 3
    assert item.acks["acked"].tolist() == [0, 100, 100]
    assert item.acks["lost"].tolist() == [0, 1, 2]
    assert item.acks["now_us"].tolist() == [0, 100_000, 200_000]


def test_iperf3_report(tmp_path: Path) -> None:
    path = _write(tmp_path / "a.json", json.dumps(_iperf3(), indent=1))
    assert _sniffed(path) == ["iperf3"]
    (item,) = iperf3.read(path)
    _check_iperf3(item)


def test_iperf3_json_stream_and_dirty_ends(tmp_path: Path) -> None:
    report = _iperf3()
    events = [{"event": "start", "data": report["start"]}]
    events += [{"event": "interval", "data": interval} for interval in report["intervals"]]
    events += [{"event": "end", "data": report["end"]}]
    path = _write(tmp_path / "stream", "\n".join(map(json.dumps, events)))
    assert _sniffed(path) == ["iperf3"]
    (item,) = iperf3.read(path)
    _check_iperf3(item)
    dirty = "\x1b[0m$ iperf3 -J\n" + json.dumps(report) + "\niperf3: error - idle timeout\n"
    (item,) = iperf3.read(_write(tmp_path / "dirty", dirty))
    _check_iperf3(item)
    assert len(iperf3.read(_write(tmp_path / "two", dirty + json.dumps(report)))) == 2


def test_iperf3_receivers_are_not_senders(tmp_path: Path) -> None:
    path = _write(tmp_path / "a", json.dumps(_iperf3(sender=False)))
    _refused(iperf3.read, path, "no sending TCP stream")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (json.dumps(_iperf3("iperf 3.0.11", rtt=None)), "iperf 3.0.11 reports no rtt"),
        (json.dumps(_iperf3())[:-40], "JSON breaks off"),
        ('{"start": {}, "intervals": [], "error": "unable to connect"}', "unable to connect"),
        (json.dumps(_iperf3(bytes="many")), "not a report of iperf3"),
        *(
            (json.dumps(_iperf3(**{name: value})), "not a report of iperf3")
            for name in ("bytes", "end", "snd_cwnd", "rtt", "retransmits")
            for value in (math.inf, 10**30)
        ),
        (json.dumps(_iperf3() | {"start": {"connected": 5}}), "not a report of iperf3"),
    ],
)
def test_iperf3_refuses(tmp_path: Path, text: str, message: str) -> None:
    _refused(iperf3.read, _write(tmp_path / "a.json", text), message)


# --- tcp_probe -------------------------------------------------------------------------------
def _probe(number: int, body: str, comm: str = "kworker/0:1 x-7") -> str:
    return f"  {comm}  [000] b..1.  100.{number:06d}: tcp_probe: {body}\n"


def _variants(una: int, nxt: int, srtt: int) -> list[str]:
    state = f"snd_nxt={nxt:#x} snd_una={una:#x} snd_cwnd=10 ssthresh=9 snd_wnd=65160 srtt={srtt}"
    v4 = "src=10.0.0.1:4000 dest=10.0.0.2:80 mark=0x0"
    v6 = "src=[2001:db8::1]:4000 dest=[2001:db8::2]:80 mark=0x0"
    return [
        f"{v4} length=32 {state} rcv_wnd=29312",
        f"{v4} data_len=0 {state} rcv_wnd=29312 sock_cookie=5",
        f"family=AF_INET {v4} data_len=0 {state} rcv_wnd=29312 sock_cookie=5",
        f"family=AF_INET6 {v6} data_len=0 {state} rcv_wnd=29312 sock_cookie=5 skbaddr=0 skaddr=0",
    ]


@pytest.mark.parametrize("variant", range(4))
def test_tcp_probe_variants(tmp_path: Path, variant: int) -> None:
    start = (1 << 32) - 3000  # snd_una wraps on the way
    lines = ["# tracer: nop\n"]
    for n in range(12):
        una = (start + n * 1000) % (1 << 32)
        nxt = (una + 4500) % (1 << 32)
        body = _variants(una, nxt, 40_000 + 8 * n)[variant]
        lines.append(_probe(n * 10_000, body, "my app-12"))
    address = "2001:db8::1" if variant == 3 else "::ffff:10.0.0.1"
    v4 = "0.0.0.0" if variant == 3 else "10.0.0.1"
    event = (
        f"family=AF_INET sport=4000 dport=80 saddr={v4} daddr={v4[:-1]}2 saddrv6={address} "
        f"daddrv6={address[:-1]}2"
    )
    if variant == 3:
        event = event.replace("daddr=0.0.0.2", "daddr=0.0.0.0")
    lines.insert(6, f" x-1 [001] ..s. 100.045000: tcp_retransmit_skb: {event} state=1\n")
    lines.insert(7, f" x-1 [001] ..s. 100.045001: tcp_cong_state_set: {event} cong_state=3\n")
    path = _write(tmp_path / "trace.txt", "".join(lines))
    assert _sniffed(path) == ["tcp_probe"]

    columns = tcp_probe.read_columns(path)
    assert set(columns) == {(4000, 80)}
    probe = columns[4000, 80]
    assert probe.snd_una[0] == start and probe.snd_una[-1] == 8000
    assert probe.cwnd.tolist() == [10] * 12 and probe.ssthresh.tolist() == [9] * 12
    assert probe.srtt_us[:2].tolist() == [40_000, 40_008]
    assert probe.t_s[:2].tolist() == [100.0, 100.01]
    assert probe.state_t_s.tolist() == [100.045001] and probe.ca_state.tolist() == [3]
    assert probe.retransmit_t_s.tolist() == [100.045]

    (item,) = tcp_probe.read(path)
    _check(item, "tcp_probe")
    assert item.mss == 1000
    assert item.acks["acked"].tolist() == [0] + [1] * 11
    assert item.acks["inflight"].tolist() == [5] * 12
    assert item.acks["lost"].tolist() == [0] * 5 + [1] + [0] * 6
    assert item.acks["ca_state"].tolist() == [0] * 5 + [3] * 7
    # each step of 8 us in srtt is an error of 64 us; the deviation falls by a quarter of the rest
    assert item.acks["rttvar_us"][:2].tolist() == [20_000, round(20_000 + (64 - 20_000) / 4)]


def test_tcp_probe_tells_sockets_apart_by_cookie(tmp_path: Path) -> None:
    text = "".join(
        _probe(n * 1000, _variants(n * 1000, n * 1000 + 2000, 50)[1].replace("=5", f"={c}"))
        for c, rows in ((5, range(8)), (6, range(20, 40)))
        for n in rows
    )
    path = _write(tmp_path / "trace", text)
    assert [len(item.acks) for item in tcp_probe.read(path)] == [8, 20]
    assert len(tcp_probe.read_columns(path)[4000, 80].t_s) == 20


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# tracer: nop\n", "no tcp_probe event"),
        (_probe(0, "src=10.0.0.1:4000 dest=10.0.0.2:80 mark=0x0 data_le"), ":1: not a whole"),
        (_probe(0, _variants(1, 2, 3)[1]), "no socket here sends data"),
        (
            "".join(
                _probe(n, _variants(n * 1000, n * 1000 + 2000, 50)[1]) for n in range(20, 40)
            ).replace(" 100.000039:", f" {10**19}.000039:"),
            "a time is a number of more than 63 bits",
        ),
    ],
)
def test_tcp_probe_refuses(tmp_path: Path, text: str, message: str) -> None:
    _refused(tcp_probe.read, _write(tmp_path / "trace", text), message)


# --- M-Lab -----------------------------------------------------------------------------------
def _tcp_info(size: int, **fields: int) -> bytes:
    data = bytearray(280)
    data[0] = 1
    widths = {1: "<B", 6: "<B", 7: "<B", 120: "<Q", 160: "<Q", 176: "<Q"}
    offsets = {"ca": 1, "scales": 6, "flags": 7, "mss": 16, "unacked": 24, "sacked": 28, "lost": 32}
    offsets |= {"retrans": 36, "rtt": 68, "rttvar": 72, "ssthresh": 76, "cwnd": 80}
    offsets |= {"total_retrans": 100, "bytes_acked": 120, "min_rtt": 148, "rate": 160}
    offsets |= {"rwnd_limited": 176, "delivered": 192}
    for name, value in fields.items():
        offset = offsets[name]
        struct.pack_into(widths.get(offset, "<I"), data, offset, value)
    return bytes(data[:size])


def _tcp_info_file(path: Path, infos: list[bytes]) -> Path:
    lines = [json.dumps({"Timestamp": "0001-01-01T00:00:00Z", "Metadata": {"UUID": "u"}})]
    for number, info in enumerate(infos):
        attributes = [None, None, base64.b64encode(info).decode(), None, "Y3ViaWMA"]
        time = f"2019-07-01T00:00:12.{number}92Z"
        lines.append(json.dumps({"Timestamp": time, "RawIDM": "", "Attributes": attributes}))
    return _write(path, "\n".join(lines) + "\n")


def test_tcp_info_names_the_algorithm_of_most_snapshots(tmp_path: Path) -> None:
    infos = [_tcp_info(232, mss=1400, cwnd=10, delivered=n, bytes_acked=1400 * n) for n in range(4)]
    path = _tcp_info_file(tmp_path / "a.jsonl", infos)
    first_bbr = path.read_text(encoding="utf-8").replace(
        "Y3ViaWMA", base64.b64encode(b"bbr\0").decode(), 1
    )
    path.write_text(first_bbr, encoding="utf-8")
    for reader in (mlab, mlab_twin):
        (item,) = reader.read(path)
        assert item.cc_name == "cubic"
    # As many of each, and in C the names are numbered over the whole file: the first by name.
    lines = path.read_text(encoding="utf-8").splitlines()
    half = [lines[0], lines[2], lines[1]]
    other = [line.replace('"u"', '"v"') for line in (lines[0], lines[1], lines[2])]
    path.write_text("\n".join([*half, *other]) + "\n", encoding="utf-8")
    for reader in (mlab, mlab_twin):
        assert [item.cc_name for item in reader.read(path)] == ["bbr", "bbr"]


@pytest.mark.parametrize("size", [144, 168, 192, 224, 232, 280])
def test_tcp_info_of_every_length(tmp_path: Path, size: int) -> None:
    first = {"scales": 0x79, "mss": 1400, "cwnd": 10, "rtt": 30_000, "rttvar": 900, "ssthresh": 7}
    first |= {"bytes_acked": 2801, "delivered": 3, "min_rtt": 28_000, "rate": 5000}
    second = first | {"ca": 3, "flags": 0x81, "unacked": 9, "sacked": 2, "lost": 3, "retrans": 1}
    second |= {"bytes_acked": 14_001, "delivered": 12, "total_retrans": 4, "cwnd": 5}
    infos = [_tcp_info(size, **first), _tcp_info(size, **second)]
    path = _tcp_info_file(tmp_path / "a.jsonl", infos)
    assert mlab.sniff(path.read_bytes())
    (item,) = mlab.read(path)
    _check(item, "mlab_tcpinfo")
    assert item.cc_name == "cubic" and item.mss == 1400
    assert item.facts["window_scale"] == 9
    assert item.acks["now_us"].tolist() == [0, 100_000]
    assert item.acks["cwnd"].tolist() == [10, 5]
    assert item.acks["inflight"].tolist() == [0, 5]
    assert item.acks["lost"].tolist() == [0, 4]
    assert item.acks["ca_state"].tolist() == [0, 3]
    assert item.acks["ssthresh"].tolist() == [7, 7]
    # 4.18 brought delivered, 4.6 min_rtt, 4.9 app_limited; before, what stands in for them
    assert item.acks["delivered"].tolist() == ([3, 12] if size >= 200 else [2, 10])
    assert item.acks["min_rtt_us"].tolist() == [28_000 if size >= 160 else 30_000] * 2
    assert item.acks["app_limited"].tolist() == [0, 1 if size >= 168 else 0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"Metadata":{"UUID":"u"}}\n{"Timestamp":"2019', ":2: not a tcp-info record"),
        ('{"Metadata":{"UUID":"u"}}\n{"Attributes":[0,0,"AAAA"]}\n', "tcp_info of 3 bytes"),
        ('{"Metadata":{"UUID":"u"}}\n', "no snapshot"),
        ("", "empty"),
        ('{"Download":{"ServerMeasurements":[{"TCPInfo":{}}]}}', "not an ndt7 result"),
        ('{"Download":{"ServerMeasurements":null}}', "no TCPInfo snapshot"),
    ],
)
def test_mlab_refuses(tmp_path: Path, text: str, message: str) -> None:
    _refused(mlab.read, _write(tmp_path / "a.jsonl", text), message)


def test_ndt7_upload_is_application_limited(tmp_path: Path) -> None:
    info = {"SndMSS": 1400, "SndCwnd": 10, "RTT": 9000, "RTTVar": 1, "MinRTT": 8000, "CAState": 0}
    info |= {"SndSsThresh": 0x7FFFFFFF, "Unacked": 0, "Sacked": 0, "Lost": 0, "Retrans": 0}
    info |= {"TotalRetrans": 2, "Delivered": 5, "AppLimited": 0, "DeliveryRate": 10, "WScale": 0x79}
    snapshots = [
        {"TCPInfo": info | {"ElapsedTime": 250_000}},
        {"TCPInfo": info | {"ElapsedTime": 500_000, "Delivered": 9}},
    ]
    unknown = [{"TCPInfo": dict(one["TCPInfo"])} for one in snapshots]
    for one in unknown:
        del one["TCPInfo"]["AppLimited"]
    path = _write(tmp_path / "a", json.dumps({"Download": {"ServerMeasurements": unknown}}))
    assert mlab.read(path)[0].acks["app_limited"].tolist() == [0, 0]
    for direction, limited, scale in (("Upload", 1, 7), ("Download", 0, 9)):
        result = {"ClientIP": "192.0.2.1", direction: {"ServerMeasurements": snapshots}}
        path = tmp_path / f"{direction}.json.gz"
        path.write_bytes(gzip.compress(json.dumps(result).encode()))
        assert _sniffed(path) == ["mlab"]
        (item,) = mlab.read(path)
        _check(item, "ndt7")
        assert item.acks["app_limited"].tolist() == [limited, limited]
        assert item.acks["acked"].tolist() == [0, 4]
        assert item.facts["direction"] == direction.lower() and item.facts["retransmitted"] == 2
        assert item.facts["window_scale"] == scale
        assert "192.0.2.1" not in repr(item)
