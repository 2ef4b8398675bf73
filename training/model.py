# SPDX-License-Identifier: GPL-2.0-only
"""The network: the contract's inputs, tanh layers, two outputs."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ndm_tcp import contract


class Policy(nn.Module):
    """18 - hidden - 2 perceptron on the contract's inputs in real numbers."""

    def __init__(self, hidden: Sequence[int], mask: Sequence[int] = (), rounds: int = 1) -> None:
        """
        Args:
            hidden: widths of the tanh layers.
            mask: 1-based inputs held at zero, and with them their means.
            rounds: whose inputs it sees at once, for ablations; the kernel's sees one.
        """
        super().__init__()
        widths = [contract.N_INPUTS * rounds, *hidden, contract.N_OUTPUTS]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(widths))
        keep = torch.ones(contract.N_INPUTS)
        hidden_names = {contract.INPUTS[index - 1].name for index in mask}
        keep[[i.index - 1 for i in contract.INPUTS if {i.name, i.of} & hidden_names]] = 0.0
        self.register_buffer("keep", keep.repeat(rounds))
        self.register_buffer("lo", torch.tensor([float(o.lo) for o in contract.OUTPUTS]))
        self.register_buffer("hi", torch.tensor([float(o.hi) for o in contract.OUTPUTS]))
        self.keep: Tensor
        self.lo: Tensor
        self.hi: Tensor

    def raw(self, x: Tensor) -> Tensor:
        """[batch, 18] inputs to [batch, 2] outputs before the clamp, where gradients live."""
        h = x * self.keep
        for layer in self.layers[:-1]:
            h = torch.tanh(layer(h))
        out: Tensor = self.layers[-1](h)
        return out

    def forward(self, x: Tensor) -> Tensor:
        """[batch, 18] inputs to [batch, 2]: cwnd_gain and congestion, inside their ranges."""
        return torch.minimum(torch.maximum(self.raw(x), self.lo), self.hi)

    def linear_layers(self) -> list[tuple[Tensor, Tensor]]:
        """(weight [out, in], bias [out]) per layer; masked inputs have zero weights."""
        linear = [layer for layer in self.layers if isinstance(layer, nn.Linear)]
        pairs = [(layer.weight.detach(), layer.bias.detach()) for layer in linear]
        return [(pairs[0][0] * self.keep, pairs[0][1]), *pairs[1:]]
