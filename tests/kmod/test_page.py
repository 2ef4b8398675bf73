# SPDX-License-Identifier: GPL-2.0-only
"""Web pages: objects one after another, each into a pipe that has become empty."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import pytest

from ndm_tcp.lab.guest import run as lab_run

from .lab import FEW_END_SLOW_START, FILE, NOISE, Changes, answers, measure, scenario

PAGE = """
seconds = 10
topology = "path"
[link]
rate_bps = 200_000_000
rtt_us = 40_000
queue_packets = 700
[web]
objects = 60
bytes = 3_600_000
"""
# A queue of half an object.
SHALLOW = PAGE.replace("200_000_000", "30_000_000").replace("packets = 700", "packets = 20")
# Objects of 17 packets, where 16 fill the pipe and the queue holds 6.
FIRST = PAGE.replace("200_000_000", "14_000_000").replace("40_000", "14_000")
FIRST = FIRST.replace("packets = 700", "packets = 6").replace("3_600_000", "1_420_000")
# Objects of 25 packets, where 70 fill the pipe; the queue holds 4, too few to show in the RTT.
HIDDEN = FIRST.replace("rtt_us = 14_000", "rtt_us = 60_000").replace("packets = 6", "packets = 4")
HIDDEN = HIDDEN.replace("1_420_000", "2_172_000")
# Of 17 packets, where 42 fill the pipe and the queue holds 5: a timer marks the lost ones.
LATER = FIRST.replace("rtt_us = 14_000", "rtt_us = 36_000").replace("packets = 6", "packets = 5")
LATER = LATER.replace("1_420_000", "1_476_960")
# Objects of 40 packets, where 16 fill the pipe and the queue holds 12.
UNUSED = FIRST.replace("packets = 6", "packets = 12").replace("1_420_000", "3_470_000")
# Of 75 packets, where 77 fill the pipe and the queue holds 17.
FILLS = FIRST.replace("14_000_000", "5_280_000").replace("rtt_us = 14_000", "rtt_us = 174_800")
FILLS = FILLS.replace("packets = 6", "packets = 17").replace("= 60", "= 10")
FILLS = FILLS.replace("1_420_000", "1_083_906")
# Objects of 57 packets, a little more than the pipe and the queue hold.
TAIL = PAGE.replace("200_000_000", "38_000_000").replace("40_000", "12_000")
TAIL = TAIL.replace("packets = 700", "packets = 53")
TAIL = TAIL.replace("= 60", "= 16").replace("3_600_000", "1_316_000")
HOLDS = "(r->limited || ndm_queue_shows(r->x));"
BURST = ("return lost >= NDM_CEILING_LOST &&", "return false &&")
START = "	ndm_start_features(sk);\n"
UNUSED_LOSS = (
    "x[NDM_IN_LOSS_RATE] >= ndm_unused_loss && (all_sent ||",
    "ndm_loses_a_fifth(x, lost) && (all_sent ||",
)
TIMERS = ("(u16)(tp->lost - (u32)ca->f.callers_lost)", "max(rs->losses, 0)")
LATE = "!ca->tail_lost && "
TAKES_FOR_NOISE = answers("0", NOISE)
"""a network by which no loss is an overflow: the rule must not depend on it"""
GUARD = "(u64)tp->lost * tp->mss_cache <= tp->bytes_acked >> ndm_burst_loss_shift"


def page(text: str, to: Path, changes: Changes = (), seed: int = 1) -> dict[str, Any]:
    """The page's result with the module; changes as `measure` takes them."""
    web: dict[str, Any] = measure(text, to, changes, seed)["web"]
    return web


def test_an_object_is_not_later_than_at_one_stroke(tmp_path: Path) -> None:
    """As CUBIC sends it, which does not pace."""
    ours = page(PAGE, tmp_path / "ndm_tcp")
    theirs = lab_run.run(scenario(PAGE), "cubic", 1, tmp_path / "cubic", light=True)["web"]
    print(f"\nms an object: {ours['object_ms_mean']}, with CUBIC {theirs['object_ms_mean']}")
    assert ours["retransmissions"] == theirs["retransmissions"] == 0
    assert ours["object_ms_mean"] < 1.02 * theirs["object_ms_mean"]


def test_who_accepts_a_connection_sends_as_well_as_who_opens_it(tmp_path: Path) -> None:
    """Without the handshake the means begin in the slow start, and the window falls."""
    ours = page(FILE, tmp_path / "ndm_tcp")
    without = page(FILE, tmp_path / "without", [(START, "")])
    theirs = lab_run.run(scenario(FILE), "cubic", 1, tmp_path / "cubic", light=True)["web"]
    print(f"\nMbit/s: {ours['mbps']}, without {without['mbps']}, CUBIC {theirs['mbps']}")
    assert ours["mbps"] > 0.97 * theirs["mbps"]
    assert without["mbps"] < 0.9 * theirs["mbps"]


def test_bursts_that_a_queue_cannot_hold_come_to_an_end(tmp_path: Path) -> None:
    """It then paces, and little more is lost, whatever the network is."""
    network = answers("0", NOISE)
    ours = page(SHALLOW, tmp_path / "guarded", [network])
    always = [(GUARD, "true"), (LATE, ""), network]
    without = page(SHALLOW, tmp_path / "always", [*always, BURST])
    lost, more = (web["retransmissions"] / web["segments"] for web in (ours, without))
    print(f"\nsent again: {lost:.2%}, without end {more:.2%}")
    print(f"ms an object: {ours['object_ms_mean']}, without {without['object_ms_mean']}")
    assert 0 < lost < 0.02 < 0.1 < more
    assert ours["object_ms_mean"] < without["object_ms_mean"] / 2


@pytest.fixture(scope="module")
def tail(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The page whose objects lose their tails, with all rules."""
    return page(TAIL, tmp_path_factory.mktemp("tail"), [TAKES_FOR_NOISE])


@pytest.mark.parametrize(
    "rule",
    [LATE, "!(tp->tlp_high_seq && ndm_tlp_retransmitted(tp)) &&"],
    ids=["lost", "open"],
)
def test_a_lost_tail_ends_bursts(rule: str, tail: dict[str, Any], tmp_path: Path) -> None:
    """A timer repairs it, object after object, and no count of losses sees it."""
    without = page(TAIL, tmp_path / "going_on", [TAKES_FOR_NOISE, (rule, "")])
    print(f"\nms an object: {tail['object_ms_mean']}, without {without['object_ms_mean']}")
    print(f"retransmitted: {tail['retransmissions']}, without {without['retransmissions']}")
    assert tail["retransmissions"] == 1 < without["retransmissions"]
    assert tail["object_ms_mean"] < 0.8 * without["object_ms_mean"]


@pytest.mark.parametrize(
    ("text", "rules", "rule"),
    [(HIDDEN, [], UNUSED_LOSS), (LATER, [FEW_END_SLOW_START], TIMERS)],
    ids=["unused", "timer"],
)
def test_objects_that_overflow_end_a_slow_start(
    text: str, rules: list[tuple[str, str]], rule: tuple[str, str], tmp_path: Path
) -> None:
    """They do not fill the window, and to the network what each loses is noise.

    Losses that RACK's timer marks count; unseen, they would let slow start go on. They are less
    than eight packets.
    """
    both = [TAKES_FOR_NOISE, BURST, *rules]
    ours = page(text, tmp_path / "ends", both)
    without = page(text, tmp_path / "goes_on", [*both, rule])
    lost, more = (web["retransmissions"] / web["segments"] for web in (ours, without))
    print(f"\nretransmitted: {lost:.2%}, if it goes on {more:.2%}")
    print(f"ms an object: {ours['object_ms_mean']}, without {without['object_ms_mean']}")
    assert lost < more / 4
    assert ours["object_ms_mean"] < 0.9 * without["object_ms_mean"]


def test_objects_that_overflow_set_a_ceiling(tmp_path: Path) -> None:
    """They do not fill the window; a network takes what each loses for noise, and wants more."""
    network = answers("65536 / 5", NOISE)
    ours = page(UNUSED, tmp_path / "rule", [network])
    without = page(UNUSED, tmp_path / "none", [network, BURST])
    lost, more = (web["retransmissions"] / web["segments"] for web in (ours, without))
    print(f"\nsent again: {lost:.2%}, without ceilings {more:.2%}")
    print(f"ms an object: {ours['object_ms_mean']}, without {without['object_ms_mean']}")
    assert lost < more / 3
    assert ours["object_ms_mean"] < 0.9 * without["object_ms_mean"]


def test_without_a_queue_a_ceiling_is_not_for_a_window_that_is_not_used(tmp_path: Path) -> None:
    """What arrives then is what the application sends, not what the path holds.

    The network is undecided about losses, so a ceiling is often in force.
    """
    undecided = answers(0, 1)
    of = {"rule": [undecided], "held": [undecided, (HOLDS, "true;")]}
    ms = {
        name: statistics.mean(
            page(FILLS, tmp_path / f"{name}-{seed}", changes, seed)["object_ms_mean"]
            for seed in (1, 2, 3)
        )
        for name, changes in of.items()
    }
    print(f"\nms an object: {ms}")
    assert ms["rule"] < 0.93 * ms["held"]
