# SPDX-License-Identifier: GPL-2.0-only
"""The watchdog: a network that starves or floods a path is not listened to for long."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from .lab import drive, outputs

CLEAN = """
seconds = 10
topology = "path"
[link]
rate_bps = 8_000_000
rtt_us = 40_000
queue_packets = 30
"""
DUE = "if (!ndm_watchdog_is_due(w))"
NO_GUARD = ("x[NDM_IN_LOSS_RATE] >= NDM_FLOOD_LOSS &&", "false &&")
STARVES = "out[0] = -20000;"
FLOODS = "out[0] = 65536;\n\tout[1] = -524288;"


def network(code: str, to: Path, watched: bool = True) -> tuple[dict[str, Any], pa.Table]:
    """A run with something else instead of the network; its result and its rounds.

    Without the guard of the control law, which leaves little of a flood.
    """
    changes = [outputs(code), NO_GUARD]
    if not watched:
        changes.append((DUE, "if (true)"))
    return drive(CLEAN, to, changes)


def by_watchdog(table: pa.Table) -> int:
    return table["why"].to_pylist().count("watchdog")


def test_it_never_bites_on_a_clean_path(tmp_path: Path) -> None:
    _, rounds = network("", tmp_path)
    assert rounds.num_rows > 100 and by_watchdog(rounds) == 0


@pytest.mark.parametrize("code", [STARVES, FLOODS], ids=["starves", "floods"])
def test_it_ends_what_the_network_does(code: str, tmp_path: Path) -> None:
    (tmp_path / "with").mkdir()
    (tmp_path / "without").mkdir()
    with_it, rounds = network(code, tmp_path / "with")
    without, others = network(code, tmp_path / "without", watched=False)
    print(f"\n{by_watchdog(rounds)} of {rounds.num_rows} rounds by the watchdog")
    for name, result in (("with", with_it), ("without", without)):
        flow = result["flows"][0]
        retransmitted = flow["retransmissions"] / flow["segments"]
        print(f"{name:8} {flow['goodput_mbps']} Mbit/s, {retransmitted:.1%} retransmitted")
    assert by_watchdog(others) == 0
    assert by_watchdog(rounds) >= 20  # of 32 each time, less those of a recovery
    mine, theirs = with_it["flows"][0], without["flows"][0]
    if code == STARVES:
        assert mine["goodput_mbps"] > 1.5 * theirs["goodput_mbps"]
    else:
        assert mine["retransmissions"] < 0.7 * theirs["retransmissions"]
        assert mine["goodput_mbps"] > 0.9 * theirs["goodput_mbps"]
