# SPDX-License-Identifier: GPL-2.0-only
"""Real weights to the contract's integers, with a bound on what that costs.

Each row gets the largest power-of-two scale at which its weights fit s16, its bias fits s32
and its accumulator provably fits s32 for every input in the box. Nothing is clamped silently:
what does not fit raises.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ndm_tcp import contract as c
from ndm_tcp import fixedpoint
from ndm_tcp.errors import NdmError
from ndm_tcp.export import enclosure
from ndm_tcp.fixedpoint import IntArray, Layer

S16, S32 = (1 << 15) - 1, (1 << 31) - 1

Floats = npt.NDArray[np.float64]


def input_box(layer: int) -> tuple[IntArray, IntArray, int]:
    """Lowest and highest integer inputs of a layer, and their fractional bits.

    Layer 0 takes the contract's box (arrays of 10); later layers take tanh's range (scalars
    as arrays of 1).
    """
    if layer == 0:
        lo = np.array([i.lo_q for i in c.INPUTS], dtype=np.int64)
        hi = np.array([i.hi_q for i in c.INPUTS], dtype=np.int64)
        return lo, hi, c.Q_INPUT
    top = np.array([fixedpoint.TANH[-1]], dtype=np.int64)
    return -top, top, c.Q_ACT


def accumulator_bounds(weight: IntArray, bias: IntArray, layer: int) -> tuple[IntArray, IntArray]:
    """[out] lowest and highest value any partial sum can take, in any order of summation."""
    lo, hi, _ = input_box(layer)
    products = np.stack([weight * lo, weight * hi])
    low = np.minimum(products.min(axis=0), 0).sum(axis=1) + np.minimum(bias, 0)
    high = np.maximum(products.max(axis=0), 0).sum(axis=1) + np.maximum(bias, 0)
    return low, high


def quantize_layer(weight: Floats, bias: Floats, layer: int) -> Layer:
    """Quantise one layer.

    Args:
        weight: [out, in], real.
        bias: [out], real.
        layer: its number, which tells the box of its inputs.

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
    return Layer(np.stack(rows), np.array(biases, dtype=np.int32), np.array(shifts, dtype=np.uint8))


def quantize(layers: Sequence[tuple[npt.NDArray[Any], npt.NDArray[Any]]]) -> list[Layer]:
    """Quantise a network of real (weight, bias) pairs."""
    return [
        quantize_layer(weight.astype(np.float64), bias.astype(np.float64), number)
        for number, (weight, bias) in enumerate(layers)
    ]


def dequantize(layers: list[Layer]) -> list[tuple[Floats, Floats]]:
    """The real weights that the integers stand for."""
    result = []
    for number, layer in enumerate(layers):
        _, _, q_in = input_box(number)
        bits = layer.shift.astype(np.int64) + c.Q_PRE - q_in
        result.append((layer.weight / 2.0 ** bits[:, None], layer.bias / 2.0 ** (bits + q_in)))
    return result


def real_forward(layers: list[tuple[Floats, Floats]], x: Floats) -> Floats:
    """The network in float64 on real inputs [n, 10]; clamped outputs [n, 2]."""
    h = x
    for number, (weight, bias) in enumerate(layers):
        h = h @ weight.T + bias
        if number + 1 < len(layers):
            h = np.tanh(h)
    return np.clip(h, [o.lo for o in c.OUTPUTS], [o.hi for o in c.OUTPUTS])


def error_bound(layers: list[Layer]) -> Floats:
    """[2] proved bound on |integer network - the same weights in real arithmetic|, rounded up.

    For every input in the box; `enclosure` says how.
    """
    bounds = enclosure.error_bound(layers)
    return np.array([math.nextafter(float(bound), math.inf) for bound in bounds])
