# SPDX-License-Identifier: GPL-2.0-only
"""The window that would have been right: by hand for a few paths, and on its way to the rounds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ndm_tcp.datasets import run_folder
from ndm_tcp.datasets.records import IdealWindow
from ndm_tcp.errors import NdmError
from ndm_tcp.lab import explore, scenario, truth, uml_build

PATH = """
seconds = 10
topology = "path"
[link]
rate_bps = 12_000_000
rtt_us = 47_000
queue_packets = 200
"""
COALESCED_US = 50_000  # with the 3 ms for which the receiver gathers data


def ideals(text: str, cc: str = "ndm_tcp") -> list[truth.Ideal]:
    return truth.ideals(scenario.parse(text, "name", "where"), cc)


def packets(i: truth.Ideal) -> float:
    return i.packets_per_s * i.rtt_us / 1e6


def test_alone_it_is_the_bdp_and_a_tenth() -> None:
    (only,) = ideals(PATH)
    assert only.packets_per_s == 1000
    assert packets(only) == pytest.approx(1.1 * 50)


def test_random_loss_takes_what_is_lost_and_its_root_jitter_three_tenths_and_its_delay() -> None:
    (lossy,) = ideals(PATH + "loss = 0.01\n")
    assert packets(lossy) == pytest.approx(1.1 * 50 + 0.01 * 50 + 50**0.5 + 3)
    (bursts,) = ideals(PATH + "burst = { start = 0.01, end = 0.3, loss = 0.5 }\n")
    assert packets(bursts) == pytest.approx(1.1 * 50 + 50**0.5 + 3)
    (both,) = ideals(PATH + "jitter_us = 10_000\nloss = 0.01\n")
    assert packets(both) == pytest.approx(1.3 * 80 + 3)
    (jittery,) = ideals(PATH + "jitter_us = 10_000\n")
    assert packets(jittery) == pytest.approx(1.3 * 80 + 3)


def test_a_short_queue_is_not_to_be_filled() -> None:
    (only,) = ideals(PATH.replace("queue_packets = 200", "queue_packets = 4"))
    assert packets(only) == pytest.approx(50 + 3)


def test_a_step_of_the_rate_makes_a_step_of_the_window() -> None:
    before, after = ideals(PATH + "steps = [[4.0, 6_000_000]]\n")
    assert (before.at_s, after.at_s) == (0, 4)
    assert packets(after) == pytest.approx(1.1 * 25)


def test_equals_share_and_rivals_make_the_rtt() -> None:
    two = PATH + '[[flows]]\n[[flows]]\nsender = 1\nstart_s = 2.0\nseconds = 8\ncc = "%s"\n'
    alone, shared, second = ideals(two % "$cc")
    assert packets(alone) == pytest.approx(58) and shared.at_s == second.at_s == 2
    assert packets(shared) == pytest.approx(1.1 * 25 + 3)
    alone, beside, theirs = ideals(two % "cubic")
    assert packets(alone) == pytest.approx(58)
    assert (beside.packets_per_s, beside.rtt_us) == (500 * truth.RIVAL_SHARE, 0)
    assert theirs.rtt_us > 0, "beside ndm_tcp, CUBIC has no rival"


def test_codel_lets_five_ms_stand_and_three_packets_where_that_is_less() -> None:
    (only,) = ideals(PATH + 'qdisc = "fq_codel"\n')
    assert packets(only) == pytest.approx(50 + truth.QUEUE_SHARE * 5)
    cake = PATH.replace("queue_packets = 200", 'qdisc = "cake"')
    slow = cake.replace("12_000_000", "1_200_000")
    one, other = ideals(slow + "[[flows]]\n[[flows]]\n")
    assert packets(one) == packets(other) == pytest.approx((5 + 3) / 2)


def test_a_rival_does_not_fill_the_queue_of_another_flow() -> None:
    two = 'qdisc = "%s"\n[[flows]]\n[[flows]]\nsender = 1\ncc = "cubic"\n'
    beside, _ = ideals(PATH + two % "fq")
    assert packets(beside) == pytest.approx(1.1 * 25 + 3)
    beside, _ = ideals(PATH + two % "droptail")
    assert beside.rtt_us == 0


def test_on_the_loopback_device_delay_counts_twice() -> None:
    text = '\nseconds = 5\ntopology = "lo"\n[lo]\nnetem = "delay 20ms"\n'
    (free,) = ideals(text)
    assert packets(free) == pytest.approx(truth.RECEIVE_WINDOW_PACKETS)
    (limited,) = ideals(text + 'tbf = "rate 50mbit burst 5000kbit latency 50ms"\n')
    pps = 50e6 / 8 / 65536
    assert packets(limited) == pytest.approx(1.1 * pps * 0.043 + 3)


def test_it_reaches_the_rounds_in_time() -> None:
    ideal = IdealWindow(np.array([0, 5_000_000]), np.array([1000.0, 500.0]), np.array([5e4, 0.0]))
    at_us, srtt_us = np.array([-1, 0, 4_999_999, 5_000_000]), np.full(4, 80_000)
    assert ideal.packets(at_us, srtt_us).tolist() == [0, 50, 50, 40]


def test_what_is_written_is_read_and_damage_is_named(tmp_path: Path) -> None:
    path = tmp_path / "ideal.csv"
    path.write_text(truth.table(scenario.parse(PATH, "name", "where"), "cubic", 7_000_000_000))
    read = run_folder.read_ideals(path)[20001]
    assert read.from_us.tolist() == [7_000_000] and read.rtt_us[0] == 55_000
    path.write_text("port,t_ns,packets_per_s,rtt_us\n20001,x,1,1\n")
    with pytest.raises(NdmError, match=r"ideal.csv:2: expected port"):
        run_folder.read_ideals(path)


def test_the_exploring_module_is_made_of_known_sources_only(tmp_path: Path) -> None:
    made = explore.sources(uml_build.KMOD, tmp_path / "a")
    assert "ndm_explore(ca)" in (made / "ndm_tcp.c").read_text()
    (made / "ndm_tcp.c").write_text("int nothing;\n")
    with pytest.raises(NdmError, match="not one place"):
        explore.sources(made, tmp_path / "b")
