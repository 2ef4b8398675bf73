# SPDX-License-Identifier: GPL-2.0-only
"""Suites: what they are called, which runs they ask for, and where their paths lie."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from ndm_tcp.errors import NdmError
from ndm_tcp.lab.guest import jobs, suite, uml_build
from ndm_tcp.lab.paths import ccbench, scenario, sealed_paths, training_paths
from ndm_tcp.lab.score import board

from ..kernel.kbuild import copy_kmod
from ..test_lab_cli import refused

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


def test_a_run_of_another_scenario_or_module_runs_again(tmp_path: Path) -> None:
    """In a folder of recordings, whose names do not have what a run depends on."""
    text = ccbench.scenarios()["set1-12mbit-20ms-0.5bdp.toml"]

    def job(text: str, kmod: Path | None = None) -> jobs.Job:
        made = scenario.parse(text, "a", "a.toml")
        (job,) = suite.jobs_of([made], ["ndm_tcp"], 1, tmp_path, kmod=kmod)
        return job

    mine, other = job(text), job(text.replace("12000000", "3_000_000"))
    kmod = copy_kmod(tmp_path / "kmod")
    (kmod / "ndm_flow.h").write_text((kmod / "ndm_flow.h").read_text() + "/* another */\n")
    mine.folder.mkdir()
    (mine.folder / jobs.RESULT).write_text(json.dumps({"flows": [{"start_s": 0.0}]}))
    (mine.folder / "scenario.toml").write_text(text)
    assert other.folder == mine.folder and other.scenario.text != text
    assert jobs.finished(mine, True) and not jobs.finished(other, True), "of an earlier version"
    (mine.folder / jobs.TAG).write_text(mine.tag)
    assert jobs.finished(mine, True) and not jobs.finished(other, True)
    assert jobs.was_other(job(text, kmod)) and not jobs.was_other(job(text))


@pytest.mark.parametrize("changed", ["kernel_build", "programs"])
def test_a_run_of_another_guest_is_no_result(
    changed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = scenario.parse(
        'seconds = 1\ntopology = "path"\n[link]\nrate_bps = 1_000_000\n'
        "rtt_us = 1000\nqueue_packets = 9\n",
        *("a", "a.toml"),
    )
    kernel = uml_build.UmlKernel(tmp_path / "6.12-k", tmp_path / "vmlinux", "6.12")
    monkeypatch.setattr(jobs.uml_build, "built", lambda **_: kernel)
    monkeypatch.setattr(jobs, "guest_root", lambda: tmp_path / "r")
    job = suite.Job(made, "cubic", 1, tmp_path / "run")
    job.folder.mkdir()
    here = {"flows": [{"start_s": 0.0}], "kernel_build": "6.12-k", "programs": "r"}
    (job.folder / jobs.RESULT).write_text(json.dumps(here))
    assert jobs.finished(job, True)
    (job.folder / jobs.RESULT).write_text(json.dumps({**here, changed: "old"}))
    assert jobs.was_other(job) and not jobs.finished(job, True)
    there = {key: value for key, value in here.items() if key not in ("kernel_build", "programs")}
    (job.folder / jobs.RESULT).write_text(json.dumps({**there, "kernel": "simulator"}))
    assert jobs.finished(job, True), "the simulator has no guest"


def test_a_result_that_was_cut_short_is_none(tmp_path: Path) -> None:
    for text in ("", '{"flows": [', "\0", "{}", "[]", '{"flows": 3}'):
        (tmp_path / jobs.RESULT).write_text(text)
        assert jobs.load_result(tmp_path) is None


def test_a_ceiling_needs_a_loopback_scenario(tmp_path: Path, capsys: Any) -> None:
    words = ["lab", "board", "fairness/late-flow.toml", "--cc", "ceiling", "-o", tmp_path]
    said = refused(words, capsys)
    assert said.startswith("ndm: --cc ceiling: only for loopback scenarios")


def test_a_changed_trace_is_another_path(tmp_path: Path) -> None:
    text = 'seconds = 1\ntopology = "path"\n[link]\ntrace = "a.trace"\nrtt_us = 1000\n'
    (tmp_path / "a.toml").write_text(text + "queue_packets = 9\n")
    tags = set()
    for step in (1, 4, 1):
        trace = "".join(f"{ms}\n" for ms in range(1, 1000, step))
        (tmp_path / "a.trace").write_text(trace)
        made = scenario.load(tmp_path / "a.toml")
        tags.add((suite.tag(made, "cubic"), board.where(made, False)))
    assert len(tags) == 2


@pytest.mark.parametrize(
    ("link", "drained"),
    [
        ("rate_bps = 10_000_000\nsteps = [[1.0, 20_000]]", 5_010_000),
        ("rate_bps = 10_000\nsteps = [[1.0, 8_000_000], [1.5, 100_000]]", 2_030_000),
        ("rate_bps = 10_000_000\nsteps = [[1.0, 1_000_000]]", 0),
        ("rate_bps = 100_000\nsteps = [[1.0, 100_000]]", 0),
        ("rate_bps = 20_000", 0),
        ("rate_bps = 20_000\nsteps = [[1.0, 40_000]]", 0),
        ("rate_bps = 2_000_000\nsteps = [[1.0, 400_000], [5.0, 90_000]]", 1_200_000),
    ],
)
def test_a_link_that_ends_slow_is_emptied_at_its_mean_rate(link: str, drained: int) -> None:
    """Or a run would wait for minutes, and goodput count them."""
    text = f'seconds = 2\ntopology = "path"\n[link]\nrtt_us = 1000\nqueue_packets = 90\n{link}\n'
    made = scenario.parse(text, "a", "a.toml").link
    assert made is not None
    at_s, bps = made.steps[-1] if made.steps else (0.0, 0)
    if drained:
        assert bps == drained
        assert at_s == pytest.approx(2 + 6 * (0.001 + 90 * 1514 * 8 / drained))
    else:
        assert at_s <= 2


def test_a_slow_end_is_emptied_only_when_all_have_sent() -> None:
    """A flow begins RTTs later than the scenario says; the fast link would carry its last data."""
    text = 'seconds = 2\ntopology = "path"\n[link]\nrtt_us = 100_000\nqueue_packets = 90\n'
    text += "rate_bps = 10_000_000\nsteps = [[1.0, 20_000]]\nrtt_steps = [[0.5, 150_000]]\n"
    text += "[[flows]]\n[[flows]]\nstart_s = 1.0\nsender = 1\nextra_rtt_us = 50_000\n"
    made = scenario.parse(text, "a", "a.toml").link
    assert made is not None
    assert made.steps[-1][1] == round((10_000_000 + 2 * 20_000) / 3)
    assert made.steps[-1][0] > 3 + 6 * 0.2, "six of the longest RTTs, 200 ms, after 3 s"


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


def test_what_lies_here_goes_before_what_ships(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it does for one scenario."""
    shipped = len(suite.load_suite("fairness"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fairness").mkdir()
    assert len(suite.load_suite("fairness")) == shipped > 1, "no scenario in it"
    text = (suite.SUITES / "fairness" / "late-flow.toml").read_text()
    for name in ("mine.toml", "fairness/mine.toml"):
        (tmp_path / name).write_text(text)
    assert [s.name for s in suite.load_suite("fairness")] == ["mine"]
    assert [s.name for s in suite.load_suite("mine.toml")] == ["mine"]


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


def test_the_number_of_runs_is_no_part_of_a_path() -> None:
    """Results of one number of runs are results of the same path with another."""
    text = 'seconds = 1\n{}topology = "path"\n[link]\nrate_bps = 1_000_000\n'
    text += "rtt_us = 1000\nqueue_packets = 9\n"
    one, six, longer = (
        scenario.parse(text.format(more).replace("seconds = 1", seconds), "a", "a.toml")
        for more, seconds in (
            ("", "seconds = 1"),
            ("repeat = 6\n", "seconds = 1"),
            ("", "seconds = 2"),
        )
    )
    assert (one.repeat, six.repeat) == (1, 6)
    assert board.where(one, False) == board.where(six, False) != board.where(longer, False)
    assert suite.tag(one, "cubic") == suite.tag(six, "cubic")


def test_short_runs_of_random_paths_are_repeated() -> None:
    """Their bars are narrower than the errors of five runs."""
    short = [s for s in suite.load_suite("access") if s.seconds == 6]
    assert len(short) == 7 and all(s.repeat == 6 for s in short)
    assert all(s.repeat == 1 for s in suite.load_suite("validation-access"))


def test_a_suite_that_is_drawn_again_leaves_the_users_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "suite" / "mine.toml"
    mine.parent.mkdir()
    mine.write_text("mine")
    training_paths.write(mine.parent, {"drawn.toml": "drawn"})
    assert mine.read_text() == "mine" and (tmp_path / "suite" / "drawn.toml").read_text() == "drawn"
    assert f"{mine}: not drawn" in capsys.readouterr().err
