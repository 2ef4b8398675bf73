# SPDX-License-Identifier: GPL-2.0-only
"""The network as ONNX, written from PyTorch and read back for quantisation.

The graph is small enough to spell out: Gemm and Tanh in turn, then Max and Min for the
clamp. Reading refuses anything else by name, so that nothing is ever skipped silently.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import torch
from onnx import TensorProto, helper, numpy_helper

from ndm_tcp import contract, files
from ndm_tcp.errors import NdmError
from ndm_tcp.export import onnx_limits
from ndm_tcp.training.model import Policy

OPSET = 17
SUPPORTED = ("Gemm", "Tanh", "Max", "Min")
TOLERANCE = 1e-5  # onnxruntime against PyTorch, both float32
INPUT, OUTPUT = "inputs", "outputs"
EXPORT = "ndm export RUN"

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Graph:
    """What quantisation needs of an ONNX file."""

    layers: list[tuple[Floats, Floats]]
    """weight [out, in] and bias [out] per layer"""
    sha256: str


def write(policy: Policy, path: Path, metadata: dict[str, str]) -> None:
    """Write the network; the same weights give the same bytes."""
    nodes, initializers = [], []
    name = INPUT
    layers = policy.linear_layers()
    for number, (weight, bias) in enumerate(layers):
        for suffix, tensor in (("weight", weight), ("bias", bias)):
            array = tensor.numpy().astype(np.float32)
            initializers.append(numpy_helper.from_array(array, f"layer{number}.{suffix}"))
        inputs = [name, f"layer{number}.weight", f"layer{number}.bias"]
        name = f"pre{number}"
        nodes.append(helper.make_node("Gemm", inputs, [name], f"gemm{number}", transB=1))
        if number + 1 < len(layers):
            nodes.append(helper.make_node("Tanh", [name], [f"h{number}"], f"tanh{number}"))
            name = f"h{number}"
    for kind, op, values, target in (
        ("lo", "Max", [o.lo for o in contract.OUTPUTS], "floored"),
        ("hi", "Min", [o.hi for o in contract.OUTPUTS], OUTPUT),
    ):
        initializers.append(numpy_helper.from_array(np.array(values, np.float32), kind))
        nodes.append(helper.make_node(op, [name, kind], [target], f"clamp_{kind}"))
        name = target
    graph = helper.make_graph(
        nodes,
        "ndm_tcp",
        [helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, ["batch", contract.N_INPUTS])],
        [helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, ["batch", contract.N_OUTPUTS])],
        initializers,
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="ndm-tcp", ir_version=8
    )
    helper.set_model_props(model, {"ndm_contract": contract.HASH, **metadata})
    onnx.checker.check_model(model)
    with files.replacing(path) as temporary:
        temporary.write_bytes(model.SerializeToString(deterministic=True))


def read(path: Path) -> Graph:
    """Read a network made of the supported operators.

    Raises:
        NdmError: not ONNX, another contract, an unknown operator, or a shape that does not fit.
    """
    model = onnx_limits.load(path, EXPORT)
    found = {p.key: p.value for p in model.metadata_props}.get("ndm_contract")
    contract.require(found, str(path), EXPORT)
    tensors = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    layers: list[tuple[Floats, Floats]] = []
    expected = [INPUT]
    ops = []
    for node in model.graph.node:
        if node.op_type not in SUPPORTED:
            raise NdmError(
                f"{path}: node {node.name!r}: operator {node.op_type} is not supported; "
                f"known are {', '.join(SUPPORTED)}"
            )
        if node.input[0] != expected[0]:
            raise NdmError(f"{path}: node {node.name!r} does not follow the one before it")
        expected = list(node.output)
        ops.append(node.op_type)
        if node.op_type == "Gemm":
            attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
            plain = {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 1}
            if {**plain, "transB": 0, **attributes} != plain or len(node.input) != 3:
                raise NdmError(f"{path}: node {node.name!r}: expected Gemm(x, W, b) with transB=1")
            layers.append(
                (_tensor(path, tensors, node.input[1]), _tensor(path, tensors, node.input[2]))
            )
    hidden = len(layers) - 1
    if ops != ["Gemm", "Tanh"] * hidden + ["Gemm", "Max", "Min"] or expected != [OUTPUT]:
        raise NdmError(f"{path}: expected Gemm and Tanh in turn, Gemm, Max, Min; found {ops}")
    _check_shapes(path, layers)
    return Graph(layers, files.sha256(path))


def _tensor(path: Path, tensors: dict[str, Floats], name: str) -> Floats:
    if name not in tensors:
        raise NdmError(f"{path}: {name!r} is not a constant of the graph")
    array = tensors[name]
    if not np.isfinite(array).all():
        raise NdmError(f"{path}: {name!r} holds NaN or infinity; train again")
    return array


def _check_shapes(path: Path, layers: list[tuple[Floats, Floats]]) -> None:
    width = contract.N_INPUTS
    for number, (weight, bias) in enumerate(layers):
        rows = weight.shape[0] if weight.ndim == 2 else 0
        if weight.shape != (rows, width) or bias.shape != (rows,) or rows > contract.MAX_WIDTH:
            raise NdmError(
                f"{path}: layer {number}: weight {weight.shape}, bias {bias.shape}; expected "
                f"{width} columns and at most {contract.MAX_WIDTH} rows"
            )
        width = rows
    if width != contract.N_OUTPUTS or len(layers) > contract.MAX_LAYERS:
        raise NdmError(f"{path}: {len(layers)} layers ending in {width} outputs, expected 2")


def check_against(policy: Policy, path: Path, x: Floats) -> float:
    """Largest difference between onnxruntime and PyTorch on x [n, 10].

    Raises:
        NdmError: if it exceeds `TOLERANCE`.
    """
    session = onnxruntime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
    (ours,) = session.run([OUTPUT], {INPUT: x})
    with torch.no_grad():
        theirs = policy(torch.from_numpy(x)).numpy()
    worst = float(np.abs(ours - theirs).max())
    if worst > TOLERANCE:
        raise NdmError(f"{path}: onnxruntime differs from PyTorch by {worst:g} (> {TOLERANCE:g})")
    return worst
