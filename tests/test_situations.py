# SPDX-License-Identifier: GPL-2.0-only
"""What captures of real networks are like: each case is handled, or refused by name."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ndm_tcp import core
from ndm_tcp.datasets.readers import capture, pcap, run_folder
from ndm_tcp.datasets.rounds.flow import FlowRecords
from ndm_tcp.errors import NdmError

from . import captures
from .captures import ACK, FIN, SYN, Captured


def sorted_by_time(made: Captured) -> Captured:
    made.records.sort(key=lambda record: struct.unpack_from("<II", record))
    return made


def plain(path: Path, n: int = 150, seq: int = 1) -> Captured:
    """A whole connection, n segments."""
    made = Captured(path)
    made.handshake(1_000_000, 1_020_000, 1_020_050, seq - 1)
    made.transfer(1_021_000, n, seq)
    return made


def read(made: Captured) -> tuple[list[FlowRecords], dict[str, int], pcap.CaptureReport]:
    report = pcap.CaptureReport()
    flows, skipped = capture.read(sorted_by_time(made).write(), None, report)
    return flows, dict(skipped), report


def outward(record: bytes) -> bool:
    return record[16 + 12 : 16 + 16] == captures.SENDER[0]


def test_one_way_captures_are_refused(tmp_path: Path) -> None:
    made = plain(tmp_path / "x.pcap")
    made.records = [r for r in made.records if outward(r)]
    assert read(made)[:2] == ([], {"no ACK direction captured: no RTT": 1})
    made = plain(tmp_path / "x.pcap")
    made.records = [r for r in made.records if not outward(r)]
    assert read(made)[0] == []


def test_a_connection_without_data_is_not_called_one_way(tmp_path: Path) -> None:
    made = Captured(tmp_path / "x.pcap")
    made.handshake(1_000_000, 1_020_000, 1_020_050, 0)
    (reason,) = read(made)[1]
    assert re.fullmatch(r"fewer than \d+ data segments", reason)


def test_sequence_numbers_may_wrap(tmp_path: Path) -> None:
    (low,), _, _ = read(plain(tmp_path / "x.pcap"))
    for seq in (2**32 - 70_000, 2**31 - 70_000):
        (high,), _, _ = read(plain(tmp_path / "x.pcap", seq=seq))
        assert np.array_equal(low.acks, high.acks)


def with_stamps(path: Path, rtt_us: int, answer_us: int, n: int = 200) -> Captured:
    """Mid-flow packets with time stamps: ACKs after `rtt_us`, data after `answer_us` from these."""
    made = Captured(path)
    now_us, echo = 1_000_000, 900
    for i in range(n):
        made.data(now_us, 1 + i * 1448, 1448, options=captures.stamps(now_us // 1000, echo))
        now_us += rtt_us
        echo = now_us // 1000
        made.ack(
            now_us,
            1 + (i + 1) * 1448,
            options=captures.stamps(echo, (now_us - rtt_us) // 1000),
        )
        now_us += answer_us
    return made


def test_mid_flow_starts_have_no_window_scale_but_the_rest(tmp_path: Path) -> None:
    (flow,), _, _ = read(with_stamps(tmp_path / "x.pcap", 20_000, 50))
    assert flow.facts["handshake"] == 0 and flow.mss == 1448
    assert flow.facts["window_scale"] == -1
    assert flow.rwnd_limited is not None and not flow.rwnd_limited.any()
    assert abs(int(flow.acks["srtt_us"][-1]) - 20_000) <= 1


@pytest.mark.parametrize(
    ("sizes", "mss"),
    [
        ([2896] * 60 + [1448] * 5 + [4344] * 3, 1448),
        ([4344] * 40 + [2896] * 39 + [5792] * 3 + [733], 1448),
        ([2856] * 50 + [4284] * 20 + [1428], 1428),
        ([8948] * 70 + [3000], 8948),  # jumbo frames; the last has the rest
        ([8948] * 70 + [6052] * 10, 8948),
        ([1448] * 60 + [724] * 10, 1448),
    ],
)
def test_super_packets_of_mid_flow_are_no_segments(
    tmp_path: Path, sizes: list[int], mss: int
) -> None:
    made, now_us, seq = Captured(tmp_path / "x.pcap"), 1_000_000, 1
    draw = np.random.default_rng(1)
    for size in draw.permutation(sizes[:-1]).tolist() + sizes[-1:]:
        made.data(now_us, seq, size)
        seq += size
        made.ack(now_us + 20_000, seq)
        now_us += 3000
    (flow,), _, _ = read(made)
    assert flow.facts["handshake"] == 0 and flow.mss == mss


@pytest.mark.parametrize(
    ("clock_us", "kernel_us"),
    [
        pytest.param(lambda us: us // 1000, 20_000, id="ms"),
        pytest.param(lambda us: (us + 400) // 1000 + 2**32 - 1_050, 21_000, id="wraps"),
        pytest.param(lambda us: us, 20_300, id="us"),
        pytest.param(lambda us: us // 4000, 20_300, id="4 ms"),
        pytest.param(lambda us: us * 101 // 100_000, 20_300, id="drifts"),
    ],
)
def test_the_rtt_of_a_timestamp_is_rounded_as_in_the_kernel(
    tmp_path: Path, clock_us: Callable[[int], int], kernel_us: int
) -> None:
    """Of a retransmitted packet only the timestamp shows it; other clocks stay as captured."""
    made = Captured(tmp_path / "x.pcap")
    made.handshake(980_000, 1_000_000, 1_000_050)
    for i in range(200):
        at_us = 1_001_003 + i * 1003
        made.data(at_us, 1 + i * 1000, 1000, options=captures.stamps(clock_us(at_us), 9))
        if i < 199:
            made.ack(at_us + 20_300, 1001 + i * 1000, options=captures.stamps(9, clock_us(at_us)))
    at_us = 1_500_300
    made.data(at_us, 199_001, 1000, options=captures.stamps(clock_us(at_us), 9))
    made.ack(at_us + 20_300, 200_001, options=captures.stamps(9, clock_us(at_us)))
    (flow,), _, _ = read(made)
    assert flow.captured_rtt_us is not None
    assert (flow.acks["rtt_us"][1:-1] == 20_300).all()
    assert (flow.captured_rtt_us[1:] == 20_300).all()
    assert flow.acks["rtt_us"][-1] == kernel_us


def test_receiver_side_captures_are_refused_without_a_handshake_too(tmp_path: Path) -> None:
    """The receiver's ACKs follow the data at once, the data the ACKs after a round trip."""
    why = "the sender's RTT is not visible; capture where data are sent"
    reason = f"captured near the receiver: {why}"
    assert read(with_stamps(tmp_path / "x.pcap", 50, 20_000))[:2] == ([], {reason: 1})


@pytest.mark.parametrize("rtt_us", [300, 2_000, 200_000])
def test_sender_side_captures_are_not_mistaken(tmp_path: Path, rtt_us: int) -> None:
    assert len(read(with_stamps(tmp_path / "x.pcap", rtt_us, 40))[0]) == 1


@pytest.mark.parametrize("more", [True, False])
def test_a_flow_starts_with_its_handshake(tmp_path: Path, more: bool) -> None:
    """As the kernel module does, or behind a request that was acknowledged alone."""
    made = Captured(tmp_path / "x.pcap")
    made.handshake(1_000_000, 1_020_000, 1_020_050, 0)
    if not more:
        made.data(1_020_100, 1, 100)
        made.ack(1_040_100, 101)
    made.transfer(1_041_000, 150, 1 if more else 101)
    (flow,), _, _ = read(made)
    rounds = core.replay(flow.acks)
    assert rounds.valid[0] and rounds.ack_index[0] == 1
    assert flow.acks["acked"][:3].tolist() == ([0, 1, 1] if more else [1, 1, 1])
    if more:
        assert flow.acks[0]["rtt_us"] == flow.acks[0]["srtt_us"] == 20_000


@pytest.mark.parametrize("packets", [9, 10])
def test_so_does_one_whose_first_window_is_acknowledged_at_once(
    tmp_path: Path, packets: int
) -> None:
    """Ten packets may be all that the window allowed; fewer were a request."""
    made = Captured(tmp_path / "x.pcap")
    made.handshake(1_000_000, 1_020_000, 1_020_050, 0)
    for number in range(packets):
        made.data(1_021_000 + number, 1 + number * 1000, 1000)
    made.ack(1_041_000, 1 + packets * 1000)
    made.transfer(1_041_100, 150, 1 + packets * 1000)
    (flow,), _, _ = read(made)
    rounds = core.replay(flow.acks)
    first = flow.acks[rounds.ack_index[0]]
    assert (int(first["acked"]), rounds.valid[0]) == (10 if packets == 10 else 1, True)


@pytest.mark.parametrize("seen_at_the_sender", [True, False])
def test_so_does_who_accepted_it(tmp_path: Path, seen_at_the_sender: bool) -> None:
    made = Captured(tmp_path / "x.pcap")
    mss = b"\x02\x04\x03\xe8"
    answer_us = 1_000_050 if seen_at_the_sender else 1_019_950
    made.packet(1_000_000, False, flags=SYN, options=mss)
    made.packet(answer_us, True, flags=SYN | ACK, ack=1, options=mss)
    made.packet(1_020_000, False, seq=1, ack=1)
    made.packet(1_020_020, False, seq=1, ack=1, payload=100)
    made.transfer(1_020_100, 150)
    flows, skipped, _ = read(made)
    if not seen_at_the_sender:
        assert not flows and "near the receiver" in str(skipped)
        return
    acks = flows[0].acks
    assert acks[0]["rtt_us"] == acks[0]["srtt_us"] == acks[0]["min_rtt_us"] == 19_950
    assert (acks["acked"][:3] == [0, 1, 1]).all() and len(acks) == 151
    rounds = core.replay(acks)
    assert rounds.ack_index[0] == 1 and rounds.valid[0]


def test_zero_windows_are_counted_and_hold_the_sender_back(tmp_path: Path) -> None:
    made = plain(tmp_path / "x.pcap")
    end = 1 + 150 * 1000
    made.data(2_000_000, end, 1000)
    made.ack(2_020_000, end + 1000, window=0)
    made.data(2_500_000, end + 1000, 1000)
    made.ack(2_520_000, end + 2000, window=0)
    (flow,), _, _ = read(made)
    assert flow.facts["zero_windows"] == 2
    assert flow.rwnd_limited is not None and flow.rwnd_limited[-1]


@pytest.mark.parametrize(("segments", "held"), [(20, True), (22, False)])
def test_a_window_that_every_ack_moves_on_holds_the_sender_back(
    segments: int, held: bool, tmp_path: Path
) -> None:
    """20 segments are in flight whenever an ACK comes: it makes room, but there was none."""
    made = Captured(tmp_path / "x.pcap")
    made.handshake(1_000_000, 1_020_000, 1_020_050, 0)
    for n in range(200):
        made.data(1_021_000 + n * 1000, 1 + n * 1000, 1000)
        made.ack(1_040_990 + n * 1000, 1 + (n + 1) * 1000, window=segments * 1000)
    (flow,), _, _ = read(made)
    assert flow.rwnd_limited is not None
    assert (flow.rwnd_limited[17:-20] == held).all() and not flow.rwnd_limited[:15].any()


def test_copies_of_packets_are_no_retransmissions(tmp_path: Path) -> None:
    """A mirror port shows packets again, a little later; a real repetition has a new id."""
    (once,), _, _ = read(plain(tmp_path / "x.pcap"))
    made = plain(tmp_path / "x.pcap")
    copies = []
    for record in made.records:
        us = int.from_bytes(record[4:8], "little") + 30
        copies.append(record[:4] + us.to_bytes(4, "little") + record[8:])
    made.records += copies
    (twice,), _, report = read(made)
    assert np.array_equal(once.acks, twice.acks) and twice.facts["retransmitted"] == 0
    assert report.duplicates == len(copies) == twice.facts["capture_duplicates"]
    made = plain(tmp_path / "x.pcap")
    made.data(1_180_500, 1 + 140 * 1000, 1000)
    (again,), _, report = read(made)
    assert again.facts["retransmitted"] == 1 and not report.duplicates


def test_copies_without_ids_are_known_by_their_time(tmp_path: Path) -> None:
    made = Captured(tmp_path / "x.pcap")
    for i in range(150):
        made.packet(1_000_000 + i * 1000, True, repeat=2, seq=1 + i * 1000, payload=1000, ip_id=0)
        made.ack(1_020_000 + i * 1000, 1 + (i + 1) * 1000, ip_id=0)
    (flow,), _, report = read(made)
    assert flow.facts["retransmitted"] == 0 and report.duplicates == 150


def test_packets_that_the_capture_lost_are_no_losses_of_the_network(tmp_path: Path) -> None:
    made = plain(tmp_path / "x.pcap")
    data = [number for number, record in enumerate(made.records) if outward(record)]
    del made.records[data[70]]
    (flow,), _, _ = read(made)
    assert flow.facts["retransmitted"] == 0 and not flow.acks["lost"].any()
    assert flow.facts["capture_holes"] == 1


def test_captures_with_many_holes_are_refused(tmp_path: Path) -> None:
    made = plain(tmp_path / "x.pcap", 300)
    data = [number for number, record in enumerate(made.records) if outward(record)]
    for number in data[20::10][::-1]:
        del made.records[number]
    flows, skipped, _ = read(made)
    assert not flows and skipped == {"the capture lost more than 5 % of the sender's packets": 1}


def test_ports_used_again_are_another_flow(tmp_path: Path) -> None:
    made = plain(tmp_path / "x.pcap")
    first, _, _ = read(plain(tmp_path / "y.pcap"))
    made.handshake(61_000_000, 61_020_000, 61_020_050, 3_000_000_000)
    made.transfer(61_021_000, 150, 3_000_000_001)
    flows, _, _ = read(made)
    assert len(flows) == 2 and len({flow.flow_id for flow in flows}) == 2
    for flow in flows:
        assert np.array_equal(flow.acks, first[0].acks)
        assert flow.facts["packets"] == 303


def test_a_repeated_syn_is_the_same_flow(tmp_path: Path) -> None:
    made = plain(tmp_path / "x.pcap")
    made.packet(999_000, True, flags=SYN, seq=0)
    flows, _, _ = read(made)
    assert len(flows) == 1 and flows[0].facts["packets"] == 304


def test_clocks_that_jump_back_are_refused(tmp_path: Path) -> None:
    made = plain(tmp_path / "x.pcap")
    sorted_by_time(made)
    back = [struct.unpack_from("<I", record)[0] - 1 for record in made.records[100:]]
    made.records[100:] = [
        struct.pack("<II", seconds, 0) + record[8:]
        for seconds, record in zip(back, made.records[100:], strict=True)
    ]
    flows, skipped = capture.read(made.write())
    assert not flows and skipped == {"time stamps go back by more than a second": 1}


def hoarder(made: Captured, megabytes: int, port: int, at_us: int = 1_000_000) -> None:
    """Data in segments of 48 bytes that nobody ever acknowledges."""
    made.sender = (made.sender[0], port)
    mss = b"\x02\x04\x00\x01"
    made.packet(at_us, True, flags=SYN, options=mss)
    made.packet(at_us + 20_000, False, flags=SYN | ACK, ack=1, options=mss)
    made.packet(at_us + 20_050, True, seq=1, ack=1)
    for i in range(megabytes * 16):
        made.data(at_us + 21_000 + i, 1 + i * 62_500, 62_500)
    made.ack(at_us + 50_000, 1)


def test_more_in_flight_than_tcp_allows_is_refused(tmp_path: Path) -> None:
    made = Captured(tmp_path / "x.pcap")
    hoarder(made, 60, 1000)
    flows, skipped, _ = read(made)
    assert not flows and skipped == {"too many segments in flight": 1}


def test_many_hoarders_together_do_not_fill_the_memory(tmp_path: Path) -> None:
    """A file of 3 MB whose segments in flight would take 3 GB."""
    made = Captured(tmp_path / "x.pcap")
    for port in range(1000, 1060):
        hoarder(made, 45, port)
    path = sorted_by_time(made).write()
    words = [sys.executable, "-c", MEASURE, str(path)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    peak_mb = int(done.stdout) / 1024
    assert path.stat().st_size < 4e6 and peak_mb < 1600


@pytest.mark.parametrize("fin_is_last", [True, False])
def test_flows_one_after_the_other_need_no_more_than_one(tmp_path: Path, fin_is_last: bool) -> None:
    """A flow that is over holds nothing: twenty of them have 2^24.2 segments in flight in sum."""
    made = Captured(tmp_path / "x.pcap")
    for number in range(20):
        at_us, end = 1_000_000 * (number + 1), 1 + 45 * 1_000_000
        hoarder(made, 45, 1000 + number, at_us)
        acked_us, fin_us = at_us + 60_000, at_us + (70_000 if fin_is_last else 55_000)
        made.ack(acked_us, end)
        made.packet(fin_us, True, seq=end, ack=1, flags=FIN | ACK)
    _, skipped = capture.read_rounds(sorted_by_time(made).write(), "0")
    assert "too many segments in flight" not in skipped, skipped


MEASURE = """
import resource, sys
from pathlib import Path
from ndm_tcp.datasets.readers import capture
flows, skipped = capture.read_rounds(Path(sys.argv[1]), "0")
assert skipped["too many segments in flight"], skipped
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def test_an_impossible_segment_size_is_no_division_by_zero(tmp_path: Path) -> None:
    for size in (b"\x00\x00", b"\x00\x01", b"\x00\x0c"):
        made = plain(tmp_path / "x.pcap")
        made.records = made.records[3:]
        for number, flags in enumerate((SYN, SYN | ACK)):
            options: Any = b"\x02\x04" + size + captures.stamps(1, 1)
            made.packet(number, not number, flags=flags, options=options, ack=1)
        flows, _, _ = read(made)
        assert all(flow.mss and flow.mss > 0 for flow in flows)


@pytest.mark.parametrize(
    "row", [f"{10**30},1,2,random", "1,-1,2,queue", "1,2,3,magic", "x,1,2,queue", "1"]
)
def test_bad_rows_of_a_runs_tables_are_one_line(tmp_path: Path, row: str) -> None:
    path = tmp_path / "drops.csv"
    path.write_text(f"t_ns,seq,len,cause\n1,2,3,queue\n{row}\n")
    with pytest.raises(NdmError, match=r"drops.csv:3: expected t_ns,seq"):
        run_folder.read_drops(path)
    path.write_text("t_ns,seq,len,cause\n" + "9" * 200_000)
    with pytest.raises(NdmError, match="not CSV"):
        run_folder.read_drops(path)
