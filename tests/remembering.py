# SPDX-License-Identifier: GPL-2.0-only
"""Networks of other makers with the contract's memory before them, as ONNX."""

from __future__ import annotations

import io
import warnings

import numpy as np
import torch
from torch import Tensor, nn

from ndm_tcp import contract as c
from ndm_tcp.export.integers import golden
from ndm_tcp.training.model import Memory


class Remembering(nn.Module):
    """A module that takes [n, dense], and the memory that gives it that."""

    def __init__(self, module: nn.Module, memory: nn.Module | None = None) -> None:
        super().__init__()
        self.memory, self.rest = memory or Memory(), module

    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        dense, following = self.memory(x, state)
        return self.rest(dense), following


def exported(module: nn.Module, memory: nn.Module | None = None) -> bytes:
    """`Remembering(module, memory)` as PyTorch writes it."""
    buffer = io.BytesIO()
    shapes = (torch.rand(4, c.N_INPUTS), torch.rand(4, c.N_MEANS))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Remembering(module, memory).eval(),
            shapes,
            buffer,
            dynamo=False,
            dynamic_axes={"x": {0: "n"}, "state": {0: "n"}},
            input_names=["x", "state"],
        )
    return buffer.getvalue()


def some(n: int, seed: int = 0) -> np.ndarray:
    """[n, dense] float32: points of the box on the inputs' grid."""
    return (np.random.default_rng(seed).permutation(golden.inputs())[:n] / 4096).astype(np.float32)
