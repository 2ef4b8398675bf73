# SPDX-License-Identifier: GPL-2.0-only
"""The simulator beside the lab's results, and as a place where boards run."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ndm_tcp.datasets.readers.simulated import RECORD
from ndm_tcp.errors import NdmError
from ndm_tcp.lab.guest import suite, uml_build
from ndm_tcp.lab.paths import levels
from ndm_tcp.lab.paths.scenario import MAX_FLOWS, UNDER_TEST, Scenario, parse
from ndm_tcp.lab.score import bars
from ndm_tcp.lab.sim import build as sim_build
from ndm_tcp.lab.sim import simulate as sim_run
from ndm_tcp.lab.sim.simulate import refusal, simulate
from ndm_tcp.worth import rules

from .conftest import ROOT
from .kmod import lab
from .kmod.lab import need_simulator

LOSSY = """
seconds = 10
topology = "path"
[link]
rate_bps = 10_000_000
rtt_us = 40_000
queue_packets = 60
loss = 0.01
"""


@pytest.fixture(scope="module")
def program() -> Path:
    return need_simulator()


def lossy(*changes: tuple[str, str]) -> Scenario:
    text = LOSSY
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return parse(text, "lossy", "lossy.toml")


@pytest.mark.parametrize("cc", ["reno", "cubic", "bbr"])
def test_lone_flows_are_those_of_the_lab(program: Path, cc: str) -> None:
    """Linux's algorithms on the sixteen lone paths of ccBench, which draw next to nothing."""
    board = bars.load(ROOT / "docs" / "board" / "ccbench.csv")
    paths = [s for s in suite.load_suite("ccbench") if len(s.flows) == 1]
    assert len(paths) == 16
    good, rtts = 0, 0
    for scenario in paths:
        lab = board[scenario.name][cc].mean
        flow = simulate(program, scenario, cc, 1)["flows"][0]
        good += abs(flow["goodput_mbps"] / lab["goodput_mbps"] - 1) < 0.03
        rtts += abs(flow["rtt_mean_ms"] / lab["rtt_mean_ms"] - 1) < 0.10
    assert good == 16
    assert rtts >= 14


def test_a_flow_that_joins_meets_the_queue_from_its_handshake_on(program: Path) -> None:
    """Else BBR would know the path's propagation, and take a few packets beside CUBIC."""
    (scenario,) = (s for s in suite.load_suite("fairness") if s.name == "beside-cubic-4bdp")
    lab = bars.load(ROOT / "docs" / "board" / "fairness.csv")[scenario.name]["bbr"].mean
    _, late = simulate(program, scenario, "bbr", 1)["flows"]
    assert late["share"] == pytest.approx(lab["share"], abs=0.1)


def test_a_closed_window_opens_again(program: Path) -> None:
    """All that arrived is acknowledged before the program reads; once a run stood still."""
    link = "rate_bps = 7_243_788\nrtt_us = 68_609\nqueue_packets = 142\njitter_us = 4_085"
    more = "reorder = false\nloss = 0.0199\nslot_us = [274, 1097]"
    path = parse(f'seconds = 10\ntopology = "path"\n[link]\n{link}\n{more}', "drawn-93", "w")
    assert simulate(program, path, "ndm_tcp", 1)["flows"][0]["silent_intervals"] == 0


def test_the_same_seed_gives_the_same_run(program: Path) -> None:
    first, again, other = (simulate(program, lossy(), "ndm_tcp", seed) for seed in (1, 1, 2))
    assert first == again
    assert first["flows"] != other["flows"]


@pytest.mark.parametrize("cc", ["reno", "cubic", "bbr", "ndm_tcp"])
def test_no_packet_comes_from_nowhere(program: Path, cc: str) -> None:
    result = simulate(program, lossy(), cc, 1)
    (flow,) = result["flows"]
    arrived = flow["bytes"] / 1448
    under_way = flow["segments"] - sum(result["drops"].values()) - arrived
    assert -1 <= under_way < 2 * 60 + 2 * 33  # spurious ones, and a queue and a path full of them
    assert flow["goodput_mbps"] < 10 * 1448 / 1500
    assert result["drops"]["random"] / flow["segments"] == pytest.approx(0.01, rel=0.5)


def test_goodput_has_the_time_of_the_queue_that_empties(program: Path) -> None:
    """A deep queue holds two of three seconds' packets when the sender ends."""
    slow = (("10_000_000", "2_000_000"), ("_packets = 60", "_packets = 500"))
    deep = lossy(("loss = 0.01", ""), ("seconds = 10", "seconds = 3"), *slow)
    for cc in ("cubic", "ndm_tcp"):
        (flow,) = simulate(program, deep, cc, 1)["flows"]
        assert 0.9 < flow["goodput_mbps"] / (2 * 1448 / 1514) < 1.005


def test_a_queue_behind_a_slow_end_is_no_goodput(program: Path) -> None:
    """It was emptied at the highest rate while CUBIC still sent: 0.49 of 0.31 Mbit/s."""
    steps = "steps = [[1.3, 265_000], [4.3, 584_000], [5.3, 368_000], [6.3, 158_400]]"
    slow = lossy(
        ("loss = 0.01", steps), ("10_000_000", "3_168_000"), ("seconds = 10", "seconds = 30")
    )
    assert slow.link
    mbps = levels.mean([(0.0, slow.link.rate_bps), *slow.link.steps], 30) / 1e6
    for cc in ("reno", "cubic", "bbr", "ndm_tcp"):
        (flow,) = simulate(program, slow, cc, 1)["flows"]
        assert 0.6 * mbps < flow["goodput_mbps"] < 1.01 * mbps, cc


def test_a_path_that_loses_nearly_all_ends(program: Path) -> None:
    result = simulate(program, lossy(("loss = 0.01", "loss = 0.95")), "ndm_tcp", 1)
    assert result["flows"][0]["goodput_mbps"] < 0.1


def test_a_policer_and_held_acks_and_steps(program: Path) -> None:
    """The rate of each path is reached, and none is exceeded."""
    paths = {
        9.65: lossy(("queue_packets = 60", "queue_packets = 1\nbucket_packets = 60")),
        9.66: lossy(("loss = 0.01", "ack_hold_us = [1000, 6000]")),
        4.83: lossy(("loss = 0.01", "steps = [[0.1, 5_000_000]]")),
        9.67: lossy(("loss = 0.01", "jitter_us = 2000\nrtt_steps = [[5.0, 60_000]]")),
    }
    for rate, scenario in paths.items():
        (flow,) = simulate(program, scenario, "bbr", 1)["flows"]
        assert 0.85 * rate < flow["goodput_mbps"] < 1.01 * rate, scenario.text


@pytest.mark.parametrize("cc", ["cubic", "ndm_tcp"])
def test_no_rtt_is_shorter_than_the_path(program: Path, cc: str, tmp_path: Path) -> None:
    """A timestamp is echoed of the transmission that came, also where another one was in vain."""
    (path,) = suite.load_suite("validation-near/valid-06-near-jitter.toml")
    assert path.link
    # Jitter takes off four standard deviations, and timestamps count in milliseconds.
    least_us = path.link.rtt_us - 4 * path.link.jitter_us - 1000
    for seed in range(1, 4):
        acks = tmp_path / f"acks{seed}"
        simulate(program, path, cc, seed, acks)
        found = np.fromfile(acks, RECORD)["ack"]["rtt_us"]
        assert found[found > 0].min() >= least_us > 4000


@pytest.mark.parametrize("rtt_ms", [900, 2_500, 8_000])
def test_a_path_longer_than_a_second_keeps_its_rtt(program: Path, rtt_ms: int) -> None:
    """The clock of a message that was repeated showed a handshake of 0.5 s where it took 2.5."""
    far = lossy(("loss = 0.01", ""), ("40_000", f"{rtt_ms}_000"), ("seconds = 10", "seconds = 40"))
    (flow,) = simulate(program, far, "cubic", 1)["flows"]
    assert rtt_ms <= flow["rtt_mean_ms"] < 1.3 * rtt_ms
    full = lossy(
        ("loss = 0.01", f"[[flows]]\ncc = '{UNDER_TEST}'\n[[flows]]\ncc = 'cubic'\nstart_s = 8"),
        ("10_000_000", "500_000"),
        ("queue_packets = 60", "queue_packets = 300"),
        ("seconds = 10", "seconds = 40"),
    )
    first, late = simulate(program, full, "cubic", 1)["flows"]
    assert late["rtt_mean_ms"] > 0.7 * first["rtt_mean_ms"], "it waits in the same queue"


def test_a_flow_that_does_not_end_gives_no_figures(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thirty seconds after its end it was scored by what was under way."""
    monkeypatch.setattr(sim_run, "LATEST_S", 0)
    with pytest.raises(NdmError, match="lossy with cubic: flow 0 began and did not end"):
        simulate(program, lossy(), "cubic", 1)


def test_a_path_that_becomes_longer_at_the_end_still_ends(program: Path) -> None:
    """The message that ends a test was due before the flow began: 23 silent seconds of two."""
    step = lossy(("loss = 0.01", "rtt_steps = [[1.9, 9_000_000]]"), ("seconds = 10", "seconds = 2"))
    assert simulate(program, step, "cubic", 1)["flows"][0]["silent_intervals"] < 6


def test_a_step_to_no_propagation_is_a_step(program: Path) -> None:
    steps = {us: lossy(("loss = 0.01", f"rtt_steps = [[1.0, {us}]]")) for us in (0, 1, 40_000)}
    none, least, same = (
        simulate(program, one, "cubic", 1)["flows"][0]["rtt_mean_ms"] for one in steps.values()
    )
    assert none == pytest.approx(least, rel=0.01) and none < same - 20


def test_duplicates_are_reported_where_the_first_ack_was_lost(
    program: Path, tmp_path: Path
) -> None:
    """ACK loss alone: nothing is lost, and retransmissions come twice."""
    thin = lossy(
        ("loss = 0.01", "ack_loss = 0.3"),
        ("10_000", "100_000"),
        ("40_000", "1_000"),
        ("seconds = 10", "seconds = 100"),
    )
    acks = tmp_path / "acks"
    (flow,) = simulate(program, thin, "cubic", 1, acks)["flows"]
    delivered = int(np.fromfile(acks, RECORD)["ack"]["delivered"][-1])
    assert delivered - flow["bytes"] // 1448 > 5, "duplicates count as delivered, too"


@pytest.mark.parametrize("seed", range(1, 11))
def test_a_lone_flow_has_all_of_the_goodput(program: Path, seed: int) -> None:
    """However long its handshakes take: on some of these paths it sends after its nominal end."""
    result = simulate(program, lossy(("loss = 0.01", "ack_loss = 0.9")), "cubic", seed)
    (flow,) = result["flows"]
    delivered = flow["goodput_mbps"] > 0
    assert flow["share"] == delivered and result["jain"] == delivered


def test_every_size_of_a_scenario_runs(program: Path) -> None:
    """More steps than seven minutes of a trace make, and all flows that a scenario may have."""
    steps = ", ".join(f"[{n / 10}, {4_000_000 + 4_000_000 * (n % 2)}]" for n in range(1, 4200))
    long = lossy(("loss = 0.01", f"steps = [{steps}]"), ("seconds = 10", "seconds = 425"))
    (flow,) = simulate(program, long, "bbr", 1)["flows"]
    assert 5 < flow["goodput_mbps"] < 6.2
    flows = f"[[flows]]\ncount = {MAX_FLOWS}"
    scenario = parse(f"{LOSSY}\n{flows}", "many", "many.toml")
    result = simulate(program, scenario, "cubic", 1)
    assert len(result["flows"]) == MAX_FLOWS
    assert result["total_mbps"] > 8.5


def test_it_runs_the_module_that_it_is_given(program: Path, tmp_path: Path) -> None:
    kmod = tmp_path / "slow"
    shutil.copytree(uml_build.KMOD, kmod, ignore=shutil.ignore_patterns(*uml_build.BUILT_FILES))
    pacing = kmod / "ndm_pacing.h"
    text = pacing.read_text()
    assert "ndm_pacing_percent = 120;" in text
    pacing.write_text(text.replace("ndm_pacing_percent = 120;", "ndm_pacing_percent = 30;"))
    slow = simulate(sim_build.build(kmod), lossy(), "ndm_tcp", 1)["flows"][0]
    own = simulate(program, lossy(), "ndm_tcp", 1)["flows"][0]
    assert slow["goodput_mbps"] < 0.8 * own["goodput_mbps"]
    pacing.write_text("no C")
    with pytest.raises(NdmError, match="does not compile"):
        sim_build.build(kmod)


@pytest.mark.parametrize("rule", ["probe", "drain", "return of slow start", "spared losses"])
def test_rules_of_the_module_fire(program: Path, tmp_path: Path, rule: str) -> None:
    """A run without the rule is another one: so the module sees what it sees in a kernel."""
    kmod = tmp_path / "without"
    rules.without(rule, uml_build.KMOD, kmod)
    without = sim_build.build(kmod)
    flows = "[[flows]]\n[[flows]]\nsender = 1\nstart_s = 2\nseconds = 8\n"
    full = lossy(("loss = 0.01", flows), ("queue_packets = 60", "queue_packets = 200"))
    far = lossy(("10_000_000", "40_000_000"), ("40_000", "100_000"))
    assert any(
        simulate(program, scenario, "ndm_tcp", seed)["flows"]
        != simulate(without, scenario, "ndm_tcp", seed)["flows"]
        for seed in range(1, 25)
        for scenario in (full, far)
    )


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("loss = 0.01", 'qdisc = "fq_codel"'), "fq_codel"),
        (("loss = 0.01", "offloads = true"), "GSO"),
        (("loss = 0.01", "jitter_us = 5000\nreorder = true"), "overtake"),
        (("[link]", "[host]\necn = true\n[link]"), "ECN"),
        (("[link]", "[host]\nread_wait_us = 20_000\n[link]"), "reads after more than 3 ms"),
    ],
)
def test_what_only_the_lab_has_is_refused(program: Path, change: tuple[str, str], why: str) -> None:
    scenario = lossy(change)
    assert why in refusal(scenario)
    with pytest.raises(NdmError, match=why):
        simulate(program, scenario, "reno", 1)


def board(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    path = tmp_path / "paths"
    path.mkdir()
    (path / "lossy.toml").write_text(LOSSY)
    (path / "codel.toml").write_text(LOSSY.replace("loss = 0.01", 'qdisc = "fq_codel"'))
    command = [sys.executable, "-m", "ndm_tcp.cli", "lab", "board", str(path), "--simulate"]
    command += ["--seeds", "2", "-o", str(tmp_path / "out"), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.usefixtures("program")
def test_a_board_says_what_it_left_out(tmp_path: Path) -> None:
    done = board(tmp_path, "--cc", "reno,ndm_tcp", "--json")
    assert done.returncode == 0, done.stderr
    assert "1 of 2 scenarios left out" in done.stderr
    shown = json.loads(done.stdout)
    assert {(c["scenario"], c["cc"], c["runs"]) for c in shown["cells"]} == {
        ("lossy", "reno", 2),
        ("lossy", "ndm_tcp", 2),
    }
    assert "--simulate" in (tmp_path / "out" / "board.md").read_text()
    # The lab's runs in the same folder are others.
    assert not [*(tmp_path / "out" / "runs").glob("lossy--*")]


@pytest.mark.usefixtures("program")
@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--cc", "htcp"), "--cc htcp: only the lab has"),
        (("--cc", "reno", "--engine", "ray"), "leave out --engine"),
    ],
)
def test_a_board_refuses_what_only_the_lab_has(
    tmp_path: Path, words: tuple[str, ...], why: str
) -> None:
    done = board(tmp_path, *words)
    assert done.returncode
    (line,) = done.stderr.splitlines()
    assert why in line


def test_only_a_missing_source_skips_what_needs_the_simulator() -> None:
    """Code that does not compile is a failure for every user."""
    with pytest.raises(NdmError, match="does not compile"):
        lab._skip_without_source(NdmError("the simulator does not compile: x.h:1: error"), "x")
    with pytest.raises(pytest.skip.Exception):
        lab._skip_without_source(NdmError("gcc is missing; apt-get install gcc"), "simulator")
