# SPDX-License-Identifier: GPL-2.0-only
"""Training: same bytes for the same seed, resumable, masked, and honest about what it learns."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from safetensors.torch import load_file, save_file

from ndm_tcp import contract
from ndm_tcp.cli import run_command
from ndm_tcp.datasets.builder.build import build
from ndm_tcp.datasets.rounds.columns import Named
from ndm_tcp.datasets.store import store
from ndm_tcp.errors import NdmError
from ndm_tcp.training import checkpoint as ckpt
from ndm_tcp.training import loop, objective, population, prepared
from ndm_tcp.training.advantage import Value, weights
from ndm_tcp.training.config import TrainConfig
from ndm_tcp.training.evaluate import auc, evaluate
from ndm_tcp.training.loop import METRICS, Trainer
from ndm_tcp.training.model import Policy
from ndm_tcp.training.train import summary

from .bench import bench_train
from .conftest import TRACES

FEW = TrainConfig(hidden=(32, 32), objective="awbc", epochs=20, lr=3e-3, batch=256)
"""wider than the default, which learns too little from so few steps"""


def train(dataset: Path, out: Path, config: TrainConfig = FEW) -> Path:
    Trainer([dataset], out, config).run(quiet=True)
    return out


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of two recordings of the lab, which know the target window."""
    out = tmp_path_factory.mktemp("taught")
    names = ["lab/train-03-loss--reno--1", "lab/train-10-step--bbr--1"]
    build([TRACES / name for name in names], out, quiet=True)
    return out


def test_the_same_seed_gives_the_same_bytes_and_another_seed_does_not(
    dataset: Path, tmp_path: Path
) -> None:
    a, b = train(dataset, tmp_path / "a"), train(dataset, tmp_path / "b")
    for name in (ckpt.MODEL, ckpt.PROGRESS, METRICS, "metrics.json"):
        assert (a / name).read_bytes() == (b / name).read_bytes(), name
    other = train(dataset, tmp_path / "c", replace(FEW, seed=FEW.seed + 1))
    assert (a / ckpt.MODEL).read_bytes() != (other / ckpt.MODEL).read_bytes()


def test_an_interrupted_run_ends_like_an_uninterrupted_one(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = train(dataset, tmp_path / "whole")
    trainer = Trainer([dataset], tmp_path / "cut", FEW)
    train_epoch = Trainer._train_epoch

    def stop_at_14(self: Trainer) -> dict[str, float]:
        if self.epoch == 14:
            raise KeyboardInterrupt
        return train_epoch(self)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_train_epoch", stop_at_14)
        with pytest.raises(KeyboardInterrupt):
            trainer.run(quiet=True)
    again = Trainer([dataset], tmp_path / "cut", FEW)
    assert again.epoch == 10
    again.run(quiet=True)
    for name in (ckpt.MODEL, METRICS):
        assert (whole / name).read_bytes() == (tmp_path / "cut" / name).read_bytes(), name


def test_a_run_is_not_continued_with_other_settings(dataset: Path, tmp_path: Path) -> None:
    train(dataset, tmp_path / "run")
    with pytest.raises(NdmError, match="other settings"):
        Trainer([dataset], tmp_path / "run", replace(FEW, beta=2.0))


def test_training_beats_holding_still_on_its_own_flows(dataset: Path, tmp_path: Path) -> None:
    result = Trainer([dataset], tmp_path, replace(FEW, epochs=60, objective="bc")).run(quiet=True)
    assert result["train"]["gain_mae"] < result["train"]["hold_mae"]
    assert result["train"]["congestion_auc"] > 0.7


def test_masked_inputs_have_no_influence(dataset: Path, tmp_path: Path) -> None:
    run = train(dataset, tmp_path / "run", replace(FEW, mask=(7, 8)))
    policy, _ = ckpt.load_policy(run)
    names = ("rtt_variation", "rtt_gradient")
    hidden = [i.index - 1 for i in contract.DENSE if i.name.startswith(names)]
    assert len(hidden) == 4, "two inputs, and their means"
    x = torch.rand(50, contract.N_DENSE)
    moved = x.clone()
    moved[:, hidden] = torch.rand(50, 4)
    assert torch.equal(policy.act(x), policy.act(moved))
    moved[:, 0] = torch.rand(50)
    assert not torch.equal(policy.act(x), policy.act(moved))
    assert not policy.linear_layers()[0][0][:, hidden].any()


def test_bc_and_awbc_differ(dataset: Path, tmp_path: Path) -> None:
    a = train(dataset, tmp_path / "a")
    b = train(dataset, tmp_path / "b", replace(FEW, objective="bc"))
    assert (a / ckpt.MODEL).read_bytes() != (b / ckpt.MODEL).read_bytes()


def test_advantage_prefers_the_better_of_two_actions_in_one_state() -> None:
    x = np.repeat(np.full((1, contract.N_DENSE), 0.5, np.float32), 200, axis=0)
    returns = np.repeat([1.0, -1.0], 100).astype(np.float32)
    weight = weights(Value.fit(x, returns), x, returns, beta=1.0)
    assert weight[:100].min() > 5 * weight[100:].max()


def test_reward_falls_with_delay_and_loss() -> None:
    columns = {
        "duration_us": np.full(4, 10_000),
        "delivered": np.array([10, 10, 10, 5]),
        "lost": np.array([0, 0, 1, 0]),
        "srtt_us": np.array([10_000, 20_000, 10_000, 10_000]),
        "min_rtt_us": np.full(4, 10_000),
    }
    assert objective.rewards(columns) == pytest.approx([1.0, 0.625, 0.5, 0.5])


def test_return_is_the_discounted_mean_of_what_follows() -> None:
    got = objective.returns_to_go(np.array([9.0, 1.0, 0.0, 2.0]), 0.5)
    assert got == pytest.approx([(1 + 0.25 * 2) / 1.75, (0 + 0.5 * 2) / 1.5, 2.0, 0.0])


def test_actions_are_log_ratios_of_windows() -> None:
    got = objective.actions({"cwnd": np.array([10, 20, 10, 100, 90])})
    assert got == pytest.approx([1, -1, 1, np.log2(0.9), 0])


def test_slow_start_and_recovery_are_not_decisions(dataset: Path) -> None:
    table = store.load(dataset).rounds
    data = objective.examples(table, FEW)
    state = table["ca_state"].to_numpy()
    slow = table["slow_start"].to_numpy() > 0
    assert (state >= 2).any() and slow.any()
    assert not data.policy[state >= 2].any()
    assert not data.policy[slow].any()
    assert sum(data.masked.values()) + int(data.policy.sum()) == table.num_rows


def test_the_right_window_is_approached_by_a_part_of_the_way() -> None:
    columns = {
        "target_cwnd": np.array([40, 20, 1000, 1, 0]),
        "cwnd": np.array([20, 20, 1, 1000, 7]),
    }
    slope, (low, high) = objective.STEP_SHARE, objective.STEP_RANGE
    assert objective.target_steps(columns) == pytest.approx([slope, 0, high, low, 0])


def test_the_right_window_is_taught_in_recoveries_too(taught: Path) -> None:
    table = store.load(taught).rounds
    data = objective.examples(table, TrainConfig())
    state, slow = table["ca_state"].to_numpy(), table["slow_start"].to_numpy() > 0
    assert data.policy[state == 3].any() and not data.policy[state == 4].any()
    assert not data.policy[slow].any()
    assert sum(data.masked.values()) + int(data.policy.sum()) == table.num_rows
    flow = data.flow == data.flow[0]
    assert data.weight[flow] == pytest.approx(0.1 / np.sqrt(flow.sum()))  # not ndm_tcp's own


def test_the_least_loss_is_at_the_expectile_of_the_steps() -> None:
    asked = torch.tensor([-0.4] * 3 + [0.6])  # one state, in which a quarter asks for more
    guesses = torch.linspace(-0.5, 0.7, 241)

    def lowest(config: TrainConfig, sure: bool) -> float:
        known = torch.full((4,), sure)
        losses = [float(loop.gain_loss(g.expand(4), asked, config, known).mean()) for g in guesses]
        return float(guesses[int(np.argmin(losses))])

    for expectile, least in ((0.5, -0.15), (0.75, 0.1)):
        config = TrainConfig(expectile=expectile)
        assert lowest(config, sure=False) == pytest.approx(least, abs=0.006)
        assert lowest(config, sure=True) == pytest.approx(-0.15, abs=0.006)
        cloning = TrainConfig(objective="bc", expectile=expectile)
        far = loop.gain_loss(torch.tensor([1.0, -1.0]), torch.zeros(2), cloning)
        assert far[0] == far[1]  # an action of a controller is not bold or timid


def test_a_likely_cause_weighs_as_much_as_it_is_likely() -> None:
    """Of rounds that are kept the cause is a network's probability."""
    out, balance = torch.zeros(1, 2), torch.tensor([2.0, 0.5])
    for likely, weight in ((0.0, 2.0), (1.0, 0.5), (0.25, 0.25 * 0.5 + 0.75 * 2.0)):
        none = torch.zeros(1)
        cause = torch.tensor([likely])
        batch = prepared.Batch(none[None], none, none, cause, none.bool())
        _, logit, _, known = loop._sums(out, batch, balance, TrainConfig())
        assert int(known) == 1 and float(logit) == pytest.approx(weight * np.log(2))


def test_captures_without_truth_say_what_to_do(dataset: Path, tmp_path: Path) -> None:
    with pytest.raises(NdmError, match="no truth.*--objective awbc"):
        Trainer([dataset], tmp_path, TrainConfig())


def test_datasets_together_count_a_flow_once(dataset: Path, taught: Path) -> None:
    one, other = store.load(dataset), store.load(taught)
    both = store.load_all([dataset, taught, dataset])
    assert both.rounds.num_rows == one.rounds.num_rows + other.rounds.num_rows
    assert both.sha256 not in (one.sha256, other.sha256)
    assert store.load_all([taught]).sha256 == other.sha256


def test_shares_are_of_the_weight_that_trains(taught: Path, tmp_path: Path) -> None:
    """Whatever the sizes: one run beside many rounds has the share that it was given."""
    build([TRACES / "lab/train-03-loss--bbr--1"], tmp_path / "one", quiet=True)
    folders = [tmp_path / "one", taught]
    table = store.load_all(folders).rounds
    part = table[store.PART.name].to_numpy()
    plain = objective.examples(table, TrainConfig())
    for share in (0.3, 0.6):
        found = objective.examples(table, TrainConfig(shares=(share, 1 - share)))
        for split in set(found.split.tolist()):
            rows = found.policy & (found.split == split)
            weight = found.weight[rows]
            assert weight[part[rows] == 0].sum() == pytest.approx(share, rel=1e-5)
            assert weight[part[rows] == 1].sum() == pytest.approx(1 - share, rel=1e-5)
        rows = found.policy & (part == 0)
        ratio = found.weight[rows] / plain.weight[rows]
        assert ratio.max() == pytest.approx(ratio.min(), rel=1e-5)  # within one, as before
    data = prepared.prepare(folders, TrainConfig(objective="awbc", shares=(0.3, 0.7))).examples
    rows = data.policy & (data.split == "train")
    weight, mine = data.weight[rows], data.part[rows] == 0
    assert weight[mine].sum() / weight.sum() == pytest.approx(0.3, rel=1e-5)  # of an advantage, too
    with pytest.raises(NdmError, match="3 given for 2 datasets"):
        prepared.prepare(folders, TrainConfig(shares=(0.2, 0.3, 0.5)))
    with pytest.raises(NdmError, match="sum up to 1"):
        TrainConfig(shares=(0.2, 0.3))


def test_the_loss_of_congestion_ignores_the_shares(taught: Path, tmp_path: Path) -> None:
    build([TRACES / "lab/train-03-loss--bbr--1"], tmp_path / "one", quiet=True)
    plain, shared = (
        prepared.prepare([taught, tmp_path / "one"], TrainConfig(shares=shares))
        for shares in ((), (1.0, 0.0))
    )
    assert torch.equal(plain.train.cause, shared.train.cause)
    assert torch.equal(plain.balance, shared.balance) and bool(plain.balance.all())


def test_one_share_each_also_of_a_dataset_without_rounds(taught: Path, tmp_path: Path) -> None:
    """The second dataset holds polls alone, the third what the first has."""
    (poll,) = (TRACES / "third_party").glob("mlab_tcpinfo*")
    build([poll], tmp_path / "polls", quiet=True)
    for last in (tmp_path / "polls", taught):
        with pytest.raises(NdmError, match="no round of dataset 2 teaches; leave it out"):
            prepared.prepare([taught, last], TrainConfig(shares=(0.7, 0.3)))


def test_a_run_of_several_datasets_is_measured_on_another_one(
    taught: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Shares and offsets belong to the datasets of the run."""
    build([TRACES / "lab/train-03-loss--bbr--1"], tmp_path / "one", quiet=True)
    config = TrainConfig(epochs=1, shares=(0.3, 0.7), offsets=(0.1, 0.0))
    Trainer([tmp_path / "one", taught], tmp_path / "run", config).run(quiet=True)
    assert run_command(["eval", str(tmp_path / "run"), "--data", str(taught)]) == 0
    said = capsys.readouterr()
    assert "rounds" in said.out and "what is held out here may have trained it" in said.err
    Trainer([taught], tmp_path / "own", TrainConfig(epochs=1)).run(quiet=True)
    assert run_command(["eval", str(tmp_path / "own"), "--data", str(taught)]) == 0
    assert not capsys.readouterr().err
    with pytest.raises(NdmError, match="3 given for 2 datasets"):
        prepared.prepare([tmp_path / "one", taught], TrainConfig(offsets=(0.1, 0.2, 0.3)))


def test_a_run_goes_on_with_what_it_learned_from_alone(
    taught: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither other rounds nor other target windows, which the code makes, get into a run."""
    build([TRACES / "lab/train-03-loss--bbr--1"], tmp_path / "one", quiet=True)
    config = TrainConfig(epochs=1)
    Trainer([taught], tmp_path / "run", config).run(quiet=True)
    assert Trainer([taught], tmp_path / "run", config).epoch == 1
    with pytest.raises(NdmError, match="holds a run with another dataset"):
        Trainer([taught, tmp_path / "one"], tmp_path / "run", config)
    monkeypatch.setattr(objective, "STEP_SHARE", 0.5)
    with pytest.raises(NdmError, match="or of other target windows; choose another -o"):
        Trainer([taught], tmp_path / "run", config)


def test_auc_is_the_probability_of_the_right_order() -> None:
    score = np.array([0.1, 0.4, 0.35, 0.8])
    assert auc(score, np.array([0, 0, 1, 1])) == pytest.approx(0.75)
    assert auc(np.zeros(4), np.array([0, 1, 0, 1])) == pytest.approx(0.5)
    assert auc(score, np.ones(4)) is None


def test_foreign_damaged_and_poisoned_checkpoints_are_refused(run: Path, tmp_path: Path) -> None:
    with pytest.raises(NdmError, match="no checkpoint here; run: ndm train"):
        ckpt.load(tmp_path / "none")
    path = tmp_path / ckpt.MODEL
    path.write_bytes(b"certainly not safetensors, but some bytes")
    with pytest.raises(NdmError, match="not a readable safetensors"):
        ckpt.load(path)
    save_file({"a": torch.zeros(2)}, path)
    with pytest.raises(NdmError, match="not written by ndm train"):
        ckpt.load(path)
    good = ckpt.load(run / ckpt.MODEL)
    poisoned = {**good.tensors, "layers.0.bias": good.tensors["layers.0.bias"] * float("nan")}
    ckpt.save(path, replace(good, tensors=poisoned))
    with pytest.raises(NdmError, match="NaN"):
        ckpt.load(path)
    ckpt.save(path, replace(good, config=replace(good.config, hidden=(8,))))
    with pytest.raises(NdmError, match="do not fit its config"):
        ckpt.load_policy(tmp_path)


def test_a_checkpoint_of_another_contract_is_refused(run: Path, tmp_path: Path) -> None:
    from safetensors import safe_open

    with safe_open(run / ckpt.MODEL, framework="pt") as stream:
        metadata = {k: v.replace(_hash(), "f" * 16) for k, v in stream.metadata().items()}
    save_file(load_file(run / ckpt.MODEL), tmp_path / ckpt.MODEL, metadata=metadata)
    with pytest.raises(NdmError, match="made for contract ffff.*run: ndm train"):
        ckpt.load(tmp_path / ckpt.MODEL)


def _hash() -> str:
    from ndm_tcp import contract

    return contract.INTERFACE_HASH


def test_bad_settings_are_refused() -> None:
    for bad in (
        {"hidden": (65,)},
        {"mask": (contract.N_DENSE + 1,)},
        {"objective": "magic"},
        {"epochs": 0},
        {"expectile": 1.0},
    ):
        with pytest.raises(NdmError):
            TrainConfig(**bad)  # type: ignore[arg-type]
    with pytest.raises(NdmError, match="unknown keys"):
        TrainConfig.from_dict({"lerning_rate": 1})


def test_outputs_stay_in_their_ranges() -> None:
    policy = Policy((4,))
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.mul_(100)
    out = policy.act(torch.randn(200, contract.N_DENSE) * 10)
    assert out[:, 0].abs().max() <= 1 and out[:, 1].abs().max() <= 8


def test_metrics_are_written_as_csv(run: Path) -> None:
    assert (run / METRICS).read_text().count("\n") == 13
    assert not (run / "tensorboard").exists()


def test_the_learning_rate_goes_up_and_down_once(dataset: Path, tmp_path: Path) -> None:
    trainer = Trainer([dataset], tmp_path, FEW)
    seen = []
    step = trainer._step

    def note() -> None:
        seen.append(trainer.optimizer.param_groups[0]["lr"])
        step()

    trainer._step = note  # type: ignore[method-assign]
    trainer.run(quiet=True)
    assert len(seen) == FEW.epochs * trainer.steps
    top = int(np.argmax(seen))
    assert seen[top] == pytest.approx(FEW.lr, rel=1e-3) and seen[-1] < 1e-3 * FEW.lr
    assert 0.2 < top / len(seen) < 0.4
    assert (np.diff(seen[: top + 1]) > 0).all() and (np.diff(seen[top:]) < 0).all()


def test_small_datasets_take_small_steps(dataset: Path, tmp_path: Path) -> None:
    assert [prepared.batch_of(TrainConfig(), n) for n in (1, 6400, 1 << 20)] == [64, 100, 4096]
    assert prepared.batch_of(TrainConfig(batch=256), 1 << 20) == 256
    found = prepared.prepare([dataset], replace(FEW, batch=0))
    assert found.config.batch == prepared.batch_of(TrainConfig(), len(found.train.x))
    # As much as is said of hidden layers and starts, a run says it.
    trainer = Trainer(found, tmp_path, replace(FEW, batch=0))
    assert trainer.config == found.config


def test_runs_of_the_former_recipe_are_read_and_not_carried_on(
    dataset: Path, tmp_path: Path
) -> None:
    run = train(dataset, tmp_path / "run", replace(FEW, objective="bc"))
    for name in (ckpt.MODEL, ckpt.PROGRESS):
        saved = ckpt.load(run / name)
        assert saved.config.schedule == "one-cycle"
        ckpt.save(run / name, replace(saved, config=replace(saved.config, schedule="cosine")))
    ckpt.load_policy(run)
    with pytest.raises(NdmError, match="other settings"):
        Trainer([dataset], run, replace(FEW, objective="bc"))
    old = TrainConfig().to_dict() | {"objective": "ideal"}
    del old["schedule"], old["split_by"]
    read = TrainConfig.from_dict(old)
    assert (read.objective, read.schedule, read.split_by) == ("target_step", "cosine", "flow")


def test_nothing_is_read_or_computed_that_the_objective_ignores(
    dataset: Path, taught: Path
) -> None:
    for folder, config in ((taught, TrainConfig()), (dataset, FEW)):
        whole = objective.examples(store.load(folder).rounds, config)
        part = objective.examples(store.load(folder, objective.needed(config)).rounds, config)
        assert (part.return_to_go is None) == (config.objective == "target_step")
        for name in ("x", "action", "policy", "weight", "cause", "split", "flow", "cc"):
            assert np.array_equal(getattr(whole, name), getattr(part, name)), name
        assert "duration_us" not in objective.needed(TrainConfig())
        assert "ssthresh" not in objective.needed(config)


def test_metrics_by_flow_are_those_of_each_flow_alone(taught: Path, tmp_path: Path) -> None:
    trainer = Trainer([taught], tmp_path, TrainConfig(epochs=1))
    data, found = trainer.examples, evaluate(trainer.policy, trainer.examples)
    with torch.no_grad():
        gain = trainer.policy.act(torch.from_numpy(data.x)).numpy()[:, 0]
    for kind, column in (("by_flow", data.flow), ("by_cc", data.cc)):
        wanted = {}
        for name in np.unique(column):
            rows = (column == name) & data.policy & (data.split == "train")
            if rows.any():
                error = np.abs(gain[rows] - data.action[rows]).mean()
                wanted[str(name)] = (int(rows.sum()), pytest.approx(float(error), rel=1e-5))
        got = {k: (v["rounds"], v["gain_mae"]) for k, v in found["train"][kind].items()}
        assert got == wanted and list(got) == sorted(wanted)


@pytest.mark.parametrize("held_out", [True, False])
def test_training_rounds_are_not_called_held_out(
    held_out: bool,
    dataset: Path,
    taught: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Without validation rounds the epoch is chosen by the training rounds."""
    trainer = Trainer([dataset if held_out else taught], tmp_path, replace(FEW, epochs=1))
    assert (len(trainer.val.x) > 0) is held_out
    trainer.run(name="mine")
    loss = f"{trainer.history[-1]['val_loss']:.4f}"
    said = f"on held-out paths {loss}" if held_out else "no held-out paths"
    assert capsys.readouterr().err.rstrip().endswith(f", {said}")


@pytest.mark.parametrize(
    ("overflow", "random", "said"),
    [
        (0, 0, "AUC unknown (no loss of known cause)"),
        (3, 0, "AUC unknown (3 overflow losses, 0 random)"),
    ],
)
def test_losses_of_unknown_cause_are_not_said_to_be_none(
    overflow: int, random: int, said: str
) -> None:
    part = {"rounds": 9, "gain_mae": 0.1, "hold_mae": 0.2, "congestion_auc": None}
    part |= {"congestion_losses": overflow, "noise_losses": random}
    found = {"parameters": 1, "val_loss": 0.5, "train": part, "val": {"gain_mae": None}}
    assert said in summary({**found, "test": {"gain_mae": None}}).splitlines()[1]


@pytest.mark.parametrize(("rounds", "shown"), [(9, "0.50000"), (0, "nan")])
def test_a_population_without_held_out_rounds_has_no_held_out_loss(rounds: int, shown: str) -> None:
    val = {"rounds": rounds, "gain_mae": None, "congestion_auc": None}
    val |= {"congestion_losses": 0, "noise_losses": 0}
    found = {"val_loss": 0.5, "epoch_chosen_by": "val" if rounds else "train", "val": val}
    row = population.summary({1: found}).splitlines()[1]
    assert row.split()[1] == shown


def test_columns_of_text_keep_their_texts_and_nulls() -> None:
    for column in (
        pa.chunked_array([["b", None], ["a", "b"]]),
        pa.chunked_array(
            [pa.array(["b", None]).dictionary_encode(), pa.array(["a", "b"]).dictionary_encode()]
        ),
        pa.chunked_array([], pa.string()),
    ):
        named = Named.of(column)
        assert named.text("?").tolist() == [v or "?" for v in column.to_pylist()]


def test_the_benchmark_runs(taught: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench_train.main(["--runs", "1", "--quick", "--data", str(taught)]) == 0
    assert "median of 1: " in capsys.readouterr().out
