# SPDX-License-Identifier: GPL-2.0-only
"""No path on which the module starves: the worst of many, simulated."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from ndm_tcp.lab.guest import suite
from ndm_tcp.lab.paths.scenario import Scenario
from ndm_tcp.lab.sim.build import build
from ndm_tcp.lab.sim.simulate import simulate
from ndm_tcp.worth.rules import RULES

from .kernel.kbuild import copy_kmod
from .kmod.lab import FEW_END_SLOW_START, change, need_simulator
from .worst import drawn, faster, held_back, jittery, lone, lossy, rerouted, shares

CONSERVING = (
    "if (!r->recovery || !ca->reducing || ndm_floods(",
    "if (!r->recovery || !ca->reducing || ca->congestion >= 0 || ndm_floods(",
)
BURST_OF_FEW = ("(all_sent || lost >= NDM_FLOOD_LOST)", "true")
CUT_AS_WITH_A_QUEUE = (
    "!ca->unrivalled &&\n\t\t\t ndm_queue_delays(tp->srtt_us >> 3, ndm_baseline_of(ca)) ?",
    "true ?",
)
ENDED_BY_LOSS = ("ndm_srtt_rose(srtt_us, ca->f.srtt_us)", "(ca || true)")
ENDED_BY_FEW_LOST = ("tp->lost_out < ndm_overflow_lost", "false")
ENDED_BY_NO_FEW_LOST = ("ndm_queue_is_long(srtt_us, min_rtt_us) :", "false :")
HALF_PROBE = ("* NDM_PROBE;", "* (NDM_PROBE / 2);")
RIVALLED = (RULES["unrivalled"].text, RULES["unrivalled"].without)
OWN_RATE = ("ndm_paused_open_percent = 106", "ndm_paused_open_percent = 100")


@pytest.fixture(scope="module")
def program() -> Path:
    return need_simulator()


def changed(tmp_path: Path, text: tuple[str, str]) -> Path:
    """The simulator with a changed module."""
    kmod = copy_kmod(Path(tempfile.mkdtemp(dir=tmp_path)) / "kmod")
    change(kmod, [text])
    return build(kmod)


def mean(found: dict[str, float]) -> float:
    """Geometric."""
    return float(np.exp(np.mean(np.log([*found.values()]))))


def means_without(
    tmp_path: Path, paths: Sequence[Scenario], *rules: tuple[str, str]
) -> list[float]:
    """The same with each of these changed."""
    return [mean(shares(changed(tmp_path, rule), paths)) for rule in rules]


def no_less(found: dict[str, float], least: float) -> None:
    """The share of the worst path is above this."""
    worst = min(found, key=found.__getitem__)
    print(f"\nworst {found[worst]:.2f}: {worst}")
    assert found[worst] > least, worst


def test_no_drawn_path_starves_it(program: Path) -> None:
    found = shares(program, drawn(1, 60))
    no_less(found, 0.5)
    assert np.mean(np.array([*found.values()]) > 0.9) > 0.9


def test_jitter_of_a_short_path_does_not_starve_it(program: Path) -> None:
    """Jitter looks like a host's pauses there; bound by its own rate, a flow never grew again."""
    found = shares(program, suite.load_suite("validation-near"))
    assert len(found) == 24
    no_less(found, 0.6)
    assert mean(found) > 0.9


def test_held_back_acks_of_a_short_path_do_not_starve_it(program: Path, tmp_path: Path) -> None:
    """As Wi-Fi has them at home. Bound by a rate as low as its window, a flow never grew again."""
    paths = held_back(6, 30)
    found = shares(program, paths)
    no_less(found, 0.5)
    assert mean(found) > 0.9
    without = means_without(tmp_path, paths, CUT_AS_WITH_A_QUEUE, OWN_RATE)
    print(f"{mean(found):.3f}; cut as with a queue, and paced by its own rate {without}")
    assert mean(found) > max(without) + 0.003


def test_a_path_that_becomes_longer_does_not_starve_it(program: Path) -> None:
    """The core keeps min RTT for five minutes; more RTT than that was a queue of others' for us."""
    found = shares(program, rerouted(3, 30))
    no_less(found, 0.6)
    assert mean(found) > 0.94


def test_a_path_that_becomes_faster_is_used(program: Path, tmp_path: Path) -> None:
    """Of a smaller probe the network undoes what it added before the rate shows it."""
    paths = faster(8804, 60)
    found = shares(program, paths)
    no_less(found, 0.6)
    (half,) = means_without(tmp_path, paths, HALF_PROBE)
    print(f"{mean(found):.3f}; half of the probe {half:.3f}")
    assert mean(found) > 0.95 and mean(found) > half + 0.04


def test_heavy_loss_of_a_fast_path_does_not_starve_it(program: Path, tmp_path: Path) -> None:
    """Packets conserved in a recovery that never ends leave fewer in flight with each loss."""
    paths = lossy(9, 60)
    found = shares(program, paths)
    no_less(found, 0.35)
    without = means_without(tmp_path, paths, CONSERVING, FEW_END_SLOW_START, BURST_OF_FEW)
    print(f"{mean(found):.3f}; conserving, and slow starts that few losses end {without}")
    assert mean(found) > 0.95 and mean(found) > max(without) + 0.01


def test_jitter_and_loss_starve_it_on_few_fast_paths(program: Path, tmp_path: Path) -> None:
    """RTTs stay above the baseline RTT, and losses never end, as in a queue that rivals keep."""
    paths = [*jittery(4, 80), *jittery(5, 80)]  # of 80 the rule's worth is 0.045 to 0.08
    found = shares(program, paths)
    assert np.mean(np.array([*found.values()]) > 0.5) > 0.85
    (without,) = means_without(tmp_path, paths, RIVALLED)
    print(f"{mean(found):.3f}; cut as beside rivals {without:.3f}")
    assert mean(found) > 0.85 and mean(found) > without + 0.05


# Rate, RTT, queue, jitter and loss.
Jittery = tuple[float, int, int, int, float]
JITTERY = (
    (16.3, 117_400, 41, 30_900, 0),
    (17.2, 168_000, 183, 40_300, 0),
    (16.6, 156_100, 824, 36_800, 0),
)
LOSSY_TOO = (
    (21.3, 162_000, 863, 35_000, 0.05),
    (189.9, 75_700, 3_294, 12_800, 0.036),
    (158.7, 72_700, 2_000, 23_600, 0.028),
)


def starts(programs: Sequence[Path], paths: Sequence[Jittery]) -> list[float]:
    """What each gets of a path's rate in the first seconds: mean of paths and 24 draws."""
    sums = [0.0 for _ in programs]
    for rate, rtt_us, queue, jitter_us, loss in paths:
        lines = [f"jitter_us = {jitter_us}", "reorder = false", f"loss = {loss}"]
        path = lone("w", 5, rate, rtt_us, queue, lines)
        for number, seed in itertools.product(range(len(programs)), range(24)):
            found = simulate(programs[number], path, "ndm_tcp", seed)
            sums[number] += found["total_mbps"] / rate / 24 / len(paths)
    return sums


@pytest.mark.parametrize(
    ("paths", "rule", "more"),
    [
        pytest.param(
            JITTERY,
            ("full && (r->was_full || ndm_rtt_rises(r->x))", "full"),
            1.08,
            id="one full round",
        ),
        pytest.param(LOSSY_TOO, ENDED_BY_LOSS, 1.04, id="one loss"),
        pytest.param(LOSSY_TOO, ENDED_BY_FEW_LOST, 1.2, id="one lost packet"),
    ],
)
def test_no_single_sign_that_jitter_makes_ends_slow_start(
    paths: Sequence[Jittery],
    rule: tuple[str, str],
    more: float,
    program: Path,
    tmp_path: Path,
) -> None:
    """RTTs far above min RTT look like a full path or a queue, and a low rate like no growth."""
    ours, without = starts([program, changed(tmp_path, rule)], paths)
    print(f"\n{ours:.3f} of the rate, {without:.3f} if it does")
    assert ours > more * without


def test_one_lost_packet_behind_a_long_queue_ends_slow_start(program: Path, tmp_path: Path) -> None:
    """The initial window overflows eight packets; of few there, few are lost at first."""
    without = changed(tmp_path, ENDED_BY_NO_FEW_LOST)
    paths = [lone("w", 10, mbps, us, 8, []) for mbps, us in ((1.3, 9600), (1.1, 17_900))]
    ours, theirs = (
        sum(simulate(one, path, "ndm_tcp", 1)["flows"][0]["retransmissions"] for path in paths)
        for one in (program, without)
    )
    print(f"\n{ours} packets retransmitted, {theirs} if it does not")
    assert ours < 0.7 * theirs
