# SPDX-License-Identifier: GPL-2.0-only
"""A rate that changes beside jitter is found; jitter alone is no change; the rest is a bound."""

from __future__ import annotations

import numpy as np
import pytest

from ndm_tcp.paths import report
from ndm_tcp.paths.estimate import estimate
from ndm_tcp.paths.model import Kind, PathModel
from ndm_tcp.paths.varying import Stretch, joined

from .made import jittered

STEPS = ((0.0, 900.0), (2.0, 450.0), (4.0, 1300.0), (6.0, 700.0))
"""a cellular link"""


def packets_per_s(model: PathModel) -> list[float]:
    """Of each level."""
    bits = (model.mss + model.header_bytes) * 8
    return [level.rate_bps.value / bits for level in model.levels]


@pytest.mark.parametrize("seed", range(1, 4))
def test_steps_are_found_beside_jitter(seed: int) -> None:
    """A flow that keeps a queue shows every level within 5 %, and when it began."""
    made = estimate(jittered(STEPS, 0.008, 160, seed=seed), "made")
    assert made.jitter_us.value > 0
    assert packets_per_s(made) == pytest.approx([pps for _, pps in STEPS], rel=0.05)
    # The first ACK, and what is acknowledged at the new rate, are an RTT late.
    assert [v.from_s for v in made.levels] == pytest.approx([at for at, _ in STEPS], abs=0.25)
    assert {v.rate_bps.kind for v in made.levels} == {Kind.MEASURED}
    for level, (_, pps) in zip(made.levels, STEPS, strict=True):
        bits = (made.mss + made.header_bytes) * 8
        assert level.rate_bps.low < pps * bits < level.rate_bps.high


@pytest.mark.parametrize("jitter_s", [0.004, 0.012, 0.025])
@pytest.mark.parametrize(("window", "saw"), [(40, 250), (90, 400), (160, 0)])
def test_jitter_alone_is_no_step(jitter_s: float, window: int, saw: int) -> None:
    """A link of 900 packets/s holds 54 of them: the windows fill it never, sometimes, always."""
    for seed in range(1, 4):
        made = estimate(jittered(((0.0, 900.0),), jitter_s, window, seed=seed, saw=saw), "made")
        assert len(made.levels) == 1
        assert not made.rivals


def test_a_link_that_is_not_filled_is_a_bound() -> None:
    """70 packets fill the link at 450 packets/s, and not at 2,500: it carries 150 in an RTT."""
    made = estimate(jittered(((0.0, 450.0), (3.0, 2500.0)), 0.008, 70), "made")
    assert [v.rate_bps.kind for v in made.levels] == [Kind.MEASURED, Kind.AT_LEAST]
    slow, fast = packets_per_s(made)
    assert slow == pytest.approx(450, rel=0.05)
    assert 1.5 * slow < fast < 2500
    assert any(note.startswith("At times the flow did not fill") for note in made.notes)
    assert "at least" in dict(report.facts(made))["rate"]


def test_a_flow_that_never_fills_a_changing_link_says_so() -> None:
    made = estimate(jittered(STEPS, 0.008, 18, saw=150), "made")
    assert [v.rate_bps.kind for v in made.levels] == [Kind.AT_LEAST]
    assert packets_per_s(made)[0] < 450
    assert any(note.startswith("The flow never filled") for note in made.notes)


def test_a_flow_that_seldom_fills_a_link_says_so() -> None:
    """A window that grows to 85 packets fills the link at its end, one of 160 always."""

    def told(window: int, saw: int) -> bool:
        made = estimate(jittered(STEPS[:1], 0.008, window, saw=saw), "made")
        assert made.measured == 1
        return any(note.startswith("The flow seldom filled") for note in made.notes)

    assert told(85, 6000)
    assert not told(160, 0)


def test_what_was_not_filled_goes_on_as_before_unless_it_was_faster() -> None:
    def one(from_s: float, pps: float, measured: bool) -> Stretch:
        return Stretch(from_s, from_s + 2, pps, measured, 0.01)

    first, slow = one(0, 1000, True), one(4, 500, True)
    found = joined([first, one(2, 300, False), slow])
    assert [(v.from_s, v.pps) for v in found] == [(0, 1000), (4, 500)]
    found = joined([first, one(2, 1500, False), slow])
    assert [(v.pps, v.measured) for v in found] == [(1000, True), (1500, False), (500, True)]
    found = joined([one(0, 700, False), one(2, 1000, True)])
    assert [(v.from_s, v.pps, v.measured) for v in found] == [(0, 1000, True)]
    found = joined([first, one(2, 1060, True), slow])
    assert np.round([v.pps for v in found]).tolist() == [1030, 500]
