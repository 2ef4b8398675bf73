# SPDX-License-Identifier: GPL-2.0-only
"""The training loop: deterministic, resumable, with metrics as CSV and, on request, in
TensorBoard."""

from __future__ import annotations

import contextlib
import csv
import io
import math
import sys
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import torch
from torch import Tensor
from torch.nn import functional
from tqdm import tqdm

from ndm_tcp import contract, files
from ndm_tcp.errors import NdmError
from ndm_tcp.training import checkpoint as ckpt
from ndm_tcp.training.config import RESULTS, TARGET_STEP, TrainConfig
from ndm_tcp.training.evaluate import AT_ONCE, evaluate
from ndm_tcp.training.model import Policy
from ndm_tcp.training.prepared import Batch, Prepared, prepare
from ndm_tcp.training.start import GAIN

SAVE_EVERY = 10  # epochs
SAY = 6  # lines of progress a run, where no bar can be drawn
WARM_UP = 0.3  # of all steps, in which the learning rate goes up
HUBER_DELTA = {"bc": 0.1, "awbc": 0.1, TARGET_STEP: 1.0}
"""log2 units: beyond it an action counts linearly. One controller's action is an outlier to the
next. The target windows of many states with the same inputs have a mean, which is wanted."""
METRICS = "metrics.csv"
COLUMNS = (
    "epoch",
    "lr",
    "train_loss",
    "train_gain",
    "train_congestion",
    "val_loss",
    "val_gain_mae",
)


def deterministic() -> None:
    """The same bytes in every training: one thread, and no operation that differs between runs.

    The sums of a tiny network gain nothing from more threads, and their order is fixed.
    """
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    # It would fill every new tensor, a tenth of a step; nothing reads one before it is written.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


def gain_loss(
    gain: Tensor, action: Tensor, config: TrainConfig, sure: Tensor | None = None
) -> Tensor:
    """Huber loss of every gain, log2 units; asymmetric where the action is one of several.

    Asymmetric least squares: Newey and Powell, Econometrica 1987.

    Args:
        gain: [n] predicted.
        action: [n] to learn.
        config: of the run.
        sure: [n] see `Batch`; None: nowhere.
    """
    delta = HUBER_DELTA[config.objective]
    loss = functional.huber_loss(gain, action, reduction="none", delta=delta)
    if config.objective != TARGET_STEP:
        return loss
    uneven = torch.where(action > gain, config.expectile, 1 - config.expectile)
    return loss * 2 * (uneven if sure is None else torch.where(sure, 0.5, uneven))


def cause_weight(cause: Tensor, balance: Tensor) -> Tensor:
    """[..., n] weight of each loss by its cause, or by how likely each cause is; 0: unknown.

    Args:
        cause: [..., n] see `Batch`.
        balance: [..., 2] weight of a random loss, and of an overflow.
    """
    likely = cause.clamp(min=0)
    return (likely * balance[..., 1:] + (1 - likely) * balance[..., :1]) * (cause >= 0)


def schedule(
    optimizer: torch.optim.Optimizer, config: TrainConfig, steps: int
) -> torch.optim.lr_scheduler.LRScheduler:
    """The learning rate of every step: up to `lr` in the first part, then down to nearly nothing.

    One cycle: Smith and Topin, 2018 (arXiv:1708.07120).

    Args:
        optimizer: whose learning rate and momentum it sets.
        config: of the run.
        steps: in an epoch.
    """
    return torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=config.lr, total_steps=config.epochs * steps, pct_start=WARM_UP
    )


def _sums(
    out: Tensor, batch: Batch, balance: Tensor, config: TrainConfig
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Weighted loss of the gain, balanced cross-entropy of the congestion logit, and the numbers
    of rounds that they are sums of.

    Args:
        out: [n, 2] outputs before the clamp.
        batch: the same rounds.
        balance: [2] weight of a loss by its cause.
        config: of the run.
    """
    gain = (gain_loss(out[:, 0], batch.action, config, batch.sure) * batch.weight).sum()
    logit = functional.binary_cross_entropy_with_logits(
        out[:, 1],
        batch.cause.clamp(min=0),
        weight=cause_weight(batch.cause, balance),
        reduction="sum",
    )
    return gain, logit, batch.weight.count_nonzero(), (batch.cause >= 0).sum()


def _losses(
    policy: Policy, batch: Batch, balance: Tensor, config: TrainConfig
) -> tuple[Tensor, Tensor]:
    """Mean losses of gain and logit."""
    gain, logit, decisions, known = _sums(policy.raw(batch.x), batch, balance, config)
    gain, logit = gain / decisions.clamp(min=1), logit / known.clamp(min=1)
    return (gain.detach() if GAIN in config.freeze else gain), logit


class Trainer:
    """One run; `run()` carries on from the last checkpoint if there is one."""

    def __init__(self, data: Sequence[Path] | Prepared, run: Path, config: TrainConfig) -> None:
        """
        Args:
            data: dataset folders, whose rounds are put together; or the prepared data.
            run: the folder of the run.
            config: all settings; with prepared data only the seed counts.

        Raises:
            NdmError: bad dataset, no training rounds, or `run` holds a different run.
        """
        if not isinstance(data, Prepared):
            data = prepare(data, config)
        self.folder, self.dataset_sha256 = run, data.dataset_sha256
        self.learned_sha256 = data.learned_sha256
        self.examples, self.balance = data.examples, data.balance
        self.train, self.val, self.judges = data.train, data.val, data.judges
        self.config = config = replace(data.config, seed=config.seed)
        torch.manual_seed(config.seed)
        self.policy = Policy(config.hidden, config.mask)
        if data.start:
            data.start.copy_to(self.policy)
        learned = self._freeze()
        self.optimizer = torch.optim.AdamW(
            learned, lr=config.lr, weight_decay=config.weight_decay, fused=True
        )
        self.steps = -(-len(self.train.x) // config.batch)
        self.schedule = schedule(self.optimizer, config, self.steps)
        self.best = {k: v.clone() for k, v in self.policy.state_dict().items()}
        # Fine-tuning that never improves leaves the network as it was.
        self.start_loss = self._validate()[0] if data.start else math.inf
        self.best_loss = self.start_loss
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
        # With the digest of all that it learns from in place of the dataset's: see `_resume`.
        files.write_text(self.folder / METRICS, _csv(self.history))
        ckpt.save(
            self.folder / ckpt.PROGRESS,
            ckpt.Checkpoint(self._tensors(), self.config, self.learned_sha256, self.epoch),
        )

    def _resume(self) -> None:
        path = self.folder / ckpt.PROGRESS
        if not path.is_file():
            return
        anew = f"remove {self.folder} to begin anew"
        saved = ckpt.load(path, anew)
        if (saved.config, saved.dataset_sha256) != (self.config, self.learned_sha256):
            raise NdmError(
                f"{self.folder}: holds a run with another dataset or other settings, or of other "
                "target windows; choose another -o, or remove it"
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
        self.epoch = saved.epoch
        with warnings.catch_warnings():  # that no step of the optimizer came between them
            warnings.simplefilter("ignore", UserWarning)
            for _ in range(self.epoch * self.steps - 1):
                self.schedule.step()
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": state, "param_groups": groups})
        self.history = _rows(self.folder / METRICS)[: self.epoch]
        if len(self.history) < self.epoch:
            raise NdmError(f"{self.folder / METRICS}: missing or damaged; {anew}")

    # --- the loop ------------------------------------------------------------------------

    def _train_epoch(self) -> dict[str, float]:
        config = self.config
        # Seeded by the epoch, so that a resumed run sees the batches it would have seen.
        order = torch.randperm(
            len(self.train.x),
            generator=torch.Generator().manual_seed(config.seed * 1_000_003 + self.epoch),
        )
        sums = torch.zeros(2, dtype=torch.float64)
        # One gather an epoch: row by row out of 80 MB is the slower the smaller the part.
        for number, batch in enumerate(self.train.rows(order).split(config.batch)):
            if number or self.epoch:
                self.schedule.step()
            gain, congestion = _losses(self.policy, batch, self.balance, config)
            self.optimizer.zero_grad()
            (gain + config.congestion_weight * congestion).backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(self.policy.parameters(), 1.0)
            self._step()
            sums += torch.stack([gain, congestion]).detach()
        if not torch.isfinite(sums).all():
            raise NdmError(f"epoch {self.epoch + 1}: loss is not finite; lower --lr")
        mean_gain, mean_congestion = (float(v) for v in sums / self.steps)
        return {
            "epoch": self.epoch + 1,
            "lr": float(self.schedule.get_last_lr()[0]),
            "train_loss": mean_gain + config.congestion_weight * mean_congestion,
            "train_gain": mean_gain,
            "train_congestion": mean_congestion,
        }

    def _validate(self) -> tuple[float, float]:
        """Loss on the rounds that choose the epoch, and the gain's mean error where the window is
        a decision."""
        sums = torch.zeros(5, dtype=torch.float64)
        with torch.no_grad():
            for batch in self.judges.split(AT_ONCE):
                out = self.policy.raw(batch.x)
                gain = out[:, 0].clamp(self.policy.lo[0], self.policy.hi[0])
                error = ((gain - batch.action).abs() * (batch.weight > 0)).sum()
                sums += torch.stack([*_sums(out, batch, self.balance, self.config), error])
        gain, logit, decisions, known, error = sums.tolist()
        loss = gain / max(decisions, 1) + self.config.congestion_weight * logit / max(known, 1)
        return loss, error / max(decisions, 1)

    def _best_epoch(self) -> int:
        """The epoch with the lowest validation loss; 0: none had a lower one than the start."""
        if self.best_loss == self.start_loss:
            return 0
        return [row["val_loss"] for row in self.history].index(self.best_loss) + 1

    def run(self, quiet: bool = False, name: str = "", board: bool = False) -> dict[str, Any]:
        """Train to the last epoch, write model and metrics.

        Args:
            quiet: no progress.
            name: of the run, to print progress in lines; else a bar is drawn, on a terminal.
            board: metrics for TensorBoard too, in `tensorboard` of the run.

        Returns:
            the held-out metrics of the epoch with the lowest validation loss.

        Raises:
            NdmError: TensorBoard is requested and not installed, the loss is not finite, or the
                folder is that of a population or of a training that goes on.
        """
        if any(self.folder.glob("seed-*")):
            raise NdmError(f"{self.folder}: holds a population; choose another -o")
        self.folder.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(files.locked(self.folder))
            except BlockingIOError:
                raise NdmError(
                    f"{self.folder}: another training goes on here; wait for it"
                ) from None
            return self._run(quiet, name, board)

    def _run(self, quiet: bool, name: str, board: bool) -> dict[str, Any]:
        writer = require_tensorboard()(self.folder / "tensorboard") if board else None
        config = orjson.dumps(self.config.to_dict(), option=orjson.OPT_INDENT_2).decode()
        files.write_text(self.folder / "config.json", config + "\n")
        lines = not quiet and (bool(name) or not sys.stderr.isatty())
        bar = tqdm(
            range(self.epoch, self.config.epochs),
            initial=self.epoch,
            total=self.config.epochs,
            desc="training",
            unit="epoch",
            disable=quiet or lines,
        )
        for _ in bar:
            row = self._train_epoch()
            row["val_loss"], row["val_gain_mae"] = self._validate()
            self.epoch += 1
            self.history.append(row)
            if row["val_loss"] < self.best_loss:
                self.best_loss = row["val_loss"]
                self.best = {k: v.clone() for k, v in self.policy.state_dict().items()}
            if writer:
                for key, number in row.items():
                    writer.add_scalar(key, number, self.epoch)
            held_out = val_text(row["val_loss"], self.val, self.judges)
            bar.set_postfix_str(f"train {row['train_loss']:.4f}, {held_out}")
            end = self.epoch == self.config.epochs
            if lines and (end or self.epoch % -(-self.config.epochs // SAY) == 0):
                said = f"loss {row['train_loss']:.4f}, {held_out}"
                at = f"epoch {self.epoch} of {self.config.epochs}"
                # One write: with python -u, print() is two, and another process comes between.
                sys.stderr.write(f"{name or self.folder}: {at}, {said}\n")
                sys.stderr.flush()
            if end or self.epoch % SAVE_EVERY == 0:
                self._save()
        if writer:
            writer.close()
        self.policy.load_state_dict(self.best)
        ckpt.save(
            self.folder / ckpt.MODEL,
            ckpt.Checkpoint(self.best, self.config, self.dataset_sha256, self.epoch),
        )
        results = {
            "parameters": sum(p.numel() for p in self.policy.parameters()),
            "val_loss": self.best_loss,
            "epoch": self._best_epoch(),
            "epoch_chosen_by": "val" if self.judges is self.val else "train",
            "masked_rounds": self.examples.masked,
            "start": self.config.init,
            "frozen": list(self.config.freeze),
            "teachers": list(self.config.teachers),
            **evaluate(self.policy, self.examples),
        }
        text = orjson.dumps(results, option=orjson.OPT_INDENT_2).decode()
        files.write_text(self.folder / RESULTS, text + "\n")
        return results


NO_ROWS = (OSError, KeyError, TypeError, ValueError, csv.Error)
"""of a file that is not there, or not by `_csv`"""


def _rows(path: Path) -> list[dict[str, float]]:
    """Those that are whole, up to the first that is not."""
    found = []
    with contextlib.suppress(*NO_ROWS), path.open(newline="") as stream:
        for row in csv.DictReader(stream):
            found.append({name: float(row[name]) for name in COLUMNS})
    return found


def _csv(rows: list[dict[str, float]]) -> str:
    stream = io.StringIO()
    writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows({**row, "epoch": int(row["epoch"])} for row in rows)
    return stream.getvalue()


def val_text(loss: float, val: Batch, judges: Batch) -> str:
    """The loss that chose the epoch, if it is that of held-out rounds.

    Args:
        loss: of the rounds that choose the epoch.
        val: the held-out rounds.
        judges: see `Prepared.judges`.
    """
    if judges is val:
        return f"on held-out paths {loss:.4f}"
    return "held-out paths without labels" if len(val.x) else "no held-out paths"


def require_tensorboard() -> Any:
    """The class that writes TensorBoard's files.

    Raises:
        NdmError: the package is not installed.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise NdmError(
            f"--tensorboard: Python package 'tensorboard' is missing; run: {sys.executable} -m pip "
            "install tensorboard"
        ) from None
    return SummaryWriter
