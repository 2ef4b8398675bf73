# SPDX-License-Identifier: GPL-2.0-only
"""Suites: what they are called, which runs they ask for, and where their paths lie."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from ndm_tcp.errors import NdmError
from ndm_tcp.lab.guest import jobs, suite
from ndm_tcp.lab.paths import ccbench, scenario, sealed_paths, training_paths
from ndm_tcp.lab.score import board

PATHS = tuple(training_paths.SUITES)


def test_runs_that_tell_little_are_repeated(tmp_path: Path) -> None:
    text = next(iter(ccbench.scenarios().values()))
    made = scenario.parse(f"repeat = 3\n{text}", "made-up", "made-up.toml")
    jobs = suite.jobs_of([made], ["reno"], 2, tmp_path)
    assert [job.seed for job in jobs] == [1, 2, 3, 4, 5, 6]
    assert len({job.folder for job in jobs}) == 6
    for bad in ("repeat = 0", "repeat = 1.5"):
        with pytest.raises(NdmError, match="made-up.toml: .*repeat"):
            scenario.parse(f"{bad}\n{text}", "made-up", "made-up.toml")


def test_a_run_whose_flows_began_at_other_times_runs_again(tmp_path: Path) -> None:
    """An earlier version began them all at the scenario's times."""
    text = ccbench.scenarios()["set2-12mbit-20ms-1bdp.toml"]
    (job,) = suite.jobs_of([scenario.parse(text, "a", "a.toml")], ["reno"], 1, tmp_path)
    job.folder.mkdir()
    for moved in (False, True):
        flows = (job.scenario if moved else job.scenario.begun(job.seed)).flows
        result = {"flows": [{"start_s": flow.start_s} for flow in flows]}
        (job.folder / jobs.RESULT).write_text(json.dumps(result))
        assert (jobs.finished(job, True) is None) == moved


def test_fixed_windows_are_parameters() -> None:
    assert suite.split_cc("fixed_cwnd:40") == ("fixed_cwnd", {"cwnd": 40})
    paced = {"cwnd": 40, "paced": 1}
    assert suite.split_cc("fixed_cwnd:40:paced") == ("fixed_cwnd", paced)
    for bad in ("cubic:3", "fixed_cwnd:x", "fixed_cwnd:40:", "fixed_cwnd:40:paced:1", "bbr:paced"):
        with pytest.raises(NdmError, match="only fixed_cwnd"):
            suite.algorithms(bad)


def test_algorithms_all_and_once() -> None:
    names = suite.algorithms("ndm_tcp,all,cubic")
    assert names[0] == "ndm_tcp" and names.count("cubic") == 1 and len(names) == 18
    with pytest.raises(NdmError, match="no algorithm"):
        suite.algorithms(" , ")


def test_suites_are_found_by_name_and_refused_by_name() -> None:
    assert len(suite.load_suite("published")) >= 24
    assert len(suite.load_suite("ccbench")) == len(ccbench.scenarios())
    with pytest.raises(NdmError, match=r"nowhere: no scenario file.*ccbench"):
        suite.load_suite("nowhere")


@pytest.mark.parametrize(
    ("folder", "made"),
    [
        (ccbench.FOLDER, ccbench.scenarios()),
        (sealed_paths.FOLDER, sealed_paths.scenarios()),
        *((training_paths.FOLDER / name, training_paths.scenarios(name)) for name in PATHS),
    ],
    ids=["ccbench", "sealed", *PATHS],
)
def test_generated_scenarios_are_current(folder: Path, made: dict[str, str]) -> None:
    assert {p.name for p in folder.iterdir()} == set(made)
    for name, text in made.items():
        assert (folder / name).read_text() == text
        scenario.parse(text, name, name)


def test_sealed_paths_are_the_networks_own() -> None:
    """Another network has others: nobody can choose one for the paths that he knows."""
    mine, other = sealed_paths.scenarios(), sealed_paths.scenarios("0123456789abcdef")
    assert len(mine) == len(other) >= 40
    assert not {*mine.values()} & {*other.values()}
    trained = {text.split("[link]")[-1] for text in training_paths.scenarios("training").values()}
    assert not {text.split("[link]")[-1] for text in mine.values()} & trained


def test_training_paths_stay_away_from_evaluation_paths() -> None:
    evaluated = [
        s.link
        for name in ("published", "ccbench", "fairness")
        for s in suite.load_suite(name)
        if s.link
    ]
    texts = [text for name in PATHS for text in training_paths.scenarios(name).values()]
    links = [tomllib.loads(text).get("link") for text in texts]
    for link in filter(None, links):
        for other in evaluated:
            same_rate = abs(link["rate_bps"] / other.rate_bps - 1) < 0.1
            same_rtt = other.rtt_us and abs(link["rtt_us"] / other.rtt_us - 1) < 0.1
            assert not (same_rate and same_rtt)


def test_a_board_says_whether_its_suite_may_steer_decisions() -> None:
    for name in ("access", "published/a1-extreme-jitter.toml", "mine,validation-jitter", "lan"):
        assert suite.is_development(name)
    for name in ("training", "variable", "mine.toml", "accessible"):
        assert not suite.is_development(name)
    assert board.standing("training", 1) == []
    (one,), (more,) = board.standing("access", 1), board.standing("lan", 3)
    assert "development board with one lab seed" in one and "3 lab seeds" in more
