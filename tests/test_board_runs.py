# SPDX-License-Identifier: GPL-2.0-only
"""What a board makes of its runs: pages beside flows, constant windows, runs without an RTT."""

from __future__ import annotations

import math
from pathlib import Path

import orjson
import pytest

from ndm_tcp import selection
from ndm_tcp.lab.guest import suite
from ndm_tcp.lab.paths.scenario import Scenario, parse
from ndm_tcp.lab.score import board

LINK = 'seconds = 5\ntopology = "path"\n[link]\nrate_bps = 10_000_000\nrtt_us = 40_000\n'
LINK += "queue_packets = 60\n"
PAGE = "[web]\nobjects = 10\nbytes = 100_000\nstart_s = 2.0\n"
FLOW = '[[flows]]\ncc = "cubic"\n'
SENT = {"segments": 100, "retransmissions": 0, "zero_intervals": 0}


def made(text: str) -> Scenario:
    return parse(LINK + text, "a", "a.toml")


def outcome(scenario: Scenario, cc: str, mbps: float, folder: Path) -> suite.Outcome:
    flow = {**SENT, "goodput_mbps": mbps, "common_mbps": mbps, "share": 1.0, "rtt_mean_ms": 50.0}
    flow |= {"rtt_p95_ms": 60.0, "cc": cc}
    job = suite.Job(scenario, cc, 1, folder / f"a--{cc.replace(':', '-')}--1")
    return suite.Outcome(job, {"flows": [flow], "jain": 1.0})


def test_a_page_beside_a_flow_has_its_part_of_the_goodput(tmp_path: Path) -> None:
    beside = outcome(made(FLOW + PAGE), "reno", 7.5, tmp_path)
    assert beside.result is not None
    beside.result["web"] = {"mbps": 2.5, "segments": 80, "retransmissions": 1}
    figures = board.metrics(beside)
    assert figures.goodput_mbps == 2.5 and figures.share == pytest.approx(0.25)
    assert figures.jain == pytest.approx(100 / (2 * (7.5**2 + 2.5**2)))


def test_a_page_of_another_algorithm_is_not_the_tested_one(tmp_path: Path) -> None:
    page = PAGE + 'cc = "cubic"\n'
    beside = outcome(made(FLOW.replace("cubic", "$cc") + page), "reno", 7.5, tmp_path)
    assert beside.result is not None
    beside.result["web"] = {"mbps": 2.5, "segments": 80, "retransmissions": 40}
    run = selection._figures(beside)
    assert run.metrics.goodput_mbps == 7.5 and run.metrics.share == pytest.approx(0.75)
    assert run.metrics.retransmissions == 0 and run.fair == 0.5
    ours = outcome(made(FLOW + PAGE), "reno", 7.5, tmp_path)
    assert ours.result is not None
    ours.result["web"] = beside.result["web"]
    tested = selection._figures(ours)
    assert tested.fair == 0.5 and tested.metrics.share == pytest.approx(0.25)


def test_seconds_without_a_write_are_unknown_where_no_program_writes(tmp_path: Path) -> None:
    run = outcome(made(""), "cubic", 5.0, tmp_path)
    assert run.result is not None
    del run.result["flows"][0]["zero_intervals"]
    assert math.isnan(board.metrics(run).zero_intervals)


def test_a_page_beside_a_flow_begins_at_random() -> None:
    """Else all seeds of a path that draws nothing are one and the same accident."""
    begun = [web.start_s for seed in (1, 2, 3) if (web := made(FLOW + PAGE).begun(seed).web)]
    assert len(set(begun)) == 3 and all(2 <= start_s < 2.04 for start_s in begun)
    assert made(PAGE).begun(1) == made(PAGE), "nothing is beside it"


def test_constant_windows_that_were_asked_for_are_shown(tmp_path: Path) -> None:
    scenario = made("")
    ccs = ["fixed_cwnd:8", "fixed_cwnd:20", "cubic"]
    runs = [outcome(scenario, cc, 5.0 + n, tmp_path) for n, cc in enumerate(ccs)]
    shown = {cell.cc for cell in board.build(runs, [scenario], ccs, "x").cells}
    assert shown == set(ccs)
    both = suite.jobs_of([scenario], [*ccs, suite.CEILING], 1, tmp_path)
    assert [job.cc for job in both] == ccs, "no sweep on a path"


def test_json_has_null_where_there_is_no_rtt(tmp_path: Path) -> None:
    run = outcome(made(""), "cubic", 5.0, tmp_path)
    assert run.result is not None
    del run.result["flows"][0]["rtt_mean_ms"]
    text = board.json_text(board.build([run], [made("")], ["cubic"], "x"))
    (cell,) = orjson.loads(text)["cells"]
    assert cell["mean"]["rtt_mean_ms"] is None and cell["mean"]["goodput_mbps"] == 5.0
