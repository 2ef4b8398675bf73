# SPDX-License-Identifier: GPL-2.0-only
"""Path models of logs: what a format does not count is not given as measured."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ndm_tcp.datasets.readers import sources, streams
from ndm_tcp.datasets.rounds.flow import FlowRecords
from ndm_tcp.errors import NdmError
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


def ss_log(mbps: Sequence[float], more: str = "", from_s: float = 0.0) -> list[str]:
    """Polls of 20 s of flows between two hosts, 10 to 30 ms above a baseline RTT of 40.

    Args:
        mbps: of each flow.
        more: fields, in which {n} is the number of the poll and {ms} its time.
        from_s: of the first poll.
    """
    rng = np.random.default_rng(1)
    acked = np.zeros(len(mbps))
    polls = []
    for n in range(200):
        acked += np.array(mbps) * 1e5 / 8 * rng.uniform(0.97, 1.03, len(mbps))
        rtt_ms = 40 + rng.uniform(10, 30, len(mbps))
        lines = [
            f"ESTAB 0 9 10.0.0.1:{50_000 + k} 10.0.0.2:443 cubic rtt:{rtt_ms[k]:.3f}/2 mss:1448 "
            f"cwnd:90 bytes_acked:{acked[k]:.0f} delivered:{acked[k] // 1448:.0f} "
            f"{more.format(n=n, ms=100 * n)} minrtt:40"
            for k in range(len(mbps))
        ]
        polls.append("\n".join([f"{1_700_000_000 + from_s + 0.1 * n:.3f}", *lines, ""]))
    return polls


def flows_of(path: Path, polls: Sequence[str]) -> list[FlowRecords]:
    path.write_text("".join(polls))
    return sources.read(path).flows


@pytest.mark.parametrize(
    ("more", "kind"),
    [
        ("", Kind.MEASURED),
        ("rwnd_limited:{ms}ms(99.0%)", Kind.AT_LEAST),
        ("app_limited", Kind.AT_LEAST),
    ],
)
def test_what_holds_a_flow_back_bounds_its_rate(more: str, kind: Kind, tmp_path: Path) -> None:
    (flow,) = flows_of(tmp_path / "ss.txt", ss_log([10], more))
    acks = flow.acks
    acks["app_limited"][::8] = 0  # an application that is always limited is refused
    found = estimate(replace(flow, acks=acks), "log")
    assert found.levels[0].rate_bps.kind == kind
    assert (found.label_error_log2 >= 1) == (kind == Kind.AT_LEAST)


def test_streams_at_once_share_the_rate(tmp_path: Path) -> None:
    flows = flows_of(tmp_path / "ss.txt", ss_log([25, 30, 20, 25]))
    for flow in flows:
        found = estimate(flow, "log", flows)
        rate = found.levels[0].rate_bps
        assert rate.kind == Kind.AT_LEAST
        assert rate.value == pytest.approx(100e6 * 1500 / 1448, rel=0.02)
        assert len(found.rivals) == 3 and found.label_error_log2 == 1
        assert any("the rate is that of all, and a lower bound" in note for note in found.notes)
    alone = estimate(flows[0], "log", flows[:1])
    assert alone.levels[0].rate_bps.kind == Kind.MEASURED and not alone.rivals


def test_polls_in_the_wrong_order_are_of_one_flow(tmp_path: Path) -> None:
    polls = ss_log([10])
    (right,) = flows_of(tmp_path / "ss.txt", polls)
    for n in range(10, 190, 20):
        polls[n : n + 2] = polls[n + 1], polls[n]
    (swapped,) = flows_of(tmp_path / "swapped.txt", polls)
    assert (swapped.acks == right.acks).all()


def test_ports_used_again_begin_a_flow_whatever_it_has_sent(tmp_path: Path) -> None:
    """The first one's 900 retransmissions are not the second one's, whose bytes are more."""
    first = ss_log([1], "retrans:0/90{n}")
    second = ss_log([80], "retrans:0/{n}", from_s=60)
    flows = flows_of(tmp_path / "ss.txt", [*first, *second[100:]])
    assert [len(flow.acks) for flow in flows] == [200, 100]


def test_a_log_that_counts_nothing_delivered_says_so(tmp_path: Path) -> None:
    (flow,) = flows_of(tmp_path / "ss.txt", ss_log([10]))
    for name in ("acked", "delivered"):
        flow.acks[name] = 0
    with pytest.raises(NdmError, match="the log does not count them; poll with an ss that"):
        estimate(flow, "log")
