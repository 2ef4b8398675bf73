# SPDX-License-Identifier: GPL-2.0-only
# ruff: noqa: E501
"""ONNX files of other makers: carried into the core's layers exactly, or refused by name.

`foreign/` holds what skl2onnx 1.20 makes of two scikit-learn pipelines: a StandardScaler and a
MultiOutputRegressor of MLPRegressor(hidden_layer_sizes=(8, 6)), tanh and logistic, on random data.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import orjson
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

from ndm_tcp import contract as c
from ndm_tcp.cli import run_command
from ndm_tcp.errors import NdmError
from ndm_tcp.export import check
from ndm_tcp.export.chain import export
from ndm_tcp.export.integers import golden
from ndm_tcp.export.onnx import memory, reader, writer

from .remembering import exported

FOREIGN = Path(__file__).parent / "foreign"
RNG = np.random.default_rng(11)


def numbers(*shape: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return RNG.uniform(-0.5, 0.5, shape).astype(np.float32)


W0, B0 = numbers(12, c.N_DENSE), numbers(12)
W1, B1 = numbers(2, 12), numbers(2)
TENSORS = {
    "w0": W0, "w0t": W0.T.copy(), "b0": B0, "b0row": B0[None], "w1": W1, "w1t": W1.T.copy(),
    "b1": B1, "scale": 1 + numbers(12), "mean": numbers(12), "var": 1 + numbers(12),
    "two": np.array([2.0], np.float32), "half": np.array(0.5, np.float32), "ten": numbers(c.N_DENSE),
    "lo": np.array(-8, np.float32), "hi": np.array(8, np.float32), "one": np.array(1, np.float32),
    "minus": np.array(-1, np.float32), "lows": np.array([-1, -8], np.float32),
    "highs": np.array([1, 8], np.float32), "w_head": numbers(1, 12), "w_wide": numbers(65, c.N_DENSE),
    "w_nan": np.full((12, c.N_DENSE), np.nan, np.float32), "square": numbers(c.N_DENSE, c.N_DENSE),
    "w_deep": numbers(c.N_DENSE, c.N_DENSE), "flat": np.array([-1, 12], np.int64), "zeros": np.zeros(12, np.float32),
    "mixed": np.array([-1, 6], np.int64), "zero": np.array(0, np.float32),
    "third": np.array(0.3, np.float32), "far": np.full(12, -9, np.float32), "w_mid": numbers(12, 12),
    "four": np.array([4.0], np.float32),
}  # fmt: skip


Node = tuple[str, Sequence[str], str] | tuple[str, Sequence[str], str, dict[str, Any]]


def save(
    path: Path,
    nodes: Sequence[Node],
    outputs: Sequence[str] = ("y",),
    shape: Sequence[object] = ("n", c.N_DENSE),
    opset: int = 17,
    extra: Sequence[onnx.NodeProto] = (),
    producer: str = "",
) -> Path:
    """A graph of nodes (operator, inputs, output, attributes); every node is named after its
    output. x is what the memory before them gives, or the input if it has another width."""
    remembers = list(shape[1:]) == [c.N_DENSE] and len(shape) == 2
    made = [
        helper.make_node(op, list(ins), [out], f"at_{out}", **(rest[0] if rest else {}))
        for op, ins, out, *rest in nodes
    ]
    if remembers:
        for node in [*made, *extra]:
            for at, name in enumerate(node.input):
                node.input[at] = memory.DENSE if name == "x" else name
    used = {name for node in made for name in node.input}
    initializers = [numpy_helper.from_array(a, n) for n, a in TENSORS.items() if n in used]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, list(shape))]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["m", "k"]) for name in outputs]
    before: list[onnx.NodeProto] = []
    if remembers:
        before, numbers = memory.nodes(memory.DENSE)
        inputs, following = memory.ends(shape[0])  # type: ignore[arg-type]
        initializers, ends = [*initializers, *numbers], [*ends, following]
    graph = helper.make_graph([*before, *made, *extra], "g", inputs, ends, initializers)
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8, producer_name=producer
    )
    path.write_bytes(model.SerializeToString())
    return path


def carried(path: Path) -> reader.Graph:
    """The layers, after onnxruntime agrees on all fixed golden inputs, corners among them."""
    graph = reader.read(path, "make it")
    x = (golden.inputs() / 4096).astype(np.float32)
    assert writer.compare(graph, path, x) < 5e-6
    return graph


FIRST: list[Node] = [("Gemm", ["x", "w0", "b0"], "a", {"transB": 1}), ("Tanh", ["a"], "h")]
LAST: Node = ("Gemm", ["h", "w1", "b1"], "y", {"transB": 1})
END: Node = ("Gemm", ["h", "w1", "b1"], "z", {"transB": 1})

SUPPORTED: dict[str, tuple[list[Node], list[int]]] = {
    "gemm": ([*FIRST, LAST], [12, 2]),
    "gemm with factors": (
        [
            ("Gemm", ["x", "w0t", "b0"], "a", {"alpha": 0.5, "beta": -2.0}),
            ("Tanh", ["a"], "h"),
            ("Gemm", ["h", "w1t"], "y", {"alpha": 3.0}),
        ],
        [12, 2],
    ),
    "matmul and add": (
        [
            ("MatMul", ["x", "w0t"], "m"), ("Add", ["b0row", "m"], "a"), ("Tanh", ["a"], "h"),
            ("MatMul", ["h", "w1t"], "n"), ("Add", ["n", "b1"], "y"),
        ],
        [12, 2],
    ),
    "sigmoid": ([FIRST[0], ("Sigmoid", ["a"], "h"), LAST], [12, 2]),
    "sigmoid at the output": (
        [*FIRST, END, ("Sigmoid", ["z"], "s"), ("Sub", ["s", "half"], "y")],
        [12, 2, 2],
    ),
    "tanh at the output": ([*FIRST, END, ("Tanh", ["z"], "y")], [12, 2, 2]),
    "batch normalisation": (
        [
            FIRST[0], ("BatchNormalization", ["a", "scale", "b0", "mean", "var"], "b"),
            ("Tanh", ["b"], "t"), ("BatchNormalization", ["t", "var", "mean", "b0", "scale"], "h"),
            LAST,
        ],
        [12, 2],
    ),
    "standardised inputs": (
        [
            ("Sub", ["x", "ten"], "d"), ("Div", ["d", "two"], "e"), ("Mul", ["half", "e"], "f"),
            ("Sub", ["two", "f"], "g"), ("Gemm", ["g", "w0", "b0"], "a", {"transB": 1}),
            ("Tanh", ["a"], "h"), LAST,
        ],
        [12, 2],
    ),
    "identities": (
        [
            ("Identity", ["x"], "i"), ("Flatten", ["i"], "j"), ("Transpose", ["w0"], "w"),
            ("Identity", ["w"], "v"), ("MatMul", ["j", "v"], "a"), ("Cast", ["a"], "k", {"to": 1}),
            ("Reshape", ["k", "flat"], "l"), ("Tanh", ["l"], "h"), LAST,
        ],
        [12, 2],
    ),
    "linear layers in a row": (
        [("MatMul", ["x", "square"], "q"), ("Gemm", ["q", "w0"], "a", {"transB": 1}),
         ("Tanh", ["a"], "h"), LAST],
        [12, 2],
    ),
    "two heads, and a sum of two branches": (
        [
            *FIRST, ("Gemm", ["x", "w0"], "c", {"transB": 1}), ("Sigmoid", ["c"], "s"),
            ("Add", ["h", "s"], "p"), ("Sub", ["h", "s"], "q"),
            ("Gemm", ["p", "w_head"], "u", {"transB": 1}),
            ("Gemm", ["q", "w_head"], "v", {"transB": 1}),
            ("Concat", ["u", "v"], "y", {"axis": -1}),
        ],
        [24, 2],
    ),
    "relu": ([FIRST[0], ("Relu", ["a"], "h"), LAST], [12, 2]),
    "relu, normalised, scaled and shifted": (
        [
            FIRST[0], ("Relu", ["a"], "r"),
            ("BatchNormalization", ["r", "scale", "b0", "mean", "var"], "b"),
            ("Mul", ["b", "two"], "c"), ("Sub", ["half", "c"], "h"), LAST,
        ],
        [12, 2],
    ),
    "two layers of relu, then tanh": (
        [
            FIRST[0], ("Relu", ["a"], "r"), ("Gemm", ["r", "w_mid", "b0"], "b"), ("Relu", ["b"], "s"),
            ("MatMul", ["s", "w_mid"], "d"), ("Tanh", ["d"], "h"), LAST,
        ],
        [12, 12, 12, 2],
    ),
    "relu as Max": ([FIRST[0], ("Max", ["zero", "a"], "h"), LAST], [12, 2]),
    "relu that never fires, and one that always does": (
        [
            FIRST[0], ("Tanh", ["a"], "t"), ("Add", ["t", "far"], "n"), ("Sub", ["t", "far"], "p"),
            ("Relu", ["n"], "dead"), ("Relu", ["p"], "line"), ("Add", ["dead", "line"], "h"), LAST,
        ],
        [12, 24, 2],
    ),
    "hard tanh": ([FIRST[0], ("Clip", ["a", "minus", "one"], "h"), LAST], [12, 2]),
    "clipped to other ends": ([FIRST[0], ("Clip", ["a", "third", "half"], "h"), LAST], [12, 2]),
    "clipped below only": ([FIRST[0], ("Clip", ["a", "third"], "h"), LAST], [12, 2]),
    "relu6 used twice": (
        [
            FIRST[0], ("Relu", ["a"], "r"), ("Min", ["r", "third"], "h"),
            ("Gemm", ["h", "w_head"], "u", {"transB": 1}), ("Gemm", ["h", "w_head"], "v", {"transB": 1}),
            ("Concat", ["u", "v"], "y", {"axis": 1}),
        ],
        [12, 2],
    ),
    "tanh and relu side by side": (
        [
            *FIRST, ("MatMul", ["x", "w0t"], "b"), ("Relu", ["b"], "r"), ("Sub", ["r", "h"], "d"),
            ("Tanh", ["d"], "t"), ("Concat", ["r", "t"], "k", {"axis": 1}),
            ("Gemm", ["t", "w_head"], "u", {"transB": 1}), ("Gemm", ["r", "w_head"], "v", {"transB": 1}),
            ("Concat", ["u", "v"], "y", {"axis": 1}),
        ],
        [24, 25, 2],
    ),
    "past a layer": (
        [
            ("Gemm", ["x", "square"], "a"), ("Tanh", ["a"], "t"), ("Add", ["t", "x"], "r"),
            ("Gemm", ["r", "w0", "b0"], "s", {"transB": 1}), ("Gemm", ["s", "w1", "b1"], "y", {"transB": 1}),
        ],
        [2 * c.N_DENSE, 2],
    ),
    "clamped narrower": ([*FIRST, END, ("Clip", ["z", "minus", "one"], "y")], [12, 2, 2]),
    "relu at the output": ([*FIRST, END, ("Relu", ["z"], "y")], [12, 2, 2]),
    "clamped as the contract does": (
        [*FIRST, END, ("Max", ["z", "lows"], "f"), ("Min", ["highs", "f"], "y")], [12, 2],
    ),
    "clamped wider": ([*FIRST, END, ("Clip", ["z", "lo", "hi"], "y")], [12, 2]),
    "clamped head by head": (
        [
            *FIRST, ("Gemm", ["h", "w_head"], "u", {"transB": 1}), ("Clip", ["u", "minus", "one"], "g"),
            ("Clip", ["u", "lo", "hi"], "k"), ("Concat", ["g", "k"], "y", {"axis": 1}),
        ],
        [12, 2],
    ),
    "no hidden layer": (
        [("MatMul", ["x", "square"], "q"), ("Gemm", ["q", "w0"], "a", {"transB": 1}),
         ("Gemm", ["a", "w1", "b1"], "y", {"transB": 1})],
        [2],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SUPPORTED)
def test_supported_graphs_are_carried_exactly(name: str, tmp_path: Path) -> None:
    nodes, widths = SUPPORTED[name]
    graph = carried(save(tmp_path / "m.onnx", nodes))
    assert [len(layer.bias) for layer in graph.layers] == widths


def test_outputs_may_be_two_in_any_order(tmp_path: Path) -> None:
    heads: list[Node] = [
        *FIRST,
        ("Gemm", ["h", "w_head"], "congestion", {"transB": 1}),
        ("Mul", ["congestion", "half"], "cwnd_gain"),
    ]
    path = save(tmp_path / "m.onnx", heads, ("congestion", "cwnd_gain"))
    weight = carried(path).layers[-1].weight
    np.testing.assert_allclose(weight, [TENSORS["w_head"][0] / 2, TENSORS["w_head"][0]])


@pytest.mark.parametrize("batch", [1, 7])
def test_a_fixed_batch_is_no_obstacle(batch: int, tmp_path: Path) -> None:
    assert (
        carried(save(tmp_path / "m.onnx", [*FIRST, LAST], shape=(batch, c.N_DENSE))).batch == batch
    )


def sklearn_file(kind: str, folder: Path) -> Path:
    """What skl2onnx wrote of a pipeline on inputs and means, with the memory before it."""
    path = folder / f"sklearn-{kind}.onnx"
    memory.put_before(FOREIGN / path.name, path)
    return path


def test_what_scikit_learn_makes_is_carried(tmp_path: Path) -> None:
    for kind in ("tanh", "logistic"):
        graph = carried(sklearn_file(kind, tmp_path))
        assert graph.producer == "skl2onnx 1.20.0"
        assert [len(layer.bias) for layer in graph.layers] == [16, 12, 2]


class Heads(nn.Module):
    """Styles in one: functional calls, a normalised trunk, heads with a scaled sigmoid."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Linear(c.N_DENSE, 14)
        self.norm = nn.BatchNorm1d(14)
        self.gain, self.logit = nn.Linear(14, 1), nn.Linear(14, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.norm(self.trunk(2 * x - 1)))
        gain = 2 * torch.sigmoid(self.gain(h)) - 1
        return torch.cat([gain, torch.tanh(self.logit(h)) * 8], dim=1)


def torch_modules() -> dict[str, nn.Module]:
    torch.manual_seed(4)
    normed = nn.Sequential(
        nn.BatchNorm1d(c.N_DENSE), nn.Linear(c.N_DENSE, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Dropout(0.1),
        nn.Linear(16, 8), nn.Sigmoid(), nn.Linear(8, 2), nn.Hardtanh(-8, 8),
    )  # fmt: skip
    heads = Heads()
    for module in (normed, heads):
        for _ in range(20):  # statistics to fold
            module(torch.rand(32, c.N_DENSE) * 2)
    plain = nn.Sequential(
        nn.Flatten(), nn.Linear(c.N_DENSE, 16, bias=False), nn.Tanh(), nn.Linear(16, 2)
    )
    return {"plain": plain, "normalised": normed, "heads": heads}


@pytest.mark.parametrize("name", ["plain", "normalised", "heads"])
def test_what_torch_exports_is_carried(name: str, tmp_path: Path) -> None:
    module, path = torch_modules()[name].eval(), tmp_path / "m.onnx"
    path.write_bytes(exported(module))
    graph = carried(path)
    x = torch.rand(100, c.N_DENSE)
    with torch.no_grad():
        want = module(x).clamp(torch.tensor([-1.0, -8.0]), torch.tensor([1.0, 8.0])).numpy()
    from ndm_tcp.export.integers import quantize

    found = quantize.real_forward(graph.layers, x.numpy().astype(np.float64))
    np.testing.assert_allclose(found, want, atol=5e-6)
    assert graph.producer.startswith("pytorch")


REFUSED: dict[str, tuple[list[Node], str]] = {
    "an empty clamp": (
        [FIRST[0], ("Clip", ["a", "one", "minus"], "h"), LAST], "'at_h': Clip: it leaves a single v",
    ),
    "outputs clamped where they may not be": (
        [*FIRST, END, ("Clip", ["z", "two", "four"], "y")], "outputs: clamp 'at_y' leaves a single",
    ),
    "unknown": ([FIRST[0], ("Softplus", ["a"], "h"), LAST], "'at_h': operator Softplus is not supp"),
    "transposed batch": (
        [("Gemm", ["x", "w0", "b0"], "y", {"transA": 1})], "'at_y': Gemm: transA=1 would transp",
    ),
    "product of two values": (
        [FIRST[0], ("Mul", ["a", "a"], "h"), LAST], "'at_h': Mul: expected one constant operand",
    ),
    "division by zero": (
        [FIRST[0], ("Div", ["a", "zeros"], "h"), LAST], "'at_h': Div: only by a constant other than",
    ),
    "reciprocal": ([FIRST[0], ("Div", ["one", "a"], "h"), LAST], "'at_h': Div: only by a constant"),
    "rows mixed": (
        [FIRST[0], ("Reshape", ["a", "mixed"], "y")], r"'at_y': Reshape: to \[-1, 6\], which mixes",
    ),
    "too wide": ([("Gemm", ["x", "w_wide"], "y", {"transB": 1})], "65 units, at most 64"),
    "wrong width": ([("Gemm", ["x", "w1"], "y", {"transB": 1})], r"weight \[12, 2\], expected 18 r"),
    "NaN": ([("Gemm", ["x", "w_nan"], "y", {"transB": 1})], "'w_nan' holds NaN or infinity"),
    "three outputs": ([("Gemm", ["x", "w0"], "y", {"transB": 1})], r"outputs of width \[12\], exp"),
    "training": (
        [FIRST[0], ("BatchNormalization", ["a", "scale", "b0", "mean", "var"], "h",
                    {"training_mode": 1}), LAST],
        "it is in training mode",
    ),
    "too deep": (
        [n for k in range(c.MAX_LAYERS) for n in (
            ("Gemm", ["x" if not k else f"t{k}", "w_deep"], f"g{k}"), ("Tanh", [f"g{k}"], f"t{k+1}"))]
        + [("Gemm", [f"t{c.MAX_LAYERS}", "w0"], "a", {"transB": 1}), ("MatMul", ["a", "w1t"], "y")],
        f"{c.MAX_LAYERS + 1} layers, at most {c.MAX_LAYERS}",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_place_is_refused_by_name(name: str, tmp_path: Path) -> None:
    nodes, message = REFUSED[name]
    path = save(tmp_path / "m.onnx", nodes)
    with pytest.raises(NdmError, match=message) as error:
        reader.read(path, "make it")
    assert "\n" not in str(error.value) and str(path) in str(error.value)


def test_a_recurrent_network_is_refused_with_the_reason(tmp_path: Path) -> None:
    module, buffer = nn.GRU(c.N_INPUTS, 2, batch_first=True).eval(), io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module, (torch.rand(1, 1, c.N_INPUTS),), buffer, dynamo=False)
    (tmp_path / "m.onnx").write_bytes(buffer.getvalue())
    with pytest.raises(NdmError, match=r"FLOAT \[1, 1, 10\], expected x \[n, 10\] and state \[n"):
        reader.read(tmp_path / "m.onnx", "make it")
    gru = helper.make_node("GRU", ["x", "square", "square"], ["y"], "cell", hidden_size=c.N_DENSE)
    path = save(tmp_path / "g.onnx", [("Identity", ["square"], "unused")], extra=[gru])
    with pytest.raises(NdmError, match="'cell': operator GRU is not supported; its state would"):
        reader.read(path, "make it")


@pytest.mark.parametrize("shape", [("n", 9), (10,), ("n", 10, 1), (1 << 40, 10), (0, 10), ("n", 8)])
def test_inputs_of_another_shape_are_refused(shape: tuple[object, ...], tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", [*FIRST, LAST], shape=shape)
    with pytest.raises(NdmError, match="input 'x': |inputs x of other shapes") as error:
        reader.read(path, "make it")
    assert "\n" not in str(error.value)


def test_files_of_another_contract_are_refused(tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", [*FIRST, LAST])
    model = onnx.load(path)
    helper.set_model_props(model, {"ndm_contract": "0123456789abcdef"})
    onnx.save(model, path)
    with pytest.raises(NdmError, match="made for contract 0123456789abcdef"):
        reader.read(path, "make it")


def test_old_opsets_and_foreign_domains_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NdmError, match="opset 6, older than 7"):
        old = save(tmp_path / "m.onnx", [("Tanh", ["x"], "y")], shape=("n", c.N_INPUTS), opset=6)
        reader.read(old, "make it")
    path = save(tmp_path / "m.onnx", [*FIRST, LAST])
    model = onnx.load(path)
    model.opset_import.append(helper.make_opsetid("com.example", 1))
    next(n for n in model.graph.node if n.op_type == "Tanh").domain = "com.example"
    onnx.save(model, path)
    with pytest.raises(NdmError, match="operator com.example.Tanh is not supported"):
        reader.read(path, "make it")


def test_constants_in_nodes_are_bounded_too(tmp_path: Path) -> None:
    bomb = TensorProto(name="bomb", data_type=TensorProto.FLOAT, dims=[1 << 20, 1 << 20])
    far = helper.make_tensor("far", TensorProto.FLOAT, [16], np.zeros(16))
    far.data_location = TensorProto.EXTERNAL
    for tensor, message in ((bomb, "at most 4096 elements"), (far, "lies in another file")):
        node = helper.make_node("Constant", [], ["k"], "const", value=tensor)
        path = save(tmp_path / "m.onnx", [*FIRST, LAST], extra=[node])
        with pytest.raises(NdmError, match=message):
            reader.read(path, "make it")


def test_a_wrong_rewriting_does_not_pass(tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", [*FIRST, LAST])
    graph = reader.read(path, "make it")
    graph.layers[1].weight[0, 0] += 1e-3
    with pytest.raises(NdmError, match="onnxruntime differs from the layers read from it"):
        writer.compare(graph, path, (golden.inputs() / 4096).astype(np.float32))


@pytest.mark.usefixtures("few_boxes")
def test_a_file_is_exported_with_all_proofs(tmp_path: Path) -> None:
    """Certified, checked and compiled as a training run's network is."""
    import shutil

    kmod = tmp_path / "kmod"
    shutil.copytree(check.generated.GENERATED.parent, kmod,
                    ignore=shutil.ignore_patterns("*.ko", "*.o", ".*"))  # fmt: skip
    path = sklearn_file("logistic", tmp_path)
    report = export(path, kmod / "generated")
    assert check.check(kmod)["model"] == report.model
    assert {p.name for p in path.with_suffix(".export").iterdir()} == {
        "ndm_model.blob", "vectors.json", "export.json", "MODEL_CARD.md", "report.html",
    }  # fmt: skip
    header = (kmod / "generated" / "ndm_model.h").read_text()
    assert "made by: skl2onnx 1.20.0" in header and report.onnx_sha256 in header
    assert all(seen <= bound for seen, bound in zip(report.observed, report.bound, strict=True))


def test_a_maker_cannot_write_into_the_header(tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", [*FIRST, LAST], producer="x */ int evil; /* \n y")
    assert reader.read(path, "make it").producer == "x  int evil   y"


@pytest.mark.usefixtures("few_boxes")
def test_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "generated"
    path = save(tmp_path / "m.onnx", [*FIRST, LAST])
    assert run_command(["export", str(path), "-o", str(out), "--json"]) == 0
    assert orjson.loads(capsys.readouterr().out)["compared"] == "the layers read from the file"
    bad = save(tmp_path / "bad.onnx", [FIRST[0], ("Elu", ["a"], "h"), LAST])
    assert run_command(["export", str(bad), "-o", str(tmp_path / "no")]) == 2
    assert capsys.readouterr().err.count("\n") == 1 and not (tmp_path / "no").exists()
