# SPDX-License-Identifier: GPL-2.0-only
"""Queues too short to be seen: who overflows one keeps below a ceiling for a while."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .. import replay
from .lab import CORE_BURSTS, Changes, answers, drive, measure, where

# A queue of a third of the BDP.
PATH = """
seconds = 10
topology = "path"
[link]
rate_bps = 15_000_000
rtt_us = 16_000
queue_packets = 6
"""
# One of an eighth.
SHORT = """
seconds = 10
topology = "path"
[link]
rate_bps = 30_000_000
rtt_us = 60_000
queue_packets = 20
"""
FASTER = PATH.replace("queue_packets = 6", "queue_packets = 6\nsteps = [[5.0, 30_000_000]]")
NOISY = """
seconds = 10
topology = "path"
[link]
rate_bps = 10_000_000
rtt_us = 40_000
queue_packets = 200
loss = 0.08
jitter_us = 2_000
reorder = false
"""
# Who comes last takes the queue that CUBIC keeps for a part of the lowest RTT.
BESIDE = """
seconds = 40
topology = "path"
[link]
rate_bps = 12_000_000
rtt_us = 20_000
queue_packets = 60
[[flows]]
cc = "cubic"
[[flows]]
sender = 1
start_s = 4
seconds = 36
"""
# Packets overtake others: some of those that count as lost are late.
OVERTAKING = """
seconds = 4
topology = "path"
[link]
rate_bps = 60_000_000
rtt_us = 18_000
queue_packets = 50
jitter_us = 4_500
reorder = true
"""
# Packets leave in groups, so no two samples of the rate are alike.
GROUPS = """
seconds = 1
topology = "path"
[link]
rate_bps = 600_000_000
rtt_us = 3_000
queue_packets = 50
offloads = true
[host]
read_wait_us = 100
"""
HOLDS = ("held = ca->ceiling_rounds &&", "held = false &&")
EMPTIES = ("!ndm_queue_empties(x)", "false")
# Loss does not keep it from growing.
BOLD = answers(13107, 65536)
ENDS = ("x[NDM_IN_LOSS_RATE] > x[NDM_IN_LOSS_RATE_MEAN])", "false)")


def ceilings(rows: list[dict[str, Any]]) -> list[int]:
    """How long each ceiling held; no target was above it."""
    found, held = replay.ceilings(rows)
    for row, ceiling in zip(rows, found, strict=True):
        assert ceiling is None or row["target"] <= max(ceiling, 4), row
    return held


def test_what_overflowed_is_not_tried_again_at_once(tmp_path: Path) -> None:
    result, table = drive(SHORT, tmp_path / "rule", [BOLD])
    held = ceilings(table.to_pylist())
    assert len(held) > 5 and max(held) >= replay.ROUNDS
    without = measure(SHORT, tmp_path / "none", [BOLD, HOLDS])
    ours, theirs = result["flows"][0], without["flows"][0]
    lost, more = (flow["retransmissions"] / flow["segments"] for flow in (ours, theirs))
    print(f"\nsent again: {lost:.2%}, without ceilings {more:.2%}; they held for {held} rounds")
    print(f"Mbit/s: {ours['goodput_mbps']}, without ceilings {theirs['goodput_mbps']}")
    assert lost < 0.5 * more and ours["goodput_mbps"] > 0.98 * theirs["goodput_mbps"]


def rule_and_none(
    path: str, to: Path, change: tuple[str, str], both: Changes = (BOLD,), draws: int = 2
) -> tuple[float, ...]:
    """Goodput, Mbit/s, and part retransmitted with the rule, and both with the change."""
    found: list[float] = []
    for name, changes in (("rule", [*both]), ("none", [*both, change])):
        runs = (measure(path, to / f"{name}-{n}", changes, n) for n in range(1, draws + 1))
        flows = [run["flows"][0] for run in runs]
        found.append(sum(flow["goodput_mbps"] for flow in flows) / len(flows))
        found.append(sum(flow["retransmissions"] / flow["segments"] for flow in flows) / len(flows))
    print(f"\nMbit/s, retransmitted; the same without the rule: {found}")
    return tuple(found)


def test_at_a_ceiling_packets_leave_evenly(tmp_path: Path) -> None:
    """A fifth more than the window in a part of a round overflows a queue of a few packets."""
    change = ("ndm_pacing_even_percent = 105;", "ndm_pacing_even_percent = 120;")
    # A draw has 1 to 12 % with the rule, 4 to 15 % without.
    ours, lost, theirs, more = rule_and_none(PATH, tmp_path, change, draws=16)
    assert lost < 0.85 * more and ours > 0.98 * theirs


def test_a_recovery_does_not_overflow_the_queue_again(tmp_path: Path) -> None:
    """Packets that have arrived behind the loss make no room for as many more."""
    path = PATH.replace("15_000_000", "42_000_000").replace("packets = 6", "packets = 2")
    path = path.replace("16_000", "8_200")
    change = ("ca->watchdog.paces_evenly ? tp->sacked_out : 0", "0")
    ours, lost, theirs, more = rule_and_none(path, tmp_path, change, ())
    assert ours > 1.05 * theirs and lost < more


def test_where_packets_overtake_others_less_arrives_than_was_sent(tmp_path: Path) -> None:
    change = ("used && !ndm_nothing_overtakes(x)", "false && !ndm_nothing_overtakes(x)")
    ours, lost, theirs, more = rule_and_none(OVERTAKING, tmp_path, change)
    assert lost < 0.7 * more and ours > 0.9 * theirs


def test_rates_that_scatter_do_not_shrink_the_window(tmp_path: Path) -> None:
    """Without losses, in many rounds of a ceiling, a little in each."""
    change = ("return ndm_max(ceiling, window);", "return ceiling;")
    ours, _, theirs, _ = rule_and_none(GROUPS, tmp_path, change, [BOLD, CORE_BURSTS])
    assert ours > 1.07 * theirs


def test_losses_of_others_end_it(tmp_path: Path) -> None:
    """Random ones, taken for congestion."""

    def seen(seed: int) -> tuple[int, dict[str, Any], list[int]]:
        result, table = drive(NOISY, tmp_path / f"rule-{seed}", [BOLD], seed)
        return seed, result, ceilings(table.to_pylist())

    seed, result, held = where(seen, lambda run: bool(run[2]))
    without = measure(NOISY, tmp_path / "none", [BOLD, ENDS], seed)
    ours, theirs = (found["flows"][0]["goodput_mbps"] for found in (result, without))
    print(f"\nMbit/s: {ours}, if they do not end {theirs}; they held for {held} rounds")
    assert held and sum(held) < 10 * len(held)
    assert ours > 1.2 * theirs


def test_a_queue_that_never_empties_is_a_rivals(tmp_path: Path) -> None:
    """What a ceiling leaves is CUBIC's."""
    shares = {}
    for name, changes in (("rule", [BOLD]), ("none", [BOLD, EMPTIES])):
        shares[name] = 0.0
        for seed in (1, 2):
            to = tmp_path / f"{name}-{seed}"
            if name == "rule":
                result, table = drive(BESIDE, to, changes, seed)
                ceilings(table.to_pylist())
            else:
                result = measure(BESIDE, to, changes, seed)
            theirs, ours = (flow["goodput_mbps"] for flow in result["flows"])
            shares[name] += ours / (ours + theirs) / 2
    print(f"\nshare beside CUBIC, with ceilings there too: {shares}")
    # 0.823 and 0.759 with these seeds on 2026-11-28.
    assert shares["rule"] > 1.05 * shares["none"]


def test_a_path_that_becomes_faster_is_found(tmp_path: Path) -> None:
    """A ceiling is of the path that was."""
    _, table = drive(FASTER, tmp_path)
    rows = table.to_pylist()
    end = rows[-1]["t_us"]
    before = [row["cwnd"] for row in rows if end - 6_000_000 < row["t_us"] < end - 5_000_000]
    after = [row["cwnd"] for row in rows if end - 1_000_000 < row["t_us"]]
    print(
        f"\nwindows up to {max(before)} before, {max(after)} after; {len(ceilings(rows))} ceilings"
    )
    assert max(after) > 1.5 * max(before)
