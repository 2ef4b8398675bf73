# SPDX-License-Identifier: GPL-2.0-only
"""What an export refuses, and what it reports."""

from __future__ import annotations

import html
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import onnx
import pytest
import torch
import yaml
from onnx import TensorProto

from ndm_tcp import contract as c
from ndm_tcp.errors import NdmError
from ndm_tcp.export.chain import export
from ndm_tcp.export.integers import golden, model_c, quantize
from ndm_tcp.export.integers.sensitivity import sensitivity
from ndm_tcp.export.onnx import limits, writer
from ndm_tcp.export.proof import law, properties
from ndm_tcp.export.report import claim_rows, screen
from ndm_tcp.training.checkpoint import MODEL, load_policy
from ndm_tcp.training.checkpoint import save as save_checkpoint
from ndm_tcp.training.model import Policy

from .test_export import KMOD

pytestmark = pytest.mark.usefixtures("few_boxes")


@pytest.fixture(scope="session")
def model() -> model_c.Model:
    """The shipped network."""
    return model_c.from_json(KMOD / "generated" / "ndm_model.json")


# --- bad input, and the report ---------------------------------------------------------------


def onnx_model(path: Path) -> onnx.ModelProto:
    writer.write(Policy((8,)), path, {})
    return onnx.load(path)


def test_a_file_too_large_for_a_network_is_not_even_parsed(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(b"\0" * (limits.LARGEST_FILE + 1))
    with pytest.raises(NdmError, match=r"4194305 bytes, more than the 4194304"):
        writer.read(path)


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        (lambda t: t.dims.__setitem__(0, 1 << 40), r"at most 4096 elements"),
        (lambda t: t.dims.__setitem__(0, -8), r"at most 4096 elements"),
        (lambda t: t.dims.__setitem__(0, 9), r"holds 144 numbers, its shape needs 162"),
        (lambda t: t.ClearField("raw_data"), r"holds 0 numbers"),
        (lambda t: setattr(t, "data_type", TensorProto.DOUBLE), r"holds DOUBLE, expected FLOAT"),
        (lambda t: setattr(t, "data_location", TensorProto.EXTERNAL), r"lies in another file"),
    ],
)
def test_onnx_tensors_no_network_can_have_are_refused(
    damage: Callable[[onnx.TensorProto], object], what: str, tmp_path: Path
) -> None:
    path = tmp_path / "m.onnx"
    model = onnx_model(path)
    damage(next(t for t in model.graph.initializer if t.name == "layer0.weight"))
    path.write_bytes(model.SerializeToString())
    with pytest.raises(NdmError, match=what) as error:
        writer.read(path)
    assert "\n" not in str(error.value)


def test_an_onnx_file_of_many_nodes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    model = onnx_model(path)
    for _ in range(200):
        model.graph.node.append(model.graph.node[0])
    path.write_bytes(model.SerializeToString())
    with pytest.raises(NdmError, match="nodes and 0 functions; at most 128"):
        writer.read(path)


def test_layers_of_wrong_shape_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    model = onnx_model(path)
    bias = next(t for t in model.graph.initializer if t.name == "layer0.bias")
    bias.dims[0] = 7
    bias.raw_data = bias.raw_data[:28]
    path.write_bytes(model.SerializeToString())
    with pytest.raises(NdmError, match=r"'gemm0': Gemm: 'layer0.bias' has shape \[7\], width is 8"):
        writer.read(path)


def test_a_collapsed_policy_is_refused(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(run, folder)
    policy, loaded = load_policy(folder)
    with torch.no_grad():
        policy.layers[-1].weight[0] = 0
    state = {name: value for name, value in policy.state_dict().items()}
    assert set(state) >= set(loaded.tensors)
    save_checkpoint(
        folder / MODEL, replace(loaded, tensors={name: state[name] for name in loaded.tensors})
    )
    with pytest.raises(NdmError, match=r"cwnd_gain varies by 0 over .* collapsed policy; train"):
        export(folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_quantising_one_layer_costs_less_than_all(model: model_c.Model) -> None:
    rng = np.random.default_rng(0)
    trained = [
        real._replace(weight=real.weight + rng.uniform(-0.4, 0.4, real.weight.shape) / 2**15)
        for real in quantize.dequantize(model.layers)
    ]
    layers = quantize.quantize(trained)
    real = golden.inputs() / 4096
    costs = sensitivity(trained, layers, real)
    whole = quantize.real_forward(quantize.dequantize(layers), real)
    total = np.abs(whole - quantize.real_forward(trained, real)).max(axis=0)
    assert len(costs) == len(layers)
    ranges = [o.hi - o.lo for o in c.OUTPUTS]
    assert all(
        0 < x < 1e-3 * span for cost in costs for x, span in zip(cost.largest, ranges, strict=True)
    )
    assert (total <= 1.05 * np.sum([cost.largest for cost in costs], axis=0)).all()
    untouched = sensitivity(quantize.dequantize(layers), layers, real)
    assert all(x == 0 for cost in untouched for x in cost.largest)


@pytest.mark.pictures
def test_the_report_stands_alone(run: Path, tmp_path: Path) -> None:
    report = export(run, tmp_path / "out")
    text = (run / "report.html").read_text()
    ElementTree.fromstring(text.removeprefix("<!DOCTYPE html>\n"))
    assert not re.search(r'(?:src|href)="(?!#)|@import|url\((?!#)', text), "it loads something"
    assert "<svg" in text and report.model in text and str(tmp_path) not in text
    exported = model_c.from_json(tmp_path / "out" / "ndm_model.json")
    assert f"takes {sum(x.weight.size for x in exported.layers)} multiplications" in text
    card = (run / "MODEL_CARD.md").read_text()
    head = yaml.safe_load(card.split("---")[1])
    metrics = {m["name"]: m["value"] for m in head["model-index"][0]["results"][0]["metrics"]}
    assert head["model-index"][0]["name"] == f"ndm_tcp {report.model}"
    assert metrics.keys() == {
        *report.metrics,
        *(f"proved bound on the integers' error of {o.name}" for o in c.OUTPUTS),
    }
    assert len(report.metrics) >= 2
    for p in properties.PROPERTIES:
        assert p.claim in card and p.name in text
        if report.claims[p.name] == "refuted":
            assert all(name in text and name in card for name in p.contained_by)
    for claim in law.CLAIMS:
        for page in (card, text):
            assert (
                claim.name in page
                and claim.statement in html.unescape(page)
                and f"{claim.cases:,}" in page
            )


def test_an_inference_is_timed_beside_others_and_the_report_says_so(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(run, tmp_path / "run")
    report = export(tmp_path / "run", tmp_path / "out", measure=True)
    assert report.cost is not None and 0 < report.cost.integer_ns < report.cost.onnxruntime_ns
    if shutil.which("valgrind"):
        assert report.cost.integer_instructions is not None
        products = sum(
            layer.weight.size
            for layer in model_c.from_json(tmp_path / "out" / "ndm_model.json").layers
        )
        assert products < report.cost.integer_instructions < 20 * products
    card, page = ((tmp_path / "run" / n).read_text() for n in ("MODEL_CARD.md", "report.html"))
    for text in (card, page, screen.screen(report)):
        assert all(row[1] in text and row[0] in text for row in report.cost.rows())
    monkeypatch.setattr(shutil, "which", lambda name: None)
    blind = export(tmp_path / "run", tmp_path / "out", measure=True)
    assert blind.cost is None
    assert "not measured: gcc: not found; run: apt-get install gcc" in screen.screen(blind)
    assert "not measured: gcc" in (tmp_path / "run" / "report.html").read_text()
    partly = replace(report.cost, integer_instructions=None)
    assert "install valgrind" in screen.screen(replace(report, cost=partly))


def test_the_printed_report_fits_a_screen_and_names_every_claim(run: Path, tmp_path: Path) -> None:
    report = export(run, tmp_path / "out")
    text = screen.screen(report)
    assert max(map(len, text.splitlines())) <= 100
    assert all(p.name in text for p in properties.PROPERTIES)
    assert all(claim.name in text for claim in law.CLAIMS)
    assert report.law == {claim.name: "proved" for claim in law.CLAIMS}
    assert set(report.claims.values()) <= {"proved", "refuted", "bounded", "unknown"}
    for layer in report.layers:
        assert f"layer {layer.layer}" in text and f"{layer.largest[0]:.2g}" in text


def test_bounds_are_never_rounded_down() -> None:
    for value in [0.00027054, 0.001, 0.00110869, 9.999e-5, 1.0, 0.1 + 0.2, 3e-300]:
        shown = model_c.upward(value)
        assert value <= shown <= value * 1.011, value
        assert float(f"{shown:.3g}") == shown


@pytest.mark.parametrize("gains", [(-3000, 20_000), (-40_000, 1000), (-65_536, 65_536)])
def test_what_a_round_scales_the_window_by_has_the_probe_in_it(gains: tuple[int, int]) -> None:
    """As the module applies a gain: a network that is not saturated is not bounded by its own."""
    probed = [gain + 12_288 * step for gain in gains for step in (-1, 0, 1)]
    wanted = 2.0 ** (np.clip([min(probed), max(probed)], -65_536, 65_536) / 65_536)
    assert claim_rows.scales(gains) == pytest.approx(tuple(wanted), rel=1e-4)
    assert claim_rows.scales(gains)[1] > 2.0 ** (gains[1] / 65_536) or gains[1] == 65_536
