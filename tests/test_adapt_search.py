# SPDX-License-Identifier: GPL-2.0-only
"""What `ndm adapt` teaches, chosen by the loop."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from ndm_tcp.adapt import recordings, steps
from ndm_tcp.lab.guest import uml_build
from ndm_tcp.lab.guest.workers import ONE
from ndm_tcp.paths import difference
from ndm_tcp.paths.model import PathModel
from ndm_tcp.paths.predict import Entrant

from .paths.made import model, prediction

MODELS = [model("a"), model("b")]


@pytest.mark.parametrize("targets", [True, False])
@pytest.mark.parametrize("best", [-0.32, -0.16, 0.0, 0.08, 0.24])
def test_the_loop_chooses_what_to_teach(
    targets: bool, best: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Target windows only if they win; each way as long as the score grows, `MOST_OFFSETS` far."""
    tried: list[str] = []

    def predicted(
        models: list[PathModel], entrants: dict[str, Entrant], *_: object, seconds: object
    ) -> difference.Of:
        assert seconds is recordings.seconds  # as long as what trains on these models
        tried.extend(entrants)
        found: difference.Of = {one.name: {} for one in models}
        for name in entrants:
            of_targets = name.startswith("targets")
            goodput = 10 * math.exp(-abs(float(name[-5:]) - best)) * (1.01 if of_targets else 1.0)
            if of_targets and not targets:
                goodput /= 1.1
            for of in found.values():
                of[name] = prediction(goodput)
        return found

    monkeypatch.setattr("ndm_tcp.paths.predict.predict", predicted)
    monkeypatch.setattr(steps, "_tried", lambda kmod, offset, to: to)
    setting = steps.Steps(tmp_path, (), 1, 1, ONE)
    found = steps.search(setting, MODELS, uml_build.KMOD)
    assert found == (targets, pytest.approx(best))
    assert len(tried) == len(set(tried)) <= 3 + steps.MOST_OFFSETS


@pytest.mark.parametrize(
    ("gains", "draws", "wins"),
    [
        ([0.3, -0.28, 0.01] + [0.05] * 9, 12, True),  # unclear in three and six, but not worse
        ([0.3, -0.3, 0.0] + [-0.1] * 9, 12, False),
        ([0.1, 0.11, 0.12], 3, True),
        ([-0.1, -0.11, -0.12], 3, False),
    ],
)
def test_draws_are_doubled_until_it_is_clear_what_to_teach(
    gains: list[float], draws: int, wins: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of three draws a gain of 0.065 looked like -0.002, and captures taught nothing."""
    ran: list[Sequence[int]] = []

    def predicted(
        models: list[PathModel],
        entrants: dict[str, Entrant],
        _: Path,
        draws: range,
        *__: object,
        seconds: object,
    ) -> difference.Of:
        assert seconds is recordings.seconds
        ran.append(draws)
        of = {
            name: prediction(*(math.exp(gains[n] * name.startswith("targets")) for n in draws))
            for name in entrants
        }
        return {one.name: of for one in models}

    monkeypatch.setattr("ndm_tcp.paths.predict.predict", predicted)
    monkeypatch.setattr(steps, "_tried", lambda kmod, offset, to: to)
    setting = steps.Steps(tmp_path, (), 3, 1, ONE)
    targets, _ = steps.search(setting, MODELS, uml_build.KMOD)
    assert targets is wins and len(ran[-1]) == draws
    assert max(ran[-1]) < steps.JUDGED
