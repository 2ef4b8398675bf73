# SPDX-License-Identifier: GPL-2.0-only
"""Units that saturate instead of tanh (Relu, Clip, Hardtanh): the C, the proof, the checker."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from ndm_tcp import contract as c
from ndm_tcp import core, fixedpoint
from ndm_tcp.errors import NdmError
from ndm_tcp.export import check
from ndm_tcp.export.chain import export
from ndm_tcp.export.integers import generated, golden, model_c, qat, quantize
from ndm_tcp.export.integers.network import IntegerNetwork
from ndm_tcp.export.integers.quantize import Dense
from ndm_tcp.export.onnx import reader
from ndm_tcp.export.proof import certificate, enclosure, properties, relaxation
from ndm_tcp.fixedpoint import Layer
from ndm_tcp.training.model import Policy

from .remembering import exported
from .test_certificate import bounds_sub_boxes, errors_are_within
from .test_checker import forge, refused
from .test_mutants import FLAGS, report
from .test_portability import TARGETS, Target, compile_and_run

pytestmark = pytest.mark.usefixtures("few_boxes")
KMOD = generated.GENERATED.parent
SHARES = [1.0, 0.4]


def network(seed: int, scale: float, hidden: tuple[int, ...], share: float = 1.0) -> list[Layer]:
    """Random layers of which a share of the hidden units is clamped."""
    torch.manual_seed(seed)
    pairs = Policy(hidden).linear_layers()
    layers = quantize.quantize([((w * scale).numpy(), (b * scale).numpy()) for w, b in pairs])
    inner = [replace(layer, clamped=round(share * layer.n_out)) for layer in layers[:-1]]
    return [*inner, layers[-1]]


def relu_file(path: Path, activation: Callable[[], nn.Module], scale: float = 3.0) -> nn.Module:
    """A network of the shipped one's shape and weights of a trained one's size, by PyTorch."""
    torch.manual_seed(9)
    module = nn.Sequential(
        nn.Linear(c.N_DENSE, 16), activation(), nn.Linear(16, 16), activation(), nn.Linear(16, 2)
    ).eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(scale)
    path.write_bytes(exported(module))
    return module


@pytest.fixture
def kmod(tmp_path: Path) -> Path:
    """A copy of the module's sources."""
    shutil.copytree(KMOD, tmp_path / "kmod", ignore=shutil.ignore_patterns("*.ko", "*.o", ".*"))
    return tmp_path / "kmod"


def write(layers: list[Layer], kmod: Path) -> model_c.Model:
    model = model_c.Model(layers, {"network": "a test"})
    generated.write(IntegerNetwork(model), kmod / "generated")
    return model


# --- the arithmetic --------------------------------------------------------------------------

# Against the rule, written out without a shift: all integers around the knees, some of the rest.
SATURATE = r"""
#include <stdio.h>
#include "ndm_infer.h"

int main(void)
{
	u64 wrong = 0;
	s64 pre;

	for (pre = -2147483648LL; pre <= 2147483647LL; pre += pre >= -131072 && pre < 131072 ? 1 : 64) {
		s64 want = (pre + 1 - ((pre + 1) % 2 != 0 && pre + 1 < 0)) / 2;

		want = want < -32768 ? -32768 : want > 32767 ? 32767 : want;
		wrong += ndm_saturate((s32)pre) != want;
	}
	printf("%llu\n", (unsigned long long)wrong);
	return wrong != 0;
}
"""


def test_saturation_is_the_rule(tmp_path: Path) -> None:
    source = tmp_path / "saturate.c"
    source.write_text(SATURATE)
    assert compile_and_run(Target("gcc", ("-O3",), "gcc"), source, tmp_path).strip() == "0"
    for old, new in (("pre + 1 -", "pre -"), ("want > 32767", "want > 32768")):
        source.write_text(SATURATE.replace(old, new, 1))
        with pytest.raises(AssertionError):
            compile_and_run(Target("gcc", ("-O3",), "gcc"), source, tmp_path)


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("hidden", [(16, 16), (5, 64, 3), (1,)])
@pytest.mark.parametrize("scale", [0.3, 3.0, 30.0])
def test_c_and_fine_tuning_compute_the_specification(
    hidden: tuple[int, ...], scale: float, share: float
) -> None:
    layers = network(3, scale, hidden, share)
    vectors = golden.compute(layers, golden.inputs())
    out, pre = core.infer(layers, vectors.x)
    np.testing.assert_array_equal(pre, vectors.pre)
    np.testing.assert_array_equal(out, vectors.out)
    quantised = qat.Quantised(layers, quantize.dequantize(layers))
    with torch.no_grad():
        found = quantised(torch.from_numpy(vectors.x.astype(np.float64))).numpy()
    np.testing.assert_array_equal(found, pre[:, -c.N_OUTPUTS :])
    assert [a.clamped for a in quantised.layers()] == [a.clamped for a in layers]


@pytest.mark.parametrize("target", [TARGETS[0], TARGETS[8], TARGETS[9], *TARGETS[-2:]], ids=str)
def test_every_compiler_computes_the_vectors(target: Target, kmod: Path, tmp_path: Path) -> None:
    write(network(7, 2.0, (16, 16), 0.4), kmod)
    said = compile_and_run(target, kmod / "ndm_selftest.c", tmp_path, kmod)
    assert re.search(r"256 vectors, [1-9]\d{4} by digest", said)


def test_fine_tuning_of_clamped_units_helps() -> None:
    real = quantize.dequantize(network(5, 1.0, (16, 16)))
    for layer in real:
        layer.weight[:, 0] = 6.0  # the others are rounded coarsely
    rng = np.random.default_rng(1)
    real = [r._replace(weight=r.weight + rng.uniform(-1e-4, 1e-4, r.weight.shape)) for r in real]
    layers, x = quantize.quantize(real), rng.permutation(golden.inputs())
    assert layers[0].clamped == 16
    choice = qat.fine_tune(layers, real, x[::2], x[1::2], steps=300)
    assert choice.tuned and choice.after.score() < 0.95 * choice.before.score()


# --- the proof -------------------------------------------------------------------------------


def test_errors_of_saturation_are_exact() -> None:
    p = np.arange(-70000, 70001, dtype=np.int64)
    error = fixedpoint.saturate(p) / 2.0**c.Q_ACT - np.clip(p / 2.0**c.Q_PRE, -1, 1)
    rng = np.random.default_rng(4)
    ends = [(-65540, -65530), (65530, 65534), (65530, 65536), (0, 0), (-1, -1), (65537, 69999)]
    ends += [tuple(sorted(pair)) for pair in rng.integers(-70000, 70001, (200, 2)).tolist()]
    for low, high in ends:
        part = error[low + 70000 : high + 70001] * enclosure.UNIT
        assert enclosure.clamp_error((low, high)) == (part.min(), part.max()), (low, high)


@pytest.mark.parametrize(("low", "high"), [(-0.5, 0.9), (-3.0, -1.0), (-2.0, 0.5), (1.0, 4.0)])
def test_slopes_of_clamps_are_enclosed(low: float, high: float) -> None:
    unit = enclosure.UNIT
    found = enclosure.clamp_slope((int(low * unit), int(high * unit)))
    x = np.linspace(low, high, 201)
    y = np.clip(x, -1, 1)
    chords = (y[:, None] - y)[x[:, None] != x] / (x[:, None] - x)[x[:, None] != x]
    assert found[0] / unit <= chords.min() + 1e-9 and chords.max() - 1e-9 <= found[1] / unit
    if low >= -1 or high <= -1:
        assert found == (round(chords.min()) * unit, round(chords.max()) * unit)


def test_lines_lie_above_the_clamp() -> None:
    rng = np.random.default_rng(3)
    low = rng.integers(-3 << 16, 3 << 16, 2000)
    high = low + rng.integers(0, 1 << rng.integers(1, 20, 2000))
    slope, beta = relaxation.clamp_lines(low[None], high[None])
    x = low + np.linspace(0, 1, 101)[:, None] * (high - low)
    x = np.concatenate([x, np.clip(np.full_like(low, 1 << 16), low, high)[None]])
    line = slope[0] / 256 * x / 2.0**16 + beta[0] / 2.0**24
    away = line - np.clip(x / 2.0**16, -1, 1)
    assert away.min() >= -1e-9
    assert (away.min(axis=0) < 1e-6).all(), "a line that touches nothing is too high"


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("scale", [0.3, 1.0, 5.0])
@pytest.mark.parametrize("hidden", [(16, 16), (5, 64, 3), (1,)])
def test_the_error_bound_holds_and_is_not_loose(
    scale: float, hidden: tuple[int, ...], share: float
) -> None:
    errors_are_within(network(3, scale, hidden, share))


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize(("hidden", "scale"), [((16, 16), 2.0), ((8, 8, 8), 0.5), ((40,), 20.0)])
def test_sub_boxes_are_bounded_soundly(scale: float, hidden: tuple[int, ...], share: float) -> None:
    layers = network(11, scale, hidden, share)
    rng = np.random.default_rng(2)
    for output, sign in ((0, 1), (1, -1)):
        bounder = relaxation.Bounder(layers, output, sign)
        bounds_sub_boxes(bounder, layers, output, sign, rng)


SOON = [((16, 16), 1.0, 1.0), ((6, 6, 6), 1.0, 0.4), ((16, 16), 8.0, 0.4), ((4,), 30.0, 1.0)]
LATER = [((16, 16), 1.0, 0.4), ((6, 6, 6), 1.0, 1.0), ((16, 16), 8.0, 1.0), ((4,), 30.0, 0.4)]
"""widths, scale of the weights, share of clamped units"""


@pytest.mark.parametrize(
    ("hidden", "scale", "share"),
    [*SOON, *(pytest.param(*one, marks=pytest.mark.long) for one in LATER)],
)
def test_the_checker_accepts(
    hidden: tuple[int, ...], scale: float, share: float, kmod: Path
) -> None:
    model = write(network(4, scale, hidden, share), kmod)
    assert model.hash() in check.run_checker(kmod / "generated")


def test_what_is_clamped_cannot_be_forged(kmod: Path) -> None:
    write(network(4, 1.0, (16, 16), 0.4), kmod)
    folder = kmod / "generated"
    forge(folder, "ndm_model.h", ".n_clamped = 6", ".n_clamped = 5")
    refused(folder, "integers do not match")
    forge(folder, "ndm_model.h", ".n_clamped = 5", ".n_clamped = 17")
    refused(folder, "layer 0: 17 clamped units")
    forge(folder, "ndm_model.h", ".n_clamped = 17", ".n_clipped = 6")
    refused(folder, "layer of another form")
    forge(folder, "ndm_model.h", ".n_clipped = 6", ".n_clamped = 6")
    path = folder / certificate.NAME
    data = json.loads(path.read_text())
    assert "holds" in check.run_checker(folder)
    for key, value in (("slope", [0, 0]), ("table", [0, 0]), ("activation", [-32767, 32767])):
        changed = json.loads(json.dumps(data))
        assert changed["layers"][0][-1][key] != value
        changed["layers"][0][-1][key] = value
        path.write_text(json.dumps(changed))
        refused(folder, key)


def test_the_hash_covers_what_is_clamped_and_leaves_tanh_networks_alone(tmp_path: Path) -> None:
    layers = network(4, 1.0, (8, 8), 0.5)
    model = model_c.Model(layers, {})
    path = tmp_path / "m.json"
    path.write_text(model_c.to_json(model))
    again = model_c.from_json(path)
    assert [layer.clamped for layer in again.layers] == [4, 4, 0]
    path.write_text(path.read_text().replace('"clamped": 4', '"clamped": 5', 1))
    with pytest.raises(NdmError, match="do not match its hash"):
        model_c.from_json(path)
    plain = [replace(layer, clamped=0) for layer in layers]
    assert "clamped" not in model_c.to_json(model_c.Model(plain, {}))


# --- from ONNX -------------------------------------------------------------------------------

KINDS = {
    "relu": (nn.ReLU, 1.0), "relu6": (nn.ReLU6, 3.0), "hardtanh": (nn.Hardtanh, 3.0),
}  # fmt: skip


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=() if kind == "relu" else pytest.mark.long) for kind in KINDS],
)
def test_pytorchs_networks_are_exported_with_all_proofs(
    kind: str, kmod: Path, tmp_path: Path
) -> None:
    activation, scale = KINDS[kind]
    path = tmp_path / "policy.onnx"
    relu_file(path, activation, scale)
    found = export(path, kmod / "generated")
    result = check.check(kmod)
    assert result["model"] == found.model and result["vectors"] == found.vectors
    layers = model_c.from_json(kmod / "generated" / "ndm_model.json").layers
    assert [layer.clamped for layer in layers] == [16, 16, 0]
    assert "18-16-16-2 clamped" in (kmod / "generated" / "ndm_model.h").read_text()
    for o, bound, seen, drift in zip(
        c.OUTPUTS, found.bound, found.observed, found.drift, strict=True
    ):
        print(f"{kind} {o.name}: bound {bound:.3g}, seen {seen:.3g}, drift {drift:.3g}")
        assert seen <= bound < 0.005 * (o.hi - o.lo) and drift < 0.002 * (o.hi - o.lo)


def test_relus_upper_end_is_out_of_reach_and_that_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "policy.onnx"
    relu_file(path, nn.ReLU)
    graph = reader.read(path, "make it")
    proof = certificate.prove(quantize.quantize(graph.layers))
    certificate.require_open(proof, graph.open)
    for ends, rows in zip(graph.open, proof.rows, strict=False):
        assert ends[:, 1].all() and not ends[:, 0].all()
        assert max(row.pre[1] for row in rows) > 60_000, "nearly all of the range is used"
    first = graph.layers[0]
    layers = [first._replace(weight=1.1 * first.weight, bias=1.1 * first.bias), *graph.layers[1:]]
    with pytest.raises(NdmError, match=r"layer 0, row \d+: quantised, it may pass the range"):
        certificate.require_open(certificate.prove(quantize.quantize(layers)), graph.open)


# --- mutants ---------------------------------------------------------------------------------

INFER = [
    ("layer->n_out - layer->n_clamped", "layer->n_out"),
    ("layer->n_out - layer->n_clamped", "0"),
    ("layer->n_out - layer->n_clamped", "layer->n_clamped"),
    ("out[i] = (u64)ndm_saturate(pre[i]);", "out[i] = (u64)ndm_tanh(pre[i]);"),
    ("out[i] = (u64)ndm_saturate(pre[i]);", "out[i] = (u64)ndm_saturate(pre[0]);"),
    ("out[i] = (u64)ndm_saturate(pre[i]);", "out[i] = (u64)(s16)pre[i];"),
    ("out[i] = (u64)ndm_saturate(pre[i]);", "out[i] = (u64)(pre[i] >> 1);"),
    ("NDM_Q_PRE - NDM_Q_ACT)", "NDM_Q_PRE - NDM_Q_ACT + 1)"),
    ("ndm_round_shift(pre, NDM_Q_PRE - NDM_Q_ACT)", "(pre >> 1)"),
    ("ndm_round_shift(pre, NDM_Q_PRE - NDM_Q_ACT)", "(pre / 2)"),
    ("-32768, 32767)", "-32767, 32767)"),
    ("-32768, 32767)", "-32768, 32766)"),
    ("-32768, 32767)", "0, 32767)"),
    ("for (; i < layer->n_out; i++)", "for (; i + 1 < layer->n_out; i++)"),
    ("for (; i < layer->n_out; i++)", "for (; i < n_tanh; i++)"),
]


def test_every_defect_of_the_saturation_is_found(kmod: Path) -> None:
    write(network(8, 3.0, (16, 16), 0.4), kmod)
    check.run_selftest(kmod, "gcc", FLAGS)
    path = kmod / "ndm_infer.h"
    text, survivors = path.read_text(), []
    for old, new in INFER:
        assert text.count(old) == 1, old
        path.write_text(text.replace(old, new))
        try:
            check.run_selftest(kmod, "gcc", FLAGS)
        except NdmError as error:
            assert "golden vectors" in str(error), error
        else:
            survivors.append(f"{old} -> {new}")
    path.write_text(text)
    header = kmod / "generated" / "ndm_model.h"
    text = header.read_text()
    for other in (5, 7, 0, 16):
        header.write_text(text.replace(".n_clamped = 6", f".n_clamped = {other}", 1))
        with pytest.raises(NdmError, match="golden vectors"):
            check.run_selftest(kmod, "gcc", FLAGS)
    report("ndm_infer.h, clamped", len(INFER) + 4, len(INFER) + 4 - len(survivors))
    assert not survivors


def test_vectors_hold_the_knees(kmod: Path) -> None:
    layers = network(8, 3.0, (16, 16))
    proof = certificate.prove(layers)
    x = golden.edges(layers, proof.inputs()).astype(np.int64)
    pre = fixedpoint.forward(layers, x).pre[0]
    for knee in (-1 << c.Q_PRE, 1 << c.Q_PRE):
        reach = [row.pre[0] < knee < row.pre[1] for row in proof.rows[0]]
        assert sum(reach) > 8
        for below in (pre < knee, pre > knee):
            near = np.where(below, np.abs(pre - knee), 1 << 40).min(axis=0)
            assert np.median(near[reach]) < 20


@pytest.mark.parametrize("gain", [-5000, 5000])
def test_verdicts_of_clamped_networks(gain: int) -> None:
    """A clamp that holds an output on one side of zero."""
    first = Dense(np.eye(1, c.N_DENSE, 2) * 0.4, np.zeros(1), 1)
    last = Dense(np.array([[0.1], [1.0]]), np.array([gain / 65536 - 0.1 * (gain < 0), 0.0]))
    layers = quantize.quantize([first, last])
    prop = next(p for p in properties.PROPERTIES if p.name == "no_growth_behind_its_own_queue")
    x = [low for low, _ in prop.box()]
    value = int(fixedpoint.forward(layers, np.array([x])).pre[-1][0, 0])
    verdict = properties.decide(layers, prop, (value, x), boxes=64)
    assert verdict.verdict == ("proved" if gain < 0 else "refuted")
