# SPDX-License-Identifier: GPL-2.0-only
"""Checkpoints: safetensors whose metadata names contract, dataset and config."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ndm_tcp import contract, files
from ndm_tcp.errors import NdmError
from ndm_tcp.training.config import TrainConfig
from ndm_tcp.training.model import Policy

FORMAT = "ndm-tcp-checkpoint-1"
MODEL = "model.safetensors"
PROGRESS = "checkpoint.safetensors"
RETRAIN = "ndm train --data DIR -o RUN"
ANEW = "ndm train --data DIR -o NEW_RUN"


@dataclass(frozen=True)
class Checkpoint:
    """Content of a file."""

    tensors: dict[str, Tensor]
    config: TrainConfig
    dataset_sha256: str
    epoch: int


def save(path: Path, checkpoint: Checkpoint) -> None:
    """Write atomically; the same content gives the same bytes."""
    metadata = {
        "format": FORMAT,
        "contract": contract.INTERFACE_HASH,
        "dataset_sha256": checkpoint.dataset_sha256,
        "epoch": str(checkpoint.epoch),
        "config": json.dumps(checkpoint.config.to_dict(), sort_keys=True),
    }
    tensors = {k: v.contiguous() for k, v in sorted(checkpoint.tensors.items())}
    with files.replacing(path) as temporary:
        try:
            # One key: safetensors does not promise the order of several.
            save_file(tensors, temporary, metadata={"ndm": json.dumps(metadata, sort_keys=True)})
        except SafetensorError as error:
            raise NdmError(f"{path}: cannot be written ({error})") from None


def load(path: Path, remedy: str = f"run: {RETRAIN}") -> Checkpoint:
    """Read a checkpoint.

    Args:
        path: of the file.
        remedy: for one that is missing, foreign or damaged.

    Raises:
        NdmError: missing, foreign, damaged, not finite, or made under another contract.
    """
    if not path.is_file():
        if seeds := sorted(path.parent.glob(f"seed-*/{path.name}")):
            one = seeds[0].parent
            raise NdmError(f"{path.parent}: holds a population; name one of it, such as {one}")
        raise NdmError(f"{path}: no checkpoint here; {remedy}")
    try:
        with safe_open(path, framework="pt") as stream:
            raw = (stream.metadata() or {}).get("ndm")
            tensors = {name: stream.get_tensor(name) for name in stream.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise NdmError(f"{path}: not a readable safetensors file ({error}); {remedy}") from None
    metadata = json.loads(raw) if raw else {}
    if metadata.get("format") != FORMAT:
        raise NdmError(f"{path}: not written by ndm train (no {FORMAT} in it); {remedy}")
    contract.require(metadata.get("contract"), str(path), ANEW, contract.INTERFACE_HASH)
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise NdmError(f"{path}: {name} holds NaN or infinity; {remedy}")
    return Checkpoint(
        tensors,
        TrainConfig.from_dict(json.loads(metadata["config"])),
        metadata["dataset_sha256"],
        int(metadata["epoch"]),
    )


def load_policy(run: Path) -> tuple[Policy, Checkpoint]:
    """The trained network of a run folder.

    Raises:
        NdmError: see `load`; or tensors that do not fit the config.
    """
    checkpoint = load(run / MODEL)
    policy = Policy(checkpoint.config.hidden, checkpoint.config.mask)
    try:
        policy.load_state_dict(checkpoint.tensors)
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise NdmError(
            f"{run / MODEL}: tensors do not fit its config ({reason}); run: {RETRAIN}"
        ) from None
    return policy.eval(), checkpoint
