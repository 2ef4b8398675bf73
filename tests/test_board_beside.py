# SPDX-License-Identifier: GPL-2.0-only
"""A board beside an earlier one: of the same paths, or not at all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ndm_tcp.errors import NdmError
from ndm_tcp.lab.guest import suite
from ndm_tcp.lab.score import board, tables

from .conftest import ROOT
from .test_board import cell, outcome


def test_results_of_another_path_are_not_lent(tmp_path: Path) -> None:
    """A scenario that was edited since, and the simulator's beside the lab's."""
    now = outcome("ndm_tcp", 1, 9.1, 40, tmp_path).job.scenario
    then = replace(now, text=now.text + "queue_packets = 9\n")
    lent = cell("cubic", now.name, goodput_mbps=1)
    for path, simulated, refused in (
        (board.where(now, False), False, False),
        (board.where(then, False), False, True),
        (board.where(now, True), False, True),
        (board.where(now, False), True, True),
        ("", True, False),  # an older board
    ):
        earlier = [replace(lent, path=path)]
        if refused:
            with pytest.raises(
                NdmError, match=r"another path here .*; run it again, with --cc cub"
            ):
                board.require_same_paths(earlier, [now], ["ndm_tcp"], simulated)
        else:
            board.require_same_paths(earlier, [now], ["ndm_tcp"], simulated)
        board.require_same_paths(earlier, [now], ["cubic"], simulated)


def test_shipped_boards_know_their_paths() -> None:
    for path in (ROOT / "docs" / "board").glob("*.csv"):
        scenarios = suite.load_suite(path.stem.removeprefix("rivals-"))
        board.require_same_paths(tables.read(path), scenarios, [], False)
        assert all(cell.path for cell in tables.read(path))


def test_an_algorithm_that_failed_has_no_old_result(tmp_path: Path) -> None:
    """All its runs failed: its cell of the earlier board is of another module."""
    fails, ends_well = outcome("ndm_tcp", 1, 9.1, 40, tmp_path), outcome("reno", 1, 9, 40, tmp_path)
    runs = [replace(fails, result=None, error="guest panicked"), ends_well]
    name = fails.job.scenario.name
    earlier = [cell(cc, name, goodput_mbps=1) for cc in ("ndm_tcp", "reno", "cubic")]
    shown = board.build(runs, [fails.job.scenario], ["ndm_tcp", "reno"], "x", earlier)
    assert {c.cc: c.mean["goodput_mbps"] for c in shown.cells} == {"reno": 9, "cubic": 1}
    assert shown.failed
