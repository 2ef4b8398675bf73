# SPDX-License-Identifier: GPL-2.0-only
"""The ablation: the batch learns what the trainer learns, paths are held out, intervals hold."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from ndm_tcp import contract
from ndm_tcp.datasets.builder.build import build
from ndm_tcp.datasets.store import store
from ndm_tcp.errors import NdmError
from ndm_tcp.export.chain import export
from ndm_tcp.lab.paths import access_paths, training_paths
from ndm_tcp.training.checkpoint import load_policy
from ndm_tcp.training.config import TrainConfig
from ndm_tcp.training.evaluate import auc, calibration
from ndm_tcp.training.experiments import ablation
from ndm_tcp.training.loop import Trainer
from ndm_tcp.training.model import Policy
from ndm_tcp.training.objective import examples

from .conftest import ROOT, TRACES

CONFIG = TrainConfig(epochs=6, batch=256, seed=3)
NAMES = ("00-clean", "03-loss", "06-reorder", "08-jitter", "09-burst", "10-step")


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of recordings of the lab, which know the target window."""
    out = tmp_path_factory.mktemp("taught")
    sources = [TRACES / "lab" / f"train-{n}--{cc}--1" for n in NAMES for cc in ("reno", "bbr")]
    build(sources, out, jobs=2, quiet=True)
    return out


def test_a_batch_of_networks_learns_what_the_trainer_does_one_by_one(
    taught: Path, tmp_path: Path
) -> None:
    data = examples(store.load(taught).rounds, CONFIG)
    configs = [CONFIG, replace(CONFIG, mask=(7, 8), seed=4)]
    seen = np.ones(len(data.x), dtype=bool)
    batch = ablation.train_many(data, configs, [seen, seen], quiet=True)
    for number, (config, policy) in enumerate(zip(configs, batch, strict=True)):
        Trainer([taught], tmp_path / str(number), config).run(quiet=True)
        alone, _ = load_policy(tmp_path / str(number))
        for a, b in zip(policy.linear_layers(), alone.linear_layers(), strict=True):
            for mine, theirs in zip(a, b, strict=True):
                torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-4)


def test_a_network_does_not_learn_from_what_it_must_not_see(taught: Path) -> None:
    data = examples(store.load(taught).rounds, CONFIG)
    seen = data.cc == "reno"
    (one,) = ablation.train_many(data, [CONFIG], [seen], quiet=True)
    other = replace(
        data,
        action=np.where(seen, data.action, -data.action),
        cause=np.where(seen | (data.cause < 0), data.cause, 1 - data.cause).astype(np.int8),
    )
    assert (other.cause != data.cause).any()
    (two,) = ablation.train_many(other, [CONFIG], [seen], quiet=True)
    for a, b in zip(one.parameters(), two.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_variant_sees_all_but_what_it_is_named_for(taught: Path) -> None:
    rounds = ablation.load([taught], CONFIG)
    group = str(rounds.group[0])
    assert ablation.visible_rows(rounds, ablation.Variant("full")).all()
    seen = ablation.visible_rows(rounds, ablation.Variant("x", group=group))
    assert np.array_equal(seen, rounds.group != group) and seen.any() and not seen.all()
    seen = ablation.visible_rows(rounds, ablation.Variant("x", cc="bbr"))
    assert np.array_equal(seen, rounds.data.cc != "bbr") and seen.any() and not seen.all()


def test_a_difference_is_the_variant_less_the_full_network(
    taught: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = ablation.load([taught], CONFIG)
    rounds = replace(rounds, data=replace(rounds.data, split=np.full(len(rounds.data.x), "test")))
    everything = np.ones(len(rounds.data.x), dtype=bool)
    halves = np.where(np.arange(len(rounds.data.x)) % 2, "train", "val")
    learning = replace(rounds.data, split=halves)
    full = ablation.train_many(learning, [replace(CONFIG, epochs=20)], [everything], quiet=True)
    none = [Policy(CONFIG.hidden, CONFIG.mask).eval()]
    kept = (ablation.Variant(ablation.FULL), ablation.Variant("untrained", trained=False))
    monkeypatch.setattr(ablation, "VARIANTS", kept)
    found = ablation.compare(rounds, {ablation.FULL: full, "untrained": none})
    best, worst = found[ablation.FULL]["all"], found["untrained"]["all"]
    assert best["r2"]["mean"] > 0.3 > worst["r2"]["mean"]
    assert worst["r2_difference"]["mean"] == pytest.approx(worst["r2"]["mean"] - best["r2"]["mean"])
    assert worst["mae_difference"]["mean"] > 0


def test_more_rounds_at_once_are_those_before_in_the_same_flow(taught: Path) -> None:
    rounds = ablation.load([taught], CONFIG)
    x, flow = rounds.data.x, rounds.data.flow
    seen = ablation.with_rounds(rounds, 3).data.x
    assert seen.shape == (len(x), 3 * contract.N_DENSE)
    assert (seen[:, : contract.N_DENSE] == x).all()
    starts = np.flatnonzero(np.append(True, flow[1:] != flow[:-1]))
    assert len(starts) > 3
    for row in starts:
        assert (seen[row] == np.tile(x[row], 3)).all(), "nothing of the flow before"
        assert (seen[row + 1] == np.concatenate([x[row + 1], x[row], x[row]])).all()
        assert (seen[row + 9] == np.concatenate([x[row + 9], x[row + 8], x[row + 7]])).all()


MEANS = tuple(i.index for i in contract.MEANS)


def test_a_network_of_two_rounds_learns_from_the_round_before(taught: Path) -> None:
    """Where the action is an input of the round before, only it can know."""
    rounds = ablation.load([taught], replace(CONFIG, expectile=0.5))
    two = ablation.with_rounds(rounds, 2)
    action = 2 * two.data.x[:, contract.N_DENSE + 7]  # the gradient: hardly like the round before
    split = np.where(np.arange(len(action)) % 4, "train", "val")
    errors = []
    for shown in (rounds, two):
        data = replace(shown.data, action=action, split=split)
        config = replace(CONFIG, epochs=60, expectile=0.5, weight_decay=0.0, mask=MEANS)
        (policy,) = ablation.train_many(data, [config], [np.ones(len(action), bool)], quiet=True)
        with torch.no_grad():
            gain = policy.act(torch.from_numpy(data.x))[:, 0].numpy()
        errors.append(float(np.abs(gain - action)[data.policy].mean()))
    assert errors[1] < errors[0] / 2


def test_paths_are_held_out_as_wholes(taught: Path) -> None:
    rounds = ablation.load([taught], CONFIG)
    for path in np.unique(rounds.path):
        assert len(np.unique(rounds.data.split[rounds.path == path])) == 1
    splits = ablation.split_paths([f"train-{n:02}-clean" for n in range(16)])
    assert sorted(splits.values()).count("test") == 4
    assert sorted(splits.values()).count("val") == 2


def test_a_dataset_of_other_sources_is_refused(dataset: Path) -> None:
    with pytest.raises(NdmError, match="no recording of a training path"):
        ablation.load([dataset], CONFIG)


def test_metrics_agree_with_the_plain_formulas(taught: Path) -> None:
    rounds = ablation.load([taught], CONFIG)
    data = rounds.data
    policy = ablation.untrained(CONFIG)
    rows = np.ones(len(data.x), dtype=bool)
    found = ablation.measure(rounds, [policy], rows)
    with torch.no_grad():
        out = policy.raw(torch.from_numpy(data.x)).numpy().astype(np.float64)
    w, a, e = (v[data.policy] for v in (data.weight, data.action, np.clip(out[:, 0], -1, 1)))
    mean = np.average(a, weights=w)
    r2 = 1 - np.average((e - a) ** 2, weights=w) / np.average((a - mean) ** 2, weights=w)
    assert found["r2"][0] == pytest.approx(r2, rel=1e-5)
    assert found["mae"][0] == pytest.approx(np.abs(e - a).mean(), rel=1e-5)
    known = data.cause >= 0
    assert found["auc"][0] == pytest.approx(auc(out[known, 1], data.cause[known]), abs=1e-3)
    brier, _ = calibration(out[known, 1], data.cause[known])
    assert found["brier"][0] == pytest.approx(brier, rel=1e-5)
    interval = ablation.interval(found["r2"])
    assert interval["low"] <= interval["mean"] <= interval["high"]
    assert interval["low"] < interval["high"]


def test_a_calibrated_logit_lies_on_the_diagonal_and_a_bold_one_does_not() -> None:
    rng = np.random.default_rng(1)
    logit = rng.normal(size=50_000)
    label = (rng.random(len(logit)) < 1 / (1 + np.exp(-logit))).astype(int)
    brier, rows = calibration(logit, label)
    assert np.abs(rows[:, 0] - rows[:, 1])[rows[:, 2] > 500].max() < 0.05
    assert rows[:, 2].sum() == len(logit)
    bold, rows = calibration(4 * logit, label)
    assert bold > brier + 0.02
    assert np.abs(rows[:, 0] - rows[:, 1]).max() > 0.1


@pytest.mark.usefixtures("few_boxes")
def test_random_weights_can_be_exported_and_are_the_same_again(tmp_path: Path) -> None:
    for name in ("a", "b"):
        assert ablation.main(["--untrained", str(tmp_path / name), "--seed", "5"]) == 0
    one, two = (load_policy(tmp_path / n)[0].state_dict() for n in ("a", "b"))
    assert all(torch.equal(one[k], two[k]) for k in one)
    export(tmp_path / "a", tmp_path / "generated")
    assert (tmp_path / "generated" / "ndm_model.h").is_file()


def test_what_was_not_recorded_is_not_compared(
    taught: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    never = tuple(v for v in ablation.VARIANTS if v.group)
    monkeypatch.setattr(ablation, "VARIANTS", (ablation.Variant(ablation.FULL), *never))
    rounds = ablation.load([taught], CONFIG)
    rounds = replace(rounds, data=replace(rounds.data, split=np.full(len(rounds.path), "test")))
    names = [v.name for v in ablation.variants(rounds)]
    there = {"jitter, reordering", "random loss", "clean, steps"}
    assert set(names) == {ablation.FULL} | {f"never saw {group}" for group in there}
    found = ablation.compare(rounds, {name: [ablation.untrained(CONFIG)] for name in names})
    assert set(found[ablation.FULL]) == {"all"} | there and set(found) == set(names)


def test_every_kind_of_path_is_in_one_group() -> None:
    known = [kind for kinds in ablation.GROUPS.values() for kind in kinds]
    assert len(known) == len(set(known))
    drawn = training_paths.KINDS | training_paths.VALIDATION_KINDS | training_paths.WIDE_KINDS
    assert set(known) == {*drawn, *access_paths.FAMILIES}


def test_every_shipped_recording_is_of_a_known_kind() -> None:
    """What `make ablation` reads before it trains for minutes."""
    known = {kind for kinds in ablation.GROUPS.values() for kind in kinds}
    folders = sorted((ROOT / "datasets" / "lab-rounds").glob("*/"))
    assert len(folders) > 3
    for folder in folders:
        sources = store.load(folder).rounds["source"].unique().to_pylist()
        assert {ablation.kind_of(name.partition("--")[0]) for name in sources} <= known
