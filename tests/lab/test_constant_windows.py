# SPDX-License-Identifier: GPL-2.0-only
"""The search for the constant window that serves a path best, with runs that are made up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ndm_tcp.lab.experiments import constant_windows
from ndm_tcp.lab.guest import suite
from ndm_tcp.lab.paths import scenario

from .test_truth import PATH


def parse(more: str = "") -> scenario.Scenario:
    return scenario.parse(PATH + more, "name", "where")


@pytest.mark.parametrize(
    ("more", "fits"),
    [
        ("", True),
        ("jitter_us = 5_000\nloss = 0.01\n", True),
        ("steps = [[5.0, 5_000_000]]\n", False),
        ("rtt_steps = [[4.0, 60_000]]\n", False),
        ("[[flows]]\n[[flows]]\n", False),
        ("[web]\nobjects = 1\nbytes = 1_000_000\n", False),
    ],
)
def test_only_paths_that_one_window_may_serve(more: str, fits: bool) -> None:
    assert constant_windows.fits(parse(more)) == fits


def runs(best: int) -> Any:
    """What the lab would find where a window of so many packets fills the path without a queue."""

    def execute(jobs: list[suite.Job], *_: Any, **__: Any) -> Iterator[suite.Outcome]:
        for job in jobs:
            packets = int(job.cc.split(":")[1])
            flow = {
                "goodput_mbps": 10 * min(1, packets / best),
                "rtt_mean_ms": 50 * max(1, packets / best),
                "retransmissions": 0,
                "segments": 1000,
                "zero_intervals": 0,
                "share": 1.0,
            }
            yield suite.Outcome(job, {"flows": [flow]}, "")

    return execute


def test_the_table_shows_the_best_window_and_what_the_taught_one_loses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "clean.toml"
    file.write_text(PATH)
    # the BDP is 47 packets; 1.32 of it 62, the taught window 55
    monkeypatch.setattr(suite, "execute", runs(best=62))
    assert constant_windows.main([str(file), "-o", str(tmp_path / "runs")]) == 0
    head, _, row, _, mean = capsys.readouterr().out.splitlines()
    cells = dict(zip(head.strip("| ").split(" | "), row.strip("| ").split(" | "), strict=True))
    assert cells["BDP, packets"] == "47"
    assert cells["1.32"] == "+0.00" and float(cells["1.46"]) < 0 and float(cells["1.2"]) < 0
    assert cells["taught"] == "1.17" and cells["less the best"] == "-0.12"
    assert mean == "1 paths; the taught window loses 0.120"


def test_a_run_that_fails_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def execute(jobs: list[suite.Job], *_: Any, **__: Any) -> Iterator[suite.Outcome]:
        yield suite.Outcome(jobs[0], None, "no guest")

    file = tmp_path / "clean.toml"
    file.write_text(PATH)
    monkeypatch.setattr(suite, "execute", execute)
    assert constant_windows.main([str(file), "-o", str(tmp_path / "runs")]) == 2
    said = capsys.readouterr()
    assert said.out == "" and "no guest; run the command again" in said.err


def test_a_suite_without_such_a_path_has_an_empty_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "two.toml"
    file.write_text(PATH + "[[flows]]\n[[flows]]\n")
    assert constant_windows.main([str(file), "-o", str(tmp_path / "runs")]) == 2
    assert "no path of one flow and one rate" in capsys.readouterr().err


def test_each_zeroth_path_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for every in ("0", "-1"):
        assert constant_windows.main(["core", "-o", str(tmp_path / "x"), "--every", every]) == 2
        assert f"--every {every}: expected 1 or more" in capsys.readouterr().err
