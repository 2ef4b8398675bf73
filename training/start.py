# SPDX-License-Identifier: GPL-2.0-only
"""The weights that training starts from: random ones, the shipped network's, or another's.

An output whose labels are not in the data cannot be learned. It is never left at random weights:
training then starts from a network that has learned it, and freezes that output.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from ndm_tcp import contract, files, model_json
from ndm_tcp.errors import NdmError
from ndm_tcp.training import checkpoint as ckpt
from ndm_tcp.training.config import AUTO, RANDOM, SHIPPED, TrainConfig
from ndm_tcp.training.model import Policy
from ndm_tcp.training.objective import Examples

TYPICAL = (
    *(0.506, 0.164, 0.541, 0.473, 0.006, 1.0, 0.08, 0.0, 0.775, 0.339),
    *(0.543, 0.085, 0.501, 0.794, 0.105, 0.008, 0.816, 0.323),
)
"""Mean of every input over the 356,684 rounds of datasets/lab-rounds that lost packets to a known
cause. A start that learned with an input which is now masked goes on as if it had this value. At 0,
which means an empty queue and orderly losses, the shipped congestion output is worse: with 4 and 10
masked its AUC on held-out flows is 0.83 at 0 and 0.87 at these values (0.96 with both inputs)."""
GAIN, CONGESTION = (o.name for o in contract.OUTPUTS)


@dataclass(frozen=True)
class Start:
    """A network in real numbers."""

    name: str
    """the start as the checkpoint records it"""
    mask: tuple[int, ...]
    """inputs that it never saw"""
    layers: list[tuple[Tensor, Tensor]]
    """weight [out, in] and bias [out]; float32"""

    @property
    def hidden(self) -> tuple[int, ...]:
        """Widths of the hidden layers."""
        return tuple(len(bias) for _, bias in self.layers[:-1])

    def require_hidden(self, hidden: tuple[int, ...]) -> None:
        """Raises NdmError if its hidden layers have other widths than the ones requested."""
        if hidden != self.hidden:
            raise NdmError(
                f"--hidden {','.join(map(str, hidden))}: {self.name} has "
                f"{','.join(map(str, self.hidden))}; leave --hidden out"
            )

    def copy_to(self, policy: Policy) -> None:
        """Give its weights to a network of the same shape; masked inputs become `TYPICAL`."""
        linear = [layer for layer in policy.layers if isinstance(layer, nn.Linear)]
        with torch.no_grad():
            for layer, (weight, bias) in zip(linear, self.layers, strict=True):
                layer.weight.copy_(weight)
                layer.bias.copy_(bias)
            first, hidden = linear[0], policy.keep == 0
            first.bias.add_(first.weight[:, hidden] @ torch.tensor(TYPICAL)[hidden])


def _of_model(path: Path) -> Start:
    """The network of an `ndm_model.json`: the real numbers that its integers stand for.

    Weights trained in float32 come back without any error, so that they give the same integers.
    """
    model = model_json.from_json(path)
    if any(layer.clamped for layer in model.layers):
        raise NdmError(
            f"{path}: has clamped units, training supports only tanh; name another --init"
        )
    layers = [
        (torch.from_numpy(weight.astype(np.float32)), torch.from_numpy(bias.astype(np.float32)))
        for weight, bias in model_json.real_weights(model.layers)
    ]
    return Start(f"model {model.hash()}", (), layers)


def load(init: str) -> Start:
    """The network that `--init` names.

    Args:
        init: `shipped`, a run folder, or an `ndm_model.json` or the folder that holds one.

    Raises:
        NdmError: there is no such network, or training cannot start from it.
    """
    if init == SHIPPED:
        if not model_json.SHIPPED.is_file():
            raise NdmError(
                "--init shipped: this installation does not hold the shipped network; run it in a "
                "checkout, or name a run or an ndm_model.json: --init PATH"
            )
        found = _of_model(model_json.SHIPPED)
        return replace(found, name=f"the shipped network, {found.name}")
    path = Path(init)
    if path.is_dir() and (path / ckpt.MODEL).is_file():
        policy, checkpoint = ckpt.load_policy(path)
        digest = files.sha256(path / ckpt.MODEL)[:16]
        return Start(f"checkpoint {digest}", checkpoint.config.mask, policy.linear_layers())
    if path.is_dir() and (path / model_json.NAME).is_file():
        return _of_model(path / model_json.NAME)
    if path.is_file():
        return _of_model(path)
    raise NdmError(
        f"--init {init}: neither a run ({ckpt.MODEL}) nor a model ({model_json.NAME}); expected "
        f"{SHIPPED}, {RANDOM}, or a path to one of these"
    )


def unlabelled(data: Examples, taught: bool) -> tuple[str, ...]:
    """The outputs that the training rounds have no labels for; congestion needs both causes, or,
    if taught by other networks, one loss of any cause."""
    train = data.split == "train"
    causes = data.cause[train]
    missing = [] if (train & data.policy & (data.weight > 0)).any() else [GAIN]
    both = (causes == 0).any() and (causes == 1).any()
    if not (both or (taught and (causes >= 0).any())):
        missing.append(CONGESTION)
    return tuple(missing)


def resolve(
    config: TrainConfig, data: Examples, sources: Sequence[Path]
) -> tuple[TrainConfig, Start | None]:
    """Where this training starts, and which outputs stay as they are there.

    Args:
        config: as requested.
        data: the examples.
        sources: the dataset folders, for messages.

    Returns:
        the config with `init`, `hidden`, `mask` and `freeze` as they will be, and the network to
        start from; None: random weights.

    Raises:
        NdmError: an output would stay at random weights, nothing is left to learn, or the network
            to start from is not there or of another shape.
    """
    missing = unlabelled(data, bool(config.teachers))
    if GAIN in missing and GAIN not in config.freeze:
        hint = "add longer captures"
        if (data.policy & (data.split == "train")).any():
            hint = "all that teach have no weight; leave --pool-weight 0 out"
        elif data.policy.any():
            hint = "all that teach are held out; add captures of more paths"
        elif data.masked.get("no truth"):
            hint = "the card says why; flows without a target window take --objective awbc"
        why = ", ".join(f"{n} {reason}" for reason, n in data.masked.items() if n)
        raise NdmError(f"{sources[0]}: no round to learn from ({why or 'it has none'}); {hint}")
    init = config.init
    if init == AUTO:
        init = SHIPPED if missing or config.freeze else RANDOM
    if init == RANDOM:
        if config.freeze:
            raise NdmError(
                "--freeze keeps a trained output; start from its network: --init shipped"
            )
        if missing:
            raise NdmError(
                f"{sources[0]}: no training round has labels for both kinds of loss, so "
                "congestion would stay random; leave --init out (it then stays as in the shipped "
                "network), or add a dataset with known causes of loss"
            )
        return replace(config, init=RANDOM), None
    start = load(init)
    if config.hidden != TrainConfig.hidden:
        start.require_hidden(config.hidden)
    freeze = tuple(o.name for o in contract.OUTPUTS if o.name in {*config.freeze, *missing})
    if len(freeze) == len(contract.OUTPUTS):
        raise NdmError(
            f"{sources[0]}: nothing is left to learn: {' and '.join(freeze)} are frozen or without "
            "labels; add a dataset that has labels, or freeze less"
        )
    mask = tuple(sorted({*config.mask, *start.mask}))
    resolved = replace(config, init=start.name, hidden=start.hidden, mask=mask, freeze=freeze)
    return resolved, start
