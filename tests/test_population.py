# SPDX-License-Identifier: GPL-2.0-only
"""Networks that differ in their seed, side by side: the same bytes as one by one, and readable."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ndm_tcp import cluster
from ndm_tcp.cli import run_command
from ndm_tcp.datasets.builder.build import build
from ndm_tcp.errors import NdmError
from ndm_tcp.training import away, loop, objective, population
from ndm_tcp.training import checkpoint as ckpt
from ndm_tcp.training.config import TrainConfig
from ndm_tcp.training.loop import METRICS, Trainer

from .conftest import TRACES
from .far import pretend

FEW = TrainConfig(objective="awbc", epochs=4, lr=3e-3, batch=256)
OPTIONS = ["--objective", "awbc", "--epochs", "4", "--lr", "3e-3", "--batch", "256"]


def test_each_has_the_bytes_that_it_has_alone(dataset: Path, tmp_path: Path) -> None:
    found = population.train([dataset], tmp_path / "many", replace(FEW, seed=2), 3, quiet=True)
    assert list(found) == [2, 3, 4]
    assert list(population.members(tmp_path / "many")) == [2, 3, 4]
    for seed in (2, 4):
        alone = tmp_path / f"alone-{seed}"
        results = Trainer([dataset], alone, replace(FEW, seed=seed)).run(quiet=True)
        assert results == found[seed]
        for name in (ckpt.MODEL, ckpt.PROGRESS, METRICS, "metrics.json", "config.json"):
            same = (tmp_path / "many" / f"seed-{seed}" / name).read_bytes()
            assert (alone / name).read_bytes() == same, name


def test_progress_can_be_read_on_a_pipe(
    dataset: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = ["-o", str(tmp_path / "many")]
    assert run_command(["train", "--data", str(dataset), *OPTIONS, "--seeds", "2", *out]) == 0
    said = capfd.readouterr()
    lines = said.err.splitlines()
    assert len(lines) == 8 and "\r" not in said.err
    for seed in (1, 2):
        mine = [line for line in lines if line.startswith(f"seed {seed}: epoch ")]
        assert [re.findall(r"epoch (\d) of 4, loss \d", line)[0] for line in mine] == list("1234")
    assert [line.split()[0] for line in said.out.splitlines()] == ["seed", "1", "2", "mean", "sd"]
    # Alone on a pipe, it says as much.
    out = ["-o", str(tmp_path / "one")]
    assert run_command(["train", "--data", str(dataset), *OPTIONS, *out]) == 0
    assert f"{tmp_path}/one: epoch 4 of 4, loss" in capfd.readouterr().err


def test_it_is_carried_on(dataset: Path, tmp_path: Path) -> None:
    first = population.train([dataset], tmp_path, FEW, 1, quiet=True)
    both = population.train([dataset], tmp_path, FEW, 2, quiet=True)
    assert both[1] == first[1] and list(both) == [1, 2]


def test_networks_that_differ_in_more_than_the_seed_are_no_population(
    dataset: Path, tmp_path: Path
) -> None:
    """Seed 2 of other settings beside seed 1: before it is trained, and where it was copied to."""
    population.train([dataset], tmp_path / "many", replace(FEW, epochs=1), 1, quiet=True)
    other = replace(FEW, epochs=1, gamma=0.8, seed=2)
    with pytest.raises(NdmError, match=r"seed-1: differs .* in more than its seed: gamma; choose"):
        population.train([dataset], tmp_path / "many", other, 1, quiet=True)
    assert not (tmp_path / "many" / "seed-2").exists()
    Trainer([dataset], tmp_path / "many" / "seed-2", other).run(quiet=True)
    with pytest.raises(NdmError, match=r"seed-2: differs .* in more than its seed: gamma; choose"):
        population.members(tmp_path / "many")
    two = ckpt.load(tmp_path / "many" / "seed-2" / ckpt.MODEL)
    of_other_data = replace(two, config=replace(two.config, seed=1), dataset_sha256="0" * 64)
    ckpt.save(tmp_path / "many" / "seed-1" / ckpt.MODEL, of_other_data)
    with pytest.raises(NdmError, match="in more than its seed: dataset; choose"):
        population.members(tmp_path / "many")


def stops_after(epochs: int, validate: Callable[..., Any]) -> Callable[..., Any]:
    """Ctrl-C in the epoch after so many."""
    calls = iter(range(epochs + 1))

    def stopped(self: Trainer) -> Any:
        if next(calls) == epochs:
            raise KeyboardInterrupt
        return validate(self)

    return stopped


def test_networks_of_other_target_windows_are_no_population(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An update of the code between two seeds: settings and dataset are the same."""
    build([TRACES / "lab/train-03-loss--bbr--1"], tmp_path / "data", quiet=True)
    config, many = TrainConfig(epochs=1), tmp_path / "many"
    population.train([tmp_path / "data"], many, config, 1, quiet=True)
    monkeypatch.setattr(objective, "STEP_SHARE", 0.5)
    said = "seed-{}: differs .* in more than its seed: target windows, .*; choose another -o"
    with pytest.raises(NdmError, match=said.format(1)):
        population.train([tmp_path / "data"], many, replace(config, seed=2), 1, quiet=True)
    assert not (many / "seed-2").exists()
    Trainer([tmp_path / "data"], many / "seed-2", replace(config, seed=2)).run(quiet=True)
    with pytest.raises(NdmError, match=said.format(2)):
        population.members(many)
    (many / "seed-2" / ckpt.PROGRESS).unlink()  # nothing is known of a copy without it
    assert list(population.members(many)) == [1, 2]


def test_a_network_that_is_named_twice_counts_once(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its own folder and by its population's, or by two names of one folder."""
    many = tmp_path / "many"
    population.train([dataset], many, replace(FEW, epochs=1), 2, quiet=True)
    monkeypatch.chdir(tmp_path)
    one, two = (str(many / f"seed-{seed}") for seed in (1, 2))
    assert population.every([many]) == (one, two)
    assert population.every([many, Path("many")]) == (one, two)
    assert population.every([many, Path(two)]) == (two, one)
    assert population.every([Path(one), Path("many/seed-1")]) == (one,)


@pytest.mark.parametrize("seeds", ["0", "-1"])
def test_no_networks_are_none_to_train(
    seeds: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--data", str(tmp_path), "-o", str(tmp_path / "many"), "--seeds", seeds]
    assert run_command(["train", *options]) == 2
    assert capsys.readouterr().err == "ndm: --seeds must be at least 1\n"
    assert not (tmp_path / "many").exists()


def test_a_single_run_and_a_population_do_not_mix(dataset: Path, tmp_path: Path) -> None:
    Trainer([dataset], tmp_path, FEW).run(quiet=True)
    with pytest.raises(NdmError, match="holds a single run; choose another -o"):
        population.train([dataset], tmp_path, FEW, 2, quiet=True)
    with pytest.raises(NdmError, match="no population here; run: ndm train --seeds 8"):
        population.members(tmp_path)
    (tmp_path / "seed-7").mkdir()
    with pytest.raises(NdmError, match="seed-7: not trained to its end"):
        population.members(tmp_path)
    with pytest.raises(NdmError, match="holds a population; choose another -o"):
        Trainer([dataset], tmp_path, FEW).run(quiet=True)


def test_what_a_process_refuses_is_said(dataset: Path, tmp_path: Path) -> None:
    population.train([dataset], tmp_path, FEW, 1, quiet=True)
    with pytest.raises(NdmError, match="seed-1: holds a run with another dataset or other"):
        population.train([dataset], tmp_path, replace(FEW, lr=1e-3), 1, quiet=True)


def test_a_process_that_is_gone_is_noticed(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(population.Trainer, "run", lambda *_: os._exit(9))
    with pytest.raises(NdmError, match="a training process was ended.*carry on"):
        population.train([dataset], tmp_path, FEW, 2, quiet=True)


def test_far_machines_leave_the_same_bytes(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = population.train([dataset], tmp_path / "here", FEW, 2, quiet=True)
    pretend(monkeypatch)
    there = population.train([dataset], tmp_path / "there", FEW, 2, quiet=True, engine="ray")
    assert here == there and cluster.pack(tmp_path / "here") == cluster.pack(tmp_path / "there")


def test_far_machines_carry_on(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A training that was stopped travels with what it has."""
    whole = population.train([dataset], tmp_path / "whole", FEW, 1, quiet=True)
    before = Trainer([dataset], tmp_path / "two" / "seed-1", FEW)
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_validate", stops_after(2, Trainer._validate))
        patch.setattr(loop, "SAVE_EVERY", 2)
        with pytest.raises(KeyboardInterrupt):
            before.run(quiet=True)
    assert ckpt.load(tmp_path / "two" / "seed-1" / ckpt.PROGRESS).epoch == 2
    tasks = pretend(monkeypatch)
    found = population.train([dataset], tmp_path / "two", FEW, 1, quiet=True, engine="ray")
    assert ckpt.PROGRESS in tasks[0].begun
    assert found == whole and cluster.pack(tmp_path / "two") == cluster.pack(tmp_path / "whole")


def test_errors_of_far_machines_name_the_folder_here(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    population.train([dataset], tmp_path, FEW, 1, quiet=True)
    before = cluster.pack(tmp_path)
    pretend(monkeypatch)
    with pytest.raises(NdmError, match=f"^{tmp_path}/seed-1: holds a run with another dataset"):
        population.train([dataset], tmp_path, replace(FEW, lr=1e-3), 1, quiet=True, engine="ray")
    assert cluster.pack(tmp_path) == before


def test_machines_with_other_code_refuse(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = pretend(monkeypatch)
    codes = iter(["mine", "another"])
    monkeypatch.setattr(away, "_code", lambda: next(codes))
    with pytest.raises(NdmError, match="its training is not that of the machine that asks"):
        population.train([dataset], tmp_path, FEW, 1, quiet=True, engine="ray")
    assert tasks[0].recipe.code == "mine" and not list(tmp_path.iterdir())


def test_a_cluster_that_is_not_there_is_noticed_before_the_data_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    words = ["train", "--data", str(tmp_path / "none"), "--engine", "ray", "--seeds", "2"]
    assert run_command([*words, "-o", str(tmp_path / "many")]) == 2
    said = capsys.readouterr().err
    assert said == "ndm: ray is not installed; run: pip install 'ndm-tcp[ray]'\n"


def test_a_cluster_trains_populations(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", "--data", str(dataset), "--engine", "ray", "-o", str(tmp_path / "run")]
    assert run_command(words) == 2
    said = capsys.readouterr().err
    assert said == "ndm: --engine ray trains several networks; name how many by --seeds\n"
    assert not (tmp_path / "run").exists()


def test_tensorboard_is_written_if_asked_for_and_there(
    dataset: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["train", "--data", str(dataset), *OPTIONS, "--tensorboard", "--json", "-o"]
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "torch.utils.tensorboard", None)
        assert run_command([*words, str(tmp_path / "none")]) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert said.endswith(f"run: {sys.executable} -m pip install tensorboard\n")
        assert not (tmp_path / "none").exists()
    pytest.importorskip("tensorboard")
    assert run_command([*words, str(tmp_path / "run")]) == 0
    assert list((tmp_path / "run" / "tensorboard").glob("events.*"))
