# SPDX-License-Identifier: GPL-2.0-only
"""One network that learns the mean outputs of others.

Networks that differ in their seed alone differ in what the data leave open. The mean of many is the
same whichever seeds were drawn, and so nearly is a network that learns it. Distillation: Hinton,
Vinyals and Dean, 2015 (arXiv:1503.02531).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from ndm_tcp import files
from ndm_tcp.errors import NdmError
from ndm_tcp.training import checkpoint as ckpt
from ndm_tcp.training.evaluate import AT_ONCE
from ndm_tcp.training.model import Policy


def load(runs: Sequence[str], mask: tuple[int, ...]) -> tuple[tuple[str, ...], list[Policy]]:
    """Networks to learn from.

    Args:
        runs: their folders.
        mask: inputs that the new network does not see.

    Returns:
        their names as a checkpoint records them, and the networks.

    Raises:
        NdmError: no network there, or one that saw other inputs.
    """
    names, policies = [], []
    for run in map(Path, runs):
        policy, checkpoint = ckpt.load_policy(run)
        if checkpoint.config.mask != mask:
            raise NdmError(
                f"{run}: learned with mask {checkpoint.config.mask}; expected {mask}: name another "
                "with --teachers, or --mask"
            )
        names.append(f"checkpoint {files.sha256(run / ckpt.MODEL)[:16]}")
        policies.append(policy)
    return tuple(names), policies


def outputs(policies: Sequence[Policy], x: Tensor) -> Tensor:
    """[n, dense] to [n, outputs]: the mean gain, in its range, and the probability of congestion
    that the mean logit stands for."""
    total = torch.zeros(len(x), len(policies[0].lo))
    with torch.no_grad():
        for policy in policies:
            total += torch.cat([policy.raw(part) for part in torch.split(x, AT_ONCE)])
    mean = total / len(policies)
    gain = mean[:, 0].clamp(policies[0].lo[0], policies[0].hi[0])
    return torch.stack([gain, mean[:, 1].sigmoid()], dim=1)
