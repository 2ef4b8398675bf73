# SPDX-License-Identifier: GPL-2.0-only
"""The keys of a path that people have do what they say, measured in a guest; and the suite."""

from __future__ import annotations

import csv
import io
import itertools
import json
import struct
import tomllib
from pathlib import Path
from typing import Any

import pytest
import zstandard

from ndm_tcp.errors import NdmError
from ndm_tcp.lab.guest import run as lab_run
from ndm_tcp.lab.guest import suite
from ndm_tcp.lab.paths import access_paths, scenario, truth

from ..kmod.lab import need_kernel
from ..kmod.lab import scenario as parsed
from .test_run import text_of

PATH = """
seconds = 3
topology = "path"
[link]
rate_bps = 20_000_000
rtt_us = 20_000
queue_packets = 100
"""


def window_run(text: str, out: Path, light: bool = True, cwnd: int = 12) -> dict[str, Any]:
    """A run of a constant window, packets; by default less than the BDP: without a queue."""
    need_kernel()
    return lab_run.run(parsed(text), "fixed_cwnd", 1, out, params={"cwnd": cwnd}, light=light)


def ack_times_ns(folder: Path) -> list[int]:
    """When ACKs of the first flow came to the sender."""
    data = memoryview(bytes_of(folder / "sender.pcap.zst"))
    at, times = 24, []
    while at < len(data):
        s, ns, kept, _ = struct.unpack_from("<IIII", data, at)
        (port,) = struct.unpack_from(">H", data, at + 16 + 22)
        if port == 20_001:  # the destination's: an ACK
            times.append(s * 1_000_000_000 + ns)
        at += 16 + kept
    return times


def polls(folder: Path) -> list[dict[str, int]]:
    """tcp_info of the first flow over time."""
    rows = map(json.loads, text_of(folder / "tcp_info.jsonl.zst").splitlines())
    return [row for row in rows if row["sport"] == 20_001]


def bytes_of(path: Path) -> bytes:
    return zstandard.ZstdDecompressor().stream_reader(path.read_bytes()).read()


def test_slots_deliver_data_in_groups(tmp_path: Path) -> None:
    plain = window_run(PATH, tmp_path / "plain", light=False)
    held = window_run(PATH + "slot_us = [15_000, 15_000]\n", tmp_path / "held", light=False)

    def groups(name: str) -> int:
        """ACKs that come over 5 ms after the one before: the first ones of groups."""
        times = ack_times_ns(tmp_path / name)
        assert len(times) > 100
        return sum(b - a > 5e6 for a, b in itertools.pairwise(times))

    # Each window of the 3 s waits for a slot: at most one in 15 ms.
    assert 60 < groups("held") <= 201 < 3 * groups("held")
    before, after = (r["flows"][0]["rtt_mean_ms"] for r in (plain, held))
    assert before + 4 < after < before + 16


def test_thin_ack_paths_queue_and_drop_acks(tmp_path: Path) -> None:
    need_kernel()
    text = PATH + "ack_rate_bps = 100_000\nack_queue_packets = 9\n"
    result = lab_run.run(parsed(text), "cubic", 1, tmp_path / "run", light=True)
    rows = list(csv.DictReader(io.StringIO(text_of(tmp_path / "run" / "qdisc.csv.zst"))))
    queue = [row for row in rows if (row["device"], row["kind"]) == ("b1", "pfifo")]
    assert max(int(row["qlen"]) for row in queue) == 9
    assert int(queue[-1]["drops"]) > 100
    clock_ns = tomllib.loads((tmp_path / "run" / "run.toml").read_text())["clock"]["realtime_ns"]
    sent = {
        round((int(row["t_ns"]) - clock_ns) / 1e7): (int(row["bytes"]), int(row["packets"]))
        for row in queue
    }
    (early, first), (late, last) = sent[100], sent[250]
    assert (late - early) * 8 / 1.5 == pytest.approx(100_000, rel=0.05)
    # An ACK has 52 bytes, with SACK blocks 64 and more; a frame has 14 more.
    assert 52 <= (late - early) / (last - first) < 62
    assert result["drops"]["random"] == 0, "lost ACKs are no lost data"
    # 52 bytes each, so 240 in a second, in place of 860; a queue of nine takes 37 ms.
    assert 40 < result["flows"][0]["rtt_mean_ms"] < 120


def test_an_rtt_steps_at_its_times_and_nothing_overtakes(tmp_path: Path) -> None:
    steps = "rtt_steps = [[1.0, 80_000], [2.0, 30_000]]\n"
    result = window_run(PATH + steps, tmp_path / "run")
    clock_ns = tomllib.loads((tmp_path / "run" / "run.toml").read_text())["clock"]["realtime_ns"]
    srtt_ms = {
        round((row["t_ns"] - clock_ns) / 1e7): row["srtt_us"] / 1e3
        for row in polls(tmp_path / "run")
    }
    # The receiver lets data gather for 3 ms; smoothing takes some round trips.
    assert 20 < srtt_ms[95] < 30 and 75 < srtt_ms[198] < 90 and 30 < srtt_ms[298] < 42
    assert result["flows"][0]["retransmissions"] == 0
    assert result["drops"] == {"random": 0, "queue": 0}
    # A window that is in both directions and at the bottleneck when the RTT falls.
    window_run(PATH + steps, tmp_path / "order", cwnd=100)
    window_run(PATH + steps + "reorder = true\n", tmp_path / "jumps", cwnd=100)
    assert max(row["reordering"] for row in polls(tmp_path / "order")) == 3
    assert max(row["reordering"] for row in polls(tmp_path / "jumps")) > 3


def test_the_target_window_follows_the_rtt_and_waits_for_slots() -> None:
    def packets(text: str) -> list[float]:
        found = truth.ideals(scenario.parse(text, "name", "where"), "ndm_tcp")
        return [i.packets_per_s * i.rtt_us / 1e6 for i in found]

    (steady,) = packets(PATH)
    assert packets(PATH + "rtt_steps = [[1.0, 43_000]]\n") == [steady, pytest.approx(2 * steady)]
    assert packets(PATH + "slot_us = [1_000, 23_000]\n") == [pytest.approx(2 * steady)]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("slot_us = 5", r"link.slot_us: expected \[shortest, longest\]"),
        ("slot_us = [5, 1]", "link.slot_us: 5 is not in"),
        ("ack_rate_bps = 100_000", "link.ack_queue_packets: 0 is not in"),
        ("ack_queue_packets = 5", "link.ack_rate_bps: 0 is not in"),
        ("rtt_steps = [[2.0, 9_000], [1.0, 9_000]]", "link.rtt_steps: times must grow"),
        ("rtt_steps = [[2.0, 90_000_000]]", r"link.rtt_steps: 9e\+07 is not in .* us"),
        ("rtt_steps = [2.0]", r"link.rtt_steps: expected \[s, us\]"),
    ],
)
def test_mistakes_are_one_line(line: str, said: str) -> None:
    with pytest.raises(NdmError, match=rf"^x\.toml: (scenario\.)?{said}"):
        scenario.parse(f"{PATH}{line}\n", "x", "x.toml")


# --- the suite -------------------------------------------------------------------------------
@pytest.mark.parametrize("name", access_paths.SUITES)
def test_a_suite_is_what_its_seed_draws(name: str) -> None:
    folder, made = access_paths.FOLDER / name, access_paths.scenarios(name)
    assert {path.name for path in folder.iterdir()} == set(made)
    for file, text in made.items():
        assert (folder / file).read_text() == text


def families(name: str) -> dict[str, list[scenario.Scenario]]:
    """Family to its scenarios in a suite."""
    by: dict[str, list[scenario.Scenario]] = {}
    for one in suite.load_suite(name):
        by.setdefault(one.name.split("-", 2)[2], []).append(one)
    return by


@pytest.mark.parametrize(("name", "times"), [("access", 1), ("training-access", 4)])
def test_each_family_is_there_two_to_four_times_and_short(name: str, times: int) -> None:
    by = families(name)
    trained = name == "training-access"
    assert set(by) == set(access_paths.FAMILIES) - set(access_paths.NOT_TRAINED if trained else ())
    assert len(by["overtaking"]) == 6 * times
    others = [found for family, found in by.items() if family != "overtaking"]
    assert all(2 * times <= len(found) <= 4 * times for found in others)
    assert all(s.end_s() <= 30 for found in by.values() for s in found)


def test_no_path_to_train_on_or_to_compare_by_is_near_one_that_a_board_shows() -> None:
    shown = [s.link for name in ("access", "published", "ccbench") for s in suite.load_suite(name)]
    drawn = [s for name in ("training-access", "validation-access") for s in suite.load_suite(name)]
    assert len(drawn) > 150
    for mine in drawn:
        for other in filter(None, shown):
            assert mine.link is not None
            far_rate = abs(mine.link.rate_bps / other.rate_bps - 1) > 0.09
            assert far_rate or abs(mine.link.rtt_us / other.rtt_us - 1) > 0.09, mine.name


@pytest.mark.parametrize("name", access_paths.SUITES)
def test_families_have_what_their_names_say(name: str) -> None:
    by = families(name)
    links = {name: [s.link for s in found if s.link] for name, found in by.items()}
    assert all(link.slot_us[1] for link in links["slots"])
    assert all(link.ack_hold_us[1] for link in links["ack-bursts"])
    for link in links["thin-acks"]:
        assert 20 <= link.rate_bps / link.ack_rate_bps <= 80
    assert all(link.queue_packets == 1 < link.bucket_packets for link in links["policer"])
    assert all(len(link.rtt_steps) == 1 for link in links["reroute"])
    assert all(len(link.rtt_steps) > 2 for link in links["low-orbit"])
    assert all(len(link.steps) > 30 for link in links["cellular"])
    assert all(300_000 <= link.rate_bps <= 1_000_000 for link in links["slow"])
    assert all(link.ack_hold_us[1] >= 2_000 for link in links["near-ack-bursts"])
    assert all(link.rtt_us <= 6_000 for link in links["near-ack-bursts"])
    assert all(link.loss >= 0.03 for link in links["fast-heavy-loss"])
    assert all(link.rate_bps >= 60_000_000 for link in links["fast-heavy-loss"])
    jittery = links.get("fast-jitter", [])
    assert all(link.rate_bps >= 60_000_000 for link in jittery)
    assert all(link.jitter_us >= 0.03 * link.rtt_us - 1 for link in jittery)
    assert not any(link.reorder for link in jittery)
    assert all(link.offloads and link.rtt_us <= 5_000 for link in links["lan"])
    for kind in ("fq-codel-ecn", "cake-ecn"):
        assert all(
            s.host.ecn and s.link and s.link.qdisc == kind[:-4].replace("-", "_") for s in by[kind]
        )
    assert all(
        s.algorithms("x") == ["cubic", "x"] and len(s.flows) == 4 for s in by["three-cubics"]
    )
    for s in by["late-cubic"]:
        assert [f.cc for f in s.flows] == ["$cc"] * 4 + ["cubic"] and s.flows[4].start_s > 3
    assert all(len({f.start_s for f in s.flows}) == 4 for s in by["staggered"])
    assert all(link.loss and link.ack_loss for link in links["loss-both-ways"])
