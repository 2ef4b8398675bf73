# SPDX-License-Identifier: GPL-2.0-only
"""The values of an ONNX graph as affine functions of a hidden layer's activations."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import numpy_helper

from ndm_tcp import contract as c
from ndm_tcp.export.integers.quantize import Floats

OPEN_MARGIN = 1 / 64
"""Of the proved range, added at an end that stands for infinity."""


@dataclass(frozen=True)
class Affine:
    """weight . h + bias, h the activations of hidden layer `level` (0: the inputs), clamped."""

    level: int
    weight: Floats
    bias: Floats
    lo: Floats
    hi: Floats
    clamp: str = ""
    """the node that clamps it, if one does"""


@dataclass
class Hidden:
    """Units of a hidden layer in the making; a unit is a row of every array."""

    weight: Floats
    bias: Floats
    clamped: npt.NDArray[np.bool_]
    open: npt.NDArray[np.bool_]
    """[n, 2]: does the lower, the upper end of the clamp stand for infinity?"""
    lo: Floats
    hi: Floats
    """interval that the activation cannot leave"""


class Refused(Exception):
    """Why a node cannot be carried."""


class Values:
    """Constants and values of a graph by name, and the hidden layers that they take."""

    def __init__(self, path: Path, model: onnx.ModelProto) -> None:
        self.path, self.model = path, model
        self.constants: dict[str, npt.NDArray[Any]] = {
            t.name: numpy_helper.to_array(t) for t in model.graph.initializer
        }
        self.values: dict[str, Affine] = {}
        self.hidden: list[Hidden] = []

    @staticmethod
    def affine(level: int, weight: Floats, bias: Floats) -> Affine:
        endless = np.full(len(bias), np.inf)
        return Affine(level, weight, bias, -endless, endless)

    def value(self, node: onnx.NodeProto, at: int) -> Affine:
        """An operand that depends on the inputs, its clamp a layer of its own."""
        value = self.any_value(node, at)
        if not isinstance(value, Affine):
            raise Refused(f"operand {at} is a constant")
        if value.clamp:
            value = self.values[node.input[at]] = self.clamp_units(value)
        return value

    def any_value(self, node: onnx.NodeProto, at: int) -> Affine | npt.NDArray[Any]:
        name = node.input[at]
        if name in self.values:
            return self.values[name]
        return self.fixed(node, at)

    def fixed(self, node: onnx.NodeProto, at: int) -> npt.NDArray[Any]:
        """A constant operand."""
        name = node.input[at]
        if name not in self.constants:
            raise Refused(f"operand {name!r} is not a constant of the graph")
        array = self.constants[name]
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise Refused(f"{name!r} holds NaN or infinity; train again")
        return array

    def row(self, node: onnx.NodeProto, at: int, width: int) -> Floats:
        """A constant operand as a vector [width]."""
        array = self.fixed(node, at)
        if array.ndim > 2 or array.shape not in ((), (1,), (1, 1), (width,), (1, width)):
            raise Refused(f"{node.input[at]!r} has shape {list(array.shape)}, width is {width}")
        result: Floats = np.broadcast_to(array.astype(np.float64).reshape(-1), (width,))
        return result

    def split(self, node: onnx.NodeProto) -> tuple[Affine, Floats, bool]:
        """Of two operands the one that depends on the inputs, the constant one, is it first?"""
        first = node.input[0] in self.values
        if first == (node.input[1] in self.values):
            raise Refused("expected one constant operand and one that depends on the inputs")
        value = self.value(node, 0 if first else 1)
        return value, self.row(node, 1 if first else 0, len(value.bias)), first

    def stack(self, parts: list[Affine]) -> Affine:
        """Rows of several values as one; those of lower depth pass layers through clamps."""
        level = max(part.level for part in parts)
        for number, part in enumerate(parts):
            while part.level < level:
                part = self.clamp_units(part)
            parts[number] = part
        width = max(part.weight.shape[1] for part in parts)
        return Affine(
            level,
            np.concatenate([widen(part.weight, width) for part in parts]),
            np.concatenate([part.bias for part in parts]),
            np.concatenate([part.lo for part in parts]),
            np.concatenate([part.hi for part in parts]),
            next((part.clamp for part in parts if part.clamp), ""),
        )

    def clamp_units(self, value: Affine) -> Affine:
        """The clamp of a value as units of the next layer: lo .. hi becomes -1 .. 1.

        An end that the unit provably never reaches moves in to where it could stop, for the
        sake of resolution.
        """
        if not (value.lo < value.hi).all():
            raise Refused(f"clamp {value.clamp!r} leaves a single value")
        low, high = self.range(value)
        margin = OPEN_MARGIN * np.maximum(high - low, 1e-6 * np.abs(high) + 1e-9)
        low, high = low - margin, high + margin
        # A unit that never leaves one end is constant: the other end may lie anywhere.
        lo = np.where(value.hi <= low, value.hi - 1, np.maximum(value.lo, low))
        hi = np.where(value.lo >= high, value.lo + 1, np.minimum(value.hi, high))
        open_ends = np.stack([value.lo < low, value.hi > high], axis=1)
        half, middle = (hi - lo) / 2, (hi + lo) / 2
        pre = self.affine(value.level, value.weight / half[:, None], (value.bias - middle) / half)
        low, high = np.clip(self.range(pre), -1.0, 1.0)
        units = Hidden(pre.weight, pre.bias, np.ones(len(half), dtype=bool), open_ends, low, high)
        return self.append(value.level, units, half, middle)

    def range(self, value: Affine) -> tuple[Floats, Floats]:
        """Interval that a value cannot leave, its own clamp aside, by interval arithmetic."""
        if value.level:
            below = self.hidden[value.level - 1]
            lo, hi = below.lo, below.hi
        else:
            ends = [(i.lo, i.hi) for i in c.DENSE]
            lo, hi = (np.array(side) for side in zip(*ends, strict=True))
        width = value.weight.shape[1]
        up, down = np.maximum(value.weight, 0), np.minimum(value.weight, 0)
        return (
            up @ lo[:width] + down @ hi[:width] + value.bias,
            up @ hi[:width] + down @ lo[:width] + value.bias,
        )

    def append(self, level: int, units: Hidden, factor: Floats, constant: Floats) -> Affine:
        """More units of the hidden layer after `level`; their activations, times and plus."""
        start = len(self.hidden[level].bias) if level < len(self.hidden) else 0
        if level + 1 >= c.MAX_LAYERS:
            raise Refused(f"{level + 2} layers, at most {c.MAX_LAYERS}")
        if start + len(units.bias) > c.MAX_WIDTH:
            raise Refused(f"layer {level}: {start + len(units.bias)} units, at most {c.MAX_WIDTH}")
        if not start:
            self.hidden.append(units)
        else:
            there = self.hidden[level]
            width = max(there.weight.shape[1], units.weight.shape[1])
            there.weight, units.weight = widen(there.weight, width), widen(units.weight, width)
            for name in ("weight", "bias", "clamped", "open", "lo", "hi"):
                both = [getattr(there, name), getattr(units, name)]
                setattr(there, name, np.concatenate(both))
        n = len(units.bias)
        select = np.zeros((n, start + n))
        select[:, start:] = np.diag(factor)
        return self.affine(level + 1, select, constant)


def widen(weight: Floats, width: int) -> Floats:
    """Columns of zeros for units that came later."""
    return np.pad(weight, ((0, 0), (0, width - weight.shape[1])))
