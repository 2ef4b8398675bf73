# SPDX-License-Identifier: GPL-2.0-only
"""Replays meet their captures, or are rejected by name; predictions are right about the order."""

from __future__ import annotations

import json
import math
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ndm_tcp.cli import run_command
from ndm_tcp.datasets.readers import sources
from ndm_tcp.errors import NdmError
from ndm_tcp.intervals import interval
from ndm_tcp.lab.guest import run as lab_run
from ndm_tcp.lab.guest import suite, uml_build
from ndm_tcp.lab.guest.workers import Workers
from ndm_tcp.lab.paths.scenario import parse
from ndm_tcp.paths import model as models
from ndm_tcp.paths import predict_command, replay, report, scenario
from ndm_tcp.paths.estimate import estimate
from ndm_tcp.paths.label import label
from ndm_tcp.paths.model import Kind, Level, Rival, Seen, Value
from ndm_tcp.paths.predict import compare

from ..conftest import TRACES
from ..kmod.lab import need_kernel, need_simulator
from .made import at_least, model, prediction

HOST = TRACES / "cubic-01-clean"


def test_open_values_have_candidates() -> None:
    assert list(replay.candidates(model())) == [model()]
    queues = list(replay.candidates(model(queue_packets=at_least(30))))
    assert len(queues) == len(replay.QUEUE_FACTORS)
    both = model(queue_packets=at_least(30), rivals=(Rival("cubic", Kind.ASSUMED, 0.0),))
    made = list(replay.candidates(both))
    assert {m.rivals[0].cc for m in made} == set(replay.RIVAL_CCS)
    assert len({(m.rivals[0].cc, m.queue_packets.value) for m in made}) == 4
    known = model(rivals=(Rival("bbr", Kind.MEASURED, 1.0),))
    assert list(replay.candidates(known)) == [known]
    # A log counts losses and not where they came from: a full queue may have dropped all of them.
    log = model(loss=Value.exact(0.004, Kind.AT_MOST))
    assert [m.loss.value for m in replay.candidates(log)] == [0.004, 0.0]


def test_a_guessed_queue_is_not_called_a_bound() -> None:
    """The page said "at least 262 packets" of a queue that had 99."""
    first, guess = replay.candidates(model(queue_packets=at_least(30)))
    assert first.queue_packets.kind == Kind.AT_LEAST
    assert guess.queue_packets.kind == Kind.ASSUMED
    assert "lower bound" in report.bounds(first) and "assumed" in report.bounds(guess)
    assert dict(report.facts(guess))["queue"].startswith("assumed ")


def test_an_unknown_algorithm_is_tried_and_a_missing_one_refused() -> None:
    assert replay.algorithms(model(cc=None)) == replay.ASSUMED_CCS
    assert replay.algorithms(model(cc=None), "reno") == ("reno",)
    with pytest.raises(NdmError, match="^mine: the lab's kernel has no bbr3; .*--cc, such as bbr$"):
        replay.algorithms(model(cc="bbr3"))


def test_a_kept_run_is_of_this_scenario_and_this_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a folder of predictions would show a former network after an update."""
    shutil.copytree(uml_build.KMOD, tmp_path / "kmod")
    header = tmp_path / "kmod" / "generated" / "ndm_model.h"
    one = scenario.scenario(model())
    other = scenario.scenario(model(queue_packets=Value.exact(61.0)))
    assert suite.tag(one, "cubic") != suite.tag(other, "cubic")
    ours = suite.tag(one, "ndm_tcp")
    assert ours == suite.tag(one, "ndm_tcp", tmp_path / "kmod") != suite.tag(one, "cubic")
    (tmp_path / "new_cc.ko").write_text("")
    assert suite.tag(one, "ndm_tcp", tmp_path / "new_cc.ko") == ours, "the checkout's runs"
    header.write_text(header.read_text() + "\n")
    assert suite.tag(one, "ndm_tcp", tmp_path / "kmod") != ours
    assert suite.tag(one, "cubic", tmp_path / "kmod") == suite.tag(one, "cubic")
    beside = scenario.scenario(model(rivals=(Rival("ndm_tcp", Kind.MEASURED, 1.0),)))
    assert suite.tag(beside, "cubic", tmp_path / "kmod") != suite.tag(beside, "cubic")
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "ndm_tcp.ko").write_text(name)
    kos = [tmp_path / name / "ndm_tcp.ko" for name in ("a", "b")]
    assert len({suite.tag(one, "ndm_tcp", ko) for ko in kos}) == 2
    ours, constant = suite.tag(one, "ndm_tcp"), suite.tag(one, "fixed_cwnd")
    shutil.copytree(uml_build.FIXED_CWND, tmp_path / "fixed_cwnd")
    with (tmp_path / "fixed_cwnd" / "fixed_cwnd.c").open("a") as code:
        code.write("\n")
    monkeypatch.setattr(uml_build, "FIXED_CWND", tmp_path / "fixed_cwnd")
    assert suite.tag(one, "fixed_cwnd") != constant and suite.tag(one, "ndm_tcp") == ours


def test_the_closest_is_close_in_goodput_and_delay() -> None:
    seen = Seen(10, 50, 60, 0)
    assert replay.distance(seen, seen) == 0
    near, far = Seen(10.1, 52, 61, 0), Seen(10, 150, 200, 0)
    assert replay.distance(near, seen) < replay.distance(far, seen)
    unknown = Seen(10, math.nan, math.nan, 0)
    assert replay.distance(far, seen) < replay.distance(unknown, seen)
    assert replay.distance(far, unknown) == 0, "the capture has no RTT to compare with"


def test_a_capture_within_the_replays_of_a_random_path_is_met() -> None:
    """One capture of a lossy path is one draw of its losses; its replays are others."""

    def miss(*mbps: float) -> float:
        seen = model().seen  # 9 Mbit/s
        assert seen is not None
        return replay.Replay(model(), "cubic", seen, mbps, "", 1).goodput_miss

    assert miss(6.0, 12.0, 14.0) == 0.0
    assert miss(12.0, 14.0) == pytest.approx(1 / 3)
    assert miss(4.5, 8.1) == pytest.approx(-0.1)
    assert miss(9.0) == 0.0


def test_a_replay_that_misses_the_rtt_warns_of_its_predictions(tmp_path: Path) -> None:
    """The goodput alone decides on a model, but RTTs that it predicts are unreliable then."""
    made = model()
    assert made.seen is not None

    def replayed(times: float) -> replay.Replay:
        assert made.seen is not None
        seen = replace(made.seen, rtt_mean_ms=times * made.seen.rtt_mean_ms)
        return replay.Replay(made, "cubic", seen, (made.seen.goodput_mbps,), "", 1)

    assert not report.caution(replayed(0.8)) and not report.caution(replayed(1.2))
    assert "mean RTT is 36% shorter" in report.caution(replayed(0.64))
    assert "mean RTT is 50% longer" in report.caution(replayed(1.5))
    far = replace(replayed(0.5), goodput_mbps=(1e9,))
    assert not far.accepted and not report.caution(far), "rejected anyway"
    draws = replace(far, goodput_mbps=(0.5 * made.seen.goodput_mbps, 0.6 * made.seen.goodput_mbps))
    assert "-40 % (limit 10 %, the nearest draw)" in report.Replays.of({"a": draws}).rejected["a"]
    found = report.Replays.of({made.name: replayed(0.64)})
    assert found.replays and "accepted; RTT misses" in report.replay_rows(found)[0]
    page = report.write_page(tmp_path, found, [], {}).read_text()
    assert "predicted RTTs are unreliable" in page


def test_a_model_whose_draws_differ_gets_more_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three draws miss 9 Mbit/s; of ten one meets it. Draws that agree are enough to reject."""
    mbps: dict[str, list[float]] = {
        "varied": [6, 7, 7.5, 6, 8, 8, 7, 9.5, 6, 7],
        "wrong": [6, 6.1, 6.2],
        "right": [9] * 3,
    }
    ran: list[str] = []

    def execute(jobs: list[suite.Job], *_: object) -> Iterator[suite.Outcome]:
        for job in jobs:
            name = job.scenario.name.removesuffix("-0")
            ran.append(name)
            flow: dict[str, Any] = {"tested": True, "goodput_mbps": mbps[name][job.seed - 1]}
            flow |= {"rtt_mean_ms": 60.0, "rtt_p95_ms": 80.0, "retransmissions": 0}
            yield suite.Outcome(job, {"flows": [flow]})

    monkeypatch.setattr(suite, "execute", execute)
    made = [model(name, loss=Value(0.01, 0.009, 0.011)) for name in mbps]
    found = {
        n: one for n, one in replay.replay(made, tmp_path).items() if not isinstance(one, NdmError)
    }
    assert {name: one.accepted for name, one in found.items()} == {
        "varied": True,
        "wrong": False,
        "right": True,
    }
    assert found["varied"].goodput_mbps == tuple(mbps["varied"])
    assert Counter(ran) == {"varied": 13, "wrong": 3, "right": 3}, "the first three are read again"


def test_captures_are_replayed_and_a_wrong_model_is_rejected_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    need_kernel()
    folder = tmp_path / "paths"
    assert run_command(["path", "estimate", str(HOST), "-o", str(folder)]) == 0
    (good,) = models.load_all(folder)
    short = replace(good, seconds=6.0)  # half of it is enough, and quicker
    half = Level(0.0, Value.exact(good.levels[0].rate_bps.value / 2))
    for one in (replace(short, name="right"), replace(short, name="wrong", levels=(half,))):
        models.write(one, folder / f"{one.name}{models.SUFFIX}")
    (folder / f"{good.name}{models.SUFFIX}").unlink()
    capsys.readouterr()
    assert run_command(["path", "replay", str(folder), "--jobs", "1"]) == 0
    out = capsys.readouterr().out
    found = json.loads((folder / report.REPLAYS).read_text())
    (accepted,) = found["replays"]
    assert accepted["model"]["name"] == "right"
    assert good.seen is not None
    captured = pytest.approx(good.seen.goodput_mbps, rel=0.05)
    assert accepted["replayed"]["goodput_mbps"] == captured
    assert list(found["rejected"]) == ["wrong"]
    assert "wrong" in out and "misses the captured goodput by -" in out
    page = (folder / report.PAGE).read_text()
    assert [one["model"]["name"] for one in found["misses"]] == ["wrong"]
    assert page.count("data:image/svg+xml") == 2 and "Rejected: its replay misses" in page


POLICED = """
seconds = 8
topology = "path"
[link]
rate_bps = 12_000_000
rtt_us = 30_000
queue_packets = 1
bucket_packets = 120
"""


@pytest.mark.parametrize("cc", ["cubic", "bbr"])
def test_a_policer_is_found_with_its_rate_and_bucket(cc: str, tmp_path: Path) -> None:
    need_kernel()
    lab_run.run(parse(POLICED, "policed", "policed.toml"), cc, 1, tmp_path / "run")
    (flow,) = sources.read(tmp_path / "run").flows
    found = estimate(replace(flow, truth=None), "run")
    assert found.rate_bps == pytest.approx(12e6, rel=0.02)
    assert found.bucket_packets.value == pytest.approx(120, rel=0.1)
    assert (found.loss.value, found.loss.kind) == (0, Kind.ASSUMED) and not found.rivals
    labelled = label(replace(flow, truth=None))
    assert labelled.truth is not None and "bucket_packets" in labelled.truth.scenario


def test_a_policer_that_a_flow_seldom_meets_has_lower_bounds(tmp_path: Path) -> None:
    """CUBIC lets so small a bucket fill after each loss, and the tokens that come then are lost."""
    need_kernel()
    small = POLICED.replace("bucket_packets = 120", "bucket_packets = 18")
    small = small.replace("rtt_us = 30_000", "rtt_us = 17_300").replace("12_000_000", "16_500_000")
    small = small.replace("seconds = 8", "seconds = 15")
    lab_run.run(parse(small, "policed", "policed.toml"), "cubic", 1, tmp_path / "run")
    (flow,) = sources.read(tmp_path / "run").flows
    found = estimate(replace(flow, truth=None), "run")
    assert found.levels[0].rate_bps.kind is Kind.AT_LEAST
    assert 0.8 * 16.5e6 < found.rate_bps < 16.5e6
    assert found.bucket_packets.kind is Kind.ASSUMED and found.bucket_packets.value > 1
    assert label(replace(flow, truth=None)).truth is None


def test_shipped_paths_have_no_policer() -> None:
    """Every one has a queue; random loss without it looks most alike."""
    names = [p for p in sorted((TRACES / "lab").iterdir()) if "reno" in p.name or "bbr" in p.name]
    assert len(names) > 20
    for run in names:
        flow = sources.read(run).flows[0]
        assert estimate(replace(flow, truth=None), run.name).bucket_packets.value == 1, run.name


def test_a_folder_without_an_accepted_model_predicts_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    need_kernel()
    models.write(model(cc="bbr3"), tmp_path / f"mine{models.SUFFIX}")
    assert run_command(["path", "predict", str(tmp_path), "--cc", "cubic"]) == 2
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith("ndm: mine: rejected: the lab's kernel has no bbr3")
    page = tmp_path / report.PAGE
    assert "no model was accepted, so nothing can be predicted; " in said[-1]
    assert said[-1].endswith(f"see {page}, and estimate other captures") and page.is_file()


@pytest.mark.parametrize("simulated", [False, True])
def test_the_better_algorithm_of_a_lossy_path_is_predicted(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    simulated: bool,
) -> None:
    """CUBIC takes random loss for congestion, BBR does not: known for a decade."""
    need_kernel()
    if simulated:
        need_simulator()
    judged: list[bool] = []
    as_it_is = predict_command.replayed

    def spy(folder: Path, cc: str | None, where: Workers) -> report.Replays:
        judged.append(where.simulated)
        return as_it_is(folder, cc, where)

    monkeypatch.setattr(predict_command, "replayed", spy)
    lossy = model(loss=Value(0.02, 0.015, 0.025), seen=None, seconds=5.0)
    models.write(lossy, tmp_path / f"mine{models.SUFFIX}")
    command = ["path", "predict", str(tmp_path), "--cc", "cubic,bbr", "--draws", "3", "--json"]
    assert run_command([*command, "--jobs", "1", *["--simulate"] * simulated]) == 0
    found = json.loads(capsys.readouterr().out)["mine"]
    assert found["bbr"]["goodput_mbps"]["low"] > found["cubic"]["goodput_mbps"]["high"]
    assert len(found["bbr"]["draws"]) == 3
    page = (tmp_path / report.PAGE).read_text()
    assert "bbr gets the most goodput; cubic significantly less." in page
    assert "runs of 5 s; mean, lowest and highest of 3 draws" in page
    assert ("In the simulator: " in page) == simulated
    assert judged == [False]  # by the real stack, whose replay the page draws, too


def test_intervals_are_students() -> None:
    found = interval([0.1, 0.2, 0.3])
    # mean 0.2, s.e. 0.1 / sqrt(3), t = 4.303
    assert found.ratio == pytest.approx(1.2214, abs=1e-4)
    assert found.low == pytest.approx(0.9527, abs=1e-3)
    assert found.high == pytest.approx(1.5658, abs=1e-3)
    assert not found.significant
    assert interval([0.19, 0.2, 0.21]).significant
    assert not interval([0.2, 0.2]).significant  # two runs are no evidence


def test_bounds_of_a_model_are_bounds_of_its_predictions() -> None:
    assert report.bounds(model()) == ""
    deep = model(queue_packets=at_least(30))
    assert report.bounds(deep) == "The queue is a lower bound, so RTTs may be higher."
    fast = model(levels=(Level(0.0, at_least(1e6)), Level(1.0, Value.exact(2e6))))
    assert report.bounds(fast) == "The rate is a lower bound, so goodputs may be higher."
    given = model(levels=(Level(0.0, Value.exact(1e6, Kind.ASSUMED)),), seen=None)
    assert report.bounds(given) == "", "a profile's rate is no bound"


def test_the_last_algorithm_is_compared_over_all_paths(tmp_path: Path) -> None:
    """A table a path shows no one whether it pays on hundreds of them."""
    of = {
        name: {
            "cubic": prediction(10.0 + n, 11.0 + n, rtt_ms=100),
            "ndm_tcp": prediction(1.1 * (10.0 + n), 1.1 * (11.0 + n), rtt_ms=50),
        }
        for n, name in enumerate("abc")
    }
    what, rows = report.over_paths(of, {})
    assert what == "ndm_tcp less the others, on 3 paths; brackets: 95 % intervals"
    score = f"{math.log(1.1) + math.log(2) / 2:+.3f}"
    same = [f"x{v:.3f} [{v:.3f}, {v:.3f}]" for v in (1.1, 0.5)]
    assert rows == [["cubic", f"{score} [{score}, {score}]", *same, "3"]]
    assert report.over_paths(of, {"a": 1, "b": 1, "c": 2})[0].startswith(
        "ndm_tcp less the others, on 2 paths;"
    )
    silent = {**of, "d": {**of["a"], "cubic": prediction(9.0, 10.0, rtt_ms=math.nan)}}
    ((_, _, _, rtt, pairs),) = report.over_paths(silent, {})[1]
    assert (rtt, pairs) == (same[1], "4"), "of the paths that have RTTs"
    alone = {name: {"ndm_tcp": runs["ndm_tcp"]} for name, runs in of.items()}
    few = {name: of[name] for name in "ab"}
    assert not any(report.over_paths(one, {})[0] for one in (alone, few, {}))
    imported = [model(name, seen=None) for name in of]
    page = report.write_page(tmp_path, report.Replays.of({}), imported, of, "In the lab: ")
    assert f"In the lab: {what}." in page.read_text()
    assert what not in report.write_page(tmp_path, report.Replays.of({}), imported, {}).read_text()


def test_a_path_that_the_lab_cannot_run_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of 430 profiles, with RTTs of ten seconds, left the others without predictions."""
    flow = {"tested": True, "goodput_mbps": 9.0, "rtt_mean_ms": 50.0, "retransmissions": 0}
    failing = "b"

    def run(jobs: list[suite.Job], *_: object) -> Iterator[suite.Outcome]:
        for job in jobs:
            bad = job.scenario.name.startswith(failing) and job.cc == "bbr"
            yield suite.Outcome(job, None if bad else {"flows": [flow]}, "no reply" * bad)

    monkeypatch.setattr(suite, "execute", run)
    monkeypatch.setattr(uml_build, "build", lambda: None)
    for name in "abcd":
        models.write(model(name, seen=None), tmp_path / f"{name}{models.SUFFIX}")
    words = ["path", "predict", str(tmp_path), "--cc", "cubic,bbr", "--draws", "3"]
    assert run_command(words) == 1
    said = capsys.readouterr()
    assert said.err == "ndm: b: left out: no reply\n" and "b: runs" not in said.out
    assert "bbr less the others, on 3 paths" in said.out
    assert json.loads((tmp_path / report.PREDICTIONS).read_text()).keys() == set("acd")
    assert "<p>Not predicted: no reply.</p>" in (tmp_path / report.PAGE).read_text()
    failing = ""
    assert run_command(words) == 2
    assert "every model had a run that failed" in capsys.readouterr().err


def test_one_draw_has_no_range() -> None:
    (row,) = report.prediction_rows({"bbr": prediction(9.0)})
    assert row[:2] == ["bbr", "9.00"]
    (row,) = report.prediction_rows({"bbr": prediction(9.0, 10.0)})
    assert row[1] == "9.50 [9.00, 10.00]"


def test_algorithms_are_compared_draw_by_draw() -> None:
    """Draws differ more than the algorithms do; pairs show it all the same."""
    one, other = prediction(5, 10, 20, 40), prediction(4.5, 9, 18.1, 36)
    assert compare(one, other).significant and compare(one, other).ratio > 1.1
    mixed = prediction(5.5, 9, 22, 36)
    assert not compare(one, mixed).significant
    of_path = {"bbr": one, "ndm_tcp": mixed, "cubic": prediction(1, 2, 4, 8)}
    assert report.sentence(of_path) == (
        "bbr gets the most goodput; ndm_tcp not significantly less; cubic significantly less."
    )


def test_too_few_draws_compare_nothing() -> None:
    """However far apart they are: an interval needs three."""
    of_path = {"bbr": prediction(5, 10), "cubic": prediction(1, 1)}
    assert report.sentence(of_path) == "2 of 3 draws that a comparison needs: --draws 3."


def test_a_lead_that_nobody_notices_is_none() -> None:
    """Where draws hardly differ, a part in ten thousand is significant."""
    one, other = prediction(14.302, 14.303, 14.304), prediction(14.301, 14.302, 14.303)
    assert compare(one, other).significant
    assert report.sentence({"cubic": one, "bbr": other}) == (
        "cubic gets the most goodput; bbr less by under 1%."
    )
