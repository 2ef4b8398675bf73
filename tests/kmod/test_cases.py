# SPDX-License-Identifier: GPL-2.0-only
"""Scripted cases against the real stack: idle, application, timeout, undo, ECN, tiny windows.

Two hosts and a router, in virtual time; the network is replaced where a case needs to know
what it says. The router's devices hold the delay, the rate and the loss.
"""

from __future__ import annotations

import itertools
import os
import re
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from ndm_tcp.datasets.module_event import event_lines
from ndm_tcp.lab.guest import uml_build

from ..kernel.kbuild import KMOD, copy_kmod
from .lab import answers, boot, change

TRACING = "/sys/kernel/tracing"
PATH = f"""
insmod /run/host/ndm_tcp.ko
for n in s r d; do ip netns add $n; guest in $n ip link set lo up; done
ip link add a0 netns s gso_max_segs 1 type veth peer name a1 netns r gso_max_segs 1
ip link add b0 netns r gso_max_segs 1 type veth peer name b1 netns d gso_max_segs 1
address() {{ ip -n $1 addr add $3/24 dev $2; ip -n $1 link set $2 up; }}
address s a0 10.1.0.2; address r a1 10.1.0.1; address r b0 10.2.0.1; address d b1 10.2.0.2
ip -n s route add default via 10.1.0.1
ip -n d route add default via 10.2.0.1
guest in r sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward'
for n in s d; do guest in $n sh -c 'echo 4096 131072 6291456 >/proc/sys/net/ipv4/tcp_rmem'; done
back() {{ guest in r tc qdisc replace dev a1 root netem limit 100000 delay 20ms; }}
forth() {{ guest in r tc qdisc del dev b0 root 2>/dev/null || true
	guest in r tc qdisc add dev b0 root netem limit "$@"; }}
state() {{ guest in s sh -c "echo $2 >/proc/sys/net/ipv4/$1"; }}
counter() {{ guest in s awk -v k=$1 '$1 == "TcpExt:" {{ if (!n) n = split($0, a); else {{
	split($0, b); for (i in a) if (a[i] == k) print k "=" b[i] }} }}' /proc/net/netstat; }}
parameter() {{ echo $1=$(cat /sys/module/ndm_tcp/parameters/$1); }}
echo 1 >{TRACING}/events/{{event}}/enable
back
forth 60 delay 20ms rate 8mbit
ip netns exec d true
guest in d /run/host/flow serve 5000 $RCVBUF & server=$!
sleep 0.2
flow() {{ guest in s /run/host/flow "$@"; }}
""".replace("{event}", "ndm_tcp/ndm_tcp_round")
UNDO = "ndm_set_target(ca, max_t(u32, ca->target, ndm_prior_cwnd(tp)));"
REMEMBERS = "	ca->tail_lost = 0;\n"
PACED = ("if (!tp->packets_out &&", "if (0 && !tp->packets_out &&")
# Every loss is random, and the window should double.
RECKLESS = answers(65536, -524288)
KEEPS_CUT = (UNDO, "return ca->target = tcp_snd_cwnd(tp);")


@dataclass(frozen=True)
class Seen:
    """What a script left."""

    log: str
    info: list[dict[str, str]]
    rounds: pa.Table | None

    def cwnd(self, number: int) -> int:
        return int(self.info[number]["cwnd"])

    def value(self, name: str) -> int:
        match = re.search(rf"^{name}=(\d+)$", self.log, re.MULTILINE)
        assert match, f"{name} was not printed"
        return int(match[1])


def paced(info: dict[str, str]) -> float:
    """Of cwnd / srtt, percent."""
    cwnd_s = int(info["cwnd"]) * 1448 / (int(info["srtt_us"]) * 1e-6)
    return 100 * int(info["pacing_Bps"]) / cwnd_s


def play(
    script: str,
    flow: Path,
    tmp_path: Path,
    changes: tuple[tuple[str, str], ...] = (),
    rcvbuf: str = "",
    limit_s: float = 300,
    seed: int = 1,
) -> Seen:
    """Run a script on the path with the module, changed where a case wants it."""
    sources = KMOD
    if changes:
        sources = copy_kmod(tmp_path / "kmod")
        change(sources, changes)
    work = tmp_path / "work"
    plan = f"RCVBUF={rcvbuf}\n{PATH}\n{script}\nkill $server\n"
    plan += f"cat {TRACING}/trace >/run/host/out/trace\n"
    log = boot(work, plan, [uml_build.build_module(sources), flow], limit_s, seed=seed)
    lines = re.findall(r"^INFO (.*)$", log, re.MULTILINE)
    info = [dict(word.split("=") for word in line.split()) for line in lines]
    trace = work / "out" / "trace"
    return Seen(
        log, info, event_lines.read(trace) if "ndm_tcp_round:" in trace.read_text() else None
    )


@pytest.mark.parametrize("restart", [True, False])
def test_after_a_silence_it_slow_starts(restart: bool, flow: Path, tmp_path: Path) -> None:
    steps = "send:3000000 info sleep:6000 put:1000 info send:300000 info"
    script = f"state tcp_slow_start_after_idle {int(restart)}\n"
    seen = play(f"{script}flow send 10.2.0.2 5000 ndm_tcp {steps}", flow, tmp_path)
    assert seen.cwnd(0) > 20
    if restart:
        assert seen.cwnd(1) == 10 and seen.cwnd(2) > 12
        assert int(seen.info[1]["ssthresh"]) >= seen.cwnd(0) // 2
    else:
        assert seen.cwnd(1) > 0.8 * seen.cwnd(0)  # a probe may be under way


def test_a_silence_forgets_that_a_tail_was_lost(flow: Path, tmp_path: Path) -> None:
    """What was sent alone and lost ends bursts into an empty pipe, until nobody knows the path."""
    script = f"""
state tcp_slow_start_after_idle 1
forth 1000 delay 20ms rate 30mbit loss 5%
flow send 10.2.0.2 5000 ndm_tcp {"send:1000 " * 40} info sleep:3000 put:1000 info
counter TCPLossProbeRecovery
"""
    before, after, remembered = [], [], []
    # Where the kernel has counted a loss beside the probe's, bursts end for that, too.
    for seed in range(1, 7):
        for changes in ((), ((REMEMBERS, ""),)):
            folder = tmp_path / f"{seed}-{len(changes)}"
            folder.mkdir()
            seen = play(script, flow, folder, changes, seed=seed)
            if not seen.value("TCPLossProbeRecovery"):
                continue
            percent = [paced(row) for row in seen.info]
            before.append(percent[0])
            (remembered if changes else after).append(percent[1])
    print(f"\npacing, percent of the window in an RTT: {after}, remembered {remembered}")
    assert max(before) < 300 and max(after) > 1500
    assert max(remembered) < 300


def test_a_window_that_is_not_used_does_not_grow(flow: Path, tmp_path: Path) -> None:
    # Two packets every 20 ms: about six in flight.
    steps = "drip:300:2896:20 info"
    seen = play(f"flow send 10.2.0.2 5000 ndm_tcp {steps}", flow, tmp_path)
    assert 10 <= seen.cwnd(0) <= 14
    assert seen.rounds is not None and seen.rounds.num_rows > 60


def test_a_timeout_halves_and_recovers(flow: Path, tmp_path: Path) -> None:
    script = """
flow send 10.2.0.2 5000 ndm_tcp send:9000000 info & client=$!
sleep 3
forth 60 delay 20ms rate 8mbit loss 100%
sleep 2
forth 60 delay 20ms rate 8mbit
wait $client
counter TCPTimeouts
"""
    seen = play(script, flow, tmp_path)
    assert seen.value("TCPTimeouts") > 0 and seen.rounds is not None
    rows = seen.rounds.to_pylist()
    first = next(n for n, row in enumerate(rows) if row["ca_state"] == 4)
    before = next(row for row in reversed(rows[:first]) if row["ca_state"] < 2)
    window = max(before["cwnd"], before["target"])  # it grew until the timeout
    assert 2 <= rows[first]["ssthresh"] <= window // 2 + 1
    assert rows[first]["cwnd"] <= 2
    after = [row for row in rows[first:] if row["why"] == "network"]
    assert after and max(row["cwnd"] for row in after) > 20


def test_a_reduction_for_nothing_is_undone(flow: Path, tmp_path: Path) -> None:
    """Packets overtake one another and none is lost; every loss is certain congestion."""
    script = """
forth 1000 delay 20ms rate 30mbit
state tcp_slow_start_after_idle 0
flow send 10.2.0.2 5000 ndm_tcp send:1500000 info sleep:1000 send:6000000 info & client=$!
sleep 1.2
forth 1000 delay 20ms 15ms
wait $client
for name in TCPFullUndo TCPPartialUndo TCPDSACKUndo TCPTimeouts; do counter $name; done
"""
    # At 126 packets it takes one away.
    steady = answers(-750, "NDM_OUT_CONGESTION_HI")
    undone = []
    # When a reduction is undone is a draw of the delays: six of them.
    for seed in range(1, 7):
        windows = []
        # In a burst all would overtake one another at once.
        for name, changes in (("undo", (PACED,)), ("keep", (PACED, KEEPS_CUT))):
            folder = tmp_path / f"{seed}-{name}"
            folder.mkdir()
            seen = play(script, flow, folder, (steady, *changes), seed=seed)
            assert seen.value("TCPPartialUndo") + seen.value("TCPFullUndo") >= 2
            assert seen.value("TCPTimeouts") == 0 and seen.rounds is not None
            windows.append(seen.rounds["cwnd"].to_pylist())
        # Both are the same flow until the first reduction is undone. If another one begins in that
        # round, their windows are within a packet at its end.
        undone.append(next(a / b for a, b in zip(*windows, strict=False) if abs(a - b) > 1))
    print(f"window that an undo leaves, over the one without: {undone}")
    assert min(undone) > 1.1 and max(undone) > 1.5


def test_a_mark_cuts_and_nothing_is_retransmitted(flow: Path, tmp_path: Path) -> None:
    script = """
for n in s d; do guest in $n sh -c 'echo 1 >/proc/sys/net/ipv4/tcp_ecn'; done
forth 1000 delay 20ms rate 8mbit loss 1% ecn
flow send 10.2.0.2 5000 ndm_tcp send:4000000 info
"""
    seen = play(script, flow, tmp_path)
    assert int(seen.info[0]["ce"]) > 10 and int(seen.info[0]["retransmitted"]) == 0
    assert seen.rounds is not None
    rows = seen.rounds.to_pylist()
    cuts = [
        # The window has grown since by at most that.
        (a["why"], max(a["cwnd"] * (1 + (a["why"] == "slow_start")), a["target"]), b["ssthresh"])
        for a, b in itertools.pairwise(rows)
        if a["ca_state"] == 0 and b["ca_state"] == 2
    ]
    assert len(cuts) > 3
    for why, cwnd, ssthresh in cuts:
        part = 0.6 if why == "slow_start" else 0.8
        assert 2 <= ssthresh <= part * cwnd, (why, cwnd, ssthresh)


def test_a_tiny_receive_window(flow: Path, tmp_path: Path) -> None:
    script = "flow send 10.2.0.2 5000 ndm_tcp send:200000 info"
    seen = play(script, flow, tmp_path, rcvbuf="2000")
    assert seen.cwnd(0) <= 12


def test_a_thousand_flows(flow: Path, tmp_path: Path) -> None:
    script = """
echo 65536 >/proc/sys/net/ipv4/tcp_max_orphans
guest in d sh -c 'echo 4096 >/proc/sys/net/ipv4/tcp_max_syn_backlog'
forth 3000 delay 20ms rate 50mbit
flow many 10.2.0.2 5000 ndm_tcp 1000 30000 1000 & client=$!
sleep 1.5
parameter flows
wait $client
sleep 90
parameter flows
parameter rounds
parameter fallbacks
"""
    seen = play(script, flow, tmp_path)
    assert "DONE 1000, 0 switches left" in seen.log
    assert re.findall(r"^flows=(\d+)$", seen.log, re.MULTILINE)[1] == "0"
    assert 100 < int(re.findall(r"^flows=(\d+)$", seen.log, re.MULTILINE)[0]) <= 1000
    assert seen.value("rounds") > 500


def test_guarded_rounds_are_counted(flow: Path, tmp_path: Path) -> None:
    """As its event shows them, with a network that floods; but for scatter, which it omits."""
    script = "flow send 10.2.0.2 5000 ndm_tcp send:6000000 info\nparameter guarded\n"
    seen = play(script, flow, tmp_path, (RECKLESS,))
    assert seen.rounds is not None
    floods = [
        row
        for row in seen.rounds.to_pylist()
        if row["why"] in ("network", "recovery")
        and row["loss_rate"] >= 4096 // 5
        and row["rtt_ratio"] < 4096 // 2
    ]
    certain = [
        row
        for row in floods
        if row["cwnd"] * row["loss_rate"] > 12 * 4096 and row["rtt_variation"] < 4096 // 8
    ]
    print(f"\n{seen.value('guarded')} guarded, {len(certain)} to {len(floods)} by the event")
    assert 3 < len(certain) <= seen.value("guarded") <= len(floods)


@pytest.mark.parametrize("times", [30, pytest.param(100, marks=pytest.mark.long)])
def test_loading_and_switching_under_traffic(times: int, flow: Path, tmp_path: Path) -> None:
    """`NDM_LOADS` sets how often."""
    script = """
rmmod ndm_tcp
ip link set lo up
/run/host/flow serve 6000 & second=$!
flow send 10.2.0.2 5000 cubic send:5000000 info & client=$!
n=0 busy=0
while [ $n -lt TIMES ]; do
	insmod /run/host/ndm_tcp.ko
	echo ndm_tcp >/proc/sys/net/ipv4/tcp_congestion_control
	/run/host/flow send 127.0.0.1 6000 - put:200000 info >>default
	echo cubic >/proc/sys/net/ipv4/tcp_congestion_control
	until rmmod ndm_tcp 2>/dev/null; do busy=$((busy + 1)); sleep 0.01; done
	n=$((n + 1))
done
echo loaded=$n
echo default=$(grep -c cc=ndm_tcp default)
wait $client
kill $second
insmod /run/host/ndm_tcp.ko
"""
    times = int(os.environ.get("NDM_LOADS", times))
    seen = play(script.replace("TIMES", str(times)), flow, tmp_path)
    assert seen.value("loaded") == seen.value("default") == times
