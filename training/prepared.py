# SPDX-License-Identifier: GPL-2.0-only
"""The common part of all runs on the same data and settings, for any seed: tensors, a start."""

from __future__ import annotations

import functools
import hashlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from ndm_tcp.datasets.store import store
from ndm_tcp.datasets.store.store import PART
from ndm_tcp.errors import NdmError
from ndm_tcp.training import teachers
from ndm_tcp.training.advantage import Value, weights
from ndm_tcp.training.config import TARGET_STEP, TrainConfig
from ndm_tcp.training.model import Policy
from ndm_tcp.training.objective import NO_TRUTH, Examples, examples, needed, shared_out
from ndm_tcp.training.start import CONGESTION, GAIN, Start, resolve

BATCH, STEPS, FEWEST = 4096, 64, 64
"""Rounds per step, if the config leaves it open: fewer where an epoch would have less than STEPS
steps, since a network of a few captures has to learn in as many epochs as one of two million
rounds, but never less than FEWEST."""


@dataclass(frozen=True)
class Batch:
    """Tensors of some rounds."""

    x: Tensor  # [n, dense]
    action: Tensor  # [n]
    weight: Tensor  # [n], 0 where the action is not a decision
    cause: Tensor  # [n], 1, 0 or -1; with teachers or kept, how likely 1 is
    sure: Tensor  # [n], the action is a network's output, not one of many that fit this state

    def rows(self, index: Tensor) -> Batch:
        """Copies of these rows, next to each other; `x[index]` takes four times as long."""
        columns = (self.x, self.action, self.weight, self.cause, self.sure)
        return Batch(*(column.index_select(0, index) for column in columns))

    def split(self, size: int) -> list[Batch]:
        """Views of `size` rows each, in order."""
        columns = (self.x, self.action, self.weight, self.cause, self.sure)
        return [Batch(*p) for p in zip(*(torch.split(c, size) for c in columns), strict=True)]


@dataclass(frozen=True)
class Prepared:
    """Data and settings; only the seed is left to choose."""

    examples: Examples
    dataset_sha256: str
    config: TrainConfig
    """with all that the data decide: see `start.resolve`, and the batch"""
    start: Start | None
    """the network to start from; None: random weights"""
    train: Batch
    val: Batch
    balance: Tensor
    """[2] weight of a loss by its cause"""

    @functools.cached_property
    def judges(self) -> Batch:
        """The rounds that choose the epoch: those held out, if they have labels of what learns;
        else those that train."""
        gain = GAIN not in self.config.freeze and bool((self.val.weight > 0).any())
        known = CONGESTION not in self.config.freeze and bool((self.val.cause >= 0).any())
        return self.val if gain or known else self.train

    @functools.cached_property
    def learned_sha256(self) -> str:
        """Of all that a run learns from; the dataset has no target windows, the code makes them."""
        digest = hashlib.sha256(self.dataset_sha256.encode())
        for batch in (self.train, self.val):
            for column in (batch.x, batch.action, batch.weight, batch.cause, batch.sure):
                digest.update(column.contiguous().numpy().data)
        return digest.hexdigest()


def _require_one_each(config: TrainConfig, datasets: int) -> None:
    """Here, since rows that are sampled differently or known already may be all of a dataset's.

    Raises:
        NdmError: not one share or offset for each dataset.
    """
    given = {
        "--shares": (config.shares, config.held_out_shares),
        "offsets": (config.offsets,),
    }
    for name, several in given.items():
        for values in several:
            if values and len(values) != datasets:
                raise NdmError(
                    f"{name}: {len(values)} given for {datasets} datasets; name one for each"
                )


def prepare(data: Sequence[Path], config: TrainConfig) -> Prepared:
    """Read datasets.

    Args:
        data: dataset folders; their rounds are put together.
        config: all there is to choose.

    Raises:
        NdmError: bad dataset, not one share or offset for each, no training rounds, a start that
            does not fit, or teachers beside an objective that clones senders.
    """
    _require_one_each(config, len(data))
    if config.teachers and config.objective != TARGET_STEP:
        raise NdmError(
            f"--objective {config.objective}: with --teachers nothing of the senders' steps is "
            "learned; leave --objective out"
        )
    dataset = store.load_all(data, needed(config))
    found, sha256 = examples(dataset.rounds, config), dataset.sha256
    for said in _unused(data, dataset.rounds, found):
        print(f"ndm: {said}", file=sys.stderr)
    del dataset
    learned = _for_teachers(found) if config.teachers else found
    config, start = resolve(config, learned, data)
    if config.objective == "awbc" and found.return_to_go is not None:
        taught = (found.split == "train") & found.policy
        value = Value.fit(found.x[taught], found.return_to_go[taught])
        better = weights(value, found.x, found.return_to_go, config.beta)
        # Anew: of an advantage one dataset has more than another.
        weight = (found.weight * better).astype(np.float64)
        shared = shared_out(weight, found.policy, found.split, found.part, config)
        found = learned = replace(found, weight=shared.astype(np.float32))
    train, val = (_batch(learned, split, config) for split in ("train", "val"))
    config = replace(config, batch=batch_of(config, len(train.x)))
    share = torch.tensor([float((train.cause == k).sum()) for k in (0, 1)])
    # Both kinds of loss weigh the same in sum; a frozen logit is not trained.
    both = bool((share > 0).all()) and CONGESTION not in config.freeze
    balance = share.sum() / (2 * share.clamp(min=1)) if both else torch.zeros(2)
    if start and config.kept:
        network = Policy(config.hidden, config.mask)
        start.copy_to(network)
        train, val = (
            _kept(batch, network, found.part[_rows(learned, split, config)], config)
            for batch, split in ((train, "train"), (val, "val"))
        )
    if config.teachers:
        names, networks = teachers.load(config.teachers, config.mask)
        train, val = _taught(train, networks), _taught(val, networks)
        # The mean is one number: there is no larger one to prefer, and no cause to balance.
        balance = torch.ones(2) * (CONGESTION not in config.freeze)
        config = replace(config, teachers=names, expectile=0.5)
    return Prepared(found, sha256, config, start, train, val, balance)


def _unused(data: Sequence[Path], table: pa.Table, found: Examples) -> list[str]:
    """What training takes nothing from: datasets, and rounds of another kind of sampling."""
    said = []
    if PART.name in table.column_names:
        read, used = pc.unique(table[PART.name]).to_pylist(), np.unique(found.part)
        for number, folder in enumerate(data):
            if number not in read:
                said.append(
                    f"{folder}: nothing of it is used: its flows are in the datasets before it"
                )
            elif number not in used:
                said.append(
                    f"{folder}: nothing of it is used: its rounds are sampled in another way"
                )
    if rest := table.num_rows - len(found.x):
        said.append(f"{rest} rounds are sampled in another way, and not used (--sampling)")
    return said


def _for_teachers(found: Examples) -> Examples:
    """The same rounds, with those labelled that teachers can teach: their outputs need neither a
    known target window nor a known cause of loss."""
    cause = np.where(found.lost, np.maximum(found.cause, 0), -1).astype(np.int8)
    masked = {reason: n for reason, n in found.masked.items() if reason != NO_TRUTH}
    return replace(found, policy=found.acts, cause=cause, masked=masked)


def _taught(batch: Batch, networks: Sequence[Policy]) -> Batch:
    """The same rounds with the teachers' outputs as targets."""
    if not len(batch.x):
        return batch
    gain, likely = teachers.outputs(networks, batch.x).unbind(1)
    cause = torch.where(batch.cause >= 0, likely, batch.cause)
    return replace(batch, action=gain, cause=cause, sure=torch.ones_like(batch.sure))


def _kept(batch: Batch, start: Policy, part: npt.NDArray[np.int16], config: TrainConfig) -> Batch:
    """The same rounds; those of the datasets to keep have the start's outputs as targets, and the
    offsets of these datasets on top. part: [n]."""
    own = _taught(batch, [start])
    kept = torch.from_numpy(np.isin(part, config.kept))
    offsets = np.asarray(config.offsets or (0.0,) * (int(part.max(initial=0)) + 1), np.float32)
    gain = (own.action + torch.from_numpy(offsets[part])).clamp(start.lo[0], start.hi[0])
    return replace(
        batch,
        action=torch.where(kept, gain, batch.action),
        cause=torch.where(kept, own.cause, batch.cause),
        sure=torch.where(kept, own.sure, batch.sure),
    )


def batch_of(config: TrainConfig, rounds: int) -> int:
    """Rounds per step, of so many that train."""
    return config.batch or min(BATCH, max(FEWEST, rounds // STEPS))


def _rows(data: Examples, split: str, config: TrainConfig) -> npt.NDArray[np.bool_]:
    """[n] rounds of a split that teach something; of val, that help to choose the epoch."""
    found = (data.split == split) & (data.policy | (data.cause >= 0))
    if split == "val" and config.held_out_shares:
        found &= np.asarray(config.held_out_shares)[data.part] > 0
    return np.asarray(found, dtype=np.bool_)


def _batch(data: Examples, split: str, config: TrainConfig) -> Batch:
    rows = _rows(data, split, config)
    x, weight = data.x[rows], np.where(data.policy[rows], data.weight[rows], np.float32(0))
    if weight.any():
        weight = weight / max(float(weight[weight > 0].mean()), 1e-6)
    return Batch(
        torch.from_numpy(x),
        torch.from_numpy(data.action[rows]),
        torch.from_numpy(weight),
        torch.from_numpy(data.cause[rows].astype(np.float32)),
        torch.zeros(len(x), dtype=torch.bool),
    )
