# SPDX-License-Identifier: GPL-2.0-only
"""Queues that drop early, by when they drop and how long they were."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from ndm_tcp.datasets.readers import run_folder
from ndm_tcp.datasets.rounds.flow import FlowRecords
from ndm_tcp.paths import aqm, losses
from ndm_tcp.paths.estimate import estimate
from ndm_tcp.paths.observed import Floats, Observed, observe

from ..conftest import TRACES


@pytest.fixture(scope="module")
def clean() -> FlowRecords:
    (flow,), _ = run_folder.read(TRACES / "lab" / "train-01-clean--cubic--1")
    return flow


def test_codel_is_no_full_queue(clean: FlowRecords) -> None:
    """Drops of a full queue, then at even times far below its longest."""
    o = observe(clean)
    queue = np.full(len(o.at), 20.0)
    queue[::50] = 100.0
    lost = np.zeros_like(o.lost)
    lost[525::150] = 1
    early = replace(o, lost=lost)
    assert aqm.drops_early(early, np.full(len(o.at), 0.02), queue)
    assert not aqm.drops_early(early, np.full(len(o.at), 0.002), queue)
    assert not aqm.drops_early(early, np.full(len(o.at), 0.02), np.full(len(o.at), 20.0))
    assert not aqm.drops_early(o, o.rtt - o.min_rtt, (o.rtt - o.min_rtt) * 700)


@pytest.mark.parametrize(
    ("share", "losses_", "early"),
    [
        (np.tile([0.4, 1.0, 1.0], 20), 60, True),
        (np.tile([0.4, 1.0, 1.0], 20), 24, False),
        (np.random.default_rng(1).exponential(1, 60), 60, False),
    ],
    ids=["uneven, never soon", "too few to show it", "random"],
)
def test_codel_waits_before_the_next_drop(
    clean: FlowRecords, share: Floats, losses_: int, early: bool
) -> None:
    """A flow of BBR makes the times between CoDel's drops uneven, but none is short."""
    o = observe(clean)
    at = 500 + np.cumsum(1 + 15 * share[:losses_]).astype(int)
    queue = np.full(len(o.at), 20.0)
    queue[::50] = 100.0
    lost = np.zeros_like(o.lost)
    lost[at] = 1
    t: Floats = 0.01 * np.arange(len(o.t), dtype=np.float64)
    steady = replace(o, t=t, at=t[: len(o.at)], lost=lost)
    assert bool(aqm.drops_early(steady, np.full(len(o.at), 0.02), queue)) is early


def _dropping(o: Observed, at_s: Floats) -> Observed:
    """The flow with one loss at each of these times, in steps of its ACKs."""
    t = np.linspace(0, float(at_s[-1]) + 1, len(o.t))
    lost = np.zeros_like(o.lost)
    lost[np.searchsorted(t, at_s)] = 1
    return replace(o, t=t, at=t[: len(o.at)], lost=lost)


def _linux_gaps(again: bool) -> Iterator[float]:
    """As codel_Newton_step() makes them, from count 1 on; and of a second row, which goes on."""
    factor, row = 1.0, 12
    for count in range(1, row):
        yield 0.1 * factor
        factor *= 1.5 - 0.5 * (count + 1) * factor**2
    if again:
        yield 0.3
        for count in range(row - 1, 2 * row):  # what the first row counted
            factor *= 1.5 - 0.5 * count * factor**2
            yield 0.1 * factor


ROWS = {
    "fq_codel": [*_linux_gaps(True), 0.8, 0.1, 0.05, 0.3, 0.1, 0.05],
    "cake": [*(0.1 / np.sqrt(np.arange(2, 10))), 0.9, 0.0707, 0.0577, 0.05],
}


@pytest.mark.parametrize("late_s", [0.0, 1e-3])
@pytest.mark.parametrize("name", ROWS)
def test_drops_that_follow_a_law_name_their_queue(
    clean: FlowRecords, name: str, late_s: float
) -> None:
    """However few they are, and whatever the queue's length."""
    late = np.random.default_rng(2).uniform(-late_s, late_s, len(ROWS[name]) + 1)
    o = _dropping(observe(clean), 1 + np.cumsum([0.0, *ROWS[name]]) + late)
    delayed, full = np.full(len(o.at), 0.02), np.full(len(o.at), 20.0)
    assert aqm.drops_early(o, delayed, full) == name
    few = replace(o, lost=o.lost * (np.cumsum(o.lost) <= 6))
    assert aqm.drops_early(few, delayed, full) == name
    assert not aqm.drops_early(o, delayed / 10, full)


@pytest.mark.parametrize(
    "gaps",
    [
        np.full(40, 0.05),
        np.random.default_rng(3).exponential(0.05, 400),
        np.random.default_rng(4).uniform(0.03, 0.1, 400),
        np.tile([0.01, 0.01, 0.5], 20),
    ],
    ids=["even", "random", "never soon", "bursts"],
)
def test_other_losses_follow_no_law(clean: FlowRecords, gaps: Floats) -> None:
    o = _dropping(observe(clean), 1 + np.cumsum(gaps))
    assert not aqm.drops_early(o, np.full(len(o.at), 0.02), np.full(len(o.at), 20.0))


def test_most_drops_of_rows_follow_the_law(clean: FlowRecords) -> None:
    """One that was noticed late does not end a row; where a third is unlawful, none is."""
    o, rows = observe(clean), np.array([*_linux_gaps(False), 0.4] * 3)
    delayed, full = np.full(len(o.at), 0.02), np.full(len(o.at), 20.0)
    for late, found in (([6], "fq_codel"), ([2, 6, 15, 19, 27, 31], "")):
        gaps = rows.copy()
        gaps[late] += 0.012
        gaps[np.array(late) + 1] -= 0.012
        at = 1 + np.cumsum([0.0, *gaps])
        assert aqm.drops_early(_dropping(o, at), delayed, full) == found


def test_on_slow_links_losses_say_nothing_of_a_law(clean: FlowRecords) -> None:
    """A packet takes as long as the gaps of a law differ."""
    gaps = np.random.default_rng(5).uniform(0.04, 0.09, 40)
    o = _dropping(observe(clean), 1 + np.cumsum(gaps))
    slow = replace(o, delivered=o.delivered // 40)
    assert slow.rough_rate < 60
    assert not aqm.drops_early(slow, np.full(len(o.at), 0.02), np.full(len(o.at), 20.0))


def test_a_changing_rate_makes_queues_seem_longer(clean: FlowRecords) -> None:
    o = _dropping(observe(clean), 1 + 0.3 * np.arange(20))
    delayed, queue = np.full(len(o.at), 0.02), np.full(len(o.at), 20.0)
    queue[:60] = 100.0
    assert aqm.drops_early(o, delayed, queue) == "fq_codel"
    assert not aqm.drops_early(o, delayed, queue, steady=False)


def _longer(o: Observed, at_losses: float, excess_s: Floats) -> bool:
    """With a queue of 40 packets that loses them when it has so many."""
    number = np.flatnonzero(o.lost)
    queue = np.full(len(o.at), 5.0)
    queue[:60] = 40.0
    for k in number:
        queue[k - 3 : k + 1] = at_losses
    found = losses.Losses(
        *(at_losses, 40.0, True, 0.0, 0, 0, None, 0.01), np.full(len(number), at_losses)
    )
    return aqm.was_longer(o, excess_s, queue, found)


def test_a_queue_that_was_longer_than_full_drops_early(clean: FlowRecords) -> None:
    """Five drops of CUBIC's at even lengths, after a slow start that filled more."""
    o = _dropping(observe(clean), np.array([2.0, 4, 6, 8, 9]))
    excess = np.full(len(o.at), 0.02)
    assert _longer(o, 20.0, excess)
    assert not _longer(o, 38.0, excess)
    assert not _longer(o, 20.0, excess / 10)


@pytest.mark.parametrize(
    ("name", "early"),
    [
        ("train-01-clean--cubic--1", True),
        ("train-10-step--cubic--1", False),
        ("train-08-jitter--cubic--1", False),
        ("train-11-compete--bbr--1", False),
    ],
)
def test_only_a_lone_flow_at_a_steady_rate_shows_a_longer_queue(
    name: str, early: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps, jitter and rivals make queues seem longer than they were."""
    monkeypatch.setattr(aqm, "was_longer", lambda *_: True)
    flow = run_folder.read(TRACES / "lab" / name)[0][0]
    assert (estimate(flow, name).qdisc == "fq_codel") is early


def test_random_losses_also_come_below_the_target(clean: FlowRecords) -> None:
    """Of 60 random losses some come in the time without a queue: one is enough."""
    o = _dropping(observe(clean), np.linspace(2, 9, 60))
    excess = np.full(len(o.at), 0.001)
    for k in np.flatnonzero(o.lost):
        excess[k - 3 : k + 1] = 0.02
    queue = 1000 * excess
    queue[:60] = 60.0
    none = losses.Losses(20.0, 60.0, False, 0.01, 60, 2000, None, 0.01, np.zeros(0))
    assert aqm.was_longer(o, excess, queue, none)
    stray = excess.copy()
    stray[np.flatnonzero(o.lost)[3] - 3 :][:4] = 0.001
    assert not aqm.was_longer(o, stray, queue, none)
    assert not aqm.was_longer(o, excess, 1000 * excess, none)  # never longer
    assert not aqm.was_longer(o, np.full(len(o.at), 0.02), queue, none)
