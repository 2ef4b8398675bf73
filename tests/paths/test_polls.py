# SPDX-License-Identifier: GPL-2.0-only
"""Path models of logs: what a format does not count is not given as measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ndm_tcp.datasets.readers import sources, streams
from ndm_tcp.paths import report
from ndm_tcp.paths.estimate import estimate
from ndm_tcp.paths.model import Kind, PathModel

from ..conftest import TRACES

WRITE = 1 << 17
"""bytes that iperf3 writes at a time"""
MBPS, QUEUE_MS, BASE_MS = 20.0, 30, 40


def of_iperf3(
    path: Path, interval_s: float, seconds: float, retransmits: int | None = 0
) -> PathModel:
    """A report of a flow that fills its path: writes come whole, and first fill a buffer.

    retransmits: in every interval; None: the program does not count them.
    """
    goodput = MBPS * 1448 / 1514 * 1e6 / 8  # bytes per s
    intervals, written = [], 0
    for number in range(1, round(seconds / interval_s) + 1):
        due = 600_000 + number * interval_s * goodput
        total = int(due // WRITE) * WRITE
        queue_ms = min(QUEUE_MS, 2 + 10 * number * interval_s)
        stream = {
            "socket": 5,
            "start": (number - 1) * interval_s,
            "end": number * interval_s,
            "seconds": interval_s,
            "bytes": total - written,
            "snd_cwnd": 120 * 1448,
            "rtt": round((BASE_MS + queue_ms) * 1000),
            "rttvar": 500,
            "omitted": False,
            "sender": True,
        }
        if retransmits is not None:
            stream["retransmits"] = retransmits
        written = total
        intervals.append({"streams": [stream]})
    start = {
        "version": "iperf 3.12",
        "tcp_mss": 1448,
        "test_start": {"protocol": "TCP"},
        "connected": [{"socket": 5, "local_port": 40000, "remote_port": 5201}],
    }
    end = {"sender_tcp_congestion": "cubic"}
    path.write_text(json.dumps({"start": start, "intervals": intervals, "end": end}))
    (flow,) = sources.read(path).flows
    return estimate(flow, "log")


@pytest.mark.parametrize(
    ("retransmits", "loss"),
    [(None, "not known"), (0, "none seen"), (5, "at most ")],
)
def test_losses_are_known_only_where_they_are_counted(
    retransmits: int | None, loss: str, tmp_path: Path
) -> None:
    model = of_iperf3(tmp_path / "iperf3.json", 0.5, 10, retransmits)
    assert dict(report.facts(model))["random loss"].startswith(loss)
    unknown = retransmits is None
    assert ("Losses are not known" in report.bounds(model)) == unknown
    assert any("losses are not known" in note for note in model.notes) == unknown


@pytest.mark.parametrize("interval_s", [0.1, 0.5, 1.0])
def test_writes_that_come_whole_are_no_faster_path(tmp_path: Path, interval_s: float) -> None:
    model = of_iperf3(tmp_path / "iperf3.json", interval_s, 10)
    rate = model.levels[0].rate_bps
    assert rate.low <= MBPS * 1e6 <= rate.high and rate.high < 1.15 * MBPS * 1e6
    assert model.queue_packets.value <= QUEUE_MS * MBPS * 1e3 / 8 / 1514


def test_a_log_without_min_rtt_bounds_the_baseline(tmp_path: Path) -> None:
    rtt = of_iperf3(tmp_path / "iperf3.json", 0.1, 10).rtt_us
    assert rtt.kind == Kind.AT_MOST
    assert rtt.low <= BASE_MS * 1000 <= rtt.high


def test_a_first_poll_without_an_rtt_is_no_min_rtt(tmp_path: Path) -> None:
    """The log begins before the handshake's end."""
    path = tmp_path / "iperf3.json"
    of_iperf3(path, 0.1, 10)
    log = json.loads(path.read_text())
    log["intervals"][0]["streams"][0]["rtt"] = 0
    path.write_text(json.dumps(log))
    (flow,) = sources.read(path).flows
    assert flow.acks["srtt_us"][0] == 0
    rtt = estimate(flow, "log").rtt_us
    assert rtt.kind == Kind.AT_MOST and rtt.low <= BASE_MS * 1000 <= rtt.high


@pytest.mark.parametrize("begun", [0.0, 0.5, 0.75])
def test_what_was_sent_before_the_log_is_no_goodput(begun: float, tmp_path: Path) -> None:
    """A log that begins in mid-flow: ss counts from the flow's start."""
    (path,) = (TRACES / "cubic-03-lossy").glob("ss.txt*")
    with streams.open_text(path) as stream:
        lines = stream.read().splitlines(keepends=True)
    times = [k for k, line in enumerate(lines) if line[:-1].replace(".", "").isdigit()]
    (tmp_path / "ss.txt").write_text("".join(lines[times[int(begun * len(times))] :]))
    flow = max(sources.read(tmp_path / "ss.txt").flows, key=lambda one: len(one.acks))
    acks = flow.acks
    grown, lasts_us = int(acks["acked"].sum()), int(acks["now_us"][-1])
    found = estimate(flow, "log").seen
    assert found is not None
    assert found.goodput_mbps == pytest.approx(grown * (flow.mss or 0) * 8 / lasts_us)
    assert found.retransmission_rate == pytest.approx(int(acks["lost"].sum()) / grown)


@pytest.mark.parametrize(
    ("name", "mbps"),
    [("bbr_20M_40ms_loss05", 20), ("cubic_20M_40ms_q60", 20), ("reno_50M_20ms_q30", 50)],
)
def test_reports_of_real_links(realdata: Path, name: str, mbps: int) -> None:
    (flow,) = sources.read(realdata / "paired" / name / "iperf3.json").flows
    rate = estimate(flow, name).levels[0].rate_bps
    assert rate.low <= mbps * 1e6
    assert rate.high >= mbps * 1e6 or rate.kind == Kind.AT_LEAST


def test_what_a_log_cannot_show_is_not_called_unseen(tmp_path: Path) -> None:
    facts = dict(report.facts(of_iperf3(tmp_path / "iperf3.json", 0.1, 10)))
    for name in ("jitter", "rivals", "ACKs gathered for", "policer's bucket"):
        assert facts[name] == "not known"
