# SPDX-License-Identifier: GPL-2.0-only
"""The training loop: deterministic, resumable, with CSV and TensorBoard metrics."""

from __future__ import annotations

import csv
import io
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import torch
from torch import Tensor
from torch.nn import functional
from tqdm import tqdm

from ndm_tcp import contract, files
from ndm_tcp.datasets import store
from ndm_tcp.errors import NdmError
from ndm_tcp.training import checkpoint as ckpt
from ndm_tcp.training.advantage import Value, weights
from ndm_tcp.training.config import TrainConfig
from ndm_tcp.training.evaluate import evaluate
from ndm_tcp.training.model import Policy
from ndm_tcp.training.objective import Examples, examples
from ndm_tcp.training.start import CONGESTION, GAIN, resolve

SAVE_EVERY = 10  # epochs
MIN_LR_SHARE = 0.02  # of the learning rate, at the end of the cosine
HUBER_DELTA = {"bc": 0.1, "awbc": 0.1, "ideal": 1.0}
"""log2 units: beyond it an action counts linearly. What one controller did is an outlier to the
next; of what would have been right in many states that look the same, the mean is wanted."""
METRICS = "metrics.csv"
RESULTS = "metrics.json"
COLUMNS = (
    "epoch",
    "lr",
    "train_loss",
    "train_gain",
    "train_congestion",
    "val_loss",
    "val_gain_mae",
)


@dataclass(frozen=True)
class Batch:
    """Tensors of some rounds."""

    x: Tensor  # [n, dense]
    action: Tensor  # [n]
    weight: Tensor  # [n], 0 where the action is not a decision
    cause: Tensor  # [n], 1, 0 or -1

    def rows(self, index: Tensor) -> Batch:
        return Batch(self.x[index], self.action[index], self.weight[index], self.cause[index])


def _batch(data: Examples, split: str, value: Value, config: TrainConfig) -> Batch:
    rows = (data.split == split) & (data.policy | (data.cause >= 0))
    weight = data.weight[rows]
    if config.objective == "awbc":
        weight = weight * weights(value, data.x[rows], data.return_to_go[rows], config.beta)
    weight = np.where(data.policy[rows], weight, np.float32(0))
    return Batch(
        torch.from_numpy(data.x[rows]),
        torch.from_numpy(data.action[rows]),
        torch.from_numpy(
            weight / max(float(weight[weight > 0].mean()), 1e-6) if weight.any() else weight
        ),
        torch.from_numpy(data.cause[rows].astype(np.float32)),
    )


def gain_loss(gain: Tensor, action: Tensor, config: TrainConfig) -> Tensor:
    """Huber loss of every gain, log2 units; asymmetric if the objective is ideal.

    Asymmetric least squares: Newey and Powell, Econometrica 1987.
    """
    delta = HUBER_DELTA[config.objective]
    loss = functional.huber_loss(gain, action, reduction="none", delta=delta)
    if config.objective != "ideal":
        return loss
    return loss * 2 * torch.where(action > gain, config.expectile, 1 - config.expectile)


def _losses(
    policy: Policy, batch: Batch, balance: Tensor, config: TrainConfig
) -> tuple[Tensor, Tensor]:
    """Weighted loss of the gain, balanced cross-entropy of the congestion logit."""
    out = policy.raw(batch.x)
    gain = gain_loss(out[:, 0], batch.action, config)
    gain = (gain * batch.weight).sum() / batch.weight.count_nonzero().clamp(min=1)
    if GAIN in config.freeze:
        gain = gain.detach()
    known = batch.cause >= 0
    if not known.any():
        return gain, out.sum() * 0.0
    label = batch.cause[known]
    share = torch.where(label > 0, balance[1], balance[0])
    logit = functional.binary_cross_entropy_with_logits(out[known, 1], label, weight=share)
    return gain, logit


class Trainer:
    """One run; `run()` carries on from the last checkpoint if there is one."""

    def __init__(self, data: Sequence[Path], run: Path, config: TrainConfig) -> None:
        """
        Args:
            data: dataset folders; their rounds are put together.
            run: the folder of the run.
            config: all there is to choose.

        Raises:
            NdmError: bad dataset, no training rounds, or `run` holds a different run.
        """
        dataset = store.load_all(data)
        self.folder, self.dataset_sha256 = run, dataset.sha256
        self.examples = examples(dataset.rounds, config)
        self.config, start = resolve(config, self.examples, data)
        config = self.config
        train = (self.examples.split == "train") & self.examples.policy
        self.value = Value.fit(self.examples.x[train], self.examples.return_to_go[train])
        self.train = _batch(self.examples, "train", self.value, config)
        self.val = _batch(self.examples, "val", self.value, config)
        label = self.train.cause[self.train.cause >= 0]
        share = torch.tensor([float((label == k).sum()) for k in (0, 1)])
        # Both kinds of loss weigh the same in sum; a frozen logit is not trained.
        both = bool((share > 0).all()) and CONGESTION not in config.freeze
        self.balance = share.sum() / (2 * share.clamp(min=1)) if both else torch.zeros(2)
        torch.manual_seed(config.seed)
        self.policy = Policy(config.hidden, config.mask)
        if start:
            start.copy_to(self.policy)
        learned = self._freeze()
        self.optimizer = torch.optim.AdamW(
            learned, lr=config.lr, weight_decay=config.weight_decay, foreach=False
        )
        self.best = {k: v.clone() for k, v in self.policy.state_dict().items()}
        # Fine-tuning that never improves leaves the network as it was.
        self.best_loss = self._validate()[0] if start else math.inf
        self.epoch = 0
        self.history: list[dict[str, float]] = []
        self._resume()

    def _freeze(self) -> list[Tensor]:
        """Fix what frozen outputs depend on; returns the parameters that are left to learn."""
        names = [o.name for o in contract.OUTPUTS]
        self.frozen = [names.index(name) for name in self.config.freeze]
        last = list(self.policy.layers[-1].parameters())
        self.kept = [parameter.detach()[self.frozen].clone() for parameter in last]
        if self.frozen:
            for layer in self.policy.layers[:-1]:
                layer.requires_grad_(False)
        return [p for p in self.policy.parameters() if p.requires_grad]

    def _step(self) -> None:
        """One step of the optimizer; its weight decay does not touch frozen rows."""
        self.optimizer.step()
        if self.frozen:
            with torch.no_grad():
                last = self.policy.layers[-1].parameters()
                for parameter, kept in zip(last, self.kept, strict=True):
                    parameter[self.frozen] = kept

    # --- state on disk -------------------------------------------------------------------

    def _tensors(self) -> dict[str, Tensor]:
        tensors = {f"model.{k}": v for k, v in self.policy.state_dict().items()}
        tensors |= {f"best.{k}": v for k, v in self.best.items()}
        for number, state in self.optimizer.state_dict()["state"].items():
            tensors |= {f"adam.{number}.{k}": v for k, v in state.items()}
        tensors["best_loss"] = torch.tensor([self.best_loss], dtype=torch.float64).nan_to_num(
            posinf=1e300
        )
        return tensors

    def _save(self) -> None:
        files.write_text(self.folder / METRICS, _csv(self.history))
        ckpt.save(
            self.folder / ckpt.PROGRESS,
            ckpt.Checkpoint(self._tensors(), self.config, self.dataset_sha256, self.epoch),
        )

    def _resume(self) -> None:
        path = self.folder / ckpt.PROGRESS
        if not path.is_file():
            return
        saved = ckpt.load(path)
        if (saved.config, saved.dataset_sha256) != (self.config, self.dataset_sha256):
            raise NdmError(
                f"{self.folder}: holds a run with another dataset or other settings; choose "
                "another -o, or remove it"
            )
        parts: dict[str, dict[str, Tensor]] = {}
        for name, tensor in saved.tensors.items():
            kind, _, rest = name.partition(".")
            parts.setdefault(kind, {})[rest] = tensor
        self.policy.load_state_dict(parts["model"])
        self.best, self.best_loss = parts["best"], float(saved.tensors["best_loss"])
        state: dict[int, dict[str, Tensor]] = {}
        for name, tensor in parts.get("adam", {}).items():
            number, _, key = name.partition(".")
            state.setdefault(int(number), {})[key] = tensor
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": state, "param_groups": groups})
        self.epoch = saved.epoch
        with (self.folder / METRICS).open(newline="") as stream:
            rows = [{k: float(v) for k, v in row.items()} for row in csv.DictReader(stream)]
        self.history = rows[: self.epoch]

    # --- the loop ------------------------------------------------------------------------

    def _train_epoch(self) -> dict[str, float]:
        config = self.config
        progress = self.epoch / config.epochs
        cosine = (1 + math.cos(math.pi * progress)) / 2
        lr = config.lr * (MIN_LR_SHARE + (1 - MIN_LR_SHARE) * cosine)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        # Seeded by the epoch, so that a resumed run sees the batches it would have seen.
        order = torch.randperm(
            len(self.train.x),
            generator=torch.Generator().manual_seed(config.seed * 1_000_003 + self.epoch),
        )
        sums = torch.zeros(2, dtype=torch.float64)
        batches = torch.split(order, config.batch)
        for index in batches:
            gain, congestion = _losses(self.policy, self.train.rows(index), self.balance, config)
            loss = gain + config.congestion_weight * congestion
            if not torch.isfinite(loss):
                raise NdmError(f"epoch {self.epoch + 1}: loss is not finite; lower --lr")
            self.optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(self.policy.parameters(), 1.0)
            self._step()
            sums += torch.stack([gain, congestion]).detach()
        mean_gain, mean_congestion = (float(v) for v in sums / len(batches))
        return {
            "epoch": self.epoch + 1,
            "lr": lr,
            "train_loss": mean_gain + config.congestion_weight * mean_congestion,
            "train_gain": mean_gain,
            "train_congestion": mean_congestion,
        }

    def _validate(self) -> tuple[float, float]:
        held_out = self.val if len(self.val.x) else self.train
        with torch.no_grad():
            gain, congestion = _losses(self.policy, held_out, self.balance, self.config)
            error = (self.policy.act(held_out.x)[:, 0] - held_out.action).abs()
            decided = held_out.weight > 0
            mae = float(error[decided].mean()) if decided.any() else 0.0
        return float(gain + self.config.congestion_weight * congestion), mae

    def run(self, quiet: bool = False) -> dict[str, Any]:
        """Train to the last epoch, write model and metrics.

        Returns:
            the held-out metrics of the epoch with the lowest validation loss.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        config = orjson.dumps(self.config.to_dict(), option=orjson.OPT_INDENT_2).decode()
        files.write_text(self.folder / "config.json", config + "\n")
        board = _tensorboard(self.folder)
        bar = tqdm(
            range(self.epoch, self.config.epochs),
            initial=self.epoch,
            total=self.config.epochs,
            desc="training",
            unit="epoch",
            disable=quiet or not sys.stderr.isatty(),
        )
        for _ in bar:
            row = self._train_epoch()
            row["val_loss"], row["val_gain_mae"] = self._validate()
            self.epoch += 1
            self.history.append(row)
            if row["val_loss"] < self.best_loss:
                self.best_loss = row["val_loss"]
                self.best = {k: v.clone() for k, v in self.policy.state_dict().items()}
            for name, number in row.items():
                board.add_scalar(name, number, self.epoch)
            bar.set_postfix(train=f"{row['train_loss']:.4f}", val=f"{row['val_loss']:.4f}")
            if self.epoch % SAVE_EVERY == 0 or self.epoch == self.config.epochs:
                self._save()
        board.close()
        self.policy.load_state_dict(self.best)
        ckpt.save(
            self.folder / ckpt.MODEL,
            ckpt.Checkpoint(self.best, self.config, self.dataset_sha256, self.epoch),
        )
        results = {
            "parameters": sum(p.numel() for p in self.policy.parameters()),
            "masked_rounds": self.examples.masked,
            "start": self.config.init,
            "frozen": list(self.config.freeze),
            **evaluate(self.policy, self.examples),
        }
        text = orjson.dumps(results, option=orjson.OPT_INDENT_2).decode()
        files.write_text(self.folder / RESULTS, text + "\n")
        return results


def _csv(rows: list[dict[str, float]]) -> str:
    stream = io.StringIO()
    writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows({**row, "epoch": int(row["epoch"])} for row in rows)
    return stream.getvalue()


def _tensorboard(folder: Path) -> Any:
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(folder / "tensorboard")
