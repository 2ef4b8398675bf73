# SPDX-License-Identifier: GPL-2.0-only
"""Flows whose rivals are in the same capture: the link's rate, its queue, and since when."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ndm_tcp.lab.paths.scenario import parse
from ndm_tcp.paths import label
from ndm_tcp.paths.estimate import estimate
from ndm_tcp.paths.model import Kind, PathModel

from ..kmod.lab import need_simulator
from ..test_simulated import recorded

MBPS, SECONDS = 20, 20


@pytest.fixture(autouse=True)
def _simulator() -> None:
    need_simulator()


def beside(
    folder: Path,
    cc: str,
    rival: str,
    start_s: float,
    rtt_us: int,
    queue: int,
    jitter_us: int = 0,
    shown: bool = True,
) -> PathModel:
    """The model of a flow that another one joins, as a capture of both, or of one, gives it."""
    path = parse(
        f'''seconds = {SECONDS}
        topology = "path"
        [link]
        rate_bps = {MBPS}_000_000
        rtt_us = {rtt_us}
        queue_packets = {queue}
        jitter_us = {jitter_us}
        [[flows]]
        cc = "$cc"
        [[flows]]
        cc = "{rival}"
        start_s = {start_s}
        seconds = {SECONDS - start_s:g}
        ''',
        "beside",
        "x",
    )
    flows = recorded(path, cc, folder)
    both = [
        replace(flow, start_us=round(at_s * 1e6))
        for flow, at_s in zip(flows, (0.0, start_s), strict=True)
    ]
    return estimate(both[0], "x", both if shown else ())


@pytest.mark.parametrize("rival", ["reno", "cubic"])
@pytest.mark.parametrize(("rtt_us", "queue"), [(40_000, 10), (40_000, 70), (100_000, 20)])
def test_the_clock_of_the_link_counts_beside_rivals_that_are_shown(
    tmp_path: Path, rival: str, rtt_us: int, queue: int
) -> None:
    """On a short queue all of them together do not fill the link: 14 of 20 Mbit/s, "measured"."""
    found = beside(tmp_path, "reno", rival, 5.0, rtt_us, queue)
    (level,) = found.levels
    assert level.rate_bps.kind is Kind.MEASURED
    assert level.rate_bps.value == pytest.approx(1e6 * MBPS, rel=0.01)
    assert found.queue_packets.value == pytest.approx(queue, abs=1.5)
    assert [one.start_s for one in found.rivals] == [pytest.approx(5.0, abs=0.3)]
    assert found.label_error_log2 < label.WORST


@pytest.mark.parametrize(("queue", "bound"), [(70, False), (15, True)])
def test_rates_that_scatter_are_bounds_where_no_clock_shows(
    tmp_path: Path, queue: int, bound: bool
) -> None:
    """Beside jitter there is no clock: 7 of 20 Mbit/s were "measured" on a short queue."""
    found = beside(tmp_path, "reno", "cubic", 5.0, 40_000, queue, jitter_us=8_000)
    rate = found.levels[0].rate_bps
    assert (rate.kind is Kind.AT_LEAST) == (found.queue_packets.kind is Kind.AT_LEAST) == bound
    assert any("a lower bound" in note for note in found.notes) == bound
    assert bound or rate.low <= 1e6 * MBPS <= rate.high
    assert found.label_error_log2 >= label.WORST


@pytest.mark.parametrize(("start_s", "shown"), [(10.0, True), (13.0, True), (18.0, False)])
def test_a_rival_counts_from_its_first_packet(tmp_path: Path, start_s: float, shown: bool) -> None:
    """One from 10 s on was first seen at 17.6 s, where the flow's own rate showed it."""
    found = beside(tmp_path, "cubic", "cubic", start_s, 100_000, 70)
    assert any("ran at the same time" in note for note in found.notes) == shown
    if shown:
        assert [one.start_s for one in found.rivals] == [pytest.approx(start_s, abs=0.3)]


def test_a_level_far_below_the_clock_is_not_the_link(tmp_path: Path) -> None:
    """The share beside an unseen rival, 10.5 of 20 Mbit/s, was "measured" and taught."""
    found = beside(tmp_path, "reno", "reno", 5.0, 100_000, 20, shown=False)
    assert found.levels[0].rate_bps.value == pytest.approx(1e6 * MBPS, rel=0.01)
    assert found.label_error_log2 >= 0.1
