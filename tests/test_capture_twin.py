# SPDX-License-Identifier: GPL-2.0-only
"""The C that reads captures against its Python twin in tests/reference, ACK by ACK.

The twin finds packets with scapy's readers and shares no code with the C.
"""

from __future__ import annotations

import csv
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from ndm_tcp import files
from ndm_tcp.datasets.readers import capture, pcap, run_folder, sources, tcp_probe
from ndm_tcp.datasets.rounds import columns
from ndm_tcp.datasets.rounds.compute import rounds_of
from ndm_tcp.datasets.rounds.flow import FlowRecords, LossCause

from . import captures
from .captures import Captured
from .conftest import TRACES
from .reference import capture as twin
from .reference import pcap as twin_pcap
from .reference import rounds as twin_rounds

SHIPPED = sorted(str(p.relative_to(TRACES)) for p in TRACES.rglob("*.pcap*"))
NOT_ALIKE = {
    "zeek_ssh-dups.pcap": "copies of packets are left out in C",
    "tcptrace_pcap_v2.2.dmp.gz": "the twin does not know swapped lengths",
    "pcpp_pcapng-example.pcapng": "times before 1970 are left out in C",
}
COUNTERS = ("packets", "not_tcp", "cut_headers", "fragments")


def compare(path: Path) -> list[FlowRecords]:
    """Read with both; the flows, which are equal."""
    report, twin_report = pcap.CaptureReport(), twin_pcap.CaptureReport()
    ours, skipped = capture.read(path, None, report)
    theirs, twin_skipped = twin.read(path, None, True, twin_report)
    assert skipped == twin_skipped
    for name in COUNTERS:
        assert getattr(report, name) == getattr(twin_report, name), name
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs, strict=True):
        for column in mine.acks.dtype.names or ():
            where = np.flatnonzero(mine.acks[column] != other.acks[column])
            assert not len(where), (path.name, column, where[:5])
        assert (mine.loss_cause == other.loss_cause).all()
        assert (mine.rwnd_limited == other.rwnd_limited).all()
        assert np.array_equal(mine.captured_rtt_us, other.captured_rtt_us)
        assert (mine.flow_id, mine.mss) == (other.flow_id, other.mss)
        assert {key: mine.facts[key] for key in other.facts} == other.facts
    return ours


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_capture(name: str) -> None:
    assert compare(TRACES / name)


def test_every_capture_beside_the_tree(realdata: Path) -> None:
    found = sorted([*realdata.rglob("*.pcap*"), *realdata.glob("*.dmp.gz")])
    assert len(found) > 25
    assert sum(len(compare(path)) for path in found if path.name not in NOT_ALIKE) >= 7


@pytest.mark.parametrize("name", SHIPPED[::7])
def test_rounds_in_one_go_equal_those_of_the_records(name: str) -> None:
    """Rounds while reading (bounded memory), rounds of all ACKs, and numpy's give one table."""
    path = TRACES / name
    streamed = sources.read_rounds(path, files.sha256(path)).flows
    records, _ = capture.read(path)
    assert streamed and len(streamed) == len(records)
    for flow, held in zip(streamed, records, strict=True):
        table = columns.table(flow, "s", "train")
        assert table.equals(columns.table(rounds_of(held), "s", "train"))
        assert table.equals(twin_rounds.table(held, "s", "train"))


def test_rounds_with_causes_equal_numpys() -> None:
    for name in ("reno-03-lossy", "cubic-08-reorder", "bbr-04-lossy"):
        (flow,), _ = run_folder.read(TRACES / name)
        table = columns.table(rounds_of(flow), name, "")
        assert table.equals(twin_rounds.table(flow, name, ""))
        assert sum(table["loss_cause"].to_pylist()) > 0


@pytest.mark.parametrize("name", ["reno-03-lossy", "cubic-08-reorder", "bbr-04-lossy"])
def test_causes_of_loss_and_true_windows_are_the_twins(name: str) -> None:
    folder = TRACES / name
    drops: dict[int, list[tuple[int, int]]] = {}
    for row in csv.DictReader((folder / "drops.csv").read_text().splitlines()):
        cause = {"random": LossCause.RANDOM, "queue": LossCause.QUEUE}[row["cause"]]
        drops.setdefault(int(row["seq"]), []).append((int(row["t_ns"]) // 1000, int(cause)))
    run = tomllib.loads((folder / "run.toml").read_text())
    pcap_path, probe_path = (run_folder.find(folder, n) for n in ("sender.pcap", "tcp_probe.txt"))
    assert pcap_path is not None and probe_path is not None
    clock_s = (run["clock"]["realtime_ns"] - run["clock"]["monotonic_ns"]) / 1e9
    truth = twin.Truth(run["cc"], {}, None, tcp_probe.read_columns(probe_path), clock_s, drops)
    (theirs,), _ = twin.read(pcap_path, truth)
    (ours,), _ = run_folder.read(folder)
    assert ours.loss_cause is not None and theirs.loss_cause is not None
    assert (ours.loss_cause == theirs.loss_cause).all() and len(set(ours.loss_cause)) > 2
    assert ours.cwnd_source == theirs.cwnd_source
    for column in ours.acks.dtype.names or ():
        assert (ours.acks[column] == theirs.acks[column]).all(), column


def test_of_a_synack_sent_again_the_time_stamp_tells_which_was_answered(tmp_path: Path) -> None:
    """The second and third leave 10 ms apart; the ACK is for the second, after 20 ms."""
    made = Captured(tmp_path / "again.pcap")
    mss = b"\x02\x04\x05\xb4"
    for at_us, outward, flags, value, echo in (
        (0, False, captures.SYN, 1000, 0),
        (0, True, captures.SYN | captures.ACK, 5000, 1000),
        (1_005_000, True, captures.SYN | captures.ACK, 6005, 1000),
        (1_015_000, False, captures.SYN, 2015, 0),
        (1_015_000, True, captures.SYN | captures.ACK, 6015, 1000),
        (1_025_000, False, captures.ACK, 2025, 6005),
    ):
        options = mss * bool(flags & captures.SYN) + captures.stamps(value, echo)
        made.packet(at_us, outward, flags=flags, ack=1, options=options)
    made.transfer(1_025_000, 100, rtt_us=25_000)
    (flow,) = compare(made.write())
    assert flow.acks["min_rtt_us"][0] == 20_000


def after_hundred(folder: Path) -> Captured:
    """A connection whose first hundred segments are acknowledged, 20 ms after each left."""
    made = Captured(folder / "made.pcap")
    made.handshake(0, 20_000, 20_100)
    made.transfer(21_000, 100)
    return made


def test_an_ack_that_others_overtook_gives_no_row(tmp_path: Path) -> None:
    """Its SACK block counts for RACK; the kernel never counts that packet as delivered."""
    made = after_hundred(tmp_path)
    sent_us = 21_000 + 100_000 + 20_000
    for n in range(100, 103):
        made.data(sent_us + n, 1 + n * 1000, 1000)
    block = captures.sack(101_001, 102_001)
    made.ack(sent_us + 20_000, 99_001, options=block)
    made.ack(sent_us + 25_000, 103_001)
    (flow,) = compare(made.write())
    assert list(flow.acks["delivered"][-2:]) == [100, 102]
    assert list(flow.acks["acked"][-2:]) == [1, 2]
    assert (np.diff(flow.acks["delivered"].astype(int)) >= 0).all()


@pytest.mark.parametrize(
    ("repeated", "delivered"), [(0, 100), (1, 101), (2, 102), (3, 102)], ids=str
)
def test_segments_that_came_twice_are_delivered(
    tmp_path: Path, repeated: int, delivered: int
) -> None:
    """But no more than the sender repeated, which is two (tcp_dsack_seen())."""
    made = after_hundred(tmp_path)
    at_us = 21_000 + 100_000 + 20_000
    made.data(at_us, 98_001, 2000)
    made.data(at_us + 100, 100_001, 1000)
    for n in range(repeated):
        left = 98_001 + 1000 * (n % 2)
        made.ack(at_us + 20_000 + n, 100_001, options=captures.sack(left, left + 1000))
    made.ack(at_us + 21_000, 101_001)
    (flow,) = compare(made.write())
    assert flow.acks["delivered"][-1] == delivered + 1
    assert flow.facts["dsacks"] == repeated


def test_the_answer_to_a_keep_alive_is_no_segment_that_came_twice(tmp_path: Path) -> None:
    made = after_hundred(tmp_path)
    made.data(500_000, 100_000, 1)
    made.ack(520_000, 100_001, options=captures.sack(100_000, 100_001))
    made.data(600_000, 100_001, 1000)
    made.ack(620_000, 101_001)
    (flow,) = compare(made.write())
    assert flow.facts["dsacks"] == 0 and flow.acks["delivered"][-1] == 101


def test_what_a_late_ack_marked_begins_one_recovery(tmp_path: Path) -> None:
    """The next ACK covers all that was in flight: the flow is open, and the loss is counted."""
    made = after_hundred(tmp_path)
    sent_us = 21_000 + 100_000 + 20_000
    for n in range(100, 106):
        made.data(sent_us + n, 1 + n * 1000, 1000)
    made.ack(sent_us + 20_000, 99_001, options=captures.sack(101_001, 106_001))
    made.ack(sent_us + 40_000, 106_001)
    (flow,) = compare(made.write())
    assert flow.acks["lost"][-1] == 1 and list(flow.acks["ca_state"][-2:]) == [0, 0]


def overtake(made: Captured, at_us: int, seq: int) -> None:
    """Two segments that arrive the other way round."""
    made.data(at_us, seq, 1000)
    made.data(at_us + 100, seq + 1000, 1000)
    made.ack(at_us + 20_000, seq, options=captures.sack(seq + 1000, seq + 2000))
    made.ack(at_us + 20_100, seq + 2000)


def repeat(made: Captured, at_us: int, seq: int, probe: bool) -> None:
    """A segment that comes twice, as the last one in flight or behind its ACK, and one more."""
    made.data(at_us, seq, 1000)
    if not probe:
        made.ack(at_us + 20_000, seq + 1000)
    made.data(at_us + 60_000, seq, 1000)
    made.ack(at_us + 70_000, seq + 1000)
    made.data(at_us + 70_100, seq + 1000, 1000)
    twice = captures.sack(seq, seq + 1000)
    made.ack(at_us + 80_000, seq + 1000, options=twice)
    made.ack(at_us + 90_100, seq + 2000)


@pytest.mark.parametrize(
    ("overtaken", "twice", "probe", "lost"),
    [(0, 0, 0, 1), (1, 0, 0, 1), (0, 1, 0, 1), (1, 1, 0, 0), (1, 1, 1, 1)],
    ids=str,
)
def test_a_dsack_widens_racks_window_where_packets_overtake(
    tmp_path: Path, overtaken: int, twice: int, probe: int, lost: int
) -> None:
    """Of min_rtt / 4 a step: 28 ms after it left, a segment is late by 8, more than one step.

    Not for a probe, which says nothing of the order (RFC 8985, 7.4.2).
    """
    made = after_hundred(tmp_path)
    seq, at_us = 100_001, 200_000
    if overtaken:
        overtake(made, at_us, seq)
        seq, at_us = seq + 2000, at_us + 100_000
    if twice:
        repeat(made, at_us, seq, bool(probe))
        seq, at_us = seq + 2000, at_us + 100_000
    for n, later_us in enumerate((0, 1000, 8000)):
        made.data(at_us + later_us, seq + n * 1000, 1000)
    made.ack(at_us + 21_000, seq, options=captures.sack(seq + 1000, seq + 2000))
    made.ack(at_us + 28_000, seq, options=captures.sack(seq + 1000, seq + 3000))
    made.ack(at_us + 29_000, seq + 3000)
    (flow,) = compare(made.write())
    assert flow.acks["lost"][-3:].sum() == lost
    assert flow.facts["dsacks"] == twice


def test_the_applications_limit_ends_with_the_first_packet(tmp_path: Path) -> None:
    """What leaves behind the first ACK after a pause is not limited by it."""
    made = after_hundred(tmp_path)
    for n in range(2):
        made.data(500_000, 100_001 + n * 1000, 1000)
    made.ack(520_000, 101_001)
    made.data(520_100, 102_001, 1000)
    made.ack(521_000, 102_001)
    made.ack(540_100, 103_001)
    (flow,) = compare(made.write())
    assert list(flow.acks["app_limited"][-3:]) == [1, 1, 0]


step = st.tuples(
    st.sampled_from(
        [
            *("new", "new", "new", "ack", "ack", "ack", "sack", "dsack", "again", "hole"),
            *("byte", "fin", "close", "late"),
        ]
    ),
    st.integers(0, 40),
    st.integers(0, 30_000),
    st.integers(0, 3),
)


def random_transfer(path: Path, steps: list[tuple[str, int, int, int]], start: int) -> Path:
    """A connection of a sender that does whatever it is told, and a receiver that lies."""
    made = Captured(path)
    made.handshake(10**6, 10**6 + 20_000, 10**6 + 20_100, start - 1)
    now_us, nxt, una = 10**6 + 21_000, start, start
    for kind, a, wait_us, b in steps * 3:
        now_us += wait_us
        options = captures.stamps(now_us // 1000, now_us // 1000 - a)
        if kind in ("new", "hole"):
            nxt += 1000 * (kind == "hole" and a < 4)
            size = 1000 * (1 + a % 5) - 300 * (b == 1)
            made.data(now_us, nxt, size, options=options)
            nxt += size
        elif kind == "byte":  # a keep-alive, a probe of the window, or data
            made.data(now_us, (una - 1, nxt, nxt - 1)[a % 3], 1, options=options)
        elif kind == "fin":
            made.data(now_us, nxt, 0, flags=captures.FIN | captures.ACK, options=options)
        elif kind == "close":
            made.ack(now_us, nxt + a % 2, window=0, options=options)
            una = nxt
        elif kind == "again":
            seq = una + (nxt - una) * a // 41
            made.data(now_us, seq, 1000 * (1 + b), options=options)
            nxt = max(nxt, seq + 1000 * (1 + b))
        elif kind == "ack":
            una = max(una, una + (nxt - una) * a // 40)
            made.ack(now_us, una + b * (b == 3), window=a * 10, options=options)
        else:
            left = una + (nxt - una) * a // 41 - 2000 * (kind == "dsack")
            blocks = [left, left + 1000 * (b + 1), una, nxt][: 2 + 2 * (b % 2)]
            ack = max(start, una - 1000 * (kind == "late"))
            made.ack(now_us, ack, options=captures.sack(*blocks))
    return made.write()


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(step, min_size=40, max_size=150), st.sampled_from([1, 2**32 - 40_000, 2**31]))
def test_random_transfers(tmp_path: Path, steps: list[Any], start: int) -> None:
    path = random_transfer(tmp_path / "random.pcap", steps, start)
    refused = capture.read(path)[1]  # the twin takes them all
    assume(not {capture.REASONS[n] for n in (5, 8, 11, 14)} & set(refused))
    compare(path)
