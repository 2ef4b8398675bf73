# SPDX-License-Identifier: GPL-2.0-only
"""Readers of polled TCP state: ss, iperf3, tcp_probe, M-Lab; small samples and real logs."""

from __future__ import annotations

import gzip
import json
import re
import tarfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import zstandard

from ndm_tcp import core
from ndm_tcp.datasets.readers import iperf3, mlab, ss, streams, tcp_probe
from ndm_tcp.datasets.readers.poll import PollColumns, flow, records
from ndm_tcp.datasets.rounds.flow import (
    INITIAL_SSTHRESH,
)
from ndm_tcp.errors import NdmError

from .test_poll_formats import (
    READERS,
    _check,
    _iperf3,
    _probe,
    _refused,
    _sniffed,
    _ss_line,
    _tcp_info,
    _tcp_info_file,
    _variants,
)

ROOT = Path(__file__).parents[1]
TRACES = ROOT / "datasets/traces"
REAL = ROOT.parent / "shared/realdata"

needs_real = pytest.mark.skipif(not REAL.is_dir(), reason="no shared/realdata beside the tree")


def _ints(*values: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.array(values, dtype=np.int64)


# --- the shared part -------------------------------------------------------------------------
def _columns(**more: Any) -> PollColumns:
    values: dict[str, Any] = {
        "cwnd": _ints(10, 10, 12, 14, 14),
        "srtt_us": _ints(20_000, 20_000, 20_000, 20_000, 20_000),
        "delivered": _ints(0, 5, 12, 30, 31),
        "retransmitted": _ints(0, 0, 2, 2, 3),
    }
    return PollColumns.filled(_ints(1000, 11_000, 21_000, 31_000, 131_000), **(values | more))


def test_rate_spans_the_newest_poll_an_srtt_back() -> None:
    acks = records(_columns(), None)
    assert acks["now_us"].tolist() == [0, 10_000, 20_000, 30_000, 130_000]
    assert acks["acked"].tolist() == [0, 5, 7, 18, 1]
    assert acks["lost"].tolist() == [0, 0, 2, 0, 1]
    # polls 2 and 3 look 20 ms back; poll 4 comes 100 ms late and looks at the one before
    assert acks["interval_us"].tolist() == [-1, -1, 20_000, 20_000, 100_000]
    assert acks["prior_delivered"].tolist() == [0, 0, 0, 5, 30]


def test_missing_values_have_the_kernels_defaults() -> None:
    acks = records(_columns(), None)
    assert (acks["min_rtt_us"] == 20_000).all()  # lowest srtt so far
    # no ssthresh at all: slow start until the first loss
    assert acks["ssthresh"].tolist() == [INITIAL_SSTHRESH] * 2 + [12, 14, 14]
    acks = records(_columns(ssthresh=_ints(-1, -1, 7, 7, 7), min_rtt_us=_ints(-1, 9, 9, 9, 8)), 0)
    assert acks["ssthresh"].tolist() == [INITIAL_SSTHRESH] * 2 + [7, 7, 7]
    assert acks["min_rtt_us"].tolist() == [0, 9, 9, 9, 8]
    no_min = (1 << 32) - 1
    acks = records(_columns(min_rtt_us=_ints(no_min, 9, 9, 9, 9)), None)
    assert acks["min_rtt_us"].tolist() == [0, 9, 9, 9, 9]


def test_bytes_stand_in_for_packets() -> None:
    missing = _ints(-1, -1, -1, -1, -1)
    acked = _ints(1, 1449, 14_481, 28_961, 28_961)
    acks = records(_columns(delivered=missing, bytes_acked=acked), 1448)
    assert acks["delivered"].tolist() == [0, 1, 10, 20, 20]
    assert acks["acked"].tolist() == [0, 1, 9, 10, 0]


def test_counters_wrap_and_resets_are_no_growth() -> None:
    top = (1 << 32) - 1
    acks = records(_columns(delivered=_ints(top - 1, top, 3, 4, 2)), None)
    assert acks["acked"].tolist() == [0, 1, 4, 1, 0]
    assert acks["delivered"].tolist() == [top - 1, top, 3, 4, 2]


def test_unchanged_polls_are_dropped_and_order_is_restored() -> None:
    columns = PollColumns.filled(
        _ints(30, 10, 20, 40),
        cwnd=_ints(10, 10, 10, 0),
        srtt_us=_ints(7, 5, 5, 7),
        delivered=_ints(2, 1, 1, 3),
        retransmitted=_ints(4, 1, 1, 4),
    )
    item = flow(columns, flow_id="0" * 16, format="ss")
    assert item is not None
    assert item.acks["now_us"].tolist() == [0, 20]  # 20 repeats 10; 40 has no window
    assert item.facts == {"polls": 4, "unchanged": 1, "retransmitted": 4}
    assert flow(columns.take(columns.cwnd == 0), flow_id="0" * 16, format="ss") is None


def test_rwnd_limited_is_most_of_the_time_between_polls() -> None:
    item = flow(
        _columns(rwnd_limited_us=_ints(5000, 5000, 11_000, 15_000, 115_000)),
        flow_id="0" * 16,
        format="ss",
    )
    assert item is not None and item.rwnd_limited is not None
    assert item.rwnd_limited.tolist() == [False, False, True, False, True]


# --- every reader ----------------------------------------------------------------------------
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("pack", [gzip.compress, zstandard.ZstdCompressor().compress])
def test_a_cut_compressed_file_is_refused(
    tmp_path: Path, reader: ModuleType, pack: Callable[[bytes], bytes]
) -> None:
    samples = {
        iperf3: json.dumps(_iperf3()),
        ss: "".join(f"170000{n:04d}.5\n{_ss_line(delivered=n)}\n" for n in range(2000)),
        tcp_probe: "".join(
            _probe(n * 7, _variants(n * 1000, n * 1000 + 4000, n * 37 % 999)[2])
            for n in range(2000)
        ),
        mlab: _tcp_info_file(
            tmp_path / "t", [_tcp_info(224, cwnd=n + 1, rtt=n * 7919 % 9973) for n in range(9)]
        ).read_text(),
    }
    whole = pack(samples[reader].encode())
    path = tmp_path / "log"
    path.write_bytes(whole)
    assert reader.read(path)
    for end in (5, len(whole) // 3, len(whole) * 2 // 3, len(whole) - 1):
        path.write_bytes(whole[:end])
        _refused(reader.read, path, "compressed data ends or breaks after")
    path.write_bytes(whole + whole[:-9] if pack is gzip.compress else whole + whole[:-1])
    _refused(reader.read, path, "compressed data ends or breaks after")


# --- shipped recordings ----------------------------------------------------------------------
def test_shipped_tcp_info() -> None:
    path = TRACES / "third_party/mlab_tcpinfo_jdczh_00183.jsonl.zst"
    with streams.open_text(path) as stream:
        assert sum(1 for _ in stream) == 151
    assert _sniffed(path) == ["mlab"]
    (item,) = mlab.read(path)
    _check(item, "mlab_tcpinfo")
    assert item.facts["polls"] == 150 and item.facts["retransmitted"] == 5
    assert (item.acks["srtt_us"].min(), item.acks["srtt_us"].max()) == (125_799, 125_906)
    assert item.cc_name == "cubic"


@pytest.mark.parametrize("name", ["reno-02-clean", "cubic-03-lossy", "bbr-03-lossy"])
def test_shipped_run_read_three_ways(name: str) -> None:
    folder = TRACES / name
    text = (folder / "run.toml").read_text(encoding="utf-8")
    retransmitted = int(re.findall(r"retransmitted_segments = (\d+)", text)[0])
    rtt_us = int(re.findall(r"rtt_us = (\d+)", text)[0])
    rate_bps = int(re.findall(r"rate_bps = (\d+)", text)[0])
    found = {}
    for reader, file in ((ss, "ss.txt"), (iperf3, "iperf3.json"), (tcp_probe, "tcp_probe.txt")):
        path = folder / f"{file}.zst"
        label = reader.__name__.rpartition(".")[2]
        assert _sniffed(path) == [label]
        (item,) = reader.read(path)
        _check(item, label)
        assert item.mss == 1448
        rounds = core.replay(item.acks)
        assert rounds.valid.mean() > 0.9
        found[label] = item
    assert found["iperf3"].facts["retransmitted"] == retransmitted
    assert abs(int(found["ss"].facts["retransmitted"]) - retransmitted) <= 3
    assert found["ss"].facts["rate_agreement"] == pytest.approx(1, abs=0.03)
    for label in ("ss", "tcp_probe"):
        acks = found[label].acks
        assert rtt_us <= acks["min_rtt_us"][-1] < rtt_us + 1500
        rate = (acks["delivered"] - acks["prior_delivered"]).astype(float) * 1500 * 8e6
        rate /= acks["interval_us"]
        assert np.median(rate[acks["interval_us"] > 0]) <= rate_bps * 1.05
    # the same socket, polled and per ACK: tcp_probe's deviation is rebuilt, ss's is the kernel's
    medians = [float(np.median(found[label].acks["rttvar_us"])) for label in ("ss", "tcp_probe")]
    assert medians[1] == pytest.approx(medians[0], rel=0.25)


# --- real logs beside the tree ---------------------------------------------------------------
def _unpacked(name: str, folder: Path) -> Path:
    with tarfile.open(REAL / name) as archive:
        archive.extractall(folder, filter="data")
    return folder


@needs_real
def test_real_tcp_info_archive(tmp_path: Path) -> None:
    folder = _unpacked("mlab_tcpinfo_20190516_arn02_364flows.tgz", tmp_path)
    paths = sorted(folder.rglob("*.zst"))
    assert len(paths) == 364
    flows, empty = [], 0
    for path in paths:
        try:
            flows += mlab.read(path)
        except NdmError as error:
            assert "empty" in str(error)
            empty += 1
    assert (len(flows), empty) == (362, 2)
    assert sum(int(f.facts["polls"]) + int(f.facts["not_open"]) for f in flows) == 10_429
    assert sum(int(f.facts["retransmitted"]) for f in flows) == 1_766
    assert sum(int(f.facts["retransmitted"]) > 0 for f in flows) == 159
    assert {f.cc_name for f in flows} == {"cubic"}


@needs_real
def test_real_ndt7_archive(tmp_path: Path) -> None:
    folder = _unpacked("mlab_ndt7_20200318_syd03_114results.tgz", tmp_path)
    flows = [item for path in sorted(folder.rglob("*.gz")) for item in mlab.read(path)]
    assert len(flows) == 114
    assert sum(int(f.facts["polls"]) for f in flows) == 3_875
    assert sum(int(f.facts["retransmitted"]) for f in flows) == 85_561
    for item in flows:
        _check(item, "ndt7")


@needs_real
@pytest.mark.parametrize(
    ("run", "cc", "retransmitted"),
    [
        ("cubic_20M_40ms_q60", "cubic", 26),
        ("bbr_20M_40ms_loss05", "bbr", 196),
        ("reno_50M_20ms_q30", "reno", 118),
    ],
)
def test_real_paired_runs(run: str, cc: str, retransmitted: int) -> None:
    folder = REAL / "paired" / run
    item = max(ss.read(folder / "ss.txt.gz"), key=lambda f: len(f.acks))
    assert (item.cc_name, item.facts["retransmitted"]) == (cc, retransmitted)
    assert item.facts["unknown_tokens"] == 0
    assert item.facts["rate_agreement"] == pytest.approx(1, abs=0.025)
    (report,) = iperf3.read(folder / "iperf3.json")
    assert (report.cc_name, report.facts["retransmitted"]) == (cc, retransmitted)
    (probe,) = tcp_probe.read(folder / "trace.txt.gz")
    assert probe.mss == 1448


@needs_real
def test_real_public_ss_records() -> None:
    path = REAL / "ss_public_records_dev.txt"
    assert _sniffed(path) == ["ss"]
    flows = ss.read(path)
    assert [f.cc_name for f in flows] == ["cubic", "bbr", "reno"]
    assert [int(f.acks["srtt_us"][0]) for f in flows] == [594_650, 36_788, 636_440]
    assert [int(f.facts["unknown_tokens"]) for f in flows] == [0, 0, 0]


@needs_real
def test_real_old_iperf3_is_refused_with_the_reason() -> None:
    path = REAL / "iperf3_3.0.11_tcp.json"
    assert _sniffed(path) == ["iperf3"]
    _refused(iperf3.read, path, "iperf 3.0.11 reports no rtt")
