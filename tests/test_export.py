# SPDX-License-Identifier: GPL-2.0-only
"""Export: Python integers = C bit for bit, float against fixed within the bound, mutants die."""

from __future__ import annotations

import itertools
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import orjson
import pytest
import torch

from ndm_tcp import contract as c
from ndm_tcp import core, fixedpoint
from ndm_tcp.errors import NdmError
from ndm_tcp.export import check
from ndm_tcp.export.chain import export
from ndm_tcp.export.integers import generated, golden, model_c, network, quantize
from ndm_tcp.export.integers.network import IntegerNetwork
from ndm_tcp.export.onnx import writer
from ndm_tcp.fixedpoint import Layer
from ndm_tcp.training.model import Memory, Policy

from .remembering import some

KMOD = generated.GENERATED.parent


@pytest.fixture(scope="session")
def model() -> model_c.Model:
    """The shipped network."""
    return model_c.from_json(KMOD / "generated" / "ndm_model.json")


@pytest.fixture(scope="session")
def vectors(model: model_c.Model) -> golden.Vectors:
    return golden.compute(model.layers, golden.inputs())


@pytest.fixture
def kmod(tmp_path: Path) -> Path:
    """A copy of the module's sources."""
    shutil.copytree(KMOD, tmp_path / "kmod", ignore=shutil.ignore_patterns("*.ko", "*.o", ".*"))
    return tmp_path / "kmod"


def random_layers(seed: int, scale: float = 1.0, hidden: tuple[int, ...] = (16, 16)) -> list[Layer]:
    torch.manual_seed(seed)
    policy = Policy(hidden)
    return quantize.quantize(
        [((w * scale).numpy(), (b * scale).numpy()) for w, b in policy.linear_layers()]
    )


def test_c_equals_the_specification_at_every_layer(
    model: model_c.Model, vectors: golden.Vectors
) -> None:
    assert len(vectors.x) > 42_000
    out, pre = core.infer(model.layers, vectors.x)
    np.testing.assert_array_equal(pre, vectors.pre)
    np.testing.assert_array_equal(out, vectors.out)


@pytest.mark.parametrize("hidden", [(1,), (64,), (16, 16), (5, 64, 3), (9, 22, 37)])
@pytest.mark.parametrize("scale", [0.1, 1.0, 30.0])
def test_c_equals_the_specification_for_other_networks(
    hidden: tuple[int, ...], scale: float
) -> None:
    layers = random_layers(7, scale, hidden)
    vectors = golden.compute(layers, golden.inputs())
    out, pre = core.infer(layers, vectors.x)
    np.testing.assert_array_equal(pre, vectors.pre)
    np.testing.assert_array_equal(out, vectors.out)


def test_the_vectors_hold_corners_of_every_kind(vectors: golden.Vectors) -> None:
    """Every combination of the ten inputs of a round, and of any three inputs."""
    box = {(i.lo_q, i.hi_q) for i in c.DENSE}
    assert box
    corner = np.ones(len(vectors.x), dtype=bool)
    for number, i in enumerate(c.DENSE):
        corner &= np.isin(vectors.x[:, number], (i.lo_q, i.hi_q))
    high = vectors.x[corner] == [i.hi_q for i in c.DENSE]
    assert len(np.unique(high, axis=0)) == 1 << 15
    assert len(np.unique(high[:, : c.N_INPUTS], axis=0)) == 1 << c.N_INPUTS
    for three in itertools.combinations(range(c.N_DENSE), 3):
        assert len(np.unique(high[:, three] @ [1, 2, 4])) == 8, three


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("scale", [0.3, 1.0, 8.0])
def test_accumulators_stay_within_their_proved_bounds(seed: int, scale: float) -> None:
    layers = random_layers(seed, scale)
    trace = fixedpoint.forward(layers, golden.inputs().astype(np.int64))
    for number, (layer, acc) in enumerate(zip(layers, trace.accumulators, strict=True)):
        low, high = quantize.accumulator_bounds(
            layer.weight.astype(np.int64), layer.bias.astype(np.int64), number
        )
        assert (acc >= low).all() and (acc <= high).all()
        assert low.min() >= -(2**31) and high.max() < 2**31


def test_the_first_layers_bound_is_attained(model: model_c.Model) -> None:
    """A bound nobody reaches could hide a defect: the corner that reaches this one exists."""
    layer = model.layers[0]
    weight = layer.weight.astype(np.int64)
    lo, hi, _ = quantize.input_box(0)
    x = np.where(weight[0] > 0, hi, lo)[None]
    acc = fixedpoint.forward(model.layers, x).accumulators[0][0, 0]
    _, high = quantize.accumulator_bounds(weight, layer.bias.astype(np.int64), 0)
    # The bound also covers partial sums, so inputs whose least product is positive count as 0.
    products = np.stack([weight[0] * lo, weight[0] * hi]).max(axis=0)
    assert acc == products.sum() + layer.bias[0]
    assert high[0] == np.maximum(products, 0).sum() + max(int(layer.bias[0]), 0)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("scale", [0.5, 1.0, 4.0])
def test_float_and_fixed_agree_within_the_bound(seed: int, scale: float) -> None:
    layers = random_layers(seed, scale)
    x = golden.inputs()
    fixed = golden.compute(layers, x).out / 65536
    real = quantize.real_forward(quantize.dequantize(layers), x / 4096)
    error = np.abs(fixed - real).max(axis=0)
    bound = quantize.error_bound(layers)
    assert (error <= bound).all()
    assert (error > bound / 100).all(), "a bound this loose says nothing"


def test_the_shipped_bound_is_a_tenth_of_a_percent_of_the_range(model: model_c.Model) -> None:
    bound = quantize.error_bound(model.layers)
    ranges = np.array([o.hi - o.lo for o in c.OUTPUTS])
    assert (bound < 0.001 * ranges).all()


def test_what_does_not_fit_raises() -> None:
    weight, bias = np.zeros((2, c.N_DENSE)), np.zeros(2)
    weight[1, 3] = 2000.0
    with pytest.raises(NdmError, match="layer 0, row 1: largest weight 2000"):
        quantize.quantize_layer(weight, bias, 0)
    weight[1, 3] = float("nan")
    with pytest.raises(NdmError, match="NaN"):
        quantize.quantize_layer(weight, bias, 0)


def test_large_rows_get_smaller_scales_instead_of_overflowing() -> None:
    layer = quantize.quantize_layer(np.array([[0.5], [40.0]]) * np.ones(c.N_DENSE), np.zeros(2), 0)
    assert layer.shift[0] > layer.shift[1]
    assert abs(int(layer.weight[1, 0])) <= 32767


# --- ONNX ------------------------------------------------------------------------------------


def test_onnx_round_trip_keeps_the_weights(tmp_path: Path) -> None:
    torch.manual_seed(1)
    policy = Policy((8, 4), mask=(7,))
    writer.write(policy, tmp_path / "m.onnx", {})
    graph = writer.read(tmp_path / "m.onnx")
    for layer, (w, b) in zip(graph.layers, policy.linear_layers(), strict=True):
        assert np.array_equal(layer.weight, w.numpy()) and np.array_equal(layer.bias, b.numpy())
    x = some(100)
    assert writer.check_against(policy, tmp_path / "m.onnx", x) < 1e-5


def test_float32_of_any_processor_passes(tmp_path: Path) -> None:
    torch.manual_seed(1)
    policy = Policy((32, 32))
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter *= 16  # two libraries' float32 differ by more than 1e-5
    writer.write(policy, tmp_path / "m.onnx", {})
    x = some(20_000)
    assert writer.check_against(policy, tmp_path / "m.onnx", x) < 5e-5
    assert next(policy.parameters()).dtype is torch.float32, "the caller's network was changed"


@pytest.mark.parametrize("shift", [1e-3, float("nan")])
def test_a_different_network_does_not_pass_as_the_same(tmp_path: Path, shift: float) -> None:
    torch.manual_seed(1)
    policy = Policy((8,))
    writer.write(policy, tmp_path / "m.onnx", {})
    with torch.no_grad():
        policy.layers[0].bias[0] += shift
    x = some(100)
    with pytest.raises(NdmError, match="onnxruntime differs from PyTorch"):
        writer.check_against(policy, tmp_path / "m.onnx", x)


def test_rounding_that_differs_from_call_to_call_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Products of matrices may be rounded by where in memory they lie, as with AVX-512."""
    policy = Policy((8,))
    writer.write(policy, tmp_path / "m.onnx", {})
    calls = itertools.count()
    raw = Policy.raw
    monkeypatch.setattr(Policy, "raw", lambda self, x: raw(self, x) * (1 + next(calls) * 1e-15))
    assert writer.check_against(policy, tmp_path / "m.onnx", some(100)) < 1e-5
    assert writer.check_against(policy, tmp_path / "m.onnx", some(100)) < 1e-5


def test_another_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By one step of an input, or of the state."""
    policy = Policy((8,))
    writer.write(policy, tmp_path / "m.onnx", {})
    forward = Memory.forward
    for off in ((2.0**-12, 0.0), (0.0, 2.0**-14)):
        with monkeypatch.context() as patch, pytest.raises(NdmError, match="its memory differs"):
            patch.setattr(
                Memory,
                "forward",
                lambda self, x, s, off=off: [
                    a + b for a, b in zip(forward(self, x, s), off, strict=True)
                ],
            )
            writer.check_against(policy, tmp_path / "m.onnx", some(100))


def test_unsupported_operators_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    writer.write(Policy((8,)), path, {})
    model = onnx.load(path)
    node = next(n for n in model.graph.node if n.op_type == "Tanh")
    node.op_type = "Softplus"
    onnx.save(model, path)
    with pytest.raises(NdmError, match="node 'tanh0': operator Softplus is not supported"):
        writer.read(path)


def test_foreign_onnx_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    with pytest.raises(NdmError, match="no such file"):
        writer.read(path)
    path.write_bytes(b"not onnx")
    with pytest.raises(NdmError, match="not a valid ONNX"):
        writer.read(path)
    writer.write(Policy((8,)), path, {})
    model = onnx.load(path)
    del model.metadata_props[:]
    onnx.save(model, path)
    with pytest.raises(NdmError, match="made for contract unknown.*run: ndm export"):
        writer.read(path)


# --- the whole export ------------------------------------------------------------------------


@pytest.mark.usefixtures("few_boxes")
@pytest.mark.pictures
def test_export_is_complete_and_byte_identical_on_every_run(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    report = export(run, first)
    once = {p.name: p.read_bytes() for p in sorted(run.iterdir()) if p.is_file()}
    # Prove and compute it again.
    monkeypatch.setattr(network, "PROOFS", {})
    monkeypatch.setattr(network, "TRACES", {})
    assert export(run, second) == report
    assert once == {p.name: p.read_bytes() for p in sorted(run.iterdir()) if p.is_file()}
    names = {p.name for p in first.iterdir()}
    assert names == {p.name for p in KMOD.joinpath("generated").iterdir()}
    for name in names:
        assert (first / name).read_bytes() == (second / name).read_bytes(), name
    data = orjson.loads((run / "vectors.json").read_bytes())
    assert len(data["inputs"]) == len(data["pre"]) == len(data["outputs"]) == report.vectors


def test_generated_files_name_no_date_path_or_user() -> None:
    for path in sorted((KMOD / "generated").glob("*.h")):
        text = path.read_text()
        assert text.startswith(
            "/* SPDX-License-Identifier: GPL-2.0-only */\n/* Do not edit directly"
        )
        assert f"contract {c.HASH}" in text
        assert not re.search(r"20\d\d-\d\d|/home/|/root/|/tmp/|/work/", text), path.name


def test_committed_files_are_what_their_sources_generate() -> None:
    assert generated.check(KMOD / "generated") == 8


def test_a_touched_generated_file_is_noticed(kmod: Path) -> None:
    path = kmod / "generated" / "ndm_tables.h"
    path.write_text(path.read_text().replace("32767", "32766", 1))
    with pytest.raises(NdmError, match=r"ndm_tables.h: not what its sources generate; run: make"):
        generated.check(kmod / "generated")


def test_a_model_changed_by_hand_is_refused(kmod: Path) -> None:
    path = kmod / "generated" / "ndm_model.json"
    data = orjson.loads(path.read_bytes())
    data["layers"][0]["weight"][0][0] += 1
    path.write_bytes(orjson.dumps(data))
    with pytest.raises(NdmError, match="do not match its hash"):
        check.check(kmod)
    data["contract"] = "0" * 16
    path.write_bytes(orjson.dumps(data))
    with pytest.raises(NdmError, match="made for contract"):
        check.check(kmod)


# --- the compiled header, and whether its test can fail --------------------------------------

COMPILERS = [
    pytest.param(compiler, flags, id=f"{compiler}{''.join(flags)}")
    for compiler, flags in [
        ("gcc", ("-O0",)),
        ("gcc", ("-O3",)),
        ("gcc", ("-O1", "-fsanitize=undefined,address", "-fno-sanitize-recover=all")),
        ("clang", ("-O2",)),
    ]
    if shutil.which(compiler)
]


@pytest.mark.parametrize(("compiler", "flags"), COMPILERS)
def test_the_header_passes_its_vectors(compiler: str, flags: tuple[str, ...]) -> None:
    assert "256 vectors" in check.run_selftest(KMOD, compiler, flags)


def bump(text: str, array: str, index: int, by: int) -> str:
    """Change one number of a C array."""
    start = text.index("{", text.index(f" {array}["))
    numbers = list(re.finditer(r"-?\d+", text[start : text.index("};", start)]))
    found = numbers[index]
    at = start + found.start()
    return text[:at] + str(int(found[0]) + by) + text[at + len(found[0]) :]


MUTANTS = [
    ("generated/ndm_model.h", lambda t: bump(t, "ndm_weight0", 37, 1)),
    ("generated/ndm_model.h", lambda t: bump(t, "ndm_weight1", 20, -1)),
    ("generated/ndm_model.h", lambda t: bump(t, "ndm_weight2", 5, 1)),
    ("generated/ndm_model.h", lambda t: bump(t, "ndm_bias0", 3, 4096)),
    ("generated/ndm_model.h", lambda t: bump(t, "ndm_shift1", 7, 1)),
    ("generated/ndm_tables.h", lambda t: bump(t, "ndm_tanh_table", 40, 1)),
    ("generated/ndm_tables.h", lambda t: bump(t, "ndm_klog2k_step", 2, 900)),
    ("ndm_infer.h", lambda t: t.replace("(acc + (1 << (n - 1))) >> n", "acc >> n")),
    ("ndm_infer.h", lambda t: t.replace("pre < 0 ? -value : value", "value")),
    ("ndm_infer.h", lambda t: t.replace("value = at[0] + ndm", "value = at[1] + ndm")),
    ("ndm_features.h", lambda t: t.replace("lost - 1, NDM", "lost, NDM")),
    ("ndm_features.h", lambda t: t.replace("now_us > before_us", "now_us < before_us")),
    ("ndm_features.h", lambda t: t.replace("f->plasticity = NDM_ONE;", "f->plasticity = 0;", 1)),
    ("ndm_memory.h", lambda t: t.replace("before + half", "before + 0 * half")),
    ("ndm_memory.h", lambda t: t.replace("if (memory->state[i])", "if (0)")),
    ("ndm_memory.h", lambda t: t.replace("(s16)(now >> NDM_MEAN_BITS)", "(s16)now")),
    ("generated/ndm_contract.h", lambda t: bump(t, "ndm_memory_of", 1, 1)),
]


@pytest.mark.parametrize("number", range(len(MUTANTS)))
def test_every_mutant_is_caught(kmod: Path, number: int) -> None:
    name, mutate = MUTANTS[number]
    path = kmod / name
    before = path.read_text()
    path.write_text(mutate(before))
    assert path.read_text() != before, "this mutation changes nothing"
    with pytest.raises(NdmError, match="golden vectors"):
        check.run_selftest(kmod)


def test_a_model_for_another_contract_does_not_compile(kmod: Path) -> None:
    path = kmod / "generated" / "ndm_contract.h"
    path.write_text(path.read_text().replace(f"0x{c.HASH}ULL", "0x1234ULL"))
    with pytest.raises(NdmError, match="does not compile.*"):
        check.run_selftest(kmod)


def test_another_network_can_be_written_and_passes(kmod: Path) -> None:
    layers = random_layers(3, 2.0, (12,))
    other = model_c.Model(layers, {"network": "a test"})
    generated.write(IntegerNetwork(other), kmod / "generated")
    result = check.check(kmod)
    assert result["model"] == other.hash()
    renamed = replace(other, notes={"network": "renamed"})
    assert renamed.hash() == other.hash()
