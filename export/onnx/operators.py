# SPDX-License-Identifier: GPL-2.0-only
"""The operators of ONNX that have a place in the integer core."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, numpy_helper

from ndm_tcp import contract as c
from ndm_tcp.export.integers.quantize import Floats
from ndm_tcp.export.onnx.values import Affine, Hidden, Refused, Values


class Operators(Values):
    """Each operator gives the value or the constant that its node makes."""

    def __init__(self, path: Path, model: onnx.ModelProto) -> None:
        super().__init__(path, model)
        self.operators: dict[str, Callable[[onnx.NodeProto, dict[str, Any]], object]] = {
            "Gemm": self.gemm,
            "MatMul": self.matmul,
            "Add": self.add,
            "Sub": self.subtract,
            "Mul": self.multiply,
            "Div": self.divide,
            "BatchNormalization": self.batch_norm,
            "ai.onnx.ml.Scaler": self.scaler,
            "Tanh": lambda node, _: self.bend(node, 1.0),
            "Sigmoid": lambda node, _: self.bend(node, 0.5),
            "Relu": self.relu,
            "Identity": lambda node, _: self.any_value(node, 0),
            "Cast": self.cast,
            "Flatten": self.flatten,
            "Reshape": self.reshape,
            "Transpose": self.transpose,
            "Concat": self.concat,
            "Constant": self.constant,
            "Clip": self.clip,
            "Max": lambda node, _: self.extreme(node, True),
            "Min": lambda node, _: self.extreme(node, False),
        }

    def linear(self, value: Affine, matrix: Floats, bias: Floats) -> Affine:
        """value . matrix + bias, matrix [in, out]."""
        if matrix.ndim != 2 or matrix.shape[0] != len(value.bias):
            raise Refused(f"weight {list(matrix.shape)}, expected {len(value.bias)} rows")
        if matrix.shape[1] > c.MAX_WIDTH:
            raise Refused(f"{matrix.shape[1]} units, at most {c.MAX_WIDTH}")
        return self.affine(value.level, matrix.T @ value.weight, value.bias @ matrix + bias)

    def gemm(self, node: onnx.NodeProto, attributes: dict[str, Any]) -> Affine:
        if attributes.get("transA", 0):
            raise Refused("transA=1 would transpose the batch")
        matrix = self.fixed(node, 1).astype(np.float64)
        if attributes.get("transB", 0):
            matrix = matrix.T
        out = self.linear(self.value(node, 0), matrix * attributes.get("alpha", 1.0), np.zeros(()))
        if len(node.input) < 3 or not node.input[2]:
            return out
        return replace(
            out, bias=out.bias + attributes.get("beta", 1.0) * self.row(node, 2, len(out.bias))
        )

    def matmul(self, node: onnx.NodeProto, _: dict[str, Any]) -> Affine:
        return self.linear(
            self.value(node, 0), self.fixed(node, 1).astype(np.float64), np.zeros(())
        )

    def add(self, node: onnx.NodeProto, _: dict[str, Any], sign: float = 1.0) -> Affine:
        if node.input[0] in self.values and node.input[1] in self.values:
            a, b = self.value(node, 0), self.value(node, 1)
            both = self.stack([a, b])
            n = len(a.bias)
            if n != len(b.bias):
                raise Refused(f"operands of width {n} and {len(b.bias)}")
            weight = both.weight[:n] + sign * both.weight[n:]
            return self.affine(both.level, weight, both.bias[:n] + sign * both.bias[n:])
        value, row, first = self.split(node)
        if sign > 0:
            return replace(value, bias=value.bias + row)
        if first:
            return replace(value, bias=value.bias - row)
        return replace(value, weight=-value.weight, bias=row - value.bias)

    def subtract(self, node: onnx.NodeProto, attributes: dict[str, Any]) -> Affine:
        return self.add(node, attributes, -1.0)

    def multiply(self, node: onnx.NodeProto, _: dict[str, Any]) -> Affine:
        value, row, _first = self.split(node)
        return replace(value, weight=value.weight * row[:, None], bias=value.bias * row)

    def divide(self, node: onnx.NodeProto, _: dict[str, Any]) -> Affine:
        value, row, first = self.split(node)
        if not first or not row.all():
            raise Refused("only by a constant other than 0")
        return replace(value, weight=value.weight / row[:, None], bias=value.bias / row)

    def batch_norm(self, node: onnx.NodeProto, attributes: dict[str, Any]) -> Affine:
        if attributes.get("training_mode", 0) or len(node.output) > 1:
            raise Refused("it is in training mode; export the network in evaluation mode")
        value = self.value(node, 0)
        scale, shift, mean, variance = (self.row(node, at, len(value.bias)) for at in (1, 2, 3, 4))
        spread = variance + attributes.get("epsilon", 1e-5)
        if not (spread > 0).all():
            raise Refused("variance is not positive")
        factor = scale / np.sqrt(spread)
        return replace(
            value,
            weight=value.weight * factor[:, None],
            bias=(value.bias - mean) * factor + shift,
        )

    def scaler(self, node: onnx.NodeProto, attributes: dict[str, Any]) -> Affine:
        """(x - offset) scale, as scikit-learn's standardisation becomes."""
        value = self.value(node, 0)
        shape = (len(value.bias),)
        offset = np.broadcast_to(np.array(attributes.get("offset", [0.0]), np.float64), shape)
        scale = np.broadcast_to(np.array(attributes.get("scale", [1.0]), np.float64), shape)
        return replace(
            value, weight=value.weight * scale[:, None], bias=(value.bias - offset) * scale
        )

    def bend(self, node: onnx.NodeProto, scale: float) -> Affine:
        """tanh (scale 1), or sigmoid as (1 + tanh(x / 2)) / 2: more units of the next layer."""
        value = self.value(node, 0)
        pre = self.affine(value.level, scale * value.weight, scale * value.bias)
        lo, hi = np.tanh(self.range(pre))
        n = len(lo)
        units = Hidden(
            pre.weight, pre.bias, np.zeros(n, dtype=bool), np.zeros((n, 2), dtype=bool), lo, hi
        )
        return self.append(pre.level, units, np.full(n, scale), np.full(n, 1.0 - scale))

    def relu(self, node: onnx.NodeProto, _: dict[str, Any]) -> Affine:
        value = self.any_value(node, 0)
        n = len(value.bias) if isinstance(value, Affine) else 0
        return self.clamped(node, value, np.zeros(n), np.full(n, np.inf))

    def cast(self, node: onnx.NodeProto, attributes: dict[str, Any]) -> object:
        if attributes.get("to") != TensorProto.FLOAT:
            raise Refused("only to FLOAT")
        return self.any_value(node, 0)

    def flatten(self, node: onnx.NodeProto, attributes: dict[str, Any]) -> object:
        if attributes.get("axis", 1) != 1:
            raise Refused("only with axis 1")
        return self.any_value(node, 0)

    def reshape(self, node: onnx.NodeProto, attributes: dict[str, Any]) -> Affine:
        value = self.any_value(node, 0)
        shape = self.fixed(node, 1).reshape(-1).tolist()
        if not isinstance(value, Affine) or attributes.get("allowzero", 0):
            raise Refused("only of values that depend on the inputs, without allowzero")
        width = len(value.bias)
        if len(shape) != 2 or (shape[0], shape[1]) not in ((-1, width), (0, width), (0, -1)):
            raise Refused(f"to {shape}, which mixes rows; expected [-1, {width}]")
        return value

    def transpose(self, node: onnx.NodeProto, attributes: dict[str, Any]) -> npt.NDArray[Any]:
        if node.input[0] in self.values:
            raise Refused("only of constants; this one would transpose the batch")
        return self.fixed(node, 0).transpose(attributes.get("perm"))

    def concat(self, node: onnx.NodeProto, attributes: dict[str, Any]) -> Affine:
        if attributes.get("axis") not in (1, -1):
            raise Refused("only along axis 1")
        parts = [self.any_value(node, at) for at in range(len(node.input))]
        values = [part for part in parts if isinstance(part, Affine)]
        if len(values) != len(parts):
            raise Refused("only of values that depend on the inputs")
        out = self.stack(values)
        if len(out.bias) > c.MAX_LAYERS * c.MAX_WIDTH:
            raise Refused(f"{len(out.bias)} units")
        return out

    def constant(self, node: onnx.NodeProto, attributes: dict[str, Any]) -> npt.NDArray[Any]:
        (name, value), *more = attributes.items()
        if more or name not in ("value", "value_float", "value_floats"):
            raise Refused(f"only a tensor or floats, not {name}")
        if name == "value":
            return numpy_helper.to_array(value)
        return np.asarray(value, dtype=np.float64)

    def clamped(self, node: onnx.NodeProto, value: object, lo: Floats, hi: Floats) -> Affine:
        if not isinstance(value, Affine):
            raise Refused("only of values that depend on the inputs")
        name = node.name or node.output[0]
        new_lo, new_hi = np.maximum(value.lo, lo), np.minimum(value.hi, hi)
        if not (new_lo < new_hi).all():
            raise Refused("it leaves a single value")
        return replace(value, lo=new_lo, hi=new_hi, clamp=name)

    def clip(self, node: onnx.NodeProto, attributes: dict[str, Any]) -> Affine:
        value = self.any_value(node, 0)
        width = len(value.bias) if isinstance(value, Affine) else 0
        ends = []
        for at, name, default in ((1, "min", -np.inf), (2, "max", np.inf)):
            if len(node.input) > at and node.input[at]:
                ends.append(self.row(node, at, width))
            else:
                ends.append(np.full(width, attributes.get(name, default)))
        return self.clamped(node, value, ends[0], ends[1])

    def extreme(self, node: onnx.NodeProto, largest: bool) -> Affine:
        if len(node.input) != 2 or (node.input[0] in self.values) == (node.input[1] in self.values):
            raise Refused("only of a value and a constant")
        at = 0 if node.input[0] in self.values else 1
        value = self.values[node.input[at]]
        row, endless = self.row(node, 1 - at, len(value.bias)), np.full(len(value.bias), np.inf)
        if largest:
            return self.clamped(node, value, row, endless)
        return self.clamped(node, value, -endless, row)
