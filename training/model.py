# SPDX-License-Identifier: GPL-2.0-only
"""The network: a memory of the inputs, tanh layers, two outputs."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ndm_tcp import contract


class Memory(nn.Module):
    """`ndm_remember()` of kmod/ndm_memory.h in real numbers, without any error: integers in float.

    Nothing in it is learned, and a round's means do not depend on any weight: training takes
    the means that `core.remember` computes of whole flows.
    """

    def __init__(self) -> None:
        super().__init__()
        index = [i.index - 1 for i in contract.INPUTS if i.name in contract.MEMORY.of]
        self.register_buffer("of", torch.tensor(index), persistent=False)
        self.of: Tensor

    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """One round of each of n flows, all with inputs.

        Args:
            x: [n, inputs].
            state: [n, means] each mean and 2; 0 before a flow's first round.

        Returns:
            the inputs of the dense layers [n, dense], and the next state [n, means].
        """
        one = float(1 << (contract.Q_INPUT + contract.MEAN_BITS))
        now = (x[:, self.of] * one).clamp(max=32767.0)
        before = state * one - contract.MEAN_OFFSET
        half = float(1 << (contract.MEAN_SHIFT - 1))
        moved = before + torch.floor((now - before + half) / (1 << contract.MEAN_SHIFT))
        mean = torch.where(state > 0, moved, now)
        means = torch.floor(mean / (1 << contract.MEAN_BITS)) / (1 << contract.Q_INPUT)
        return torch.cat([x, means], 1), (mean + contract.MEAN_OFFSET) / one


class Policy(nn.Module):
    """Memory, then a perceptron: dense - hidden - outputs, in real numbers."""

    def __init__(self, hidden: Sequence[int], mask: Sequence[int] = (), rounds: int = 1) -> None:
        """
        Args:
            hidden: widths of the tanh layers.
            mask: 1-based inputs held at zero, and with them their means.
            rounds: whose inputs the dense layers see at once, for ablations; the kernel's see one.
        """
        super().__init__()
        widths = [contract.N_DENSE * rounds, *hidden, contract.N_OUTPUTS]
        self.memory = Memory()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(widths))
        keep = torch.ones(contract.N_DENSE)
        hidden_names = {contract.DENSE[index - 1].name for index in mask}
        keep[[i.index - 1 for i in contract.DENSE if {i.name, i.of} & hidden_names]] = 0.0
        self.register_buffer("keep", keep.repeat(rounds))
        self.register_buffer("lo", torch.tensor([float(o.lo) for o in contract.OUTPUTS]))
        self.register_buffer("hi", torch.tensor([float(o.hi) for o in contract.OUTPUTS]))
        self.keep: Tensor
        self.lo: Tensor
        self.hi: Tensor

    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """One round of each of n flows: [n, inputs] and [n, means] to outputs and next state."""
        dense, following = self.memory(x, state)
        return self.act(dense), following

    def raw(self, dense: Tensor) -> Tensor:
        """[n, dense] to [n, outputs] before the clamp, where gradients live."""
        h = dense * self.keep
        for layer in self.layers[:-1]:
            h = torch.tanh(layer(h))
        out: Tensor = self.layers[-1](h)
        return out

    def act(self, dense: Tensor) -> Tensor:
        """[n, dense] to [n, outputs]: cwnd_gain and congestion, inside their ranges."""
        return torch.minimum(torch.maximum(self.raw(dense), self.lo), self.hi)

    def linear_layers(self) -> list[tuple[Tensor, Tensor]]:
        """(weight [out, in], bias [out]) per layer; masked inputs have zero weights."""
        linear = [layer for layer in self.layers if isinstance(layer, nn.Linear)]
        pairs = [(layer.weight.detach(), layer.bias.detach()) for layer in linear]
        return [(pairs[0][0] * self.keep, pairs[0][1]), *pairs[1:]]
