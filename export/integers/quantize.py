# SPDX-License-Identifier: GPL-2.0-only
"""Real weights to the contract's integers, with a bound on what that costs.

Each row gets the largest power-of-two scale at which its weights fit s16, its bias fits s32
and its accumulator provably fits s32 for every input in the box. Nothing is clamped silently:
a value that does not fit raises.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ndm_tcp import contract as c
from ndm_tcp import model_json
from ndm_tcp.errors import NdmError
from ndm_tcp.export.proof import enclosure
from ndm_tcp.fixedpoint import IntArray, Layer

S16, S32 = (1 << 15) - 1, (1 << 31) - 1

Floats = npt.NDArray[np.float64]


class Dense(NamedTuple):
    """A layer in real numbers."""

    weight: npt.NDArray[Any]
    """[out, in]"""
    bias: npt.NDArray[Any]
    """[out]"""
    clamped: int = 0
    """how many rows, the last ones, are clamped to [-1, 1] instead of tanh; 0 at the output"""

    def activate(self, pre: Floats) -> Floats:
        """[..., out] pre-activations of a hidden layer to activations."""
        bent = len(self.bias) - self.clamped
        return np.concatenate(
            [np.tanh(pre[..., :bent]), np.clip(pre[..., bent:], -1.0, 1.0)], axis=-1
        )


def input_box(layer: int) -> tuple[IntArray, IntArray, int]:
    """Lowest and highest integer inputs of a layer, and their fractional bits.

    Layer 0 takes the contract's box (arrays of N_DENSE); later layers take any s16 (arrays of 1).
    """
    if layer == 0:
        lo = np.array([i.lo_q for i in c.DENSE], dtype=np.int64)
        hi = np.array([i.hi_q for i in c.DENSE], dtype=np.int64)
        return lo, hi, c.Q_INPUT
    return np.array([-S16 - 1]), np.array([S16]), c.Q_ACT


def accumulator_bounds(weight: IntArray, bias: IntArray, layer: int) -> tuple[IntArray, IntArray]:
    """[out] lowest and highest value any partial sum can take, in any order of summation."""
    lo, hi, _ = input_box(layer)
    products = np.stack([weight * lo, weight * hi])
    low = np.minimum(products.min(axis=0), 0).sum(axis=1) + np.minimum(bias, 0)
    high = np.maximum(products.max(axis=0), 0).sum(axis=1) + np.maximum(bias, 0)
    return low, high


def quantize_layer(weight: Floats, bias: Floats, layer: int, clamped: int = 0) -> Layer:
    """Quantise one layer.

    Args:
        weight: [out, in], real.
        bias: [out], real.
        layer: its number, which determines the box of its inputs.
        clamped: how many rows, the last ones, saturate.

    Raises:
        NdmError: NaN, or a row too large for any scale.
    """
    _, _, q_in = input_box(layer)
    if not (np.isfinite(weight).all() and np.isfinite(bias).all()):
        raise NdmError(f"layer {layer}: NaN or infinity among the weights; train again")
    rows, biases, shifts = [], [], []
    for row in range(len(weight)):
        for bits in range(c.WEIGHT_SHIFT_MAX, c.WEIGHT_SHIFT_MIN - 1, -1):
            w = np.floor(weight[row] * 2.0**bits + 0.5)
            b = math.floor(float(bias[row]) * 2.0 ** (bits + q_in) + 0.5)
            shift = bits + q_in - c.Q_PRE
            if shift < 1 or np.abs(w).max() > S16 or abs(b) > S32:
                continue
            w_int, b_int = w.astype(np.int64)[None], np.array([b], dtype=np.int64)
            low, high = accumulator_bounds(w_int, b_int, layer)
            if -low[0] <= S32 and high[0] + (1 << (shift - 1)) <= S32:
                rows.append(w_int[0].astype(np.int16))
                biases.append(b)
                shifts.append(shift)
                break
        else:
            raise NdmError(
                f"layer {layer}, row {row}: largest weight {np.abs(weight[row]).max():g} fits no "
                "scale; train with more --weight-decay"
            )
    return Layer(
        np.stack(rows),
        np.array(biases, dtype=np.int32),
        np.array(shifts, dtype=np.uint8),
        clamped,
    )


def quantize(layers: Sequence[Dense | tuple[npt.NDArray[Any], npt.NDArray[Any]]]) -> list[Layer]:
    """Quantise a network; pairs of weight and bias are tanh layers."""
    return [
        quantize_layer(
            real.weight.astype(np.float64), real.bias.astype(np.float64), number, real.clamped
        )
        for number, real in enumerate(Dense(*layer) for layer in layers)
    ]


def dequantize(layers: list[Layer]) -> list[Dense]:
    """The real weights that the integers stand for."""
    return [
        Dense(weight, bias, layer.clamped)
        for (weight, bias), layer in zip(model_json.real_weights(layers), layers, strict=True)
    ]


def real_forward(layers: Sequence[Dense], x: Floats) -> Floats:
    """The network in float64 on real inputs [n, dense]; clamped outputs [n, 2]."""
    h = x
    for number, layer in enumerate(layers):
        h = h @ layer.weight.T + layer.bias
        if number + 1 < len(layers):
            h = layer.activate(h)
    return np.clip(h, [o.lo for o in c.OUTPUTS], [o.hi for o in c.OUTPUTS])


def error_bound(layers: list[Layer]) -> Floats:
    """[2] proved bound on |integer network - the same weights in real arithmetic|, rounded up.

    For every input in the box; `enclosure` has the method.
    """
    bounds = enclosure.error_bound(layers)
    return np.array([math.nextafter(float(bound), math.inf) for bound in bounds])
