# SPDX-License-Identifier: GPL-2.0-only
"""A network that learns the mean of others."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from ndm_tcp import files
from ndm_tcp.cli import run_command
from ndm_tcp.datasets.builder.build import build
from ndm_tcp.errors import NdmError
from ndm_tcp.export import judge
from ndm_tcp.training import checkpoint as ckpt
from ndm_tcp.training import teachers
from ndm_tcp.training.config import TrainConfig
from ndm_tcp.training.loop import Trainer
from ndm_tcp.training.model import Policy
from ndm_tcp.training.objective import STEP_RANGE
from ndm_tcp.training.prepared import Prepared, _rows, prepare

from .conftest import TRACES

FEW = TrainConfig(hidden=(16,), epochs=8, batch=256)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("data")
    names = ["lab/train-03-loss--reno--1", "lab/train-10-step--bbr--1"]
    build([TRACES / name for name in names], out, quiet=True)
    return out


def test_what_has_no_part_in_choosing_the_epoch_has_none_of_its_causes_in_it(
    tmp_path: Path,
) -> None:
    """Else the network to start from is the best: it has these causes exactly."""
    folders = [tmp_path / "mine", tmp_path / "lab"]
    for folder, names in zip(
        folders, (("00-clean", "03-loss"), ("05-loss", "04-loss")), strict=True
    ):
        build([TRACES / f"lab/train-{name}--bbr--1" for name in names], folder, quiet=True)
    config = TrainConfig(init="shipped", kept=(1,), shares=(0.3, 0.7))
    both, mine = (
        prepare(folders, replace(config, held_out_shares=shares)).val
        for shares in ((0.5, 0.5), (1.0, 0.0))
    )
    assert both.sure.any() and 0 < len(mine.x) < len(both.x) and not mine.sure.any()


@pytest.fixture(scope="module")
def population(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    out = tmp_path_factory.mktemp("many")
    for seed in (1, 2):
        Trainer([data], out / f"seed-{seed}", replace(FEW, seed=seed)).run(quiet=True)
    return out


def test_the_mean_of_the_teachers_is_the_target(data: Path, population: Path) -> None:
    runs = tuple(str(population / f"seed-{seed}") for seed in (1, 2))
    plain, taught = prepare([data], FEW), prepare([data], replace(FEW, teachers=runs))
    nets = [ckpt.load_policy(Path(run))[0] for run in runs]
    with torch.no_grad():
        mean = sum(net.raw(plain.train.x) for net in nets) / 2
    assert isinstance(mean, torch.Tensor)
    assert torch.allclose(taught.train.action, mean[:, 0].clamp(-1, 1), atol=1e-6)
    known = plain.train.cause >= 0
    assert known.any() and not known.all()
    assert torch.allclose(taught.train.cause[known], mean[known, 1].sigmoid(), atol=1e-6)
    assert (taught.train.cause[~known] == -1).all()
    assert torch.equal(taught.train.weight, plain.train.weight)
    digests = [files.sha256(Path(run) / ckpt.MODEL)[:16] for run in runs]
    assert taught.config.teachers == tuple(f"checkpoint {digest}" for digest in digests)
    assert taught.config.expectile == 0.5


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset without a target window and without a known cause of loss."""
    folder = tmp_path_factory.mktemp("captures")
    for name in ("reno-03-lossy", "cubic-04-lossy", "bbr-01-clean"):
        (found,) = (TRACES / name).glob("sender.pcap*")
        (folder / f"{name}{''.join(found.suffixes)}").write_bytes(found.read_bytes())
    build([folder], folder / "data", quiet=True)
    return folder / "data"


def test_teachers_need_no_labels(captures: Path, population: Path, tmp_path: Path) -> None:
    """They teach every round's gain, and congestion wherever packets were lost."""
    runs = tuple(str(population / f"seed-{seed}") for seed in (1, 2))
    data = prepare([captures], replace(FEW, teachers=runs))
    assert not data.examples.policy.any() and not (data.examples.cause >= 0).any()
    assert (data.config.init, data.config.freeze) == ("random", ())
    nets = [ckpt.load_policy(Path(run))[0] for run in runs]
    target = teachers.outputs(nets, data.train.x)
    assert (data.train.weight > 0).any() and torch.allclose(data.train.action, target[:, 0])
    known = data.train.cause >= 0
    lost = data.examples.lost & (data.examples.split == "train")
    assert 0 < int(known.sum()) == lost.sum() < len(known) and (data.balance == 1).all()
    assert torch.allclose(data.train.cause[known], target[known, 1])

    Trainer(data, tmp_path / "mean", data.config).run(quiet=True)
    student, _ = ckpt.load_policy(tmp_path / "mean")
    fresh = Policy(data.config.hidden)
    with torch.no_grad():
        apart, before = (
            (net.raw(data.train.x)[known, 1].sigmoid() - target[known, 1]).abs().mean()
            for net in (student, fresh)
        )
    assert apart < 0.5 * before
    judge.require(tmp_path / "mean", even_if_worse=True)  # neither output is still random


def test_a_share_of_data_without_labels_is_the_teachers(
    captures: Path, data: Path, population: Path
) -> None:
    folders, shares = [data, captures], (0.3, 0.7)
    with pytest.raises(NdmError, match="no round of dataset 2 teaches"):
        prepare(folders, replace(FEW, shares=shares))
    runs = (str(population / "seed-1"),)
    found = prepare(folders, replace(FEW, shares=shares, teachers=runs))
    made = found.examples
    mine = made.part[(made.split == "train") & (made.acts | made.lost)] == 1
    weight = found.train.weight.numpy()
    assert weight[mine].sum() / weight.sum() == pytest.approx(0.7, rel=1e-5)


def test_a_network_that_learns_the_mean_is_nearer_to_it_than_its_teachers_are(
    data: Path, population: Path, tmp_path: Path
) -> None:
    words = ["train", "--data", str(data), "-o", str(tmp_path / "mean"), "--hidden", "16"]
    words += ["--batch", "256", "--teachers", str(population)]
    assert run_command(words) == 0
    nets = [ckpt.load_policy(population / f"seed-{seed}")[0] for seed in (1, 2)]
    student, checkpoint = ckpt.load_policy(tmp_path / "mean")
    assert len(checkpoint.config.teachers) == 2
    batch = prepare([data], FEW).train
    target = teachers.outputs(nets, batch.x)[:, 0]
    decided = batch.weight > 0

    def apart(gain: torch.Tensor) -> float:
        return float((gain.clamp(-1, 1) - target)[decided].abs().mean())

    with torch.no_grad():
        own = apart(student.raw(batch.x)[:, 0])
        assert all(own < 0.6 * apart(net.raw(batch.x)[:, 0]) for net in nets)


def test_what_is_kept_has_the_outputs_of_the_start_and_the_rest_its_own_targets(
    data: Path, tmp_path: Path
) -> None:
    """Fine-tuning on one's own paths: these have an offset, other datasets stay as they are."""
    build([TRACES / "lab/train-03-loss--bbr--1"], tmp_path / "mine", quiet=True)
    folders = [tmp_path / "mine", data]
    config = TrainConfig(init="shipped", epochs=24, lr=2e-3, batch=256)
    plain = prepare(folders, config)
    moved = prepare(folders, replace(config, offsets=(-0.2, 0.0), kept=(1,)))
    start = Policy(plain.config.hidden, plain.config.mask)
    assert plain.start is not None
    plain.start.copy_to(start)
    part = torch.from_numpy(
        plain.examples.part[_rows(plain.examples, "train", config)].astype("int64")
    )
    with torch.no_grad():
        own = start.raw(plain.train.x)
    kept, mine = part == 1, part == 0
    assert kept.any() and mine.any()
    assert torch.allclose(moved.train.action[kept], own[kept, 0].clamp(-1, 1), atol=1e-6)
    assert torch.equal(moved.train.sure, kept)  # there is no larger step to prefer
    known = kept & (plain.train.cause >= 0)
    assert torch.allclose(moved.train.cause[known], own[known, 1].sigmoid(), atol=1e-6)
    asked = (plain.train.action[mine] - 0.2).clamp(*STEP_RANGE)
    assert torch.allclose(moved.train.action[mine], asked, atol=1e-6)
    assert torch.equal(moved.train.cause[mine], plain.train.cause[mine])

    same = prepare(folders, replace(config, offsets=(-0.2, 0.0), kept=(0, 1)))
    assert torch.allclose(same.train.action[mine], (own[mine, 0].clamp(-1, 1) - 0.2).clamp(-1, 1))
    assert torch.allclose(same.train.action[kept], own[kept, 0].clamp(-1, 1))

    def changed(prepared: Prepared, name: str) -> float:
        """How far training moves the gain on the data to keep."""
        Trainer(prepared, tmp_path / name, prepared.config).run(quiet=True)
        net, _ = ckpt.load_policy(tmp_path / name)
        with torch.no_grad():
            return float((net.raw(plain.train.x) - own)[kept, 0].abs().mean())

    free = prepare(folders, replace(config, offsets=(-0.2, 0.0)))
    assert changed(moved, "kept") < 0.6 * changed(free, "free")


def test_random_weights_have_nothing_to_keep() -> None:
    for init in ("auto", "random"):
        with pytest.raises(NdmError, match="name a network to start from"):
            TrainConfig(init=init, kept=(0,))


def test_bad_teachers_are_one_line(
    data: Path, population: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", "--data", str(data), "-o", str(tmp_path / "out"), "--teachers"]
    for more, said in (
        ([str(tmp_path / "none")], "no population here; run: ndm train --seeds 8"),
        ([str(population), "--mask", "7,8"], "learned with mask (); expected (7, 8)"),
        ([str(population), "--objective", "bc"], "--objective bc: with --teachers nothing of"),
        ([str(population), "--objective", "awbc"], "learned; leave --objective out"),
    ):
        assert run_command([*words, *more]) == 2
        assert said in capsys.readouterr().err.splitlines()[-1]
        assert not (tmp_path / "out").exists()


def test_a_run_of_before_has_no_teachers(population: Path) -> None:
    config = json.loads((population / "seed-1" / "config.json").read_text())
    del config["teachers"]
    assert TrainConfig.from_dict(config).teachers == ()
