# SPDX-License-Identifier: GPL-2.0-only
"""Short paths with jitter, as Wi-Fi has them: RTTs of a few ms, receivers that read every 3 ms."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ndm_tcp.datasets.rounds.flow import FlowRecords
from ndm_tcp.lab.guest import suite
from ndm_tcp.lab.paths.scenario import Scenario, parse
from ndm_tcp.paths import assemble, label
from ndm_tcp.paths import model as models
from ndm_tcp.paths.estimate import estimate
from ndm_tcp.paths.model import Kind

from ..kmod.lab import need_simulator
from ..test_simulated import recorded
from .known import errors, of_lab
from .made import jittered

Flows = list[tuple[Scenario, FlowRecords, models.PathModel]]
READ_US = 3000
NEAR = [path for path in suite.load_suite("validation-near") if path.link and not path.link.loss]


@pytest.fixture(scope="module", autouse=True)
def _simulator() -> None:
    need_simulator()


@pytest.fixture(scope="module")
def flows(tmp_path_factory: pytest.TempPathFactory) -> Flows:
    """BBR's flows: it fills a path without a queue, as few captures of CUBIC do."""
    folder = tmp_path_factory.mktemp("near")
    made = [(path, *recorded(path, "bbr", folder)) for path in NEAR]
    return [(path, flow, estimate(flow, "x")) for path, flow in made]


def test_the_receivers_timer_is_seen_on_paths_shorter_than_two_of_it(flows: Flows) -> None:
    held = [model.ack_hold_us for _, _, model in flows]
    assert sum(path.link is not None and path.link.rtt_us < 2 * READ_US for path, *_ in flows) > 5
    assert all(READ_US <= one.value < 1.05 * READ_US for one in held), held


def test_labels_are_near_those_of_the_true_path_or_marked(flows: Flows) -> None:
    found = []
    for path, flow, model in flows:
        known = of_lab(path, 0, flow)
        assert known
        off = errors(model, known, flow)
        if model.label_error_log2 < label.WORST:
            found.append(off.label)
        if all(level.rate_bps.kind is Kind.MEASURED for level in model.levels):
            assert off.covered["rate"], path.name
    assert len(found) >= 4 and max(found) < label.WORST, found


def test_retransmissions_are_no_overtaking(flows: Flows) -> None:
    """BBR loses packets in short queues, and what comes instead arrives late."""
    assert sum(flow.acks["lost"].sum() > 100 for _, flow, _ in flows) >= 4
    assert not any(model.reorder for _, _, model in flows)


def test_a_timer_that_may_hide_gives_no_label(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many ACKs are gathered, at no common distance, for longer than a quarter of the RTT."""
    text = 'seconds = 8\ntopology = "path"\n[link]\nrate_bps = 60_000_000\nrtt_us = 4_000\n'
    path = parse(f"{text}queue_packets = 60\nack_hold_us = [500, 4_000]\n", "gathered", "x")
    (flow,) = recorded(path, "bbr", tmp_path)
    monkeypatch.setattr(assemble, "HIDING_JITTER", np.inf)
    model = estimate(flow, "x")
    assert model.ack_hold_us.value == 0
    assert model.label_error_log2 >= label.WORST
    monkeypatch.setattr(assemble, "HIDDEN_HOLD", np.inf)
    assert estimate(flow, "x").label_error_log2 < label.WORST


@pytest.mark.parametrize("base_s", [0.003, 0.006, 0.02])
@pytest.mark.parametrize("part", [0.3, 1.0, 2.0])
def test_every_model_that_is_written_can_be_read(
    base_s: float, part: float, tmp_path: Path
) -> None:
    """However long the jitter is: no interval reaches down to no RTT at all."""
    for window in (20, 200):
        flow = jittered(((0.0, 4000.0),), part * base_s, window, base_s, saw=400)
        models.write(estimate(flow, "x"), tmp_path / "x.path.json")
        again = models.read(tmp_path / "x.path.json")
        assert 0 < again.rtt_us.low <= again.rtt_us.value
        if again.jitter_us.value > assemble.HIDING_JITTER * again.rtt_us.value:
            assert again.label_error_log2 >= label.WORST
            assert again.levels[0].rate_bps.low < 0.9 * again.levels[0].rate_bps.value


def test_no_interval_reaches_below_a_tenth() -> None:
    for error in (0.5, 1.0, 3.0):
        found = assemble.around(5e6, error, Kind.MEASURED)
        assert 5e5 <= found.low <= found.value <= found.high
