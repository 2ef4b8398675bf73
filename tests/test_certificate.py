# SPDX-License-Identifier: GPL-2.0-only
"""The certificate: true, tight, the same every time, and refused when anything is touched."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ndm_tcp import contract as c
from ndm_tcp import core, fixedpoint, model_json
from ndm_tcp.cli import run_command
from ndm_tcp.datasets.readers import sources
from ndm_tcp.errors import NdmError
from ndm_tcp.export.integers import generated, model_c, quantize
from ndm_tcp.export.proof import certificate, claims, enclosure, properties
from ndm_tcp.export.proof.relaxation import Bounder
from ndm_tcp.fixedpoint import Layer
from ndm_tcp.training.model import Policy

GENERATED = generated.GENERATED
WIDTH = model_c.from_json(GENERATED / "ndm_model.json").layers[0].n_out
"""of the shipped network's first layer"""
Data = dict[str, Any]


@pytest.fixture(scope="module")
def layers() -> list[Layer]:
    """The shipped network."""
    return model_c.from_json(GENERATED / "ndm_model.json").layers


def network(seed: int, scale: float, hidden: tuple[int, ...]) -> list[Layer]:
    torch.manual_seed(seed)
    pairs = Policy(hidden).linear_layers()
    return quantize.quantize([((w * scale).numpy(), (b * scale).numpy()) for w, b in pairs])


def box_points(count: int, seed: int) -> fixedpoint.IntArray:
    """[2 * count, dense] random points and random corners."""
    rng = np.random.default_rng(seed)
    lo, hi = (np.array(side, dtype=np.int64) for side in zip(*enclosure.box(), strict=True))
    points = rng.integers(lo, hi, size=(count, c.N_DENSE), endpoint=True)
    return np.concatenate([points, np.where(rng.random(points.shape) < 0.5, lo, hi)])


def errors_are_within(layers: list[Layer]) -> None:
    """Holds the certified error of each output against points of the box."""
    x = box_points(20_000, 5)
    pre = fixedpoint.forward(layers, x).pre[-1] / 2.0**c.Q_PRE
    h = x / 2.0**c.Q_INPUT
    for number, real in enumerate(quantize.dequantize(layers)):
        h = h @ real.weight.T + real.bias
        h = real.activate(h) if number + 1 < len(layers) else h
    for output, (low, high) in enumerate(enclosure.output_errors(layers, enclosure.rows(layers))):
        error = (pre - h)[:, output]
        assert low / enclosure.UNIT <= error.min() and error.max() <= high / enclosure.UNIT
        assert max(-error.min(), error.max()) > max(-low, high) / enclosure.UNIT / 60


def bounds_sub_boxes(
    bounder: Bounder, layers: list[Layer], output: int, sign: int, rng: np.random.Generator
) -> None:
    """Holds its upper bounds of sign * output against points of 48 sub-boxes, corners too."""
    box = np.array(enclosure.box())
    lo = rng.integers(box[:, 0], box[:, 1], endpoint=True, size=(48, c.N_DENSE))
    width = (box[:, 1] - box[:, 0]) >> rng.integers(0, 12, size=(48, 1))
    hi = np.minimum(lo + rng.integers(0, width + 1), box[:, 1])
    upper, _, _ = bounder(lo, hi)
    for i in range(len(lo)):
        x = rng.integers(lo[i], hi[i], endpoint=True, size=(200, c.N_DENSE))
        x[:100] = np.where(rng.random((100, c.N_DENSE)) < 0.5, lo[i], hi[i])
        seen = (fixedpoint.forward(layers, x).pre[-1][:, output] * sign).max()
        assert seen <= upper[i]


# --- the pieces ------------------------------------------------------------------------------


def test_tanh_is_enclosed_to_a_hundred_bits() -> None:
    mpmath = pytest.importorskip("mpmath")

    mpmath.mp.prec = 400
    for i, (low, high) in enumerate(enclosure.tanh_nodes()):
        exact = mpmath.tanh(mpmath.mpf(i) * 8 / enclosure.STEPS) * mpmath.mpf(2) ** enclosure.FINE
        assert low <= exact <= high and high - low < 1 << 20, i


def test_table_errors_enclose_every_input_and_are_tight() -> None:
    x = np.arange(enclosure.LIMIT, dtype=np.int64)
    error = (fixedpoint.tanh(x) / 2.0**c.Q_ACT - np.tanh(x / 2.0**c.Q_PRE)).reshape(
        enclosure.STEPS, -1
    )
    bounds = np.array(enclosure.segment_errors()[:-1]) / enclosure.UNIT
    slack = 2.0**-50
    assert (bounds[:, 0] <= error.min(axis=1) + slack).all()
    assert (bounds[:, 1] >= error.max(axis=1) - slack).all()
    lsb = 2.0**-c.Q_ACT
    assert (error.min(axis=1) - bounds[:, 0]).max() < 0.05 * lsb
    assert (bounds[:, 1] - error.max(axis=1)).max() < 0.05 * lsb


@pytest.mark.parametrize(("low", "high"), [(-3.0, 0.5), (0.1, 0.2), (-9.0, -7.9), (8.5, 9.0)])
def test_slopes_are_enclosed(low: float, high: float) -> None:
    unit = enclosure.UNIT
    found = enclosure.slope((math.floor(low * unit), math.ceil(high * unit)))
    slopes = 1 - np.tanh(np.linspace(low, high, 1001)) ** 2
    assert found[0] / unit <= slopes.min() + 1e-15 and slopes.max() <= found[1] / unit + 1e-15
    assert found[1] / unit - slopes.max() < 0.02 and slopes.min() - found[0] / unit < 0.02


@pytest.mark.parametrize("scale", [0.3, 1.0, 5.0])
@pytest.mark.parametrize("hidden", [(16, 16), (5, 64, 3), (1,)])
def test_the_error_bound_holds_and_is_not_loose(scale: float, hidden: tuple[int, ...]) -> None:
    errors_are_within(network(3, scale, hidden))


def test_ranges_hold_for_every_row(layers: list[Layer]) -> None:
    proof = certificate.prove(layers)
    trace = fixedpoint.forward(layers, box_points(30_000, 6))
    for number, rows in enumerate(proof.rows):
        for r, row in enumerate(rows):
            values = trace.accumulators[number][:, r]
            assert row.accumulator[0] <= values.min() and values.max() <= row.accumulator[1]
            low, high = proof.attained[number][r]
            if number == 0:
                assert (low.value, high.value) == row.accumulator, "attained exactly"
            elif number + 1 < len(layers):
                assert low.value <= values.min() and values.max() <= high.value, "search is weak"


def test_an_accumulator_outside_s32_is_refused(layers: list[Layer]) -> None:
    bad = Layer(layers[0].weight, layers[0].bias.copy(), layers[0].shift)
    bad.bias[3] = 2**31 - 1
    with pytest.raises(NdmError, match="layer 0, row 3: accumulator up to .* leaves s32"):
        certificate.prove([bad, *layers[1:]])


@pytest.mark.parametrize("scale", [0.5, 2.0, 20.0])
@pytest.mark.parametrize("hidden", [(16, 16), (8, 8, 8), (40,)])
def test_sub_boxes_are_bounded_soundly(scale: float, hidden: tuple[int, ...]) -> None:
    layers = network(11, scale, hidden)
    rng = np.random.default_rng(2)
    for output, sign in ((0, 1), (0, -1), (1, 1)):
        bounder = Bounder(layers, output, sign)
        assert bounder.linear or scale > 10
        bounds_sub_boxes(bounder, layers, output, sign, rng)


def test_sub_boxes_of_the_shipped_network_are_bounded_tightly(layers: list[Layer]) -> None:
    """Intervals alone are seven times as wide as what is sampled."""
    rng, box = np.random.default_rng(0), np.array(enclosure.box())
    width = (box[:, 1] - box[:, 0]) // 64
    lo = rng.integers(box[:, 0], box[:, 1] - width + 1, size=(40, c.N_DENSE))
    hi = lo + width
    for output in range(c.N_OUTPUTS):
        above, below = (Bounder(layers, output, sign) for sign in (1, -1))
        assert above.linear and below.linear
        found = above(lo, hi)[0] + below(lo, hi)[0]
        corners = np.where(rng.random((2000, 40, c.N_DENSE)) < 0.5, lo, hi).reshape(-1, c.N_DENSE)
        seen = fixedpoint.forward(layers, corners).pre[-1][:, output].reshape(2000, 40)
        assert np.median(found / np.ptp(seen, axis=0)) < 2


@pytest.mark.parametrize("hidden", [(16, 16), (8, 8, 8), (64,), (40, 2)])
def test_nothing_overflows_where_the_linear_bound_is_used(
    hidden: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same in Python's integers, for the largest weights that pass as safe."""
    made = (network(1, float(scale), hidden) for scale in np.geomspace(1, 200, 12))
    bounders = [b for b in (Bounder(layers, 0, 1) for layers in made) if b.linear]
    assert len(bounders) > 3
    rng, box = np.random.default_rng(3), np.array(enclosure.box())
    lo = rng.integers(box[:, 0], box[:, 1], size=(4, c.N_DENSE))
    lo[0], hi = box[:, 0], np.minimum(lo + 500, box[:, 1])
    hi[0] = box[:, 1]
    for bounder in bounders:
        once, _, _ = bounder(lo, hi)
        plain = bounder._upper

        def exact(
            layer: int, rows: Any, relaxed: Any, ends: Any, plain: Callable[..., Any] = plain
        ) -> Any:
            big = [[[part.astype(object) for part in line] for line in pair] for pair in relaxed]
            wide = tuple(end.astype(object) for end in ends)
            return tuple(a.astype(np.int64) for a in plain(layer, rows.astype(object), big, wide))

        monkeypatch.setattr(bounder, "interval", Bounder(bounder.layers, 0, 1).interval)
        for name in ("weights", "bias_low", "bias_high"):
            wide = [array.astype(object) for array in getattr(bounder, name)]
            monkeypatch.setattr(bounder, name, wide)
        monkeypatch.setattr(bounder, "_upper", exact)
        again, _, _ = bounder(lo, hi)
        assert once.tolist() == again.tolist()


def test_networks_too_large_for_the_linear_bound_fall_back_to_intervals() -> None:
    layers = network(1, 60.0, (64, 64))
    bounder = Bounder(layers, 0, 1)
    box = np.array(enclosure.box())
    upper, _, _ = bounder(box[None, :, 0], box[None, :, 1])
    seen = fixedpoint.forward(layers, box_points(5000, 1)).pre[-1][:, 0].max()
    assert seen <= upper[0]


# --- properties ------------------------------------------------------------------------------


def constant(value: int) -> list[Layer]:
    """A network whose cwnd_gain is nearly `value` in Q16 wherever it looks."""
    weight = np.zeros((2, c.N_DENSE), dtype=np.int16)
    weight[0, 2] = 1
    bias = np.array([value << 11, 0], dtype=np.int32)
    return [Layer(weight, bias, np.array([11, 11], dtype=np.uint8))]


@pytest.mark.parametrize(
    ("gain", "wanted"), [(-5000, "proved"), (5000, "refuted"), (-10, "unknown")]
)
def test_verdicts(gain: int, wanted: str) -> None:
    """-10: true, but closer to the limit than the margin that bounds carry."""
    prop = next(p for p in properties.PROPERTIES if p.name == "no_growth_behind_its_own_queue")
    layers = constant(gain)
    x = [low for low, _ in prop.box()]
    value = int(fixedpoint.forward(layers, np.array([x])).pre[-1][0, 0])
    verdict = properties.decide(layers, prop, (value, x), boxes=64)
    assert verdict.verdict == wanted
    found = fixedpoint.forward(layers, np.array([verdict.witness])).pre[-1][0, 0]
    assert found == verdict.attained <= verdict.bound


def test_branch_and_bound_closes_in() -> None:
    prop, layers = properties.PROPERTIES[0], network(2, 1.0, (16, 16))
    seen = (-(2**31), [low for low, _ in prop.box()])
    bounds = [properties.decide(layers, prop, seen, boxes).bound for boxes in (1, 64, 512)]
    assert bounds[0] > bounds[1] > bounds[2]


def test_an_output_seen_beyond_its_clamp_needs_no_tighter_bound() -> None:
    prop, layers = properties.PROPERTIES[0], constant(70_000)
    verdict = properties.decide(layers, prop, (-(2**31), [low for low, _ in prop.box()]))
    assert verdict.verdict == "bounded" and verdict.tree == [-1] and verdict.attained > 65536


def test_every_round_with_a_loss_has_the_plasticity_that_properties_hold() -> None:
    """What `LOSSY` and the docs say of rounds, on recorded ones."""
    names, rounds = [i.name for i in c.DENSE], []
    for folder in ("reno-03-lossy", "cubic-03-lossy", "bbr-03-lossy"):
        for flow in sources.read(generated.ROOT / "datasets" / "traces" / folder).flows:
            replayed = core.replay(flow.acks)
            rounds.append(replayed.dense()[replayed.valid])
    x = np.concatenate(rounds)
    column = {name: x[:, number] for number, name in enumerate(names)}
    lossy = column["loss_rate"] > 0
    assert lossy.sum() > 100 and (column["plasticity"][lossy] == 4096).all()
    assert (column["plasticity"][~lossy] < 4096).any()
    assert (column["plasticity_mean"][lossy] >= 4096 // 32).all()
    assert (column["loss_rate_mean"] >= column["loss_rate"] // 32 - 1).all()
    assert (column["loss_rate_mean"] <= column["plasticity_mean"]).all()
    assert column["plasticity_mean"][~lossy].min() < 4096 // 32
    assert set(np.unique(column["slow_start"])) == {0, 4096} and column["loss_rate"].max() < 4096


def test_claims_are_counted_on_recorded_rounds(
    dataset: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    prop = next(p for p in properties.PROPERTIES if p.name == "no_growth_behind_its_own_queue")
    low, high = np.array(prop.box(), dtype=np.int64).T
    inside = np.stack([low, high, (low + high) // 2])
    x = np.concatenate([inside, inside + np.eye(1, c.N_DENSE, 1, dtype=np.int64) * 4000])
    lines = list(claims.table(constant(5000), x))
    row = next(line for line in lines if line.startswith(prop.name)).split()
    assert lines[0] == "6 rounds" and row[1:4] == ["3", "3", "0"]
    row = next(ln for ln in claims.table(constant(-5000), x) if ln.startswith(prop.name)).split()
    assert row[1:4] == ["3", "0", "0"] and float(row[5]) == -0.076
    idle = properties.Property(
        "starting", "in slow start too", 0, -1, 0, {"rtt_ratio": (1, 1), "loss_rate": (0, 0)}
    )
    monkeypatch.setattr(properties, "PROPERTIES", (*properties.PROPERTIES, idle))
    ends = np.array(idle.box(), dtype=np.int64).T  # slow start in the second, not in the first
    lines = list(claims.table(constant(-5000), ends))
    row = next(line for line in lines if line.startswith(idle.name)).split()
    assert row[1:4] == ["2", "2", "1"]
    assert run_command(["claims", str(dataset)]) == 0
    assert capsys.readouterr().out.count("\n") == len(properties.PROPERTIES)
    assert run_command(["claims", str(dataset), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["rounds"] > 0 and len(said["claims"]) == len(properties.PROPERTIES) - 2
    assert all((row["inside"] == 0) == (row["median"] is None) for row in said["claims"])
    assert said["model"] == model_json.number()
    other = model_c.Model(constant(-5000), {})
    (tmp_path / "other.json").write_text(model_json.to_json(other))
    words = ["claims", str(dataset), "--model", str(tmp_path / "other.json")]
    assert run_command(words) == 0
    assert capsys.readouterr().out.startswith(f"model {other.hash()}, ")
    assert run_command(["claims", str(tmp_path / "none")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_the_share_that_a_loss_takes_is_the_cs() -> None:
    logits = np.array([-524288, -65537, -1, 0, 1, 2, 65535, 524288], dtype=np.int32)
    left = core.cut(np.full(len(logits), 1 << 17, dtype=np.uint32), logits)
    assert [certificate.cut_share(int(v)) for v in logits] == ((1 << 17) - left).tolist()
