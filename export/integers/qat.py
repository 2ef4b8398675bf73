# SPDX-License-Identifier: GPL-2.0-only
"""Quantisation-aware fine-tuning: the integer network learns to give the real network's outputs.

`Quantised` computes exactly the integers of `fixedpoint.py` and the C, in float64 (every number
stays below 2**53), and passes gradients straight through the roundings (Bengio et al. 2013). It
starts from the rounded weights, keeps their scales, and imitates the network it came from; the
better of both, by measured error, is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ndm_tcp import contract as c
from ndm_tcp import fixedpoint
from ndm_tcp.export.integers import quantize
from ndm_tcp.export.integers.quantize import S16, S32, Dense
from ndm_tcp.fixedpoint import Layer

STEPS = 300
BATCH = 1024
SEED = 20260102
RATE = 0.05
"""Learning rate, in units of a weight's last bit."""


def _through(exact: Tensor, smooth: Tensor) -> Tensor:
    """The value of `exact`, the gradient of `smooth`; x - x is 0 in any precision."""
    return exact.detach() + (smooth - smooth.detach())


def _activate(layer: Layer, pre: Tensor) -> Tensor:
    exact = fixedpoint.activate(layer, pre.detach().numpy().astype(np.int64))
    real, bent = pre / (1 << c.Q_PRE), layer.n_out - layer.clamped
    smooth = torch.cat([torch.tanh(real[:, :bent]), real[:, bent:].clamp(-1.0, 1.0)], dim=1)
    return _through(torch.from_numpy(exact.astype(np.float64)), smooth * (1 << c.Q_ACT))


class Quantised(nn.Module):
    """The integer network with weights and biases, in units of their last bit, as parameters."""

    def __init__(self, layers: Sequence[Layer], trained: Sequence[Dense]) -> None:
        """
        Args:
            layers: the scales to keep.
            trained: the real layers to start from.
        """
        super().__init__()
        self.started = list(layers)
        self.weights, self.biases, self.scales = nn.ParameterList(), nn.ParameterList(), []
        for number, (layer, real) in enumerate(zip(layers, trained, strict=True)):
            _, _, q_in = quantize.input_box(number)
            bits = layer.shift.astype(np.int64) + c.Q_PRE - q_in
            self.weights.append(torch.from_numpy(real.weight * 2.0 ** bits[:, None]))
            self.biases.append(torch.from_numpy(real.bias * 2.0 ** (bits + q_in)))
            self.scales.append(torch.from_numpy(2.0 ** layer.shift.astype(np.float64)))

    def integers(self, number: int) -> tuple[Tensor, Tensor]:
        """Weight [out, in] and bias [out] of a layer, rounded as `quantize` does."""
        weight, bias = self.weights[number], self.biases[number]
        return (
            _through(torch.floor(weight + 0.5).clamp(-S16, S16), weight),
            _through(torch.floor(bias + 0.5).clamp(-S32, S32), bias),
        )

    def forward(self, x: Tensor) -> Tensor:
        """[batch, dense] inputs in Q12 to [batch, 2] pre-activations of the output layer in Q16."""
        h = x
        for number, scale in enumerate(self.scales):
            weight, bias = self.integers(number)
            scaled = (h @ weight.T + bias) / scale
            pre = _through(torch.floor(scaled + 0.5), scaled)
            h = _activate(self.started[number], pre) if number + 1 < len(self.scales) else pre
        return h

    def layers(self) -> list[Layer]:
        """The integers as the exporter wants them."""
        result = []
        for number, scale in enumerate(self.scales):
            weight, bias = (value.detach().numpy() for value in self.integers(number))
            shift = np.log2(scale.numpy()).round().astype(np.uint8)
            clamped = self.started[number].clamped
            result.append(Layer(weight.astype(np.int16), bias.astype(np.int32), shift, clamped))
        return result


@dataclass(frozen=True)
class Error:
    """|integer network - real network| over a set of inputs, per output."""

    largest: tuple[float, ...]
    mean: tuple[float, ...]

    def score(self) -> float:
        """The measure compared: mean and largest as shares of the outputs' ranges."""
        parts = zip(self.largest, self.mean, c.OUTPUTS, strict=True)
        return sum((largest + mean) / (o.hi - o.lo) for largest, mean, o in parts)


@dataclass(frozen=True)
class Choice:
    """Effect of fine-tuning."""

    layers: list[Layer]
    """the better ones"""
    tuned: bool
    before: Error
    after: Error

    def text(self) -> str:
        """One line."""
        parts = [
            f"{name} mean {before:.3g} -> {after:.3g}, largest {least:.3g} -> {most:.3g}"
            for name, before, after, least, most in zip(
                (o.name for o in c.OUTPUTS), self.before.mean, self.after.mean,
                self.before.largest, self.after.largest, strict=True,
            )
        ]  # fmt: skip
        return "; ".join(parts) + ("; kept" if self.tuned else "; not better, not kept")


def measure(layers: list[Layer], trained: Sequence[Dense], x: npt.NDArray[np.int16]) -> Error:
    """The error on inputs [n, dense] in Q12, both networks clamped."""
    fixed = fixedpoint.forward(layers, x.astype(np.int64)).outputs / float(1 << c.Q_PRE)
    error = np.abs(fixed - quantize.real_forward(trained, x / float(1 << c.Q_INPUT)))
    return Error(tuple(error.max(axis=0).tolist()), tuple(error.mean(axis=0).tolist()))


def _fits(layers: list[Layer]) -> bool:
    for number, layer in enumerate(layers):
        weight, bias = layer.weight.astype(np.int64), layer.bias.astype(np.int64)
        low, high = quantize.accumulator_bounds(weight, bias, number)
        if low.min() < -S32 or (high + layer.half).max() > S32:
            return False
    return True


def fine_tune(
    layers: list[Layer],
    trained: Sequence[Dense],
    x: npt.NDArray[np.int16],
    held_out: npt.NDArray[np.int16],
    steps: int = STEPS,
) -> Choice:
    """Imitate the real network in integers, then keep the better of both.

    Args:
        layers: the real network, quantised after training.
        trained: the real network.
        x: [n, dense] inputs to learn from, Q12.
        held_out: [n, dense] inputs to measure on, Q12.
        steps: of Adam.

    Returns:
        the better network; the same inputs give the same one on the same PyTorch.
    """
    real = [t._replace(weight=t.weight.astype(float), bias=t.bias.astype(float)) for t in trained]
    network = Quantised(layers, real)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        spans = torch.tensor([float(o.hi_q - o.lo_q) for o in c.OUTPUTS], dtype=torch.float64)
        lows = torch.tensor([float(o.lo_q) for o in c.OUTPUTS], dtype=torch.float64)
        inputs = torch.from_numpy(x.astype(np.float64))
        target = torch.from_numpy(
            quantize.real_forward(real, x / float(1 << c.Q_INPUT)) * (1 << c.Q_PRE)
        )
        # A bias counts in units as small as its inputs' last bit times a weight's.
        groups = [{"params": list(network.weights), "lr": RATE}]
        for number, bias in enumerate(network.biases):
            _, _, q_in = quantize.input_box(number)
            groups.append({"params": [bias], "lr": RATE * (1 << q_in)})
        optimizer = torch.optim.Adam(groups)
        schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.02, steps)
        best, best_error = layers, measure(layers, real, x)
        for step in range(steps):
            rows = torch.randint(len(inputs), (BATCH,))
            out = network(inputs[rows])
            out = torch.minimum(torch.maximum(out, lows), lows + spans)
            loss = (((out - target[rows]) / spans) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
            if step % 25 == 24 or step + 1 == steps:
                found = network.layers()
                error = measure(found, real, x)
                if error.score() < best_error.score() and _fits(found):
                    best, best_error = found, error
    before, after = measure(layers, real, held_out), measure(best, real, held_out)
    tuned = after.score() < before.score()
    return Choice(best if tuned else layers, tuned, before, after)
