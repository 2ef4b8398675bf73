# SPDX-License-Identifier: GPL-2.0-only
"""An ONNX graph, from any framework, as what the integer core computes: dense layers whose units
end in tanh or in a clamp to [-1, 1].

Every value of the graph is carried as an affine function of one hidden layer's activations (or
of the inputs), so constants, batch normalisation and chains of linear operators fold exactly.
Tanh begins the next layer; sigmoid(x) = (1 + tanh(x / 2)) / 2 does with its factors folded to
both sides. Units that stem from the same layer become one layer, so separate heads and Concat
are no obstacle. A clamp to any [lo, hi], folded to [-1, 1], begins one too, unless it is at the
outputs and as wide as the contract's own. Relu has no upper end and Max or Min by themselves
lack one: in its place stands what interval arithmetic proves the unit cannot pass for any input
in the box (and a margin, so that quantised weights do not pass it either; `Graph.open` lets the
exporter check that). What has no place is refused by operator and node; onnxruntime then compares
the result with the file (`writer.compare`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import onnx
from ndm_tcp import contract as c
from ndm_tcp import files
from ndm_tcp.errors import NdmError
from ndm_tcp.export.integers.quantize import Dense, Floats
from ndm_tcp.export.onnx import limits, memory
from onnx import TensorProto, helper, numpy_helper

OLDEST_OPSET = 7
"""The first whose arithmetic broadcasts as today's does."""
OPEN_MARGIN = 1 / 64
"""Of the proved range, added at an end that stands for infinity."""
NO_PLACE = {
    "GRU": "its state would make every bound depend on how long a flow lasts; use rounds' inputs",
    "LSTM": "its state would make every bound depend on how long a flow lasts; use rounds' inputs",
}


@dataclass(frozen=True)
class Graph:
    """What quantisation needs of an ONNX file."""

    layers: list[Dense]
    """in float64"""
    open: list[npt.NDArray[np.bool_]]
    """per hidden layer [clamped, 2]: does the lower, the upper end stand for infinity?"""
    sha256: str
    contract: str | None
    """the contract that the file names, if it does"""
    producer: str
    inputs: str
    """the name of what takes the measured inputs"""
    state: str
    """of the memory's state; empty for a network without memory"""
    outputs: tuple[str, ...]
    batch: int | None
    """rows per call, if the file fixes them"""


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
    """what the activation cannot leave"""


class Refused(Exception):
    """Why a node cannot be carried."""


def read(path: Path, remedy: str) -> Graph:
    """Read a network.

    Args:
        path: the file.
        remedy: the command that makes such a file anew, for messages.

    Raises:
        NdmError: not ONNX, another contract, an operator or a shape that has no place.
    """
    model = limits.load(path, remedy)
    found = {p.key: p.value for p in model.metadata_props}.get("ndm_contract")
    if found is not None:
        if found == memory.BEFORE_MEMORY:
            remedy = memory.PUT_BEFORE.format(path=path)
        c.require(found, str(path), remedy, c.INTERFACE_HASH)
    opset = max((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), default=0)
    if opset < OLDEST_OPSET:
        raise NdmError(f"{path}: opset {opset}, older than {OLDEST_OPSET}; convert it")
    return _Reader(path, model).graph(found)


def label(node: onnx.NodeProto) -> str:
    """A node as messages name it."""
    return f"node {(node.name or (node.output[0] if node.output else ''))!r}"


class _Reader:
    def __init__(self, path: Path, model: onnx.ModelProto) -> None:
        self.path, self.model = path, model
        self.constants: dict[str, npt.NDArray[Any]] = {
            t.name: numpy_helper.to_array(t) for t in model.graph.initializer
        }
        self.values: dict[str, Affine] = {}
        self.hidden: list[Hidden] = []
        self.following = ""
        """the output that is the memory's next state"""
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

    def graph(self, found: str | None) -> Graph:
        name, state, batch = self.take_input()
        skipped = self.take_memory(name, state, batch) if state else set()
        for node in self.model.graph.node:
            if skipped.issuperset(node.output):
                continue
            domain = "" if node.domain in ("", "ai.onnx") else f"{node.domain}."
            operator = self.operators.get(f"{domain}{node.op_type}")
            if operator is None:
                why = NO_PLACE.get(node.op_type, f"known are {', '.join(self.operators)}")
                raise NdmError(
                    f"{self.path}: {label(node)}: operator {domain}{node.op_type} is not "
                    f"supported; {why}"
                )
            attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
            try:
                result = operator(node, attributes)
            except (Refused, IndexError, TypeError, ValueError) as error:
                why = str(error) if isinstance(error, Refused) else f"malformed ({error})"
                raise NdmError(f"{self.path}: {label(node)}: {node.op_type}: {why}") from None
            if isinstance(result, Affine):
                if not all(np.isfinite(a).all() for a in (result.weight, result.bias)):
                    raise NdmError(
                        f"{self.path}: {label(node)}: NaN or infinity; train again or scale down"
                    )
                self.values[node.output[0]] = result
            else:
                self.constants[node.output[0]] = np.asarray(result)
        outputs, value = self.take_outputs()
        producer = f"{self.model.producer_name} {self.model.producer_version}"
        layers, ends = self.layers(value)
        return Graph(
            layers,
            ends,
            files.sha256(self.path),
            found,
            re.sub(r"[^A-Za-z0-9 .+-]", "", producer).strip()[:40] or "unknown",
            name,
            state,
            outputs,
            batch,
        )

    # --- ends of the graph ---

    def take_input(self) -> tuple[str, str, int | None]:
        """Names of the inputs for what is measured and the state, if there is one; the batch."""
        inputs = [i for i in self.model.graph.input if i.name not in self.constants]
        expected = f"x [n, {c.N_INPUTS}] and state [n, {c.N_MEANS}]"
        if not 1 <= len(inputs) <= 2:
            names = ", ".join(i.name for i in inputs)
            raise NdmError(f"{self.path}: {len(inputs)} inputs ({names}), expected {expected}")
        found: dict[int, str] = {}
        batches = set()
        for only in inputs:
            kind = only.type.tensor_type
            shape = [d.dim_value if d.HasField("dim_value") else None for d in kind.shape.dim]
            what = f"{TensorProto.DataType.Name(kind.elem_type)} {shape}"
            if kind.elem_type == TensorProto.FLOAT and shape[1:] == [c.N_DENSE]:
                remedy = memory.PUT_BEFORE.format(path=self.path)
                raise NdmError(
                    f"{self.path}: input {only.name!r}: {what} is inputs and means, but the memory "
                    f"that gives the means is not in it; run: {remedy}"
                )
            width = shape[1] if len(shape) == 2 else None
            if kind.elem_type != TensorProto.FLOAT or width not in (c.N_INPUTS, c.N_MEANS):
                raise NdmError(f"{self.path}: input {only.name!r}: {what}, expected {expected}")
            if shape[0] is not None and not 0 < shape[0] <= limits.LARGEST_BATCH:
                raise NdmError(f"{self.path}: input {only.name!r}: {shape[0]} rows per call")
            found[width] = only.name
            batches.add(shape[0] or None)
        if c.N_INPUTS not in found or len(found) != len(inputs) or len(batches - {None}) > 1:
            names = ", ".join(i.name for i in inputs)
            raise NdmError(f"{self.path}: inputs {names} of other shapes, expected {expected}")
        eye = np.eye(c.N_DENSE)
        self.values[found[c.N_INPUTS]] = self.columns(list(range(c.N_INPUTS)), eye)
        batch = max((b for b in batches if b), default=None)
        return found[c.N_INPUTS], found.get(c.N_MEANS, ""), batch

    def columns(self, numbers: list[int], eye: Floats) -> Affine:
        return self.affine(0, eye[numbers], np.zeros(len(numbers)))

    def take_memory(self, name: str, state: str, batch: int | None) -> set[str]:
        """Find the contract's memory; the values that it leaves behind it."""
        known = memory.known(self.model, name, state, batch)
        outputs = [o.name for o in self.model.graph.output]
        following = [name for name in outputs if name in known.states]
        if len(following) != 1:
            raise NdmError(
                f"{self.path}: no output is the next state [n, {c.N_MEANS}] of the contract's "
                "memory; how it is computed, and a graph that does: docs/export.md"
            )
        (self.following,) = following
        eye = np.eye(c.N_DENSE)
        self.values |= {name: self.columns(of, eye) for name, of in known.columns.items()}
        makers = {name: node for node in self.model.graph.node for name in node.output}
        wanted: set[str] = set()
        waiting = [name for name in outputs if name != self.following]
        while waiting:
            at = waiting.pop()
            if at == state:
                raise NdmError(
                    f"{self.path}: its layers take the state by another way than the contract's "
                    "memory, which they must see through means alone: docs/export.md"
                )
            if at in wanted or at in self.values or at not in makers:
                continue
            wanted.add(at)
            waiting += [name for name in makers[at].input if name]
        return known.part - wanted

    def take_outputs(self) -> tuple[tuple[str, ...], Affine]:
        names = tuple(o.name for o in self.model.graph.output if o.name != self.following)
        wanted = tuple(o.name for o in c.OUTPUTS)
        if len(names) == len(wanted) and set(names) == set(wanted):
            names = wanted
        elif len(names) != 1:
            raise NdmError(
                f"{self.path}: outputs {', '.join(names)}; expected one [n, {c.N_OUTPUTS}], or "
                f"{' and '.join(wanted)}"
            )
        parts = [self.values[name] for name in names if name in self.values]
        if len(parts) != len(names):
            raise NdmError(f"{self.path}: an output does not depend on the inputs")
        if any(len(part.bias) * len(names) != c.N_OUTPUTS for part in parts):
            widths = [len(part.bias) for part in parts]
            raise NdmError(f"{self.path}: outputs of width {widths}, expected {c.N_OUTPUTS}")
        try:
            value = self.stack(parts)
        except Refused as error:
            raise NdmError(f"{self.path}: outputs: {error}") from None
        ends = [(o.lo, o.hi) for o in c.OUTPUTS]
        lows, highs = (np.array(side) for side in zip(*ends, strict=True))
        if (value.lo > lows).any() or (value.hi < highs).any():
            # Narrower than the core's own clamp: one more layer, no wider than the core's.
            lo, hi = np.clip(value.lo, lows, highs), np.clip(value.hi, lows, highs)
            value = replace(value, lo=lo, hi=hi)
            try:
                value = self.clamp_units(value)
            except Refused as error:
                raise NdmError(f"{self.path}: outputs: {error}") from None
        return names, value

    def layers(self, value: Affine) -> tuple[list[Dense], list[npt.NDArray[np.bool_]]]:
        """Hidden layers below a value, then the value itself; the open ends of their clamps."""
        result, ends, order = [], [], np.arange(c.N_DENSE)
        for units in self.hidden[: value.level]:
            weight = _widen(units.weight, len(order))[:, order]
            order = np.argsort(units.clamped, kind="stable")  # tanh first
            clamped = int(units.clamped.sum())
            result.append(Dense(weight[order], units.bias[order], clamped))
            ends.append(units.open[order][len(order) - clamped :])
        result.append(Dense(_widen(value.weight, len(order))[:, order], value.bias))
        return result, ends

    # --- values ---

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
            np.concatenate([_widen(part.weight, width) for part in parts]),
            np.concatenate([part.bias for part in parts]),
            np.concatenate([part.lo for part in parts]),
            np.concatenate([part.hi for part in parts]),
            next((part.clamp for part in parts if part.clamp), ""),
        )

    # --- operators ---

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
        """What a value cannot leave, its own clamp aside, by interval arithmetic."""
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
            there.weight, units.weight = _widen(there.weight, width), _widen(units.weight, width)
            for name in ("weight", "bias", "clamped", "open", "lo", "hi"):
                both = [getattr(there, name), getattr(units, name)]
                setattr(there, name, np.concatenate(both))
        n = len(units.bias)
        select = np.zeros((n, start + n))
        select[:, start:] = np.diag(factor)
        return self.affine(level + 1, select, constant)

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

    # --- clamps ---

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


def _widen(weight: Floats, width: int) -> Floats:
    """Columns of zeros for units that came later."""
    return np.pad(weight, ((0, 0), (0, width - weight.shape[1])))
