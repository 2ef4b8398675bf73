# SPDX-License-Identifier: GPL-2.0-only
"""What training starts from: no output without labels is left at random weights."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import orjson
import pytest
import torch

from ndm_tcp import contract, model_json
from ndm_tcp.cli import run_command
from ndm_tcp.datasets.builder.build import build
from ndm_tcp.errors import NdmError
from ndm_tcp.export.integers import golden, quantize
from ndm_tcp.fixedpoint import Layer, forward
from ndm_tcp.training import checkpoint as ckpt
from ndm_tcp.training import start
from ndm_tcp.training.config import RESULTS, TrainConfig
from ndm_tcp.training.loop import Trainer
from ndm_tcp.training.model import Policy
from ndm_tcp.training.prepared import prepare

from .conftest import TRACES

FEW = TrainConfig(objective="awbc", epochs=24, lr=3e-3, batch=256)
GAIN, CONGESTION = 0, 1


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of captures alone, as a user has them: no cause of any loss is known."""
    names = ("reno-03-lossy", "cubic-04-lossy", "bbr-03-lossy", "cubic-00-clean", "bbr-01-clean")
    folder = tmp_path_factory.mktemp("captures")
    for name in names:
        (found,) = (TRACES / name).glob("sender.pcap*")
        (folder / f"{name}{''.join(found.suffixes)}").write_bytes(found.read_bytes())
    build([folder], folder / "data", quiet=True)
    return folder / "data"


def test_every_input_has_a_typical_value() -> None:
    assert len(start.TYPICAL) == contract.N_DENSE, "add the new input's mean, and its mean's"


def shipped() -> list[Layer]:
    return model_json.from_json(model_json.SHIPPED).layers


def quantized(policy: Policy) -> list[Layer]:
    return quantize.quantize([(w.numpy(), b.numpy()) for w, b in policy.linear_layers()])


def same(one: Layer, other: Layer, rows: slice = slice(None)) -> bool:
    return all(
        np.array_equal(getattr(one, part)[rows], getattr(other, part)[rows])
        for part in ("weight", "bias", "shift")
    )


def test_the_shipped_weights_in_float32_give_the_shipped_integers() -> None:
    found = start.load("shipped")
    policy = Policy(found.hidden)
    found.copy_to(policy)
    assert all(map(same, quantized(policy), shipped()))


def test_without_causes_congestion_stays_that_of_the_shipped_network(
    captures: Path, tmp_path: Path
) -> None:
    trainer = Trainer([captures], tmp_path, replace(FEW, epochs=48))
    assert not (trainer.examples.cause >= 0).any()
    assert trainer.config.freeze == ("congestion",) and "shipped" in trainer.config.init
    trainer.run(quiet=True)
    policy, checkpoint = ckpt.load_policy(tmp_path)
    assert checkpoint.config == trainer.config
    layers = quantized(policy)
    x = golden.inputs().astype(np.int64)
    ours, theirs = (forward(network, x).outputs for network in (layers, shipped()))
    assert np.array_equal(ours[:, CONGESTION], theirs[:, CONGESTION])
    assert not np.array_equal(ours[:, GAIN], theirs[:, GAIN])
    results = orjson.loads((tmp_path / RESULTS).read_bytes())
    assert results["frozen"] == ["congestion"] and results["start"] == trainer.config.init
    assert results["train"]["gain_mae"] < results["train"]["hold_mae"] * 2


def test_weight_decay_does_not_touch_what_is_frozen(dataset: Path, tmp_path: Path) -> None:
    for name in ("cwnd_gain", "congestion"):
        config = replace(FEW, init="shipped", freeze=(name,), weight_decay=2.0)
        trainer = Trainer([dataset], tmp_path / name, config)
        trainer._train_epoch()
        policy = trainer.policy
        x = torch.rand(500, contract.N_DENSE)
        reference = Policy(trainer.config.hidden)
        start.load("shipped").copy_to(reference)
        kept = [o.name for o in contract.OUTPUTS].index(name)
        assert torch.equal(policy.act(x)[:, kept], reference.act(x)[:, kept])
        assert not torch.equal(policy.act(x)[:, 1 - kept], reference.act(x)[:, 1 - kept])


def test_a_frozen_run_resumes_to_the_same_bytes(captures: Path, tmp_path: Path) -> None:
    class Stop(Exception):
        pass

    def stop() -> tuple[float, float]:
        raise Stop

    config = replace(FEW, epochs=12)
    Trainer([captures], tmp_path / "whole", config).run(quiet=True)
    cut = Trainer([captures], tmp_path / "cut", config)
    validate = cut._validate
    cut._validate = lambda: stop() if cut.epoch == 10 else validate()  # type: ignore[method-assign]
    with pytest.raises(Stop):
        cut.run(quiet=True)
    again = Trainer([captures], tmp_path / "cut", config)
    assert again.epoch == 10
    again.run(quiet=True)
    whole, resumed = ((tmp_path / n / ckpt.MODEL).read_bytes() for n in ("whole", "cut"))
    assert whole == resumed


def test_held_out_rounds_that_tell_nothing_do_not_choose_the_epoch(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Congestion alone learns, and no held-out loss has a known cause: training rounds choose."""
    config = replace(FEW, epochs=6, init="shipped", freeze=("cwnd_gain",))
    data = prepare([dataset], config)
    assert (data.val.cause >= 0).any() and data.judges is data.val
    blind = replace(data, val=replace(data.val, cause=torch.full_like(data.val.cause, -1)))
    assert len(blind.val.x) and (blind.val.weight > 0).any()
    trainer = Trainer(blind, tmp_path, config)
    results = trainer.run(name="mine")
    assert results["epoch"] == len(trainer.history) and results["epoch_chosen_by"] == "train"
    assert capsys.readouterr().err.rstrip().endswith(", held-out paths without labels")
    reference = Policy(trainer.config.hidden)
    start.load("shipped").copy_to(reference)
    x = torch.rand(500, contract.N_DENSE)
    assert not torch.equal(trainer.policy.act(x)[:, CONGESTION], reference.act(x)[:, CONGESTION])
    assert Trainer(blind, tmp_path, config).run(quiet=True) == results  # finished


def test_random_weights_for_an_output_without_labels_are_refused(
    captures: Path, tmp_path: Path
) -> None:
    with pytest.raises(NdmError, match="congestion would stay random; leave --init out"):
        Trainer([captures], tmp_path / "run", replace(FEW, init="random"))
    assert not (tmp_path / "run").exists()


def test_labels_of_both_outputs_need_no_start(dataset: Path, tmp_path: Path) -> None:
    trainer = Trainer([dataset], tmp_path, FEW)
    assert (trainer.config.init, trainer.config.freeze) == ("random", ())


def test_training_starts_from_a_run_or_a_model(dataset: Path, run: Path, tmp_path: Path) -> None:
    policy, _ = ckpt.load_policy(run)
    from_run = Trainer([dataset], tmp_path / "a", replace(FEW, init=str(run)))
    assert from_run.config.init.startswith("checkpoint ") and not from_run.config.freeze
    for ours, theirs in zip(from_run.policy.linear_layers(), policy.linear_layers(), strict=True):
        assert torch.equal(ours[0], theirs[0]) and torch.equal(ours[1], theirs[1])
    for path in (model_json.SHIPPED, model_json.SHIPPED.parent):
        from_model = Trainer([dataset], tmp_path / "b", replace(FEW, init=str(path)))
        assert all(map(same, quantized(from_model.policy), shipped()))
    masked = Trainer([dataset], tmp_path / "m", replace(FEW, mask=(7, 8)))
    masked.run(quiet=True)
    after = Trainer([dataset], tmp_path / "c", replace(FEW, init=str(tmp_path / "m")))
    assert after.config.mask == (7, 8), "what the start never saw stays hidden"


def test_fine_tuning_that_only_gets_worse_leaves_the_start(dataset: Path, tmp_path: Path) -> None:
    first = tmp_path / "first"
    Trainer([dataset], first, replace(FEW, epochs=30)).run(quiet=True)
    worse = replace(FEW, init=str(first), lr=5.0, epochs=1)
    Trainer([dataset], tmp_path / "second", worse).run(quiet=True)
    one, two = (ckpt.load_policy(p)[0] for p in (first, tmp_path / "second"))
    assert torch.equal(one.layers[0].weight, two.layers[0].weight)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"init": "{tmp}/none"}, "neither a run .* nor a model .*; expected shipped, random"),
        ({"init": "{tmp}/bad.json"}, "not a model written by ndm export"),
        ({"init": "{tmp}/clamped.json"}, "has clamped units"),
        ({"init": "shipped", "hidden": (16,)}, "--hidden 16: .* has 8,8; leave --hidden out"),
        ({"init": "random", "freeze": ("congestion",)}, "start from its network: --init shipped"),
    ],
    ids=lambda v: str(v)[:40],
)
def test_starts_that_cannot_be_are_one_line(
    change: dict[str, object], expected: str, dataset: Path, tmp_path: Path
) -> None:
    (tmp_path / "bad.json").write_text("{}")
    layers = [replace(layer, clamped=4 if layer.n_out > 2 else 0) for layer in shipped()]
    clamped = model_json.Model(layers, {})
    (tmp_path / "clamped.json").write_text(model_json.to_json(clamped))
    change = {
        k: v.replace("{tmp}", str(tmp_path)) if isinstance(v, str) else v for k, v in change.items()
    }
    with pytest.raises(NdmError, match=expected) as caught:
        Trainer([dataset], tmp_path / "run", replace(FEW, **change))  # type: ignore[arg-type]
    assert "\n" not in str(caught.value) and not (tmp_path / "run").exists()


def test_the_default_width_counts_when_it_is_asked_for(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A wider start gives its own width only if none was named."""
    words = ["train", "--data", str(dataset), "--objective", "awbc", "--epochs", "1", "-o"]
    wide = tmp_path / "wide"
    assert run_command([*words, str(wide), "--hidden", "16"]) == 0
    tuned = [*words, str(tmp_path / "tuned"), "--init", str(wide)]
    capsys.readouterr()
    assert run_command([*tuned, "--hidden", "8,8"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("ndm: --hidden 8,8: checkpoint ") and said.count("\n") == 1
    assert said.endswith(" has 16; leave --hidden out\n") and not (tmp_path / "tuned").exists()
    assert run_command(tuned) == 0
    assert ckpt.load(tmp_path / "tuned" / ckpt.MODEL).config.hidden == (16,)


def test_nothing_left_to_learn_is_refused(captures: Path, tmp_path: Path) -> None:
    with pytest.raises(NdmError, match="nothing is left to learn: cwnd_gain and congestion"):
        Trainer([captures], tmp_path, replace(FEW, freeze=("cwnd_gain",)))
    with pytest.raises(NdmError, match="every output frozen"):
        TrainConfig(freeze=("cwnd_gain", "congestion"))
    with pytest.raises(NdmError, match="freeze 'gain': expected cwnd_gain or congestion"):
        TrainConfig(freeze=("gain",))


def test_the_command_says_what_it_started_from(
    captures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", "--data", str(captures), "--objective", "awbc", "--epochs", "2"]
    assert run_command([*words, "-o", str(tmp_path / "run")]) == 0
    said = capsys.readouterr().out
    assert "started from the shipped network" in said and "frozen: congestion" in said
    assert run_command([*words, "-o", str(tmp_path / "no"), "--init", "random"]) == 2
    assert "leave --init out" in capsys.readouterr().err


def test_inputs_that_a_start_knows_and_the_data_do_not_become_typical_ones() -> None:
    found = start.load("shipped")
    whole, masked = Policy(found.hidden), Policy(found.hidden, mask=(4, 10))
    found.copy_to(whole)
    found.copy_to(masked)
    hidden = masked.keep == 0
    assert [i.name for i, gone in zip(contract.DENSE, hidden, strict=True) if gone] == [
        *("entropy", "queue_floor", "queue_floor_mean")
    ]
    x = torch.rand(200, contract.N_DENSE)
    typical = torch.where(hidden, torch.tensor(start.TYPICAL), x)
    assert torch.allclose(masked.act(x), whole.act(typical), atol=1e-5)


def test_data_without_a_round_to_learn_from_say_why(
    captures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Here none has a target window. The reasons are words, not the printout of a dictionary."""
    assert run_command(["train", "--data", str(captures), "-o", str(tmp_path / "run")]) == 2
    said = capsys.readouterr().err
    assert "no round to learn from (" in said and "no truth" in said
    assert "{" not in said and said.count("\n") == 1
