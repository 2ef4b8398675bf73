# SPDX-License-Identifier: GPL-2.0-only
"""What ends slow start, and what does not: noise, marks, queues, undone recoveries."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .lab import CONGESTION, NOISE, answers, drive, measure, where
from .test_cases import Seen, play

INFINITE = 0x7FFFFFFF  # TCP_INFINITE_SSTHRESH
STEPS = "send:6000000 info"
SEND = f"flow send 10.2.0.2 5000 ndm_tcp {STEPS}"
# 200 packets fit into the pipe.
PATH = "1000 delay 20ms rate 60mbit"
# A pipe of 99 packets with a queue of twice that: the windows are 10, 20, 40, 80, 160 and 320.
DEEP = """
seconds = 5
topology = "path"
[link]
rate_bps = 30_000_000
rtt_us = 40_000
queue_packets = 220
"""
# A queue of as much as the pipe; a round of noise follows the one that overflowed it.
NOISY = """
seconds = 2
topology = "path"
[link]
rate_bps = 170_000_000
rtt_us = 20_000
queue_packets = 283
loss = 0.01
"""
QUEUE = "return x[NDM_IN_RTT_GRADIENT] > NDM_QUEUE_GRADIENT &&"
CHANGE = f"guest in r tc qdisc change dev b0 root netem limit {PATH}"


def losses(percent: int, steps: str = STEPS) -> str:
    """A flow whose losses begin after its first flight; the network does not judge them."""
    return f"""
forth {PATH}
flow send 10.2.0.2 5000 ndm_tcp {steps} & client=$!
sleep 0.15
{CHANGE} loss {percent}%
wait $client
"""


def far(percent: int, event: str, seconds: float) -> str:
    """A round trip of 300 ms, losses at the sender, and after 1.5 s something else for a while."""
    path = PATH.replace("20ms", "280ms")
    change = CHANGE.replace("20ms", "280ms")
    return f"""
for n in s d; do guest in $n sh -c 'echo 1 >/proc/sys/net/ipv4/tcp_ecn'; done
guest in s tc qdisc add dev a0 root netem limit 1000 loss {percent}%
forth {path}
{SEND} & client=$!
sleep 1.5
{change} {event}
sleep {seconds}
{change}
wait $client
"""


Rows = list[dict[str, Any]]


def rounds(
    script: str,
    says: str,
    flow: Path,
    tmp_path: Path,
    shows: Callable[[Rows, Rows], bool] = lambda first, rest: True,
) -> tuple[Rows, Rows]:
    """The rounds up to the first loss that the network has seen, and those that follow.

    The network never grows the window. What it says of a loss is an expression in C. The lab seed
    is the first one with which `shows` holds.
    """

    def seen(seed: int) -> tuple[Rows, Rows]:
        folder = tmp_path / str(seed)
        folder.mkdir()
        played = play(script, flow, folder, (answers(0, says),), seed=seed)
        assert played.rounds is not None
        rows = played.rounds.to_pylist()
        lost = next((n + 1 for n, row in enumerate(rows) if row["plasticity_mean"]), len(rows))
        return rows[:lost], rows[lost:]

    return where(seen, lambda parts: shows(*parts))


def grown(rows: Rows) -> int:
    """The largest window in slow start."""
    return max((row["cwnd"] for row in rows if row["why"] == "slow_start"), default=0)


def again(rows: Rows) -> int:
    """How often slow start came back."""
    return [row["why"] for row in rows].count("goes_on")


@pytest.mark.parametrize("verdict", [NOISE, CONGESTION])
def test_a_loss_without_a_queue_does_not_end_it(verdict: str, flow: Path, tmp_path: Path) -> None:
    """Not even one that is held for congestion, while the rate grows."""
    # Until the pipe is full, or until the rate does not grow.
    least, most = (250, 1000) if verdict == NOISE else (60, 250)
    first, rest = rounds(
        *(losses(5), verdict, flow, tmp_path), lambda first, rest: least < grown(rest) < most
    )
    assert first[-1]["why"] == "slow_start" and first[-1]["ssthresh"] == INFINITE
    assert verdict == NOISE or again(first + rest) == 0


def test_a_loss_ends_it_within_the_round_that_makes_a_queue(tmp_path: Path) -> None:
    """The signs of a full pipe and the verdict are off: they wait for the round's end."""
    blind = [answers(0, NOISE), ("if (stood &&", "if (false &&")]
    ours = measure(DEEP, tmp_path / "rule", blind)
    change = ("!ndm_srtt_rose(srtt_us, ca->f.srtt_us)", "true")
    without = measure(DEEP, tmp_path / "none", [*blind, change])
    lost = [found["flows"][0]["retransmissions"] for found in (ours, without)]
    print(f"\n{lost[0]} packets retransmitted, {lost[1]} if the loss does not end it")
    assert 0 < lost[0] < 0.9 * lost[1]


# Rounds that lose a fifth end slow start, and what follows is noise. Of three rounds, coming back
# costs one, and so does each in which it does not; growth gives all of them back.
TOO_LATE = f"({{ static int n; n++ < 9; }}) ? {CONGESTION} : {NOISE}"
TIMEOUT = losses(5).replace("sleep 0.15", f"sleep 0.15\n{CHANGE} loss 100%\nsleep 1")


@pytest.mark.parametrize(
    ("script", "says", "times"),
    [
        pytest.param(losses(15), NOISE, 1, id="in time"),
        pytest.param(far(13, "", 0), NOISE, 2, id="more often while it grows"),
        pytest.param(losses(5), TOO_LATE, 0, id="too late"),
        pytest.param(TIMEOUT, NOISE, 0, id="after a timeout"),
    ],
)
def test_it_comes_back_only_so_often(
    script: str, says: str, times: int, flow: Path, tmp_path: Path
) -> None:
    found = []

    def shows(first: Rows, rest: Rows) -> bool:
        if len(rest) <= 5:
            return False
        found.append(again(first + rest))
        return found[-1] >= times

    rounds(script, says, flow, tmp_path, shows)
    assert max(found) == times


def test_a_mark_for_its_bursts_begins_no_ceiling(tmp_path: Path) -> None:
    """Cake marks bursts of the first round; a ceiling of 12 packets would hold for 31 rounds."""
    scenario = """
seconds = 4
topology = "path"
[link]
rate_bps = 10_170_000
rtt_us = 58_200
qdisc = "cake"
[host]
ecn = true
"""
    grows = (answers("1 << 14", NOISE),)
    rounds = drive(scenario, tmp_path, grows)[1].to_pylist()
    assert rounds[1]["why"] == "recovery", "the mark"
    assert max(row["cwnd"] for row in rounds[2:14]) > 4 * rounds[0]["cwnd"]


def test_a_full_pipe_ends_it_for_good(flow: Path, tmp_path: Path) -> None:
    """Nothing is lost, the queue drains, and a loss now would be noise."""
    first, rest = rounds(f"forth {PATH.replace('1000', '20000')}\n{SEND}", NOISE, flow, tmp_path)
    assert not rest and 150 < grown(first) < 1500
    assert again(first) == 0 and first[-1]["why"] == "network"


def test_a_fifth_lost_ends_it(flow: Path, tmp_path: Path) -> None:
    def shows(first: Rows, rest: Rows) -> bool:
        """A fifth, though the pipe is not full."""
        return first[-1]["loss_rate"] > 4096 // 5 and first[-1]["bdp_ratio"] > 4096 * 3 // 8

    first, rest = rounds(losses(30), NOISE, flow, tmp_path, shows)
    assert first[-1]["why"] == "slow_start"
    assert first[-1]["ssthresh"] == first[-1]["cwnd"] // 2
    assert rest[0]["loss_rate"] > 4096 // 5 and rest[0]["why"] == "network"


def test_only_the_first_is_spared(flow: Path, tmp_path: Path) -> None:
    """An earlier connection left a threshold: a loss lowers it, as ever."""
    script = f"""
state tcp_no_ssthresh_metrics_save 0
ip -n s route change default via 10.1.0.1 ssthresh 100
flow send 10.2.0.2 5000 reno send:1000
sleep 130
{losses(5)}
"""

    def shows(first: Rows, rest: Rows) -> bool:
        return len(first) > 2 and first[-1]["cwnd"] < 100

    first, rest = rounds(script, NOISE, flow, tmp_path, shows)
    assert all(row["ssthresh"] == 100 for row in first[:-1])
    assert first[-1]["why"] == "network"
    # A timeout, which these losses may bring, leaves one packet.
    assert grown(rest) <= 1 and again(first + rest) == 0


@pytest.mark.parametrize("percent", [0, 4])
def test_a_mark_ends_it(percent: int, flow: Path, tmp_path: Path) -> None:
    """In a recovery from losses that are noise, or in none."""

    def shows(first: Rows, rest: Rows) -> bool:
        """In a recovery the window has not grown far when the marks begin."""
        last = [row for row in first + rest if row["why"] == "slow_start"][-1:]
        return not percent or any(row["ca_state"] == 3 and row["cwnd"] < 90 for row in last)

    first, rest = rounds(far(percent, "loss 100% ecn", 0.2), NOISE, flow, tmp_path, shows)
    last = [row for row in first + rest if row["why"] == "slow_start"][-1]
    assert last["ca_state"] == (3 if percent else 0)
    assert not percent or last["ssthresh"] == last["cwnd"] // 2, "in that very round"
    assert (first + rest)[-1]["ssthresh"] < INFINITE
    assert again(first + rest) == 0


def test_a_timeout_halves_what_it_grew_to(flow: Path, tmp_path: Path) -> None:
    """In a recovery that it outlived, whose losses came when the window was smaller."""

    def timeout(first: Rows, rest: Rows) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """The round of the first timeout, and the one before."""
        pairs = itertools.pairwise(first + rest)
        return next(((a, b) for a, b in pairs if b["ca_state"] == 4), None)

    def shows(first: Rows, rest: Rows) -> bool:
        found = timeout(first, rest)
        return found is not None and (found[0]["why"], found[0]["ca_state"]) == ("slow_start", 3)

    found = timeout(*rounds(far(4, "loss 100%", 3), NOISE, flow, tmp_path, shows))
    assert found and found[1]["ssthresh"] >= 0.9 * found[0]["cwnd"], "half of twice as many"


def test_the_verdict_comes_after_the_recovery_too(flow: Path, tmp_path: Path) -> None:
    """Twenty packets at a time: the recovery is over when the round ends."""
    script = losses(2, "send:29000 " * 30)
    says = f"x[NDM_IN_PLASTICITY_MEAN] ? {CONGESTION} : {NOISE}"

    def shows(first: Rows, rest: Rows) -> bool:
        return (first[-1]["why"], first[-1]["ca_state"]) == ("slow_start", 0)

    first, rest = rounds(script, says, flow, tmp_path, shows)
    assert first[-1]["ssthresh"] == first[-1]["cwnd"] // 2
    assert grown(rest) == 0


def test_a_loss_that_a_probe_repaired_is_no_mark(flow: Path, tmp_path: Path) -> None:
    """One packet at a time: if it is lost, a probe brings it."""
    steps = "send:1000 " * 60 + "info "
    script = losses(3, steps) + "counter TCPLossProbeRecovery\ncounter TCPTimeouts\n"

    def played(seed: int) -> Seen:
        folder = tmp_path / str(seed)
        folder.mkdir()
        return play(script, flow, folder, (answers(0, NOISE),), seed=seed)

    seen = where(
        played, lambda s: s.value("TCPLossProbeRecovery") > 0 and s.value("TCPTimeouts") == 0
    )
    # Such rounds are quiet, so that no event tells it.
    assert int(seen.info[-1]["ssthresh"]) == INFINITE


def test_a_growing_queue_ends_it_before_it_overflows(tmp_path: Path) -> None:
    """The rate still grew by a quarter, but the RTT too."""
    result = measure(DEEP, tmp_path / "rule")
    without = measure(DEEP, tmp_path / "none", [(QUEUE, "return false &&")])
    ours, theirs = result["flows"][0], without["flows"][0]
    print(f"\nMbit/s: {ours['goodput_mbps']}, after overflowing {theirs['goodput_mbps']}")
    assert ours["retransmissions"] == 0 < theirs["retransmissions"]
    assert ours["goodput_mbps"] > 0.98 * theirs["goodput_mbps"]


def test_it_does_not_come_back_into_a_queue(tmp_path: Path) -> None:
    """What arrives is three quarters of the window, as if a quarter were room."""
    network = answers(0, NOISE)
    of = {"rule": [network], "none": [network, ("!ndm_queue_stands(x) &&", "")]}

    def retransmitted(name: str) -> list[int]:
        """Packets of each draw: in one of four it would come back."""
        runs = (measure(NOISY, tmp_path / f"{name}-{n}", of[name], n) for n in range(1, 17))
        return [result["flows"][0]["retransmissions"] for result in runs]

    pairs = zip(*map(retransmitted, of), strict=True)
    ours, theirs = map(sum, zip(*((a, b) for a, b in pairs if a != b), strict=True))
    print(f"\nsent again: {ours}, without the rule {theirs}")
    assert ours < 0.95 * theirs
