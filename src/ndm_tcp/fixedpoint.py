# SPDX-License-Identifier: GPL-2.0-only
"""The arithmetic of the kernel module as an executable specification.

Everything is integers: Python's for the tables, NumPy int64 for batches (proved wide enough,
since accumulators fit 32 bits). `kmod/ndm_infer.h` computes the same, bit for bit.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from ndm_tcp import contract as c

IntArray = npt.NDArray[np.int64]


def round_shift(acc: IntArray, n: IntArray | int) -> IntArray:
    """`acc / 2**n` rounded half up; n >= 1. The one rounding rule."""
    n = np.asarray(n, dtype=np.int64)
    return (acc + (np.int64(1) << (n - 1))) >> n


def tanh_table() -> list[int]:
    """tanh at 2**TANH_STEPS_LOG2 + 1 points of [0, 8], Q15, saturated to s16."""
    steps = 1 << c.TANH_STEPS_LOG2
    span = 1 << c.TANH_RANGE_LOG2
    one = 1 << c.Q_ACT
    return [
        min(one - 1, math.floor(math.tanh(i * span / steps) * one + 0.5)) for i in range(steps + 1)
    ]


def exp2_table() -> list[int]:
    """2**x at 2**EXP2_STEPS_LOG2 + 1 points of [0, 1], Q16."""
    steps = 1 << c.EXP2_STEPS_LOG2
    return [math.floor(2.0 ** (i / steps) * 65536 + 0.5) for i in range(steps + 1)]


def log2_table() -> list[int]:
    """log2 k for k = 0 .. ENTROPY_RING, Q16; 0 for k = 0."""
    return [math.floor(math.log2(k) * 65536 + 0.5) if k else 0 for k in range(c.ENTROPY_RING + 1)]


def klog2k_steps() -> list[int]:
    """What k log2 k grows by when k does by one, for k = 0 .. ENTROPY_RING - 1, Q16."""
    of = [math.floor(k * math.log2(k) * 65536 + 0.5) for k in range(1, c.ENTROPY_RING + 1)]
    return [after - before for before, after in itertools.pairwise([0, *of])]


TANH = np.array(tanh_table(), dtype=np.int64)
EXP2 = np.array(exp2_table(), dtype=np.int64)


def interpolate(pre: IntArray) -> IntArray:
    """tanh of Q16 integers, as Q15: odd-symmetric table, linear interpolation.

    Args:
        pre: any shape, values that fit s32.
    """
    step_bits = c.Q_PRE + c.TANH_RANGE_LOG2 - c.TANH_STEPS_LOG2
    magnitude = np.abs(np.asarray(pre, dtype=np.int64))
    limit = np.int64(1) << (c.Q_PRE + c.TANH_RANGE_LOG2)
    inside = np.minimum(magnitude, limit - 1)
    index = inside >> step_bits
    fraction = inside & ((1 << step_bits) - 1)
    low, high = TANH.take(index), TANH.take(index + 1)  # faster than TANH[index]
    value = low + round_shift((high - low) * fraction, step_bits)
    value = np.where(magnitude >= limit, TANH[-1], value)
    result: IntArray = np.where(pre < 0, -value, value)
    return result


@cache
def _inside() -> npt.NDArray[np.int16]:
    """`interpolate` of every integer from -8 to 8, Q16, beyond which it is level."""
    limit = 1 << (c.Q_PRE + c.TANH_RANGE_LOG2)
    return interpolate(np.arange(-limit, limit + 1)).astype(np.int16)


def tanh(pre: IntArray) -> IntArray:
    """What `interpolate` gives, looked up, which is five times as fast: proofs need millions."""
    known = _inside()
    at = np.asarray(pre, dtype=np.int64) + (len(known) >> 1)
    result: IntArray = known.take(at, mode="clip").astype(np.int64)
    return result


def saturate(pre: IntArray) -> IntArray:
    """Q16 integers clamped to [-1, 1), as Q15."""
    top = np.int64(1) << c.Q_ACT
    result: IntArray = np.clip(round_shift(pre, c.Q_PRE - c.Q_ACT), -top, top - 1)
    return result


def exp2(gain: IntArray) -> IntArray:
    """2**gain for Q16 gains in [-1, 1], as Q16."""
    gain = np.asarray(gain, dtype=np.int64)
    whole = gain >> 16  # -1, 0 or 1
    fraction = gain & 0xFFFF
    step_bits = 16 - c.EXP2_STEPS_LOG2
    index = fraction >> step_bits
    rest = fraction & ((1 << step_bits) - 1)
    low = EXP2[index]
    high = EXP2[np.minimum(index + 1, len(EXP2) - 1)]
    value = low + round_shift((high - low) * rest, step_bits)
    return np.where(whole < 0, round_shift(value, 1), value << np.maximum(whole, 0))


@dataclass(frozen=True)
class Layer:
    """A quantised linear layer: `out = (weight . x + bias) >> shift`, row by row."""

    weight: npt.NDArray[np.int16]
    """[out, in]; row r is scaled by 2**weight_shift[r]."""
    bias: npt.NDArray[np.int32]
    """[out], in the scale of the accumulator."""
    shift: npt.NDArray[np.uint8]
    """[out], bits from the accumulator to Q16; 1 or more."""
    clamped: int = 0
    """how many rows, the last ones, `saturate` instead of `tanh`; 0 in the output layer"""

    @property
    def n_in(self) -> int:
        return int(self.weight.shape[1])

    @property
    def n_out(self) -> int:
        return int(self.weight.shape[0])

    @property
    def bytes_in_c(self) -> int:
        """of the arrays in ndm_model.h: 4 for a weight or a bias, 1 for a shift"""
        even = self.even()
        return int(4 * (even.weight.size + even.bias.size) + even.shift.size)

    @property
    def half(self) -> IntArray:
        """[out] half of what a shift makes one: added before it, it rounds half up"""
        return np.int64(1) << (self.shift.astype(np.int64) - 1)

    def rounding_bias(self) -> IntArray:
        """[out] as C adds it: the bias and the half by which the shift rounds."""
        return self.bias + self.half

    def even(self) -> Layer:
        """The same with a row of zeros more if their number is odd: C takes two at a time."""
        if self.n_out % 2 == 0:
            return self
        return Layer(
            np.vstack([self.weight, np.zeros_like(self.weight[:1])]),
            np.append(self.bias, np.int32(0)),
            np.append(self.shift, np.uint8(1)),
            self.clamped,
        )


def activate(layer: Layer, pre: IntArray) -> IntArray:
    """[..., out] pre-activations of a hidden layer, Q16, to activations, Q15."""
    bent = layer.n_out - layer.clamped
    return np.concatenate([tanh(pre[..., :bent]), saturate(pre[..., bent:])], axis=-1)


def accumulate(layer: Layer, h: IntArray) -> IntArray:
    """[..., out] accumulators for [..., in] inputs of a layer.

    By float64, which is three times as fast and exact: products of s16, 255 at most, stay far
    below 2**53.
    """
    product = h.astype(np.float64) @ layer.weight.astype(np.float64).T
    return product.astype(np.int64) + layer.bias


@dataclass(frozen=True)
class Trace:
    """Every integer of a forward pass, per layer."""

    accumulators: list[IntArray]
    """per layer [batch, out]"""
    pre: list[IntArray]
    """per layer [batch, out], Q16"""
    activations: list[IntArray]
    """per hidden layer [batch, out], Q15"""
    outputs: IntArray
    """[batch, 2], Q16, clamped to the contract's ranges"""


def forward(layers: list[Layer], x: IntArray) -> Trace:
    """The integer network.

    Args:
        layers: hidden layers and the output layer.
        x: [batch, dense] inputs and means, Q12, inside the contract's box.
    """
    accumulators, pres, activations = [], [], []
    h = np.asarray(x, dtype=np.int64)
    for number, layer in enumerate(layers):
        acc = accumulate(layer, h)
        pre = round_shift(acc, layer.shift.astype(np.int64))
        accumulators.append(acc)
        pres.append(pre)
        if number + 1 < len(layers):
            h = activate(layer, pre)
            activations.append(h)
    lo = np.array([o.lo_q for o in c.OUTPUTS], dtype=np.int64)
    hi = np.array([o.hi_q for o in c.OUTPUTS], dtype=np.int64)
    return Trace(accumulators, pres, activations, np.clip(pres[-1], lo, hi))
