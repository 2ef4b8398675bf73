# SPDX-License-Identifier: GPL-2.0-only
"""The network as ONNX, written from PyTorch, and compared with the file as `reader` reads it.

The graph is small enough to spell out: the memory (`memory`), Gemm and Tanh or Clip in turn,
then Max and Min for the clamp.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import torch
from onnx import TensorProto, helper, numpy_helper

from ndm_tcp import contract as c
from ndm_tcp import files
from ndm_tcp.errors import NdmError
from ndm_tcp.export.integers import quantize
from ndm_tcp.export.integers.quantize import Dense as Dense
from ndm_tcp.export.onnx import memory, reader
from ndm_tcp.export.onnx.memory import INPUT, NEXT, OUTPUT, STATE
from ndm_tcp.export.onnx.reader import Graph
from ndm_tcp.training.model import Policy

OPSET = 17
TOLERANCE = 1e-4
"""onnxruntime, in float32, against float64: in which order it adds and how it computes tanh is the
processor's matter (1.7e-5 seen for 16 units a layer, 1e-7 elsewhere)."""
EXPORT = "ndm export RUN"

Floats = npt.NDArray[np.float32]


def write(policy: Policy, path: Path, metadata: dict[str, str]) -> None:
    """Write the network; the same weights give the same bytes."""
    layers = [Dense(weight.numpy(), bias.numpy()) for weight, bias in policy.linear_layers()]
    write_layers(layers, path, metadata)


def _dense(
    layers: Sequence[Dense],
) -> tuple[list[onnx.NodeProto], list[onnx.TensorProto]]:
    """The dense layers and the clamps of the outputs: nodes and their constants."""
    nodes: list[onnx.NodeProto] = []
    initializers: list[onnx.TensorProto] = []

    def constant(values: npt.ArrayLike, name: str) -> str:
        initializers.append(numpy_helper.from_array(np.array(values, np.float32), name))
        return name

    def units(name: str, layer: Dense, of: str, operator: str, *ends: str) -> str:
        """Gemm and its activation; `of` names the layer and its units."""
        inputs = [name, constant(layer.weight, f"layer{of}.weight")]
        inputs.append(constant(layer.bias, f"layer{of}.bias"))
        nodes.append(helper.make_node("Gemm", inputs, [f"pre{of}"], f"gemm{of}", transB=1))
        if not operator:
            return f"pre{of}"
        bent = f"{operator.lower()}{of}"
        nodes.append(helper.make_node(operator, [f"pre{of}", *ends], [f"h{of}"], bent))
        return f"h{of}"

    name = memory.DENSE
    clip: tuple[str, ...] = ()
    for number, layer in enumerate(layers):
        if number + 1 == len(layers):
            name = units(name, layer, str(number), "")
        elif not layer.clamped:
            name = units(name, layer, str(number), "Tanh")
        else:
            clip = clip or (constant(-1.0, "least"), constant(1.0, "most"))
            bent = len(layer.bias) - layer.clamped
            top, rest = (
                Dense(layer.weight[part], layer.bias[part])
                for part in (slice(0, bent), slice(bent, None))
            )
            clamped = units(name, rest, f"{number}c", "Clip", *clip)
            both = [units(name, top, str(number), "Tanh"), clamped] if bent else [clamped]
            name = f"both{number}"
            nodes.append(helper.make_node("Concat", both, [name], f"concat{number}", axis=1))
    for kind, op, values, target in (
        ("lo", "Max", [o.lo for o in c.OUTPUTS], "floored"),
        ("hi", "Min", [o.hi for o in c.OUTPUTS], OUTPUT),
    ):
        constant(values, kind)
        nodes.append(helper.make_node(op, [name, kind], [target], f"clamp_{kind}"))
        name = target
    return nodes, initializers


def write_layers(
    layers: Sequence[Dense], path: Path, metadata: dict[str, str], remembers: bool = True
) -> None:
    """Write a network of any layers that `reader` gives.

    Args:
        layers: the dense layers.
        path: the file.
        metadata: facts for its metadata.
        remembers: with the memory; else the file takes the inputs of the dense layers.
    """
    nodes, initializers = _dense(layers)
    dense, outputs = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", width])
        for name, width in ((memory.DENSE, c.N_DENSE), (OUTPUT, c.N_OUTPUTS))
    )
    inputs, results = [dense], [outputs]
    if remembers:
        first, numbers = memory.nodes(memory.DENSE)
        inputs, following = memory.ends()
        nodes, initializers = [*first, *nodes], [*initializers, *numbers]
        results = [outputs, following]
    graph = helper.make_graph(nodes, "ndm_tcp", inputs, results, initializers)
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="ndm-tcp", ir_version=8
    )
    helper.set_model_props(model, {"ndm_contract": c.INTERFACE_HASH, **metadata})
    onnx.checker.check_model(model)
    with files.replacing(path) as temporary:
        temporary.write_bytes(model.SerializeToString(deterministic=True))


def read(path: Path) -> Graph:
    """Read a file that `write` has written, which names its contract.

    Raises:
        NdmError: see `reader.read`.
    """
    graph = reader.read(path, EXPORT)
    c.require(graph.contract, str(path), EXPORT, c.INTERFACE_HASH)
    return graph


def check_against(policy: Policy, path: Path, x: Floats) -> float:
    """Largest difference between onnxruntime and PyTorch, the latter in float64, on [n, dense].

    Raises:
        NdmError: if it exceeds `TOLERANCE`.
    """
    session = onnxruntime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
    measured, state = memory.before(x)
    ours, following = session.run([OUTPUT, NEXT], {INPUT: measured, STATE: state})
    with torch.no_grad():
        wide = copy.deepcopy(policy).double()
        dense, then = wide.memory(
            torch.from_numpy(measured).double(), torch.from_numpy(state).double()
        )
        theirs = wide.act(dense)
    # Exactly: the memory has no rounding. The layers have, and it may differ from call to call.
    if not (np.array_equal(following, then.numpy()) and np.array_equal(dense.numpy(), x)):
        raise NdmError(f"{path}: its memory differs from PyTorch's: this is a defect, report it")
    return _difference(ours, theirs.numpy(), path, "PyTorch")


def _difference(
    ours: npt.NDArray[np.floating], theirs: npt.NDArray[np.floating], path: Path, of: str
) -> float:
    """Largest of outputs [n, 2]; refused above `TOLERANCE`, and where it is not a number."""
    worst = float(np.abs(ours - theirs).max())
    if not worst <= TOLERANCE:
        raise NdmError(
            f"{path}: onnxruntime differs from {of} by {worst:g} (> {TOLERANCE:g}); "
            "are its weights of a size that float32 can add?"
        )
    return worst


def compare(graph: Graph, path: Path, x: Floats) -> float:
    """Largest difference on x [n, dense] between a file and the layers read from it, both clamped.

    Raises:
        NdmError: if it exceeds `TOLERANCE`, or onnxruntime cannot run the file.
    """
    step = graph.batch or len(x)
    rows = np.concatenate([x, np.zeros((-len(x) % step, c.N_DENSE), np.float32)])
    measured, state = memory.before(rows)
    fed = {graph.inputs: measured} | ({graph.state: state} if graph.state else {})
    parts = []
    try:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(
            path.read_bytes(), options, providers=["CPUExecutionProvider"]
        )
        for start in range(0, len(rows), step):
            feed = {name: values[start : start + step] for name, values in fed.items()}
            found = session.run(list(graph.outputs), feed)
            parts.append(np.concatenate(found, axis=1))
    except Exception as error:  # its exceptions have no common base but this
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise NdmError(f"{path}: onnxruntime cannot run it ({first}); run: make setup") from None
    theirs = np.clip(
        np.concatenate(parts)[: len(x)], [o.lo for o in c.OUTPUTS], [o.hi for o in c.OUTPUTS]
    )
    ours = quantize.real_forward(graph.layers, x.astype(np.float64))
    return _difference(theirs, ours, path, "the layers read from it")
