# SPDX-License-Identifier: GPL-2.0-only
"""`ndm ab` on flows with known truth: measures, intervals, warnings, logs of ss, bad input."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ndm_tcp.ab import compare, flows, host, report
from ndm_tcp.ab.flows import Ends, Flow, Poll, Watched, measure
from ndm_tcp.cli import run_command
from ndm_tcp.intervals import ratio, welch

Capture = pytest.CaptureFixture[str]
ENDS = Ends("10.0.0.1", 443, "203.0.113.9", 40000)
POLL = Poll(
    time_s=0.0, cc="cubic", acked_bytes=0, sent=0, retransmitted=0, rtt_us=0, min_rtt_us=0,
    inflight=0, app_limited=False, busy_us=0, rwnd_limited_us=0, sndbuf_limited_us=0,
)  # fmt: skip


def bulk(seconds: int = 10, **changes: Any) -> list[Poll]:
    """10 Mbit/s, a hundredth retransmitted, RTT 40 or 60 ms above 30 ms; 1000 packets before."""
    found = []
    for k in range(seconds + 1):
        poll = POLL._replace(
            time_s=100.0 + k,
            acked_bytes=1_448_000 + 1_250_000 * k,
            sent=1000 + 1000 * k,
            retransmitted=5 + 10 * k,
            rtt_us=40_000 if k % 2 else 60_000,
            min_rtt_us=31_000 if k == 0 else 30_000,
            inflight=40,
            busy_us=7_000_000 + 1_000_000 * k,
        )
        found.append(poll._replace(**{n: v(k) if callable(v) else v for n, v in changes.items()}))
    return found


def measured(polls: list[Poll], ends: Ends = ENDS, least_s: float = 2.0) -> Flow:
    seen = Watched(polls[0])
    for poll in polls[1:]:
        seen.add(poll)
    return measure(ends, seen, least_s)


def test_a_flow_counts_from_its_first_poll() -> None:
    flow = measured(bulk())
    assert flow.goodput_mbps == pytest.approx(10)
    assert flow.retransmission_rate == pytest.approx(0.01)
    assert flow.rtt_ms == pytest.approx((6 * 60 + 5 * 40) / 11)
    assert flow.base_rtt_ms == 30 and flow.left_out == ""
    assert (flow.start_s, flow.end_s) == (100, 110)


def test_counters_of_segments_may_wrap() -> None:
    """They are u32 in the kernel: at 100 Gbit/s in less than ten minutes."""
    wraps = bulk(
        sent=lambda k: (2**32 - 5000 + 1000 * k) % 2**32,
        retransmitted=lambda k: (2**32 - 50 + 10 * k) % 2**32,
    )
    assert measured(wraps).retransmission_rate == pytest.approx(0.01)


def test_goodput_is_by_the_time_with_data_in_flight() -> None:
    """Busy for six of ten seconds; without the counter, as the polls show it."""
    assert measured(bulk(busy_us=lambda k: 600_000 * k)).goodput_mbps == pytest.approx(10 / 0.6)
    idle = bulk(
        busy_us=None,
        inflight=lambda k: 0 if k > 6 else 40,
        acked_bytes=lambda k: 1_250_000 * min(k, 6),
    )
    assert measured(idle).goodput_mbps == pytest.approx(10)
    stalled = bulk(busy_us=None, acked_bytes=lambda k: 1_250_000 * min(k, 5))
    assert measured(stalled).goodput_mbps == pytest.approx(5)


@pytest.mark.parametrize(
    ("reason", "polls"),
    [
        (flows.ONCE, bulk(0)),
        (flows.SHORT, bulk(1)),
        (flows.SWITCHED, bulk(cc=lambda k: "bbr" if k > 5 else "cubic")),
        (flows.IDLE, bulk(busy_us=lambda k: 400_000 * k)),
        (flows.APP_LIMITED, bulk(app_limited=lambda k: k > 4)),
        (flows.RECEIVER_LIMITED, bulk(rwnd_limited_us=lambda k: 600_000 * k)),
        (flows.SENDBUF_LIMITED, bulk(sndbuf_limited_us=lambda k: 600_000 * k)),
        ("", bulk(app_limited=lambda k: k > 6, rwnd_limited_us=lambda k: 400_000 * k)),
    ],
)
def test_flows_that_show_nothing_of_their_algorithm(reason: str, polls: list[Poll]) -> None:
    assert measured(polls).left_out == reason


def test_flows_to_this_host_itself() -> None:
    for peer in ("127.0.0.1", "::1", ENDS.address):
        assert measured(bulk(), ENDS._replace(peer=peer)).left_out == flows.LOOPBACK


def test_addresses_and_networks() -> None:
    assert flows.plain("[::ffff:192.0.2.7]") == "192.0.2.7"
    assert flows.plain("[fe80::1%eth0]") == "fe80::1" and flows.plain("name") == "name"
    assert flows.plain("[fe80::1]%v0") == "fe80::1", "as ss prints a socket bound to a device"
    assert flows.prefix("192.0.2.7") == "192.0.2.0/24"
    assert flows.prefix("2001:db8:1:2::3") == "2001:db8:1::/48" and flows.prefix("name") == "name"


def drawn(
    cc: str, n: int, mbps: float, rng: np.random.Generator, base_ms: float = 30.0, net: int = 113
) -> list[Flow]:
    """Flows whose goodput and RTT scatter by half around their group's."""
    return [
        Flow(
            ends=Ends("10.0.0.1", 443, f"203.0.{net}.{k % 250}", 40000 + k),
            cc=cc,
            cgroup="",
            start_s=float(k % 7),
            end_s=20.0,
            goodput_mbps=mbps * float(np.exp(rng.normal(0, 0.5))),
            rtt_ms=2 * base_ms * float(np.exp(rng.normal(0, 0.2))),
            base_rtt_ms=base_ms * float(np.exp(rng.normal(0, 0.3))),
            retransmission_rate=float(rng.beta(1, 50)),
            left_out="",
        )
        for k in range(n)
    ]


def pair_of(one: list[Flow], other: list[Flow]) -> compare.Pair:
    (pair,) = compare.compare([*one, *other], reference=other[0].cc).pairs
    return pair


@pytest.mark.parametrize("n", [4, 12, 60])
def test_intervals_hold_the_truth_19_times_of_20(n: int) -> None:
    rng = np.random.default_rng(n)
    trials, truth = 600, 1.3
    holds = same = 0
    for _ in range(trials):
        logs = rng.normal(0, 0.5, n), rng.normal(0, 0.5, n + 3)
        found = ratio(list(logs[0] + np.log(truth)), list(logs[1]))
        holds += found.low <= truth <= found.high
        again = ratio(list(logs[0]), list(logs[1]))
        same += not again.significant
    # 0.95, and four standard errors of 600 trials
    assert 0.914 <= holds / trials <= 0.986 and same == holds


def test_welch_is_as_in_the_books() -> None:
    """Variances 2.5 and 10 of five values each: s.e. sqrt(2.5), freedom 5.88, so t is 2.571."""
    found = welch([18, 19, 20, 21, 22], [10, 12, 14, 16, 18])
    assert found[0] == pytest.approx(6)
    assert found[2] - found[0] == pytest.approx(2.571 * np.sqrt(2.5))
    assert found[0] - found[1] == pytest.approx(2.571 * np.sqrt(2.5))
    assert welch([1, 1, 1], [1, 1, 1]) == (0, 0, 0)
    assert welch([1, 2], [1, 2, 3])[2] == np.inf


def test_an_algorithm_that_gets_more() -> None:
    rng = np.random.default_rng(3)
    pair = pair_of(drawn("bbr", 80, 15, rng), drawn("cubic", 90, 10, rng))
    assert not pair.warnings and report.verdict(pair) == "more goodput"
    assert pair.goodput.low < 1.5 < pair.goodput.high
    assert not pair.rtt.significant
    low, high = pair.retransmission_rate[1:]
    assert low < 0 < high
    other = pair_of(drawn("bbr", 80, 6, rng), drawn("cubic", 90, 10, rng))
    assert report.verdict(other) == "less goodput"


def test_a_share_is_between_0_and_1() -> None:
    """Two of four that lost everything: Student's interval would begin below 0 and end above 1."""
    rng = np.random.default_rng(1)
    few = [
        replace(f, retransmission_rate=r)
        for f, r in zip(drawn("a", 4, 10, rng), (0, 0, 1, 1), strict=True)
    ]
    (group,) = compare.compare(few).groups
    share = group.retransmission_rate
    assert share and (share.low, share.high) == (0, 1) and share.mean == 0.5
    (group,) = compare.compare(few[:2]).groups
    assert "[not known]" in report.group_rows([group])[0][7]


def test_the_same_algorithm_on_the_same_paths_is_not_warned_of() -> None:
    rng = np.random.default_rng(8)
    differ = warned = 0
    for _ in range(40):
        pair = pair_of(drawn("a", 30, 10, rng), drawn("b", 40, 10, rng))
        differ += pair.goodput.significant
        warned += bool(pair.warnings)
    assert differ <= 6 and warned <= 6


def warned(one: list[Flow], other: list[Flow]) -> str:
    pair = pair_of(one, other)
    assert report.verdict(pair) == "see the warnings"
    return " ".join(pair.warnings)


def test_paths_that_differ_are_warned_of() -> None:
    rng = np.random.default_rng(5)
    cubic = drawn("cubic", 40, 10, rng)
    longer = warned(drawn("bbr", 40, 10, rng, base_ms=60), cubic)
    assert re.search(r"baseline RTTs, medians \S+ ms and \S+ ms", longer)
    elsewhere = drawn("bbr", 30, 10, rng) + drawn("bbr", 15, 10, rng, net=7)
    assert "33 % of the flows go to networks that the other" in warned(elsewhere, cubic)
    # nothing in common, however few
    assert "100 % of the flows go" in warned(drawn("bbr", 3, 10, rng, net=7), cubic)


@pytest.mark.parametrize(("one_ms", "other_ms", "differ"), [(0.003, 0.03, False), (0.1, 0.3, True)])
def test_what_a_host_adds_makes_no_other_path(one_ms: float, other_ms: float, differ: bool) -> None:
    rng = np.random.default_rng(9)
    pair = pair_of(drawn("bbr", 40, 10, rng, base_ms=one_ms), drawn("cubic", 40, 10, rng, other_ms))
    assert any("baseline RTTs" in text for text in pair.warnings) == differ


def test_flows_without_a_baseline_rtt_leave_the_rest_to_compare() -> None:
    rng = np.random.default_rng(5)
    cubic, bbr = drawn("cubic", 40, 10, rng), drawn("bbr", 40, 10, rng, base_ms=60)
    bbr[3] = replace(bbr[3], base_rtt_ms=0.0)
    assert "baseline RTTs, medians" in warned(bbr, cubic)
    bbr[:25] = [replace(flow, base_rtt_ms=0.0) for flow in bbr[:25]]
    assert "the paths may differ: of most flows of a group" in warned(bbr, cubic)


def test_few_flows_other_times_and_much_that_is_left_out() -> None:
    rng = np.random.default_rng(6)
    cubic, bbr = drawn("cubic", 40, 10, rng), drawn("bbr", 40, 10, rng)
    assert "too few flows: bbr has 9" in warned(bbr[:9], cubic)
    later = [replace(flow, start_s=30.0, end_s=40.0) for flow in bbr]
    assert "never ran at the same time" in warned(later, cubic)
    left_out = [replace(flow, left_out=flows.APP_LIMITED) for flow in drawn("bbr", 30, 10, rng)]
    assert "much more of one group is left out" in warned(bbr + left_out, cubic)
    found = compare.compare([*bbr, *left_out, *cubic])
    assert found.groups[0].left_out == {flows.APP_LIMITED: 30} and found.groups[0].flows == 40


def test_groups_by_other_keys_and_the_reference() -> None:
    rng = np.random.default_rng(7)
    made = [replace(flow, cgroup=f"/{k % 2}") for k, flow in enumerate(drawn("cubic", 40, 9, rng))]
    assert [g.name for g in compare.compare(made, "cgroup").groups] == ["/0", "/1"]
    assert [g.name for g in compare.compare(made, "port").groups] == ["443"]
    assert [g.name for g in compare.compare(made, "prefix").groups] == ["203.0.113.0/24"]
    three = [*made, *drawn("bbr", 30, 9, rng), *drawn("reno", 20, 9, rng)]
    found = compare.compare(three)
    assert [(p.name, p.reference) for p in found.pairs] == [("bbr", "cubic"), ("reno", "cubic")]
    assert any("of 2 intervals" in text for text in found.warnings)
    for only in (["bbr", "reno"], ["bbr", "reno", "bbr"]):
        (pair,) = compare.compare(three, only=only, reference="reno").pairs
        assert (pair.name, pair.reference) == ("bbr", "reno")


# --- the counters of the host ---------------------------------------------------------------------
def test_connections_opened_are_read(tmp_path: Path) -> None:
    snmp = tmp_path / "snmp"
    snmp.write_text(
        "Ip: A\nIp: 1\nTcp: RtoMin ActiveOpens PassiveOpens AttemptFails\nTcp: 200 12 30 2\n"
    )
    assert host.opened(snmp) == (12, 30, 2)


def test_scans_do_not_hide_connections_that_no_poll_saw(monkeypatch: pytest.MonkeyPatch) -> None:
    """A SYN that is answered and then reset is a failed attempt, but was never opened."""
    monkeypatch.setattr(host, "opened", lambda: (112, 230, 502))
    seen = host.Host(1.0, opened_before=(100, 200, 0))
    assert seen.missed() == 30  # at least: those of other hosts
    seen = host.Host(1.0, opened_before=(100, 200, 500))
    assert seen.missed() == 40


def test_names_of_control_groups(tmp_path: Path) -> None:
    (tmp_path / "system.slice" / "a.service").mkdir(parents=True)
    found = host.cgroup_names(tmp_path)
    assert found[(tmp_path / "system.slice/a.service").stat().st_ino] == "/system.slice/a.service"
    assert found[tmp_path.stat().st_ino] == "/"
    assert host.cgroup_names(None) == {}


def test_control_groups_of_version_1_lend_no_names(tmp_path: Path) -> None:
    """Their inodes are numbers, too: sockets of the root group were said to be of /cpu."""
    one = "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n"
    two = "41 31 0:38 / /sys/fs/cgroup/unified rw shared:9 - cgroup2 cgroup2 rw\n"
    mounts = tmp_path / "mountinfo"
    for text, root in ((one + two, Path("/sys/fs/cgroup/unified")), (one, None)):
        mounts.write_text(text)
        assert host.cgroup_root(mounts) == root


# --- logs of ss -----------------------------------------------------------------------------------
def log(path: Path, seconds: int = 8, mbps: tuple[float, float] = (8.0, 16.0)) -> Path:
    """Twelve flows of cubic and twelve of bbr, each with its own rate around the group's."""
    lines = []
    for second in range(seconds):
        lines.append(f"{1_700_000_000 + second}.5")
        for k in range(24):
            cc, of = ("cubic", mbps[0]) if k % 2 else ("bbr", mbps[1])
            packets = round(of * (0.9 + 0.02 * (k // 2)) * 1e6 / 8 / 1448) * second
            lines.append(
                f"ESTAB 0 99 10.0.0.1:443 203.0.113.{k % 5 + 1}:{40_000 + k}\n"
                f"\t {cc} wscale:7,7 rto:240 rtt:{40 + k}/2 mss:1448 cwnd:50 ssthresh:40 "
                f"bytes_acked:{1448 * packets + 1} delivery_rate 9Mbps delivered:{packets + 1} "
                f"unacked:9 retrans:0/{packets // 50} minrtt:{30 + k % 3}"
            )
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_log_of_ss(tmp_path: Path, capsys: Capture) -> None:
    words = ["ab", str(log(tmp_path / "ss.log")), "-o", str(tmp_path / "out"), "--json"]
    assert run_command(words) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == json.loads((tmp_path / "out/ab.json").read_text())
    bbr, cubic = found["groups"]
    assert bbr["flows"] == cubic["flows"] == 12 and not bbr["left_out"]
    assert bbr["retransmission_rate"]["mean"] == pytest.approx(1 / 51, rel=0.003)
    assert cubic["rtt_ms"]["median"] == 52 and cubic["base_rtt_ms"] == 31
    (pair,) = found["pairs"]
    assert pair["goodput"]["ratio"] == pytest.approx(0.5, rel=0.01)
    assert pair["goodput"]["high"] < 1 and not pair["warnings"]
    assert found["missed"] is None
    page = (tmp_path / "out" / report.PAGE).read_text()
    assert "less goodput" in page and "Warnings" not in page


def test_a_rotated_log_counts_a_flow_once(tmp_path: Path, capsys: Capture) -> None:
    """Cut in two, and beside the whole; a later connection with the same ports is another flow."""

    def groups(*paths: Path) -> list[dict[str, Any]]:
        assert run_command(["ab", *map(str, paths), "--json"]) == 0
        found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["groups"]
        return found

    whole = log(tmp_path / "whole.log", seconds=12)
    lines = whole.read_text().splitlines(keepends=True)
    cut = 49 * 6  # a poll has a time and 24 flows
    first, second = tmp_path / "ss.log.1", tmp_path / "ss.log"
    first.write_text("".join(lines[:cut]))
    second.write_text("".join(lines[cut:]))
    expected = groups(whole)
    assert [group["flows"] for group in expected] == [12, 12]
    assert groups(first, second) == groups(second, first) == expected
    assert groups(whole, second) == expected
    again = whole.read_text().replace("17000000", "17000900")
    (tmp_path / "again.log").write_text(again)
    assert [group["flows"] for group in groups(whole, tmp_path / "again.log")] == [24, 24]


def test_a_clock_that_is_set_back_does_not_mix_polls(tmp_path: Path, capsys: Capture) -> None:
    path = log(tmp_path / "ss.log", seconds=12)
    found = []
    for back_s in (0, 3, 3600):
        text = path.read_text()
        for second in range(6, 12):
            text = text.replace(
                f"{1_700_000_000 + second}.5", f"{1_700_000_000 + second - back_s}.5"
            )
        (tmp_path / "back.log").write_text(text)
        assert run_command(["ab", str(tmp_path / "back.log"), "--json"]) == 0
        found.append(json.loads(capsys.readouterr().out)["groups"])
    assert found[0] == found[1] == found[2]


def test_the_terminal_and_one_network(tmp_path: Path, capsys: Capture) -> None:
    path = str(log(tmp_path / "ss.log"))
    assert run_command(["ab", path, "--peer", "203.0.113.1/32", "--reference", "cubic"]) == 0
    said = capsys.readouterr().out
    assert re.search(r"^bbr +cubic +2\.\d+ \[", said, re.MULTILINE)
    assert "WARNING: bbr beside cubic: too few flows: bbr has" in said
    assert run_command(["ab", path, "--least", "60"]) == 0
    said = capsys.readouterr().out
    assert re.search(r"^too short +12 +12$", said, re.MULTILINE)
    assert "WARNING: fewer than two groups" in said


def test_a_group_of_one_flow_has_no_interval(tmp_path: Path, capsys: Capture) -> None:
    path = str(log(tmp_path / "ss.log"))
    words = ["ab", path, "--by", "peer-port", "--only", "40000,40001", "-o", str(tmp_path / "out")]
    assert run_command(words) == 0
    said = capsys.readouterr().out
    assert "[not known]" in said and "inf" not in said and "nan" not in said
    json.loads((tmp_path / "out/ab.json").read_text())


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "name either logs of ss or --watch SECONDS"),
        (["LOG", "--watch", "5"], "name either logs of ss or --watch SECONDS"),
        (["--watch", "0"], "--watch 0: must be above 0"),
        (["--watch", "1", "--every", "2"], "--every 2: longer than --watch 1"),
        (["LOG", "--peer", "10.0.0"], "--peer 10.0.0: not a network"),
        (["LOG", "--peer", "10.0.0.0/8"], "none of 24 flows goes there"),
        (["LOG", "--only", "vegas"], "--only vegas: no flow; groups are: bbr, cubic"),
        (["LOG", "--reference", "reno"], "no such group with flows; there are: bbr, cubic"),
        (["LOG", "-o", "LOG"], "ss.log: not a folder"),
        (["nosuch.log"], "nosuch.log: no such file or folder"),
        (["NOTES"], "no log of ss -tin with cwnd and rtt"),
        (["UNTIMED"], "no time stamp"),
    ],
)
def test_bad_input_ends_in_one_line(
    tmp_path: Path, capsys: Capture, words: list[str], text: str
) -> None:
    made = {"LOG": log(tmp_path / "ss.log"), "NOTES": tmp_path / "notes.txt"}
    made["NOTES"].write_text("nothing of the kind\n")
    made["UNTIMED"] = tmp_path / "untimed.log"
    timed = made["LOG"].read_text()
    made["UNTIMED"].write_text(re.sub(r"(?m)^1700.*\n", "", timed))
    assert run_command(["ab", *(str(made.get(word, word)) for word in words)]) == 2
    said = capsys.readouterr()
    assert said.err.count("\n") == 1 and text in said.err and not said.out
    assert sorted(tmp_path.iterdir()) == sorted(made.values())
