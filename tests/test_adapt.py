# SPDX-License-Identifier: GPL-2.0-only
"""`ndm adapt`: what is held out, what is advised, and a whole adaptation on a small scale."""

from __future__ import annotations

import argparse
import json
import math
import re
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from ndm_tcp import contract, selection
from ndm_tcp.adapt import command, recordings, report, steps, verdict, windows
from ndm_tcp.adapt.experiments import families
from ndm_tcp.adapt.recordings import FEWEST_PATHS, Plan
from ndm_tcp.cli import run_command
from ndm_tcp.datasets.builder.build import build
from ndm_tcp.export.integers import golden
from ndm_tcp.export.integers.network import IntegerNetwork
from ndm_tcp.fixedpoint import forward
from ndm_tcp.lab.guest import suite, uml_build
from ndm_tcp.lab.guest.workers import ONE
from ndm_tcp.lab.paths import truth
from ndm_tcp.paths import difference, estimate_command, replay, replay_command, scenario
from ndm_tcp.paths import model as paths_model
from ndm_tcp.paths import report as paths_report
from ndm_tcp.paths.estimate_command import estimate_all
from ndm_tcp.paths.model import Kind, Level, PathModel, Rival, Seen, Value
from ndm_tcp.training import checkpoint as ckpt
from ndm_tcp.training import splits
from ndm_tcp.training.config import RESULTS, SHIPPED, TrainConfig
from ndm_tcp.training.model import Policy
from ndm_tcp.training.start import load

from .conftest import TRACES
from .kmod.lab import need_kernel
from .paths.made import model, prediction


def path(name: str, mbps: float = 10.0, **changes: object) -> PathModel:
    return model(name, levels=(Level(0.0, Value.exact(mbps * 1e6)),), **changes)


def test_recordings_last_as_long_as_they_teach_and_no_longer() -> None:
    assert recordings.seconds(path("a", seconds=4.0)) == 4
    # The capture ends when the queue of the flow's end has drained.
    assert recordings.seconds(path("a", seconds=10.05)) == 10
    assert recordings.seconds(path("a", seconds=100.0)) == recordings.LONGEST_S
    assert recordings.seconds(path("a", seconds=0.5)) == recordings.SHORTEST_S
    far = path("a", seconds=2.0, rtt_us=Value.exact(600_000))
    assert recordings.seconds(far) == 18  # 30 round trips
    assert recordings.seconds(path("a", mbps=10_000, seconds=10.0)) == recordings.SHORTEST_S


def test_different_paths_are_chosen_before_similar_ones() -> None:
    alike = [path(f"a{n}", mbps=10 + 0.1 * n) for n in range(5)]
    others = [path("slow", 0.5), path("lossy", loss=Value.exact(0.03))]
    others += [path("shared", rivals=(Rival("cubic", Kind.ASSUMED, 0.0),))]
    chosen = [m.name for m in recordings.spread([*alike, *others], 4)]
    assert {"slow", "lossy", "shared"} < set(chosen)
    assert len(recordings.spread(alike, 12)) == 5


def test_few_paths_hold_out_draws_and_many_hold_out_paths(tmp_path: Path) -> None:
    few = [path(name) for name in "abc"]
    plan = Plan.of(few, {"a": "val", "b": "test", "c": "train"}, 2)
    assert not plan.held_out
    jobs = plan.jobs("cubic", None, tmp_path)
    assert len(jobs) == 3 * 3  # two draws train, one is held out
    kinds = [splits.split_of(job.scenario.name) for job in jobs]
    assert kinds == ["train", "train", "val"] * 3

    many = [path(f"p{n}") for n in range(FEWEST_PATHS)]
    of = {m.name: "val" if m.name == "p0" else "test" if m.name == "p1" else "train" for m in many}
    plan = Plan.of(many, of, 2)
    assert [m.name for m in plan.held_out] == ["p1"]  # p0 chooses the epoch, and judges nothing
    for job in plan.jobs("cubic", None, tmp_path):
        assert splits.scenario_of(job.folder.name) == job.scenario.name
        name = job.scenario.name.split("-")[2]
        assert splits.split_of(job.scenario.name) == of[name]
    for missing in ("train", "val", "test"):  # nothing would train, choose the epoch or judge
        other = "val" if missing == "test" else "test" if missing == "train" else "train"
        splits_ = {name: other if split == missing else split for name, split in of.items()}
        plan = Plan.of(many, splits_, 2)
        kinds = {splits.split_of(job.scenario.name) for job in plan.jobs("cubic", None, tmp_path)}
        assert not plan.held_out and kinds == {"train", "val"}


def test_captures_teach_only_if_one_that_trains_has_a_label(tmp_path: Path) -> None:
    """Three host pairs, so the builder holds some out; the one model may lie in any split."""
    sources = [TRACES / name for name in ("cubic-00-clean", "cubic-01-clean", "cubic-03-lossy")]
    made, _ = estimate_all(sources, tmp_path / "paths", True)
    found = {}
    for one in made.values():
        setting = steps.Steps(tmp_path / one.name, (), 1, 1, ONE)
        (split,) = steps.captures(sources, setting, [one]).values()
        found[split] = steps._teach(setting.out / "captures", False)
    assert found.pop("train") and found and not any(found.values())


def test_only_models_of_these_captures_teach_and_only_in_the_time_that_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound = Level(0.0, Value.exact(2e6, Kind.AT_LEAST))
    late = replace(path("late", seconds=60.0), levels=(bound, Level(21.0, Value.exact(10e6))))
    mine = {"mine": path("mine"), "late": late}
    assert recordings.teaches(late)
    former = path("former")
    (tmp_path / "paths").mkdir()
    paths_model.write(former, tmp_path / "paths" / f"former{paths_model.SUFFIX}")

    def replays(models: list[PathModel], *_: object) -> dict[str, replay.Replay]:
        seen = Seen(9.0, 60.0, 80.0, 0.01)
        return {m.name: replay.Replay(m, "cubic", seen, (9.0,), "", 1) for m in models}

    monkeypatch.setattr(estimate_command, "estimate_all", lambda *_: (mine, {}))
    monkeypatch.setattr(replay_command, "replay", replays)
    monkeypatch.setattr(paths_report, "write_page", lambda *_: None)
    args = argparse.Namespace(
        out=tmp_path, sources=[tmp_path], json=True, cc=None, jobs=1, engine="local", seconds=20.0
    )
    models, rejected = command._models(args, ONE, 0.0)
    assert [one.name for one in models] == ["mine"]
    assert "only a bound" in rejected["late"]


def test_a_bound_does_not_teach() -> None:
    assert recordings.teaches(path("a"))
    bound = replace(path("a"), levels=(Level(0.0, Value.exact(1e6, Kind.AT_LEAST)),))
    assert not recordings.teaches(bound)
    at_last = Level(1.0, Value.exact(1e6))  # of four seconds
    mostly = replace(bound, levels=(*bound.levels, at_last))
    assert mostly.measured == 0.75
    assert recordings.teaches(mostly)
    assert not recordings.teaches(
        replace(bound, levels=(*bound.levels, replace(at_last, from_s=3.0)))
    )


def judged(adapted: float, shipped: float = 1.0, bbr: float = 1.0) -> difference.Of:
    """Goodput relative to 10 Mbit/s on three paths that differ a lot, with a little scatter."""
    found: difference.Of = {}
    for number, mbps in enumerate((1.0, 10.0, 100.0)):
        factors = {"adapted": adapted, "shipped": shipped, "bbr": bbr}
        found[f"p{number}"] = {
            name: prediction(*(mbps * f * (1 + 0.001 * (number + d)) for d in range(3)))
            for name, f in factors.items()
        }
    return found


GOOD = verdict.Guard("validation", 57, 0.001, -0.01, 0.012)
BAD = verdict.Guard("validation", 57, -0.05, -0.08, -0.02)


@pytest.mark.parametrize(
    ("of", "guard", "advised", "said"),
    [
        (judged(1.1), GOOD, True, "it is significantly better than the shipped one (score +"),
        (judged(1.1), None, True, "Use the adapted network"),
        (judged(1.0), GOOD, False, "Stay with the shipped network: the adapted one is not"),
        (judged(1.1, bbr=1.3), GOOD, False, "Stay with bbr: on your paths it is significantly"),
        (
            judged(1.5),
            BAD,
            False,
            "significantly worse on the 57 paths of validation",
        ),
    ],
)
def test_the_report_ends_with_one_honest_sentence(
    of: difference.Of, guard: verdict.Guard | None, advised: bool, said: str
) -> None:
    use, sentence = verdict.sentence(difference.differences(of, "adapted"), guard)
    assert use is advised and said in sentence and sentence.endswith((".", ")."))


def test_a_rival_that_is_better_is_named_though_nothing_was_adapted() -> None:
    said = verdict.sentence(
        difference.differences(judged(1.0, bbr=1.3), "adapted"), None, same=True
    )
    assert said[0] is False and said[1].startswith("Stay with bbr: ")
    assert "than the shipped network" in said[1]
    same = verdict.sentence(difference.differences(judged(1.0), "adapted"), None, same=True)
    assert same == (False, verdict.NOTHING)


def test_beside_rivals_the_fair_share_counts() -> None:
    """A flow that starves its rivals is no better than one that starves beside them."""
    result = {
        "flows": [
            {"tested": True, "goodput_mbps": 9.0, "rtt_mean_ms": 50.0, "retransmissions": 0},
            {"tested": False, "goodput_mbps": 1.0, "retransmissions": 0},
        ]
    }

    def score(share: float) -> float:
        result["flows"][0]["share"] = share
        return difference.score(replay.seen(result))

    assert score(0.9) == pytest.approx(score(0.1))
    assert score(0.5) > score(0.6) > score(0.9)
    result["flows"].pop()
    assert score(1.0) == difference.score(Seen(9.0, 50.0, 50.0, 0.0))  # alone


def test_the_guard_compares_scenario_by_scenario() -> None:
    shipped = {f"s{n}": 0.1 * n for n in range(20)}
    worse = {
        name: value - 0.02 - 0.001 * (n % 3) for n, (name, value) in enumerate(shipped.items())
    }
    assert not verdict.guard("x", worse, shipped).passed
    mixed = {name: value + 0.05 * (-1) ** n for n, (name, value) in enumerate(shipped.items())}
    assert verdict.guard("x", mixed, shipped).passed


@pytest.mark.parametrize("folder", ["", "my/"])
def test_what_a_network_gains_on_one_suite_does_not_hide_what_it_loses_on_another(
    folder: str,
) -> None:
    change = {f"{folder}wide": 0.05, f"{folder}near": -0.02, f"{folder}far": 0.0}
    shipped = {f"{suite}/s{n}": 0.1 * n for suite in change for n in range(20)}
    adapted = {
        name: value + change[name.rpartition("/")[0]] + 0.001 * (n % 3)
        for n, (name, value) in enumerate(shipped.items())
    }
    found = verdict.guard("wide,near,far", adapted, shipped)
    assert (found.suites, found.scenarios, found.passed) == (f"{folder}near", 20, False)
    assert np.mean([adapted[name] - shipped[name] for name in shipped]) > 0.01
    adapted = {name: value + 0.03 for name, value in adapted.items()}
    found = verdict.guard("wide,near,far", adapted, shipped)
    assert (found.suites, found.scenarios, found.passed) == ("wide,near,far", 60, True)


def test_a_network_that_the_guard_refuses_is_averaged_with_the_shipped_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = Policy(TrainConfig().hidden, ())
    load(SHIPPED).copy_to(shipped)
    learned = {k: v.clone() for k, v in shipped.state_dict().items()}
    learned["layers.2.bias"] += torch.tensor([0.25, -0.5])
    config = TrainConfig(init=SHIPPED)
    run = tmp_path / "network-2"
    run.mkdir()
    (run / RESULTS).write_text("{}")
    ckpt.save(run / ckpt.MODEL, ckpt.Checkpoint(learned, config, "", 1))
    setting = steps.Steps(tmp_path, (), 1, 1, ONE)
    asked: list[Path] = []

    def guard(suites: str, kmod: Path, *_: object) -> verdict.Guard:
        asked.append(kmod)
        return GOOD if kmod.name == "kmod-2-mean" else BAD

    monkeypatch.setattr(steps, "guard", guard)
    module = tmp_path / "kmod-2"
    kmod, found, refused = steps.guarded(setting, "validation", run, module, 0.0)
    assert (found, refused, asked) == (GOOD, BAD, [module, kmod])
    averaged = tmp_path / "network-2-mean"
    assert "not judged" in (averaged / "MODEL_CARD.md").read_text()
    x = golden.inputs()[::50]
    one, other = (
        forward(IntegerNetwork.read(sources / "generated").layers, x).outputs / 2.0**16
        for sources in (uml_build.KMOD, kmod)
    )
    for number, moved in ((0, 0.125), (1, -0.25)):
        # Outside, the output is at its limit.
        inside = np.abs(one[:, number]) < contract.OUTPUTS[number].hi - 0.5
        apart = (other - one)[inside, number]
        assert len(apart) > 10 and apart == pytest.approx(moved, abs=1e-3)
    monkeypatch.setattr(steps, "guard", lambda *_: GOOD)
    assert steps.guarded(setting, "validation", run, module, 0.0) == (module, GOOD, None)
    assert not averaged.exists()  # of the run before
    text = report.guard_text(report.Adapted("", True, "kmod", GOOD, [], {}, {}, {}, refused=BAD))
    assert "mean" in text and f"{BAD.score:+.4f}" in text


def test_a_guard_runs_seeds_of_the_lab_that_chose_no_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shipped network was chosen by the first seeds, so with these it is lucky."""
    folders: list[tuple[str, int]] = []

    def executed(jobs: list[suite.Job], *_: object, **__: object) -> Iterator[suite.Outcome]:
        folders.extend((job.folder.parent.parent.name.partition("-")[0], job.seed) for job in jobs)
        return iter(())

    monkeypatch.setattr(suite, "execute", executed)
    monkeypatch.setattr(verdict, "guard", lambda *_: None)  # no run, so nothing to compare
    steps.guard("published", uml_build.KMOD, tmp_path, ONE)  # some of it run several times a seed
    scenarios = suite.load_suite("published")
    chose = {*range(1, selection.FEWEST_SEEDS * max(one.repeat for one in scenarios) + 1)}
    for network in ("shipped", "adapted"):
        seeds = [seed for name, seed in folders if name == network]
        assert len(seeds) == steps.GUARD_SEEDS * sum(one.repeat for one in scenarios)
        assert not {*seeds} & chose


def test_what_adapting_is_worth_has_an_interval_over_paths_and_one_over_seeds() -> None:
    """Training seeds that agree say nothing of other paths."""
    gains = {"a": 1.5, "b": 1.0, "c": 1.02, "d": 1.3}
    of: dict[str, dict[str, list[Seen]]] = {
        name: {p: [Seen(10.0, 50.0, 50.0, 0.0)] for p in gains}
        for name in ("shipped", "cubic", "bbr")
    }
    for seed in range(1, 6):
        of[f"adapted-{seed}"] = {
            p: [Seen(10.0 * gain * (1 + 0.001 * seed), 50.0, 50.0, 0.0)]
            for p, gain in gains.items()
        }
    found = families.compared(of, 5)["adapted less shipped"]
    assert isinstance(found, dict)
    paths_, seeds = (found["score"][key] for key in ("over paths", "over training seeds"))
    assert paths_[0] == pytest.approx(seeds[0])
    assert paths_[1] < 0 < seeds[1] and seeds[2] - seeds[1] < 0.01


def test_families_judge_the_network_that_adapting_would_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, bad, averaged = (tmp_path / name for name in ("kmod-1", "kmod-2", "kmod-2-mean"))
    monkeypatch.setattr(steps, "guard", lambda _, kmod, *__: BAD if kmod == bad else GOOD)
    monkeypatch.setattr(steps, "mean", lambda _, to: to)
    monkeypatch.setattr(steps, "module", lambda _, to: to)
    setting = steps.Steps(tmp_path, (), 1, 1, ONE)
    adapted = [(tmp_path / "network-1", good), (tmp_path / "network-2", bad)]
    left, guards = families.as_shipped(adapted, "validation", setting, 0.0)
    assert left == [good, averaged]
    assert [one["mean"] and one["network"] == asdict(BAD) for one in guards] == [None, True]
    assert families.as_shipped(adapted, "", setting, 0.0) == ([good, bad], [])


def test_each_training_learns_from_flows_of_the_network_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first explores with the shipped network, the second with what the first one made."""
    explored: list[Path] = []
    learned: list[list[str]] = []

    def explorer(kmod: Path, to: Path) -> Path:
        explored.append(kmod)
        return to

    def recorded(jobs: list[str], kmod: Path | None, at_once: int) -> list[Path]:
        return [tmp_path / f"{kmod.name if kmod else ''}{jobs[0]}"]

    def dataset(setting: steps.Steps, folders: list[Path], turn: int) -> Path:
        learned.append([folder.name for folder in folders])
        return tmp_path / f"recorded-{turn}"

    monkeypatch.setattr(Plan, "jobs", lambda self, cc, kmod, out: [cc])
    monkeypatch.setattr(recordings, "explorer", explorer)
    monkeypatch.setattr(recordings, "record", recorded)
    monkeypatch.setattr(steps, "dataset", dataset)
    monkeypatch.setattr(steps, "train", lambda setting, data, turn: tmp_path / f"network-{turn}")
    monkeypatch.setattr(steps, "sources", lambda run, to, **_: to)
    setting = steps.Steps(tmp_path, (), 1, 2, ONE)
    found = steps.recorded(setting, Plan((), {}, 1), 0.0)
    assert found == tuple(tmp_path / name for name in ("recorded-1", "network-1", "kmod-1"))
    assert explored == [uml_build.KMOD, tmp_path / "kmod-0"]
    rivals = [*recordings.RIVALS]
    assert learned == [[*rivals, "0ndm_tcp"], [*rivals, "0ndm_tcp", "1ndm_tcp"]]


@pytest.mark.parametrize(("best", "mss"), [(0.9, 1448), (1.4, 1448), (2.0, 1448), (1.4, 900)])
def test_the_window_that_scores_best_is_found(
    best: float, mss: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it is; a path with rivals keeps the computed one, and no window runs twice."""
    ran: list[Path] = []

    def execute(jobs: list[suite.Job], *_: object, **__: object) -> Iterator[suite.Outcome]:
        for job in jobs:
            ran.append(job.folder)
            packets = int(job.cc.removeprefix("fixed_cwnd:").removesuffix(":paced"))
            assert job.cc.endswith(":paced"), "bursts would overflow short queues"
            bdp = job.scenario.link.rate_bps * job.scenario.link.rtt_us / 8e6 / 1500
            away = abs(math.log(packets / bdp / best))
            flow = {"tested": True, "goodput_mbps": 10.0, "retransmissions": 0}
            flow["rtt_mean_ms"] = flow["rtt_p95_ms"] = 50 * math.exp(away)
            yield suite.Outcome(job, {"flows": [flow]})

    monkeypatch.setattr(suite, "execute", execute)
    rival = Rival("cubic", Kind.ASSUMED, 0.0)
    # The lab's packets are full ones, whatever those of the capture were.
    models = [path("alone", 40.0, mss=mss), path("beside", 40.0, rivals=(rival,))]
    alone, beside = windows.measured(models, tmp_path, 2, ONE)
    assert abs(math.log(alone.window_bdp / best)) <= math.log(windows.STEP) / 2 + 0.02
    assert beside == models[1] and len(ran) == len(set(ran)) <= 2 * (2 * windows.MOST + 1)
    # And it is what the path teaches, at any rate of the link.
    (ideal,) = truth.ideals(scenario.scenario(alone), "ndm_tcp")
    assert ideal.rtt_us == pytest.approx(alone.window_bdp * alone.rtt_us.value, rel=1e-3)
    steps_up = (Level(0.0, alone.levels[0].rate_bps), Level(2.0, Value.exact(80e6)))
    two = truth.ideals(scenario.scenario(replace(alone, levels=steps_up)), "ndm_tcp")
    assert [i.rtt_us for i in two] == [ideal.rtt_us] * 2
    assert two[1].packets_per_s == pytest.approx(2 * two[0].packets_per_s)


def test_an_offset_that_wins_by_chance_is_not_taken() -> None:
    rng = np.random.default_rng(1)
    old = rng.normal(0, 1, 15)
    assert verdict.grows(old + 0.1 + rng.normal(0, 0.05, 15), old)
    taken = [verdict.grows(old + rng.normal(0, 0.05, 15), old) for _ in range(400)]
    assert np.mean(taken) < 0.06  # of offsets that change nothing; half have a higher mean
    assert verdict.grows([1.0], [0.9]) and not verdict.grows([0.9], [0.9])


def test_a_capture_becomes_a_network_and_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    need_kernel()
    lab, out = tmp_path / "lab", tmp_path / "mine"
    build(
        [TRACES / "lab" / f"train-{n}--cubic--1" for n in ("03-loss", "00-clean")], lab, quiet=True
    )
    monkeypatch.setattr(recordings, "RIVALS", ("cubic",))
    monkeypatch.setattr(steps, "EPOCHS", 3)
    monkeypatch.setattr(steps, "MOST_OFFSETS", 1)
    shipped = (uml_build.KMOD / "generated" / "ndm_model.h").read_bytes()
    capture = TRACES / "cubic-01-clean"
    words = ["adapt", str(capture), "-o", str(out), "--lab-rounds", str(lab), "--guard", ""]
    code = run_command(
        [*words, "--draws", "1", "--iterations", "1", "--seconds", "4", "--jobs", "1"]
    )
    said = capsys.readouterr()
    found = json.loads((out / report.RESULT).read_text())
    assert code == (0 if found["advised"] else command.NOT_ADVISED)
    place = out / ("kmod" if found["advised"] else "refused")
    assert not found["shipped"]
    config = json.loads((out / "network" / "config.json").read_text())
    assert len(config["shares"]) - 1 in config["kept"]  # of the lab's rounds
    assert (place / "generated" / "ndm_model.h").read_bytes() != shipped
    assert run_command(["check", "--kmod", str(place)]) == 0
    ((_, of_path),) = found["judged"].items()
    assert set(of_path) == {"cubic", "shipped", "adapted"}
    assert set(found["differences"]) == {"cubic", "shipped"}
    score = found["differences"]["shipped"]["score"]
    assert "runs of 4 s, 3 draws" in said.out
    stages = re.findall(r"^(\w+).*, runs: \d+ in the lab$", said.err, re.MULTILINE)
    assert [*dict.fromkeys(stages)] == ["replays", "target", "recordings", "search", "comparison"]
    assert f"{score:+.3f}" in said.out and isinstance(score, float)
    assert found["sentence"] in said.out and found["sentence"] in (out / report.PAGE).read_text()
    assert (uml_build.KMOD / "generated" / "ndm_model.h").read_bytes() == shipped


def test_where_nothing_wins_the_shipped_network_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = steps.Steps(tmp_path, (), 1, 1, ONE)
    (tmp_path / "network").mkdir()  # of a run before
    monkeypatch.setattr(steps, "recorded", lambda *_: (tmp_path, tmp_path, uml_build.KMOD))
    monkeypatch.setattr(steps, "search", lambda *_: (False, 0.0))
    _, kmod = steps.network(setting, Plan.of([path("a")], {"a": "train"}, 1), 0.0)
    assert command._same(kmod) and not (tmp_path / "network").exists()


def test_captures_that_show_no_path_end_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (poll,) = (TRACES / "third_party").glob("mlab_tcpinfo*")
    assert run_command(["adapt", str(poll), "-o", str(tmp_path / "out")]) == 2
    assert "no flow shows its path" in capsys.readouterr().err.splitlines()[-1]
    assert run_command(["adapt", str(poll), "-o", str(tmp_path / "out"), "--draws", "0"]) == 2
    assert "--draws must be at least 1" in capsys.readouterr().err
    assert run_command(["adapt", str(poll), "-o", str(tmp_path / "out"), "--seconds", "0"]) == 2
    assert "--seconds must be at least 1" in capsys.readouterr().err
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    (damaged / "dataset.json").write_text("{")
    for words, said in (
        (["--guard", "validaton"], "validaton"),
        (["--guard", ","], "--guard ,: fewer than 3 scenarios"),
        (["--draws", "100"], "--draws must be below 100"),
        (["--lab-rounds", str(tmp_path / "none")], f"{tmp_path / 'none'}: no dataset here"),
        (["--lab-rounds", str(damaged)], f"{damaged}: damaged dataset"),
    ):
        assert run_command(["adapt", str(poll), "-o", str(tmp_path / "out"), *words]) == 2
        err = capsys.readouterr().err
        assert said in err and "no flow shows its path" not in err  # before anything is run


def test_an_offset_moves_the_predicted_step_and_nothing_else(tmp_path: Path) -> None:
    tried = steps._tried(uml_build.KMOD, 0.08, tmp_path / "kmod")
    before = IntegerNetwork.read(uml_build.KMOD / "generated").layers
    after = IntegerNetwork.read(tried / "generated").layers
    x = golden.inputs()[::50]
    one, other = (forward(layers, x).outputs / 2.0**16 for layers in (before, after))
    apart = other - one
    inside = np.abs(one[:, 0]) < 0.9  # outside, the step is at its limit
    assert apart[inside, 0] == pytest.approx(0.08, abs=1e-3)
    assert not apart[:, 1].any()
