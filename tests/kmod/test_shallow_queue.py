# SPDX-License-Identifier: GPL-2.0-only
"""A queue of a third of the BDP: what a probe loses there is not asked for again at once."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from .lab import drive

PATH = """
seconds = 10
topology = "path"
[link]
rate_bps = 15_000_000
rtt_us = 16_000
queue_packets = 6
"""
RULE = "return ca->congestion >= 0 &&"
STEADY = 4096 // 16


def test_it_does_not_grow_on_the_loss_it_made(tmp_path: Path) -> None:
    result, table = drive(PATH, tmp_path / "rule")
    rows = [row for row in table.to_pylist() if row["why"] == "network"]
    full = 0
    for row, after in pairwise(rows):
        if row["congestion"] < 0 or row["rtt_variation"] >= STEADY:
            continue
        if row["loss_rate"] <= 2 * row["loss_rate_mean"]:
            continue
        assert row["target"] <= max(row["cwnd"], 4)
        assert after["phase"] == 1, "the probe goes on behind its first step"
        full += 1
    assert full > 20
    without, _ = drive(PATH, tmp_path / "none", ndm_tcp=[(RULE, "return false &&")])
    ours, theirs = result["flows"][0], without["flows"][0]
    lost, more = (flow["retransmissions"] / flow["segments"] for flow in (ours, theirs))
    print(f"\nsent again: {lost:.2%}, without the rule {more:.2%}")
    print(f"Mbit/s: {ours['goodput_mbps']}, without the rule {theirs['goodput_mbps']}")
    assert lost < 0.8 * more and ours["goodput_mbps"] > 0.98 * theirs["goodput_mbps"]
