# SPDX-License-Identifier: GPL-2.0-only
"""Quantisation-aware fine-tuning computes the C's integers, and is kept only where it helps."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from ndm_tcp import contract as c
from ndm_tcp import core
from ndm_tcp.errors import NdmError
from ndm_tcp.export.chain import export
from ndm_tcp.export.integers import golden, model_c, qat, quantize
from ndm_tcp.export.integers.quantize import Dense
from ndm_tcp.training.model import Policy


def network(seed: int, hidden: tuple[int, ...], scale: float) -> list[Dense]:
    torch.manual_seed(seed)
    pairs = Policy(hidden).linear_layers()
    return [Dense(w.double().numpy() * scale, b.double().numpy() * scale) for w, b in pairs]


@pytest.mark.parametrize("hidden", [(16, 16), (5, 64, 3), (1,)])
@pytest.mark.parametrize("scale", [0.3, 3.0, 20.0])
def test_its_forward_is_the_c_bit_for_bit(hidden: tuple[int, ...], scale: float) -> None:
    trained = network(3, hidden, scale)
    layers = quantize.quantize(trained)
    x = golden.inputs()
    _, pre = core.infer(layers, x)
    quantised = qat.Quantised(layers, trained)
    with torch.no_grad():
        found = quantised(torch.from_numpy(x.astype(np.float64))).numpy()
    np.testing.assert_array_equal(found, pre[:, -c.N_OUTPUTS :])
    for ours, theirs in zip(quantised.layers(), layers, strict=True):
        np.testing.assert_array_equal(ours.weight, theirs.weight)
        np.testing.assert_array_equal(ours.bias, theirs.bias)
        np.testing.assert_array_equal(ours.shift, theirs.shift)


def test_gradients_pass_the_roundings() -> None:
    """As those of the real network, to within what rounding changes."""
    trained = network(1, (8,), 1.0)
    quantised = qat.Quantised(quantize.quantize(trained), trained)
    x = torch.from_numpy(golden.inputs()[:500].astype(np.float64))
    (quantised(x) / 65536).sum().backward()  # type: ignore[no-untyped-call]
    weights = [torch.tensor(real.weight, requires_grad=True) for real in trained]
    h = torch.tanh(x / 4096 @ weights[0].T + torch.from_numpy(trained[0].bias))
    (h @ weights[1].T + torch.from_numpy(trained[1].bias)).sum().backward()  # type: ignore[no-untyped-call]
    for number, real in enumerate(weights):
        scale = quantised.weights[number] / torch.from_numpy(trained[number].weight)
        found = quantised.weights[number].grad
        assert found is not None and real.grad is not None
        torch.testing.assert_close(found * scale, real.grad, rtol=0.01, atol=0.01)


def coarse() -> list[Dense]:
    """One large weight in every row, so that the others are rounded coarsely."""
    trained = network(6, (16, 16), 0.5)
    for real in trained:
        real.weight[:, 0] = 12.0
    return trained


def test_it_helps_where_rounding_hurts_and_says_how_much() -> None:
    """On a network chosen for it: of eight coarse ones half gain, the others keep theirs."""
    trained = coarse()
    layers = quantize.quantize(trained)
    x = np.random.default_rng(0).permutation(golden.inputs())
    choice = qat.fine_tune(layers, trained, x[::2], x[1::2], steps=150)
    assert choice.tuned and choice.after.score() < 0.9 * choice.before.score()
    assert choice.after == qat.measure(choice.layers, trained, x[1::2])
    assert choice.text().endswith("kept") and f"{choice.after.mean[0]:.3g}" in choice.text()
    again = qat.fine_tune(layers, trained, x[::2], x[1::2], steps=150)
    assert model_c.Model(again.layers, {}).hash() == model_c.Model(choice.layers, {}).hash()


def test_what_is_not_better_is_not_kept() -> None:
    """Weights that are integers already: nothing to win."""
    layers = quantize.quantize(network(2, (8,), 1.0))
    x = golden.inputs()
    choice = qat.fine_tune(layers, quantize.dequantize(layers), x[:100], x[100:], steps=0)
    assert not choice.tuned and choice.layers is layers and "not kept" in choice.text()


def test_what_is_better_on_its_own_inputs_alone_is_not_kept() -> None:
    real = network(3, (8,), 3.0)
    layers, x = quantize.quantize(real), golden.inputs()
    choice = qat.fine_tune(layers, real, x[:4].repeat(16, 0), x[1000:3000], steps=200)
    assert choice.after.score() > choice.before.score(), "it was tuned, to four inputs"
    assert not choice.tuned and choice.layers is layers


@pytest.mark.usefixtures("few_boxes")
def test_export_takes_the_better(run: Path, dataset: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    plain = export(tmp_path / "run", tmp_path / "plain")
    assert plain.fine_tuning is None
    tuned = export(tmp_path / "run", tmp_path / "tuned", dataset)
    header = (tmp_path / "tuned" / "ndm_model.h").read_text()
    kept = str(tuned.fine_tuning).endswith("; kept")
    assert ("fine-tuned in integers" in header) == kept == (tuned.model != plain.model)
    assert str(tuned.fine_tuning) in (tmp_path / "run" / "MODEL_CARD.md").read_text()
    with pytest.raises(NdmError, match="no dataset here"):
        export(tmp_path / "run", tmp_path / "no", tmp_path / "nowhere")
    assert not (tmp_path / "no").exists()
