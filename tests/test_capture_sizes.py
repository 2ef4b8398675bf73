# SPDX-License-Identifier: GPL-2.0-only
"""Captured packets that hold several segments: which size these had on the wire."""

from __future__ import annotations

from pathlib import Path

import pytest

from ndm_tcp.datasets.rounds.flow import FlowRecords

from . import captures
from .captures import Captured
from .test_capture_twin import compare

RTT_US = 20_300
"""No ACK comes in the microsecond in which data leaves: then either may be first."""
MSS, PACKET = 1000, 10
"""Bytes that the handshake allows; segments in a captured packet."""
ROUND_US = 100_000


def one_round(made: Captured, at_us: int, seq: int, cuts: list[int], lost: set[int]) -> None:
    """Two packets, an ACK of every segment that arrives, and the lost ones once more.

    Args:
        made: takes the packets.
        at_us: when the packets leave.
        seq: their first byte.
        cuts: where the segments of both packets end on the wire, bytes from `seq`.
        lost: numbers of the segments that are lost.
    """
    edges, half = [0, *cuts], len(cuts) // 2
    made.data(at_us, seq, edges[half])
    made.data(at_us + 50, seq + edges[half], edges[-1] - edges[half])
    there: set[int] = set()
    arrivals = [(k, at_us + RTT_US + 100 * k) for k in range(len(cuts)) if k not in lost]
    arrivals += [(k, at_us + 2 * RTT_US + 5000 + 100 * k) for k in sorted(lost)]
    for k in sorted(lost):
        made.data(at_us + RTT_US + 5000 + 100 * k - 50, seq + edges[k], edges[k + 1] - edges[k])
    for k, now_us in arrivals:
        there.add(k)
        acked = next((n for n in range(len(cuts)) if n not in there), len(cuts))
        block = b""
        if k > acked:
            first = max(n for n in range(k) if n not in there) + 1
            block = captures.sack(seq + edges[first], seq + edges[k + 1])
        made.ack(now_us, seq + edges[acked], options=block)


def transfer(path: Path, cuts: list[int], losses: dict[int, set[int]]) -> FlowRecords:
    """30 rounds; losses: numbers of the lost segments by round."""
    made = Captured(path)
    made.handshake(1_000_000, 1_000_000 + RTT_US, 1_000_050 + RTT_US)
    for k in range(30):
        at_us = 1_100_000 + k * ROUND_US
        one_round(made, at_us, 1 + k * cuts[-1], cuts, losses.get(k, set()))
    (flow,) = compare(made.sort().write())
    return flow


def multiples(size: int) -> list[int]:
    """Ends of the full segments of two packets."""
    return [size * (k + 1) for k in range(2 * PACKET)]


LOSSES = {3: {4}, 7: {0, 12}, 11: {9}, 15: {17}, 16: {2, 5}, 20: {13}, 22: {6}, 24: {11}}


@pytest.mark.parametrize("wire", [MSS, 980, 940, 500, 300])
def test_segments_smaller_than_the_handshake_allows(tmp_path: Path, wire: int) -> None:
    """The path's MTU was found later, or MPTCP needs some of each: the losses are the same."""
    flow = transfer(tmp_path / "x.pcap", multiples(wire), LOSSES)
    lost = sum(map(len, LOSSES.values()))
    assert flow.mss == wire and flow.facts["segments"] == 30 * 2 * PACKET + lost
    assert (int(flow.acks["lost"].sum()), flow.facts["retransmitted"]) == (lost, lost)
    assert flow.acks["delivered"][-1] == 30 * 2 * PACKET


def test_packets_that_end_with_a_short_segment_keep_the_handshakes_size(tmp_path: Path) -> None:
    """9800 bytes, which ten segments of 980 would be, too."""
    half = [*range(MSS, 9001, MSS), 9800]
    flow = transfer(tmp_path / "x.pcap", half + [9800 + end for end in half], LOSSES)
    lost = sum(map(len, LOSSES.values()))
    assert flow.mss == MSS and int(flow.acks["lost"].sum()) == lost


def test_a_few_parts_of_segments_are_no_segment_size(tmp_path: Path) -> None:
    """A receiver whose window closes takes the beginning of a segment."""
    cuts = multiples(MSS)
    made = Captured(tmp_path / "x.pcap")
    made.handshake(1_000_000, 1_000_000 + RTT_US, 1_000_050 + RTT_US)
    for k in range(30):
        at_us, seq = 1_100_000 + k * ROUND_US, 1 + k * cuts[-1]
        one_round(made, at_us, seq, cuts, set())
        if k % 5 == 0:
            made.ack(at_us + RTT_US + 450, seq + 5300)
    (flow,) = compare(made.sort().write())
    assert flow.mss == MSS
