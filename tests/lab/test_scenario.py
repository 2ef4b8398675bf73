# SPDX-License-Identifier: GPL-2.0-only
"""Scenarios: what is written is what runs; mistakes are one line with file and key."""

from __future__ import annotations

from pathlib import Path

import pytest

from ndm_tcp.errors import NdmError
from ndm_tcp.lab.guest import collect
from ndm_tcp.lab.paths.scenario import MAX_SECONDS, load, parse

from ..conftest import ROOT

PATH = """
seconds = 5
topology = "path"
[link]
rate_bps = 10_000_000
rtt_us = 40_000
queue_packets = 60
"""
LOOPBACK = 'seconds = 5\ntopology = "lo"\n[lo]\nnetem = "delay 10ms"\n'


@pytest.mark.parametrize(
    "path", sorted((ROOT / "lab" / "scenarios").rglob("*.toml")), ids=lambda path: path.stem
)
def test_shipped_scenarios_are_whole(path: Path) -> None:
    scenario = load(path)
    assert scenario.name == path.stem
    assert scenario.flows or scenario.web


def test_defaults() -> None:
    scenario = parse(PATH, "x", "x.toml")
    (flow,) = scenario.flows
    assert (flow.cc, flow.seconds, flow.sender) == ("$cc", 5.0, 0)
    assert scenario.algorithms("bbr") == ["bbr"]
    assert scenario.senders() == 1


def test_flows_last_whole_seconds() -> None:
    scenario = parse(PATH + "[[flows]]\nseconds = 1.5\nstart_s = 0.5\n", "x", "x.toml")
    assert scenario.flows[0].seconds == 2
    assert scenario.end_s() == 5


SHARED = PATH + "[[flows]]\ncount = 3\n[[flows]]\nsender = 1\nstart_s = 2\nseconds = 3\n"


def test_flows_beside_others_begin_within_an_rtt_by_the_seed() -> None:
    scenario = parse(SHARED, "x", "x.toml")
    begun = [[flow.start_s for flow in scenario.begun(seed).flows] for seed in range(200)]
    assert begun[7] == [flow.start_s for flow in scenario.begun(7).flows]
    assert {starts[0] for starts in begun} == {0}
    for number, start_s in ((1, 0), (2, 0), (3, 2)):
        drawn = sorted(starts[number] - start_s for starts in begun)
        assert -1e-9 <= drawn[0] < 0.002 and 0.038 < drawn[-1] <= 0.04 + 1e-9
        assert len(set(drawn)) > 190
    assert all(starts[1] != starts[2] for starts in begun)
    other = parse(SHARED, "y", "y.toml")
    assert [flow.start_s for flow in other.begun(7).flows] != begun[7]
    assert scenario.draws() and not parse(PATH, "x", "x.toml").draws()
    for alone in (PATH, LOOPBACK):
        scenario = parse(alone, "x", "x.toml")
        assert scenario.begun(3) == scenario


def test_count_and_algorithms() -> None:
    text = PATH + '[[flows]]\ncount = 3\n[[flows]]\ncc = "cubic"\nsender = 2\n'
    scenario = parse(text, "x", "x.toml")
    assert [flow.cc for flow in scenario.flows] == ["$cc"] * 3 + ["cubic"]
    assert scenario.flows[3].seconds == 5
    assert scenario.algorithms("cubic") == ["cubic"]
    assert scenario.algorithms("reno") == ["reno", "cubic"]
    assert scenario.senders() == 3


PUBLISHED = '[[published]]\ncc = "reno"\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (PATH.replace("rtt_us", "rtt_ms"), r"link.rtt_ms: unknown key; did you mean rtt_us"),
        (PATH + "color = 1\n", r"link.color: unknown key; known: rtt_us"),
        ("colour = 1\n" + PATH, r"colour: unknown key"),
        (PATH.replace("10_000_000", "10"), r"link.rate_bps: 10 is not in"),
        (PATH.replace("10_000_000", "1e7"), r"link.rate_bps: expected a whole number"),
        (PATH.replace("10_000_000", "true"), r"link.rate_bps: expected a whole number, got true"),
        (PATH.replace("40_000", "40_000_000_000"), r"link.rtt_us: .* us"),
        (PATH.replace("queue_packets = 60", ""), r"link.queue_packets: 0 is not in"),
        (PATH + "loss = 1.5\n", r"link.loss: 1.5 is not in \[0, 1\]"),
        (PATH + "burst = { start = 0.1 }\n", r"link.burst.end: missing"),
        (PATH + 'qdisc = "cake"\n', r"link.queue_packets: cake"),
        (PATH + "bucket_packets = 0\n", r"link.bucket_packets: 0 is not in"),
        (PATH + 'qdisc = "red"\n', r"link.qdisc: 'red' is not one of droptail"),
        (PATH + 'trace = "a.trace"\n', r"link.trace: gives the rates; leave out rate_bps"),
        (PATH + "steps = [[2.0, 9_000_000], [1.0, 9_000_000]]\n", r"link.steps: times must grow"),
        (PATH + "steps = [2.0]\n", r"link.steps: expected \[s, bit/s\]"),
        (PATH + "[[flows]]\nbytes = 1\n", r"flows\[0\].bytes: unknown key"),
        (PATH + '[[flows]]\ncc = "a b"\n', r"flows\[0\].cc: 'a b'"),
        (PATH + "[[flows]]\nextra_rtt_us = 1\n[[flows]]\n", r"flows\[1\].extra_rtt_us"),
        (PATH + "[flows]\n", r"flows: write \[\[flows\]\]"),
        (PATH + "[web]\nobjects = 3\nbytes = 2\n", r"web.bytes: 2 is not in"),
        (PATH + '[lo]\nnetem = ""\n', r"lo: topology 'path' has none"),
        (PATH.replace("path", "ring"), r"topology: 'ring' is not one of lo, path"),
        (LOOPBACK.replace("10ms", "10ms; reboot"), r"lo.netem: only tc's words"),
        (LOOPBACK + "[[flows]]\nsender = 1\n", r"flows\[0\]: the loopback device has one"),
        ('seconds = 5\ntopology = "path"\n', r"link: missing"),
        ("seconds = ", r"not valid TOML"),
        (PATH.replace("10_000_000", "1" * 400), r"link.rate_bps: a number of more than 18 digits"),
        (PATH.replace("40_000", "9" * 5000), r"not valid TOML"),
        ("seconds = " + "[" * 3000 + "]" * 3000, r"not valid TOML|seconds: expected"),
        (PATH.replace("seconds = 5", "seconds = 90_000"), r"seconds: 90000 is not in"),
        (PATH + "[[published]]\nmbps = 3\n", r"published\[0\].cc: missing"),
        (PATH + PUBLISHED + 'mbps = "fast"\n', r"published\[0\].mbps: expected a number"),
        (PATH + PUBLISHED + "day = 2020-01-01\n", r"published\[0\].day: expected a number or"),
        (PATH + PUBLISHED + "mine = inf\n", r"published\[0\].mine: expected a number"),
        (PATH + PUBLISHED + f"mine = {'9' * 400}\n", r"published\[0\].mine: a number of more than"),
        (PATH + PUBLISHED + f"a{'.a' * 3000} = 1\n", r"published\[0\].a: expected a number or"),
        (PATH + f"slot_us{'.a' * 3000} = 1\n", r"link.slot_us: expected \[shortest, longest\]"),
        (PATH + f"steps = [{{a{'.a' * 3000} = 1}}]\n", r"link.steps: expected \[s, bit/s\], got"),
        (PATH + f"loss{'.a' * 3000} = 1\n", r"link.loss: expected a number, got a table"),
        (PATH + PUBLISHED + "mbps = nan\n", r"published\[0\].mbps: expected a number"),
    ],
)
def test_mistakes_are_one_line_with_file_and_key(text: str, said: str) -> None:
    with pytest.raises(NdmError, match=r"^x\.toml: .*" + said) as error:
        parse(text, "x", "x.toml")
    assert "\n" not in str(error.value)


def test_the_docs_say_how_long_a_flow_may_last() -> None:
    assert f"at most {MAX_SECONDS:,} s" in (ROOT / "docs" / "lab.md").read_text()


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(NdmError, match=r"none\.toml: No such file"):
        load(tmp_path / "none.toml")


def test_fairness() -> None:
    assert collect.jain([5, 5, 5]) == pytest.approx(1)
    assert collect.jain([9, 0, 0]) == pytest.approx(1 / 3)
    assert collect.jain([0, 0]) == 0
