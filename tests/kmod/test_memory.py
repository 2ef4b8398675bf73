# SPDX-License-Identifier: GPL-2.0-only
"""The network's memory of a flow is a block of its own; the kernel may have none.

The debugging kernel sees that none is leaked (test_debug.py): it switches algorithms, closes, and
unloads.
"""

from __future__ import annotations

from pathlib import Path

from .test_cases import play

ALLOCATION = "kmem_cache_zalloc(ndm_memories, GFP_NOWAIT | __GFP_NOWARN)"
SWITCHES = " ".join(f"cc:{name} send:200000" for name in ("cubic", "ndm_tcp", "reno", "ndm_tcp"))
SCRIPT = f"""
forth 60 delay 20ms rate 8mbit loss 1%
flow send 10.2.0.2 5000 ndm_tcp send:4000000 {SWITCHES} info
sleep 2
parameter flows
parameter rounds
parameter no_memory
"""


def test_a_flow_without_memory_does_as_reno(flow: Path, tmp_path: Path) -> None:
    """The classic rules go on; the network has no part in it, and the rounds are counted."""
    seen = play(SCRIPT, flow, tmp_path, ((ALLOCATION, "NULL"),))
    assert seen.value("no_memory") == seen.value("rounds") > 100
    assert seen.value("flows") == 0
    assert seen.rounds is not None
    rounds = seen.rounds.to_pylist()
    assert {row["why"] for row in rounds} == {"slow_start", "recovery", "watchdog"}
    assert not any(row["cwnd_gain"] or row["congestion"] for row in rounds)
    reno = [row for row in rounds if row["why"] == "watchdog"]
    # One packet more, or none if the window was not used; never below four.
    assert all(row["target"] in (max(row["cwnd"] + more, 4) for more in (0, 1)) for row in reno)
    assert sum(row["target"] == row["cwnd"] + 1 for row in reno) > 50


def test_a_flow_with_memory_uses_the_network(flow: Path, tmp_path: Path) -> None:
    seen = play(SCRIPT, flow, tmp_path)
    assert seen.value("no_memory") == 0 and seen.value("rounds") > 50
    assert seen.rounds is not None
    assert "network" in seen.rounds["why"].to_pylist()
    assert seen.value("flows") == 0


def test_the_answer_to_a_late_syn_does_not_count_as_a_round(flow: Path, tmp_path: Path) -> None:
    """Without SACK the core stays in Loss then, and calls cong_control() before init()."""
    script = """
for n in s d; do guest in $n sh -c 'echo 0 >/proc/sys/net/ipv4/tcp_sack'; done
ip -n d link set b1 address 02:00:00:00:00:02
ip -n r neigh replace 10.2.0.2 lladdr 02:00:00:00:00:02 dev b0 nud permanent
forth 60 delay 20ms loss 100%
{ sleep 2.5; forth 1000 delay 20ms rate 8mbit; } &
flow send 10.2.0.2 5000 ndm_tcp send:4000000 info
parameter no_memory
counter TCPTimeouts
"""
    seen = play(script, flow, tmp_path)
    assert seen.value("TCPTimeouts") > 0 and seen.value("no_memory") == 0
    assert seen.rounds is not None
    assert "watchdog" not in seen.rounds["why"].to_pylist()
