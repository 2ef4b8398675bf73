# SPDX-License-Identifier: GPL-2.0-only
"""An ONNX graph, from any framework, in the form of the integer core: dense layers whose units
end in tanh or in a clamp to [-1, 1].

Every value of the graph is carried as an affine function of one hidden layer's activations (or
of the inputs), so constants, batch normalisation and chains of linear operators fold exactly.
Tanh begins the next layer; sigmoid(x) = (1 + tanh(x / 2)) / 2 does with its factors folded to
both sides. Units that stem from the same layer become one layer, so separate heads and Concat
are no obstacle. A clamp to any [lo, hi], folded to [-1, 1], begins one too, unless it is at the
outputs and as wide as the contract's own. Relu has no upper end and Max or Min by themselves
lack one: in its place stands what interval arithmetic proves the unit cannot pass for any input
in the box (and a margin, so that quantised weights do not pass it either; `Graph.open` lets the
exporter check that). Other operators are refused by name and node; onnxruntime then compares
the result with the file (`writer.compare`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper

from ndm_tcp import contract as c
from ndm_tcp import files
from ndm_tcp.errors import NdmError
from ndm_tcp.export.integers.quantize import Dense, Floats
from ndm_tcp.export.onnx import limits, memory
from ndm_tcp.export.onnx.operators import Operators
from ndm_tcp.export.onnx.values import Affine, Refused, widen

OLDEST_OPSET = 7
"""The first whose arithmetic broadcasts as today's does."""
NO_PLACE = {
    "GRU": "its state would make every bound depend on how long a flow lasts; use rounds' inputs",
    "LSTM": "its state would make every bound depend on how long a flow lasts; use rounds' inputs",
}


@dataclass(frozen=True)
class Graph:
    """The parts of an ONNX file for quantisation."""

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


class _Reader(Operators):
    following = ""
    """the output that is the memory's next state"""

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

    def take_input(self) -> tuple[str, str, int | None]:
        """Names of the inputs for measurements and state, if there is one; the batch."""
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
                raise NdmError(
                    f"{self.path}: input {only.name!r}: {shape[0]} rows per call; "
                    f"export it with 1 to {limits.LARGEST_BATCH}"
                )
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
                "memory; docs/export.md describes it and has a command that adds it"
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
                    f"{self.path}: its layers read the state without the contract's "
                    "memory; they may use only its means: docs/export.md"
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
            raise NdmError(f"{self.path}: an output does not depend on the inputs; train again")
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
            weight = widen(units.weight, len(order))[:, order]
            order = np.argsort(units.clamped, kind="stable")  # tanh first
            clamped = int(units.clamped.sum())
            result.append(Dense(weight[order], units.bias[order], clamped))
            ends.append(units.open[order][len(order) - clamped :])
        result.append(Dense(widen(value.weight, len(order))[:, order], value.bias))
        return result, ends
