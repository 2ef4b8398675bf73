# SPDX-License-Identifier: GPL-2.0-only
"""Captures: exact retransmissions, the kernel's RTT, and every way a file can be bad."""

from __future__ import annotations

import gzip
import re
import shutil
import struct
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard

from ndm_tcp.datasets.readers import capture, pcap, run_folder, sources, streams, tcp_probe
from ndm_tcp.datasets.rounds.flow import CwndSource, FlowRecords, LossCause
from ndm_tcp.errors import NdmError
from ndm_tcp.paths import estimate, label

from .captures import Captured
from .conftest import TRACES
from .reference import estimators, tcp_options
from .reference import pcap as reference_pcap

RUNS = sorted(
    str(p.parent.relative_to(TRACES))
    for p in TRACES.rglob("run.toml")
    if run_folder.is_run(p.parent)
)


def plain(path: Path, out: Path) -> bytes:
    """The decompressed capture, also written to `out`."""
    with streams.open_bytes(path) as stream:
        data = stream.read()
    out.write_bytes(data)
    return data


@pytest.mark.parametrize("name", RUNS)
def test_retransmissions_match_what_the_kernel_counted(name: str) -> None:
    truth = tomllib.loads((TRACES / name / "run.toml").read_text())["truth"]
    flows, _ = run_folder.read(TRACES / name)
    counted = sum(int(flow.facts["retransmitted"]) for flow in flows)
    # iperf3 stops counting when the sender stops; a few may leave after that.
    assert truth["retransmitted_segments"] <= counted
    assert (
        counted
        <= max(truth["retransmitted_segments"], truth["drops_random"] + truth["drops_queue"]) + 3
    )


@pytest.mark.parametrize(
    ("run", "retransmitted"),
    [("cubic_20M_40ms_q60", 26), ("bbr_20M_40ms_loss05", 196), ("reno_50M_20ms_q30", 118)],
)
def test_paired_recordings(realdata: Path, run: str, retransmitted: int) -> None:
    (flow,), _ = run_folder.read(realdata / "paired" / run)
    assert flow.facts["retransmitted"] == retransmitted
    assert flow.cc_name == run.split("_")[0]


def test_mlab_capture() -> None:
    (flow,), _ = capture.read(TRACES / "third_party" / "mlab_ndt_bulk_17Mbps.pcap.gz")
    assert flow.facts["retransmitted"] == 39
    assert flow.mss == 1188
    rtt_us = flow.acks["rtt_us"][flow.acks["rtt_us"] > 0]
    assert 42_000 < rtt_us.min() < 44_000
    assert rtt_us.max() < 160_000
    assert flow.cwnd_source == CwndSource.INFLIGHT


def recorded(name: str) -> tuple[FlowRecords, np.ndarray[Any, Any], int]:
    """A recorded flow, the wall-clock seconds of its ACKs, and the sender's port."""
    folder = TRACES / name
    (flow,), _ = run_folder.read(folder)
    port = tomllib.loads((folder / "run.toml").read_text())["sender_port"]
    pcap_path = run_folder.find(folder, "sender.pcap")
    assert pcap_path is not None
    packets = [
        s
        for s in reference_pcap.segments(pcap_path, reference_pcap.CaptureReport())
        if port in (s.source[1], s.target[1])
    ]
    data = next(s for s in packets if s.payload and s.source[1] == port)
    first = next(s for s in packets if s.target[1] == port and s.time_ns > data.time_ns)
    return flow, flow.acks["now_us"] / 1e6 + first.time_ns / 1e9, port


@pytest.mark.parametrize("name", ["cubic-00-clean", "reno-03-lossy", "bbr-03-lossy"])
def test_srtt_is_the_kernels(name: str) -> None:
    """tcp_probe prints the srtt before each ACK: ours after the ACK before must equal it."""
    flow, at_s, port = recorded(name)
    probe_path = run_folder.find(TRACES / name, "tcp_probe.txt")
    assert probe_path is not None
    columns = tcp_probe.read_columns(probe_path)
    probe = next(p for ports, p in columns.items() if ports[0] == port)
    clock = tomllib.loads((TRACES / name / "run.toml").read_text())["clock"]
    probe_s = probe.t_s + (clock["realtime_ns"] - clock["monotonic_ns"]) / 1e9
    before = np.searchsorted(at_s, probe_s, side="right") - 2
    rows = before > 0
    error_us = np.abs(flow.acks["srtt_us"][before[rows]].astype(float) - probe.srtt_us[rows])
    assert error_us.mean() < 200
    assert (error_us / probe.srtt_us[rows]).mean() < 0.005
    assert np.percentile(error_us, 99) < 2000


def polls(name: str, port: int, value: str) -> list[tuple[float, float]]:
    """(wall-clock second, number behind `value`) of each line of ss that has one."""
    ss_path = run_folder.find(TRACES / name, "ss.txt")
    assert ss_path is not None
    found, at_s = [], 0.0
    with streams.open_text(ss_path) as stream:
        for line in stream:
            if re.fullmatch(r"\d+\.\d+\s*", line):
                at_s = float(line)
            number = re.search(rf"{value}(\d+)", line)
            if number and f":{port} " in line:
                found.append((at_s, float(number[1])))
    return found


@pytest.mark.parametrize("name", ["cubic-00-clean", "reno-03-lossy", "bbr-03-lossy"])
def test_delivery_rate_is_the_kernels(name: str) -> None:
    """ss shows the kernel's newest valid rate sample."""
    flow, at_s, port = recorded(name)
    assert flow.mss is not None
    good = np.flatnonzero((flow.acks["interval_us"] > 0) & (flow.acks["acked"] > 0))
    packets = flow.acks["delivered"] - flow.acks["prior_delivered"]
    errors = []
    for at_ss_s, bps in polls(name, port, "delivery_rate "):
        newest = np.searchsorted(at_s[good], at_ss_s) - 1
        if newest > 3:
            row = good[newest]
            ours_bps = packets[row] * flow.mss * 8e6 / flow.acks["interval_us"][row]
            errors.append(abs(ours_bps / bps - 1))
    assert len(errors) > 200
    assert np.mean(errors) < 0.025
    assert np.median(errors) < 0.001


POLLED = sorted(path.parent.name for path in TRACES.glob("*/ss.txt*"))


@pytest.mark.parametrize("name", POLLED)
def test_delivered_is_the_kernels(name: str) -> None:
    """ss begins after the time it prints, so its count may be one or two ACKs ahead."""
    flow, at_s, port = recorded(name)
    ahead, synack = [], 1
    for at_ss_s, delivered in polls(name, port, " delivered:"):
        newest = np.searchsorted(at_s, at_ss_s) - 1
        if newest > 3:
            ahead.append(int(delivered) - synack - int(flow.acks["delivered"][newest]))
    assert len(ahead) > 200
    assert np.mean(np.equal(ahead, 0)) > 0.4
    assert np.mean(np.isin(ahead, range(5))) > 0.98
    assert 0 in ahead[-30:]


def test_causes_of_loss_reach_the_records() -> None:
    truth = tomllib.loads((TRACES / "reno-03-lossy" / "run.toml").read_text())["truth"]
    (flow,), _ = run_folder.read(TRACES / "reno-03-lossy")
    assert flow.loss_cause is not None
    lost = flow.acks["lost"] > 0
    by_cause = np.bincount(flow.loss_cause[lost], minlength=4)
    assert by_cause[LossCause.UNKNOWN] == 0
    assert 0 < by_cause[LossCause.RANDOM] <= truth["drops_random"]
    assert 0 < by_cause[LossCause.QUEUE] <= truth["drops_queue"]


def test_true_windows_replace_estimates_except_for_pacing_algorithms() -> None:
    (cubic,), _ = run_folder.read(TRACES / "cubic-00-clean")
    (bbr,), _ = run_folder.read(TRACES / "bbr-01-clean")
    assert (cubic.cwnd_source, bbr.cwnd_source) == (CwndSource.KERNEL, CwndSource.INFLIGHT)


def test_estimated_window_is_close_to_the_kernels() -> None:
    folder = TRACES / "cubic-00-clean"
    (true,), _ = run_folder.read(folder)
    pcap_path = run_folder.find(folder, "sender.pcap")
    assert pcap_path is not None
    (estimated,), _ = capture.read(pcap_path)
    late = slice(len(true.acks) // 4, None)
    ratio = estimated.acks["cwnd"][late] / true.acks["cwnd"][late]
    assert 0.9 < np.median(ratio) < 1.1


@pytest.mark.parametrize("cut", [30, 40, 90, 20_001, 50_000])
def test_whole_packets_of_a_cut_capture_are_kept(tmp_path: Path, cut: int) -> None:
    source = run_folder.find(TRACES / "cubic-00-clean", "sender.pcap")
    assert source is not None
    path = tmp_path / "cut.pcap"
    data = plain(source, path)
    path.write_bytes(data[:cut])
    at, packets = 24, 0
    while at + 16 <= cut and at + 16 + int.from_bytes(data[at + 8 : at + 12], "little") <= cut:
        at, packets = at + 16 + int.from_bytes(data[at + 8 : at + 12], "little"), packets + 1
    report = pcap.CaptureReport()
    capture.read(path, None, report)
    assert (report.truncated_at, report.packets) == (at, packets)
    capture.read(source, None, report)
    assert report.truncated_at is None


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.ZstdCompressor().compress])
def test_whole_packets_of_a_cut_compressed_capture_are_kept(tmp_path: Path, pack: Any) -> None:
    source = run_folder.find(TRACES / "cubic-00-clean", "sender.pcap")
    assert source is not None
    path = tmp_path / "cut.pcap"
    packed = pack(plain(source, path))
    path.write_bytes(packed[: len(packed) * 2 // 3])
    report = pcap.CaptureReport()
    flows, _ = capture.read(path, None, report)
    assert report.truncated_at is not None and report.packets > 1000 and len(flows) == 1


def test_unreadable_captures_are_refused_in_one_line(tmp_path: Path) -> None:
    header = struct.pack("<IHHIIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 147)
    cases = {
        "short.pcap": (header[:10], "cut short inside the file header .10 of 24"),
        "text.pcap": (b"hello, this is no capture\n" * 10, "not a packet capture"),
        "link.pcap": (header + struct.pack("<IIII", 0, 0, 4, 4) + b"abcd", "link type 147"),
        "new.pcap": (struct.pack("<IHHIIII", 0xA1B2C3D4, 3, 0, 0, 0, 96, 1), "editcap"),
        "broken.pcap.gz": (b"\x1f\x8b\x08\x00garbage!" + b"\0" * 50, "fetch the file again"),
    }
    for name, (data, expected) in cases.items():
        path = tmp_path / name
        path.write_bytes(data)
        with pytest.raises(NdmError, match=expected) as error:
            capture.read(path)
        assert "\n" not in str(error.value) and name in str(error.value)


@pytest.mark.parametrize(
    ("name", "flows", "reason"),
    [
        ("ndpi_ps_vue_oneway.pcap", 0, "no ACK direction"),
        ("pcpp_nanosecs_big_endian.pcap", 0, "fewer than"),
        ("tcptrace_dsack.dmp.gz", 1, ""),
        ("zeek_vlan-collisions.pcap", 0, "fewer than"),
        ("pcpp_sll.pcap", None, ""),
        ("pcpp_many_interfaces-1.pcapng", 0, "fewer than"),
        ("tcptrace_dlt_null.dmp.gz", None, ""),
        ("mlab_ndt_ipv6_short.pcap.gz", 0, "fewer than"),
    ],
)
def test_foreign_captures(realdata: Path, name: str, flows: int | None, reason: str) -> None:
    found, skipped = capture.read(realdata / name)
    if flows is not None:
        assert len(found) == flows
    if reason:
        assert any(reason in text for text in skipped)
    for flow in found:
        assert (np.diff(flow.acks["now_us"].astype(np.int64)) >= 0).all()


def test_receiver_side_capture_is_refused(tmp_path: Path) -> None:
    """A transfer seen at the receiver: its own ACKs answer at once, the sender takes an RTT."""
    made = Captured(tmp_path / "receiver.pcap")
    made.handshake(0, 10, 40_000)
    for i in range(100):
        made.data(41_000 + i * 1000, 1 + i * 1000, 1000)
        made.ack(41_010 + i * 1000, 1 + (i + 1) * 1000)
    flows, skipped = capture.read(made.write())
    assert not flows
    assert any("near the receiver" in reason for reason in skipped)


def test_options_survive_truncation() -> None:
    sack = bytes([1, 1, 5, 26]) + struct.pack(">6I", 1, 2, 3, 4, 5, 6)
    assert tcp_options.parse_options(sack).sack == ((1, 2), (3, 4), (5, 6))
    assert tcp_options.parse_options(sack[:21]).sack == ((1, 2), (3, 4))
    for length in range(len(sack)):
        tcp_options.parse_options(sack[:length])
    assert tcp_options.parse_options(b"\x02\x04\x05\xb4\x01\x03\x03\x0a").wscale == 10


def test_rtt_estimator_follows_rfc6298_gains() -> None:
    rtt = estimators.RttEstimator()
    rtt.update(100_000)
    assert (rtt.srtt_us, rtt.rttvar_us) == (100_000, 50_000)
    rtt.update(108_000)
    assert (rtt.srtt_us, rtt.rttvar_us) == (101_000, 39_500)
    # A falling RTT widens the deviation eight times more slowly.
    calm = estimators.RttEstimator()
    for _ in range(200):
        calm.update(100_000)
    before = calm.rttvar_us
    calm.update(60_000)
    assert calm.rttvar_us - before < 40_000 / 4 / 4


@pytest.mark.parametrize("syns", [2, 1, 0])
def test_losses_without_sack_are_guessed(tmp_path: Path, syns: int) -> None:
    """A link of 20 Mbit/s had at least 29.7, and rivals that were not there."""
    data = plain(TRACES / "cubic-03-lossy" / "sender.pcap.zst", tmp_path / "whole.pcap")
    timestamp = b"\x08\x0a"
    permitted, none = b"\4\2" + timestamp, b"\1\1" + timestamp
    assert data.count(permitted) == 2, "of SYN and SYN-ACK"
    (tmp_path / "x.pcap").write_bytes(data.replace(permitted, none, syns))
    (flow,), _ = capture.read(tmp_path / "x.pcap")
    assert flow.facts["sack"] == (syns == 0)
    for facts, guessed in (({}, syns > 0), ({"retransmitted": 0}, False), ({"sack": -1}, False)):
        found = estimate.estimate(replace(flow, facts={**flow.facts, **facts}), "x.pcap")
        assert any("SACK blocks" in note for note in found.notes) == guessed
        assert (found.label_error_log2 > label.WORST) >= guessed, "what is guessed teaches nothing"


def test_other_captures_in_a_run_s_folder_are_named(tmp_path: Path) -> None:
    """One that happens to be called sender.pcap hides those beside it."""
    run, another = tmp_path / "run", TRACES / "cubic-01-clean" / "sender.pcap.zst"
    shutil.copytree(TRACES / "cubic-03-lossy", run)
    assert not sources.read(run).warnings
    shutil.copy(another, run / "receiver.pcap.zst")
    assert not sources.read(run).warnings
    shutil.copy(another, run / "client.pcap.zst")
    (warning,) = sources.read(run).warnings
    assert "its 1 other captures are left out, first client.pcap.zst; move them" in warning
