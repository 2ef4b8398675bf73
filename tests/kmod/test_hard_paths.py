# SPDX-License-Identifier: GPL-2.0-only
"""Scripted cases against the real stack: heavy reordering, and peers without TCP's options."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from .lab import NOISE, answers, drive
from .test_cases import KEEPS_CUT, Seen, play

OVERTAKING = """
seconds = 8
topology = "path"
[link]
rate_bps = 7_760_000
rtt_us = 53_500
queue_packets = 345
jitter_us = 13_300
reorder = true
"""


def reordered(undo: bool, flow: Path, tmp_path: Path) -> Seen:
    """Delays of 1 to 59 ms, nothing lost: every retransmission was needless, as D-SACK shows."""
    tmp_path.mkdir()
    # Certain congestion, and a gain that takes back what a round grows by in any case.
    certain = (answers(-750, "NDM_OUT_CONGESTION_HI"),)
    changes = certain if undo else (*certain, KEEPS_CUT)
    script = """
state tcp_slow_start_after_idle 0
flow send 10.2.0.2 5000 ndm_tcp send:1500000 info sleep:1000 send:6000000 info & client=$!
sleep 2.2
forth 20000 delay 30ms 29ms
wait $client
for name in SackRecovery FullUndo PartialUndo DSACKUndo DSACKRecvSegs Timeouts; do
	counter TCP$name
done
"""
    return play(script, flow, tmp_path, changes)


def test_heavy_reordering_costs_no_window(flow: Path, tmp_path: Path) -> None:
    """Spurious retransmissions: nearly every recovery is undone, and the window comes back."""
    seen = reordered(True, flow, tmp_path / "with")
    spurious = int(seen.info[1]["retransmitted"]) - int(seen.info[0]["retransmitted"])
    undone = sum(seen.value(f"TCP{kind}Undo") for kind in ("Full", "Partial", "DSACK"))
    recoveries = seen.value("TCPSackRecovery")
    without = reordered(False, flow, tmp_path / "without")
    assert seen.rounds is not None and without.rounds is not None
    window, cut = (np.mean(each["cwnd"].to_numpy()[40:]) for each in (seen.rounds, without.rounds))
    print(f"\n{spurious} spurious retransmissions, {undone} of {recoveries} recoveries undone,")
    print(f"mean window {window:.0f} packets; without undo {cut:.0f}")
    assert seen.value("TCPTimeouts") == 0
    assert spurious > 50 and seen.value("TCPDSACKRecvSegs") > 0.8 * spurious
    assert recoveries > 15 and undone > 0.8 * recoveries
    assert window > 1.5 * cut


def test_a_round_lasts_a_round_trip_where_packets_overtake_others(tmp_path: Path) -> None:
    """A late packet's ACK is taken for that of its retransmission, sent milliseconds ago."""
    result, rounds = drive(OVERTAKING, tmp_path)
    (flow,) = result["flows"]
    lasted_ms = np.diff(rounds["t_us"].to_numpy()) / 1e3
    print(f"\nshortest round {lasted_ms.min():.1f} ms, lowest RTT {flow['rtt_min_ms']} ms")
    assert flow["retransmissions"] > 5 and lasted_ms.min() >= flow["rtt_min_ms"] - 0.1


def test_undone_recoveries_do_not_keep_slow_start_going(tmp_path: Path) -> None:
    """A queue of ten BDPs would fill: losses that were none begin slow start again and again."""
    steady = (answers(0, NOISE),)
    _, rounds = drive(OVERTAKING, tmp_path, steady, seed=3)
    starts = [why for why in rounds["why"].to_pylist() if why in ("slow_start", "goes_on")]
    print(f"\n{len(starts)} rounds of slow start; largest window {max(rounds['cwnd'].to_pylist())}")
    assert max(rounds["cwnd"].to_pylist()) < 345 / 2


@pytest.mark.parametrize("off", ["tcp_sack", "tcp_timestamps", "tcp_sack tcp_timestamps"])
def test_without_options_and_with_tiny_segments(off: str, flow: Path, tmp_path: Path) -> None:
    """Fewer RTT samples, no prior_delivered from duplicate ACKs; 300 bytes in a packet."""
    script = f"""
for name in {off}; do for n in s d; do
	guest in $n sh -c "echo 0 >/proc/sys/net/ipv4/$name"
done; done
ip -n s route change default via 10.1.0.1 advmss 300
ip -n d route change default via 10.2.0.1 advmss 300
forth 60 delay 20ms rate 8mbit loss 0.5%
flow send 10.2.0.2 5000 ndm_tcp send:3000000 info
"""
    seen = play(script, flow, tmp_path)
    assert seen.cwnd(0) < 400
    assert int(seen.info[0]["retransmitted"]) > 20
    assert seen.rounds is not None
    why = seen.rounds["why"].to_pylist()
    assert min(row["target"] for row in seen.rounds.to_pylist() if row["why"] == "network") >= 4
    assert why.count("network") > 10 and why.count("blind") < 0.1 * len(why)
