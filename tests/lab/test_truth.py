# SPDX-License-Identifier: GPL-2.0-only
"""The target window: by hand for a few paths, and on its way to the rounds."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ndm_tcp.datasets.builder import build
from ndm_tcp.datasets.readers import run_folder
from ndm_tcp.datasets.store import store
from ndm_tcp.errors import NdmError
from ndm_tcp.lab.guest import explore, uml_build
from ndm_tcp.lab.paths import scenario, truth
from ndm_tcp.training import derived

from ..conftest import TRACES

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


def test_random_loss_takes_a_multiple_of_it_and_its_root_jitter_its_delays() -> None:
    (lossy,) = ideals(PATH + "loss = 0.01\n")
    assert packets(lossy) == pytest.approx(1.14 * 50 + 0.5 * 50**0.5)
    (bursts,) = ideals(PATH + "burst = { start = 0.01, end = 0.3, loss = 0.5 }\n")
    assert packets(bursts) == pytest.approx(1.1 * 50 + 0.5 * 50**0.5)
    (both,) = ideals(PATH + "jitter_us = 10_000\nloss = 0.01\n")
    assert packets(both) == pytest.approx(1.34 * 80 + 3)
    (jittery,) = ideals(PATH + "jitter_us = 10_000\n")
    assert packets(jittery) == pytest.approx(1.1 * 75)
    (reordered,) = ideals(PATH + "jitter_us = 10_000\nreorder = true\n")
    assert packets(reordered) == pytest.approx(1.1 * 65)
    (all_three,) = ideals(PATH + "jitter_us = 10_000\nloss = 0.01\nreorder = true\n")
    assert packets(all_three) == packets(both)
    one, _ = ideals(PATH + "loss = 0.01\n[[flows]]\n[[flows]]\n")
    assert packets(one) == pytest.approx(1.14 * 25 + 0.5 * 25**0.5 + 3)


def test_the_target_window_in_bdps_is_that_of_a_lone_flow() -> None:
    path = scenario.parse(PATH, "name", "where")
    assert truth.target_bdp(path) == pytest.approx(1.1 * 50 / 47)


def test_acks_held_back_make_the_pipe_longer_by_the_longest_pause() -> None:
    (held,) = ideals(PATH + "ack_hold_us = [1_000, 6_000]\n")
    assert packets(held) == pytest.approx(1.1 * 56)
    (shaped,) = ideals(PATH + 'ack_hold_us = [1_000, 6_000]\nshaper = "sender"\n')
    assert packets(shaped) == packets(held), "its own drops are losses as others are"
    (lossy,) = ideals(PATH + "ack_hold_us = [1_000, 6_000]\nloss = 0.01\n")
    assert packets(lossy) == pytest.approx(1.14 * 56 + 0.5 * 56**0.5)


def test_offloads_let_a_gso_packet_wait_while_the_link_serves_it() -> None:
    (only,) = ideals(PATH + "offloads = true\n")
    assert packets(only) == pytest.approx(1.1 * 50 + 45)
    (slow,) = ideals(PATH.replace("12_000", "6_000") + "offloads = true\n")
    assert packets(slow) == pytest.approx(1.1 * 25 + 25), "no larger than a BDP"
    (fast,) = ideals(PATH.replace("12_000", "120_000") + "offloads = true\n")
    assert packets(fast) == pytest.approx(500 + 45 + 1.1 * 500 - 500)
    (held,) = ideals(PATH + "offloads = true\nack_hold_us = [1_000, 6_000]\n")
    assert packets(held) == pytest.approx(1.1 * 56 + 45 - 6), "in the pause it is served, too"
    (long,) = ideals(PATH + "offloads = true\nack_hold_us = [10_000, 60_000]\n")
    assert packets(long) == pytest.approx(1.1 * 110)
    (short,) = ideals(
        PATH.replace("queue_packets = 200", "queue_packets = 4") + "offloads = true\n"
    )
    assert packets(short) == pytest.approx(50 + 3), "a short queue does not take it"


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
    assert (beside.packets_per_s, beside.rtt_us) == (500, 0)
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
    rate = 'tbf = "rate 50mbit burst 5000kbit latency 50ms"\n'
    (jittery,) = ideals(text.replace("20ms", "20ms 2ms distribution normal") + rate)
    assert packets(jittery) == pytest.approx(1.1 * pps * (0.043 + 3 * 0.004) + 3)


def test_it_reaches_the_rounds_in_time() -> None:
    told = truth.Windows(np.array([0, 5_000_000]), np.array([1000.0, 500.0]), np.array([5e4, 0.0]))
    at_us, srtt_us = np.array([-1, 0, 4_999_999, 5_000_000]), np.full(4, 80_000)
    assert told.packets(at_us, srtt_us).tolist() == [0, 50, 50, 40]


def test_a_recorded_run_is_told_from_its_scenario() -> None:
    """By what its recording said of it when it was made."""
    folder = TRACES / "lab" / "train-11-compete--cubic--1"
    told = truth.windows((folder / "scenario.toml").read_text(), "cubic")
    assert sorted(told) == [0, 1]
    assert told[0].from_us.tolist() == [0, 1_500_000]
    assert told[0].packets_per_s.tolist() == [385.0, 192.5]
    assert told[0].rtt_us.tolist() == [139_792, 0]
    assert told[1].from_us.tolist() == [1_500_000, 10_000_000]
    assert told[1].rtt_us.tolist() == [0, 139_792]


def test_target_windows_are_derived_and_their_rules_are_in_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = TRACES / "lab" / "train-11-compete--cubic--1"
    build.build([source, TRACES / "cubic-00-clean"], tmp_path, quiet=True)
    table = store.load(tmp_path).rounds
    rows = table.to_pylist()
    assert {(r["flow_number"], r["under_test"]) for r in rows} == {(0, "cubic"), (1, "cubic"),
                                                                   (None, None)}  # fmt: skip
    found = derived.targets(table)
    for row, packets_ in zip(rows, found, strict=True):
        at_us = row["t_us"] + (row["start_us"] or 0)
        if row["flow_number"] is None:
            assert packets_ == 0, "nobody told of this path"
        elif row["flow_number"] == 0 and at_us < 1_500_000:
            assert packets_ == np.float32(385.0 * 139_792 / 1e6)
        elif row["flow_number"] == 0 or at_us < 10_000_000:
            assert packets_ == np.float32(192.5 * row["srtt_us"] / 1e6)
    starts = {r["flow_number"]: r["start_us"] for r in rows if r["flow_number"] is not None}
    assert 0 < starts[0] < 1_500_000 < starts[1] < 6_000_000
    files = {path: path.read_bytes() for path in tmp_path.iterdir()}
    truth.windows.cache_clear()
    one = truth.ideals
    monkeypatch.setattr(
        truth,
        "ideals",
        lambda *given: [replace(i, packets_per_s=2 * i.packets_per_s) for i in one(*given)],
    )
    now = derived.targets(store.load(tmp_path).rounds)
    truth.windows.cache_clear()
    changed = now != found
    assert changed.any() and np.allclose(now[changed], 2 * found[changed], rtol=1e-4)
    assert files == {path: path.read_bytes() for path in tmp_path.iterdir()}


def test_a_scenario_that_cannot_be_read_names_its_source(tmp_path: Path) -> None:
    """Its text is not looked at before training, and may be anybody's."""
    shutil.copytree(TRACES / "lab" / "train-11-compete--cubic--1", tmp_path / "a--cubic--1")
    path = tmp_path / "a--cubic--1" / "scenario.toml"
    traced = PATH.replace("rate_bps = 12_000_000", 'trace = "x"')
    bad = {"no TOML": "not valid TOML", 'topology = "moon"': "seconds: missing", traced: "/x: "}
    for text, problem in bad.items():
        path.write_text(text)
        build.build([tmp_path / "a--cubic--1"], tmp_path / "out", quiet=True)
        table = store.load(tmp_path / "out").rounds
        with pytest.raises(NdmError, match=f"a--cubic--1: .*{problem}.*build the dataset") as error:
            derived.targets(table)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("cut", ["cc", "sender_port", "flows", "realtime_ns"])
def test_a_run_whose_truth_is_cut_is_one_line(cut: str, tmp_path: Path) -> None:
    source = TRACES / "lab" / "train-11-compete--cubic--1"
    shutil.copytree(source, tmp_path / "run")
    for name in ("run.toml", "result.json"):
        path = tmp_path / "run" / name
        path.write_text(path.read_text().replace(f"{cut} =", "x =").replace(f'"{cut}":', '"x":'))
    if cut == "cc":  # of the flows it is an option
        (tmp_path / "run" / "run.toml").write_text((source / "run.toml").read_text())
    with pytest.raises(NdmError, match="lacks a number that goes with scenario.toml.*record") as e:
        run_folder.read(tmp_path / "run")
    assert "\n" not in str(e.value)


def test_the_exploring_module_is_made_of_known_sources_only(tmp_path: Path) -> None:
    made = explore.sources(uml_build.KMOD, tmp_path / "a")
    kbuild = (made / "Kbuild").read_text()
    assert kbuild.startswith("NDM_EXPLORE := y\n") and "$(NDM_EXPLORE)" in kbuild
    (made / "ndm_explore.h").unlink()
    with pytest.raises(NdmError, match="not one place"):
        explore.sources(made, tmp_path / "b")


def test_a_module_of_an_earlier_commit_explores_by_a_patch(tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.mkdir()
    (old / "ndm_tcp.c").write_text(f"{explore.BEFORE} */\nx = {explore.DECISION}, y);\n")
    made = explore.sources(old, tmp_path / "a")
    assert "ndm_explore(ca)" in (made / "ndm_tcp.c").read_text()
