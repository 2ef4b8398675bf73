# SPDX-License-Identifier: GPL-2.0-only
"""The network's memory in ONNX: written in front of dense layers, and known again in any graph.

A graph takes `x` [n, inputs] and `state` [n, means] of a round and gives, beside the outputs, the
next state: each mean and 2, 0 before a flow's first round. All numbers are integers of the C over
a power of two, so float32 has no error in it. `known` recognises the memory by what it computes,
not by how a framework spells it: onnxruntime runs the part of the graph before any weight on
probes, and the dense layers may take values that are bit for bit the contract's.

    ndm convert OLD.onnx -o NEW.onnx

puts the memory before a network that takes inputs and means, such as one made before it had a
memory of its own.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from ndm_tcp import contract as c
from ndm_tcp import files
from ndm_tcp.errors import NdmError
from ndm_tcp.export.onnx import limits

INPUT, STATE, OUTPUT, NEXT = "x", "state", "outputs", "next_state"
DENSE = "memory.dense"
"""Inputs of the dense layers."""
BEFORE_MEMORY = "9682b82887b1b138"
"""Interface of the networks that took inputs and means of the same memory, which was none of
theirs; with it before them they compute the same."""
OLDEST_OPSET = 9
"""The first with Where."""
PUT_BEFORE = "ndm convert {path} -o NEW.onnx"
ONE = float(1 << (c.Q_INPUT + c.MEAN_BITS))
HIGHEST = 32767.0
OF = [i.index - 1 for i in c.INPUTS if i.name in c.MEMORY.of]
PROBES, SEED = 4096, 20261125
OPERATORS = frozenset(
    {
        *("Gather", "Slice", "Split", "Concat", "Constant", "Identity", "Cast", "Unsqueeze"),
        *("Add", "Sub", "Mul", "Div", "Floor", "Neg", "Reciprocal", "Round", "Min", "Max", "Clip"),
        *("Where", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Not", "And", "Or"),
        *("Expand", "Shape", "Reshape", "Flatten", "Squeeze"),
    }
)
"""Operators of a memory: no weights, no loops."""

Floats = npt.NDArray[np.float32]


def step(x: Floats, state: Floats) -> tuple[Floats, Floats]:
    """One round of n flows: [n, inputs] and [n, means] to [n, dense] and the next state."""
    wide, before = x.astype(np.float64), state.astype(np.float64) * ONE - c.MEAN_OFFSET
    now = np.minimum(wide[:, OF] * ONE, HIGHEST)
    half = 1 << (c.MEAN_SHIFT - 1)
    moved = before + np.floor((now - before + half) / (1 << c.MEAN_SHIFT))
    mean = np.where(state > 0, moved, now)
    means = np.floor(mean / (1 << c.MEAN_BITS)) / (1 << c.Q_INPUT)
    following = (mean + c.MEAN_OFFSET) / ONE
    return np.concatenate([wide, means], axis=1).astype(np.float32), following.astype(np.float32)


def before(dense: Floats) -> tuple[Floats, Floats]:
    """[n, inputs] and [n, means] that give these [n, dense], which lie on the inputs' grid."""
    wide = dense.astype(np.float64)
    x, mean = wide[:, : c.N_INPUTS], np.round(wide[:, c.N_INPUTS :] * ONE)
    now = np.minimum(np.round(x[:, OF] * ONE), HIGHEST)
    share, half = 1 << c.MEAN_SHIFT, 1 << (c.MEAN_SHIFT - 1)
    found = np.round((share * mean - now) / (share - 1))
    for off in (-1.0, 1.0):  # the rounding of the way to it
        reached = found + np.floor((now - found + half) / share)
        found = np.where((mean - reached) * off > 0, found + off, found)
    return x.astype(np.float32), ((found + c.MEAN_OFFSET) / ONE).astype(np.float32)


def nodes(dense: str) -> tuple[list[onnx.NodeProto], list[onnx.TensorProto]]:
    """The memory in front of a graph's dense layers: `INPUT` and `STATE` to `dense` and `NEXT`."""
    made: list[onnx.NodeProto] = []
    numbers = {
        "one": ONE,
        "highest": HIGHEST,
        "offset": float(c.MEAN_OFFSET),
        "half": float(1 << (c.MEAN_SHIFT - 1)),
        "share": 1 / (1 << c.MEAN_SHIFT),
        "none": 0.0,
        "to_input": 1 / (1 << c.MEAN_BITS),
        "step": 1 / (1 << c.Q_INPUT),
        "per_one": 1 / ONE,
    }
    constants = [
        numpy_helper.from_array(np.array(value, np.float32), f"memory.{name}")
        for name, value in numbers.items()
    ]
    constants.append(numpy_helper.from_array(np.array(OF, np.int64), "memory.of"))

    def node(operator: str, *operands: str, to: str, **attributes: Any) -> str:
        to = to if to in (NEXT, dense) else f"memory.{to}"
        operands = tuple(f"memory.{n}" if n in numbers or n == "of" else n for n in operands)
        made.append(helper.make_node(operator, operands, [to], f"at_{to}", **attributes))
        return to

    scaled = node("Mul", node("Gather", INPUT, "of", to="remembered", axis=1), "one", to="scaled")
    now = node("Min", scaled, "highest", to="now")
    kept = node("Sub", node("Mul", STATE, "one", to="held"), "offset", to="kept")
    away = node("Add", node("Sub", now, kept, to="way"), "half", to="rounded")
    steps = node("Floor", node("Mul", away, "share", to="part"), to="steps")
    moved = node("Add", kept, steps, to="moved")
    mean = node("Where", node("Greater", STATE, "none", to="has"), moved, now, to="mean")
    whole = node("Floor", node("Mul", mean, "to_input", to="fine"), to="coarse")
    means = node("Mul", whole, "step", to="means")
    node("Mul", node("Add", mean, "offset", to="lifted"), "per_one", to=NEXT)
    node("Concat", INPUT, means, to=dense, axis=1)
    return made, constants


def ends(batch: int | str = "batch") -> tuple[list[onnx.ValueInfoProto], onnx.ValueInfoProto]:
    """The inputs of a graph with a memory, and the output that is its next state."""
    shapes = ((INPUT, c.N_INPUTS), (STATE, c.N_MEANS), (NEXT, c.N_MEANS))
    x, state, following = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [batch, width])
        for name, width in shapes
    )
    return [x, state], following


def session(model: bytes) -> onnxruntime.InferenceSession:
    """onnxruntime that keeps its own messages to itself; any of its exceptions may follow."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def probes() -> tuple[Floats, Floats]:
    """[PROBES, inputs] and [PROBES, means]: points of the box, many on its faces; some without a
    state."""
    rng = np.random.Generator(np.random.PCG64(SEED))

    def points(lo: npt.NDArray[Any], hi: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """[PROBES, columns] a third of them one of the two lowest or highest integers."""
        shape = (PROBES, len(lo))
        inside = rng.integers(lo, hi, size=shape, endpoint=True)
        near = rng.integers(0, 2, size=shape)
        face = np.where(rng.random(shape) < 0.5, lo + near, hi - near)
        return np.where(rng.random(shape) < 1 / 3, face, inside)

    x = points(*np.array([(i.lo_q, i.hi_q) for i in c.INPUTS]).T) / (1 << c.Q_INPUT)
    low, high = np.array([(i.lo, i.hi) for i in c.MEANS]).T * int(ONE)
    means = points(low, np.minimum(high, int(HIGHEST)))
    state = (means + c.MEAN_OFFSET) / ONE
    state[rng.random(PROBES) < 1 / 16] = 0.0
    return x.astype(np.float32), state.astype(np.float32)


@dataclass(frozen=True)
class Known:
    """Result of `known` for a graph."""

    columns: dict[str, list[int]]
    """name of a value to the columns of [n, dense] that it holds"""
    states: set[str]
    """names of the values of the next state"""
    part: set[str]
    """names of all values before any weight"""


def known(model: onnx.ModelProto, x_name: str, state_name: str, batch: int | None) -> Known:
    """Values of a graph that are the contract's memory.

    Args:
        model: a graph that takes a state.
        x_name, state_name: its inputs.
        batch: rows per call, if the file fixes them.
    """
    there = {x_name, state_name, *(t.name for t in model.graph.initializer)}
    part: list[onnx.NodeProto] = []
    for node in model.graph.node:
        if (
            node.domain in ("", "ai.onnx")
            and node.op_type in OPERATORS
            and there.issuperset(name for name in node.input if name)
        ):
            part.append(node)
            there.update(node.output)
    names = [name for node in part if node.op_type != "Constant" for name in node.output if name]
    if not names:
        return Known({}, set(), set())
    graph = helper.make_graph(
        part,
        "memory",
        [i for i in model.graph.input if i.name in (x_name, state_name)],
        [onnx.ValueInfoProto(name=name) for name in names],
        list(model.graph.initializer),
    )
    alone = helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
    x, state = probes()
    rows = batch or len(x)
    try:
        runner = session(alone.SerializeToString())
        parts = [
            runner.run(names, {x_name: x[at : at + rows], state_name: state[at : at + rows]})
            for at in range(0, len(x) - rows + 1, rows)
        ]
    except Exception:  # its exceptions have no common base; the reader then refuses the node
        return Known({}, set(), set(names))
    seen = len(parts) * rows
    dense, following = step(x[:seen], state[:seen])
    columns = {column.tobytes(): number for number, column in enumerate(dense.T)}
    found: dict[str, list[int]] = {}
    states = set()
    for name, *values in zip(names, *parts, strict=True):
        if values[0].dtype != np.float32 or values[0].ndim != 2 or len(values[0]) != rows:
            continue
        value = np.concatenate(values)
        if np.array_equal(value, following):
            states.add(name)
        of = [columns.get(np.ascontiguousarray(column).tobytes(), -1) for column in value.T]
        if of and min(of) >= 0:
            found[name] = of
    return Known(found, states, set(names))


def put_before(path: Path, out: Path) -> None:
    """Write a network that takes inputs and means anew, with the memory that gives them.

    Raises:
        NdmError: no ONNX file, one that does not take [n, dense], or one of another contract.
    """
    model = limits.load(path, "ndm convert FILE.onnx -o NEW.onnx")
    properties = {p.key: p.value for p in model.metadata_props}
    if properties.get("ndm_contract", BEFORE_MEMORY) != BEFORE_MEMORY:
        c.require(properties["ndm_contract"], str(path), "ndm export RUN", BEFORE_MEMORY)
    constants = {t.name for t in model.graph.initializer}
    inputs = [i for i in model.graph.input if i.name not in constants]
    shapes = [[d.dim_value for d in i.type.tensor_type.shape.dim] for i in inputs]
    if len(inputs) != 1 or len(shapes[0]) != 2 or shapes[0][1] != c.N_DENSE:
        raise NdmError(
            f"{path}: inputs {shapes}, expected one [n, {c.N_DENSE}]; a network with a memory "
            "needs none, run: ndm export FILE.onnx"
        )
    opset = max((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), default=0)
    if opset < OLDEST_OPSET:
        raise NdmError(f"{path}: opset {opset}, older than {OLDEST_OPSET}; convert it")
    rest = [copy.deepcopy(node) for node in model.graph.node]
    for node in rest:  # the old input may have the new one's name
        for at, name in enumerate(node.input):
            node.input[at] = DENSE if name == inputs[0].name else name
    taken = {name for node in rest for name in (*node.input, *node.output)} | constants
    if clash := sorted({INPUT, STATE, NEXT} & taken):
        raise NdmError(f"{path}: has a value {clash[0]!r} of its own; give it another name")
    made, numbers = nodes(DENSE)
    first, following = ends(shapes[0][0] or "batch")
    graph = helper.make_graph(
        [*made, *rest],
        model.graph.name,
        [*first, *(i for i in model.graph.input if i.name in constants)],
        [*model.graph.output, following],
        [*numbers, *model.graph.initializer],
    )
    new = helper.make_model(
        graph,
        opset_imports=model.opset_import,
        ir_version=model.ir_version,
        producer_name=model.producer_name,
        producer_version=model.producer_version,
    )
    if "ndm_contract" in properties:
        helper.set_model_props(new, {**properties, "ndm_contract": c.INTERFACE_HASH})
    onnx.checker.check_model(new)
    with files.replacing(out) as temporary:
        temporary.write_bytes(new.SerializeToString(deterministic=True))
