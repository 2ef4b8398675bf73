# SPDX-License-Identifier: GPL-2.0-only
"""Recording over an emulated path: the emulator's arithmetic, plans, and a real transfer."""

from __future__ import annotations

import csv
import itertools
import os
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ndm_tcp.datasets.readers import ss, streams, tcp_probe
from ndm_tcp.datasets.recorder.kernel_events import TRACING
from ndm_tcp.errors import NdmError
from ndm_tcp.lab.experiments import host_record
from ndm_tcp.lab.experiments.host_path import Bottleneck, Impairments, LinkSpec

from . import namespaces
from .reference import capture, pcap

ROOT = Path(__file__).parents[1]


def _cannot_record() -> str | None:
    if os.geteuid() != 0:
        return "not root"
    try:
        os.close(os.open("/dev/net/tun", os.O_RDWR))
    except OSError:
        return "no /dev/net/tun"
    if not TRACING.is_dir():
        return "no tracefs"
    try:
        probe = f"ndm-test-{os.getpid()}"
        with namespaces.making():
            subprocess.run(["ip", "netns", "add", probe], check=True, capture_output=True)
        subprocess.run(["ip", "netns", "del", probe], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return "no network namespaces"
    missing = [tool for tool in ("iperf3", "tcpdump", "ss") if shutil.which(tool) is None]
    return f"no {missing[0]}" if missing else None


def _plan(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


GOOD = '[a]\ncc = "cubic"\nseconds = 2\nrate_bps = 8000000\nrtt_us = 20000\nqueue_packets = 10\n'


def test_bottleneck_serves_in_turn_and_drops_at_the_tail() -> None:
    link = Bottleneck(12_000_000, 2)  # 1500 bytes take 1 ms
    assert link.take(0, 1500) == 1_000_000
    assert link.take(0, 1500) == 2_000_000
    assert link.take(0, 1500) is None
    assert link.take(1_000_000, 1500) == 3_000_000
    assert link.take(9_000_000, 750) == 9_500_000


def test_bottleneck_rate_step_splits_a_packet() -> None:
    link = Bottleneck(12_000_000, 10, ((0.0005, 6_000_000),))
    # half of the packet at 12 Mbit/s in 0.5 ms, the other half at 6 Mbit/s in 1 ms
    assert link.take(0, 1500) == 1_500_000
    assert link.take(5_000_000, 1500) == 7_000_000


def test_random_loss_is_seeded_and_has_its_rate() -> None:
    spec = LinkSpec(rate_bps=1, delay_us=0, queue_packets=1, loss=0.02, seed=5)
    one, two = Impairments(spec), Impairments(spec)
    drawn = [one.lost() for _ in range(50_000)]
    assert drawn == [two.lost() for _ in range(50_000)]
    assert 900 < sum(drawn) < 1100


def test_bursts_lose_packets_together() -> None:
    spec = LinkSpec(*(1, 0, 1), burst_start=0.002, burst_end=0.3, burst_loss=0.7, seed=1)
    process = Impairments(spec)
    drawn = [process.lost() for _ in range(100_000)]
    rate = sum(drawn) / len(drawn)
    # stationary: 0.002 / 0.302 of the time in the bad state
    assert rate == pytest.approx(0.7 * 0.002 / 0.302, rel=0.2)
    after_loss = [b for a, b in itertools.pairwise(drawn) if a]
    assert sum(after_loss) / len(after_loss) > 0.3


@pytest.mark.parametrize("reorder", [False, True])
def test_jitter_has_its_deviation(reorder: bool) -> None:
    spec = LinkSpec(1, 0, 1, jitter_us=5000, reorder=reorder, jitter_corr_us=10_000, seed=2)
    process = Impairments(spec)
    drawn = [process.extra_us(n * 1_000_000) for n in range(100_000)]
    mean = sum(drawn) / len(drawn)
    deviation = (sum((x - mean) ** 2 for x in drawn) / len(drawn)) ** 0.5
    step = (sum((b - a) ** 2 for a, b in itertools.pairwise(drawn)) / len(drawn)) ** 0.5
    assert abs(mean) < 250
    assert deviation == pytest.approx(5000, rel=0.05)
    # steps of a wandering delay are small, those of independent ones are not
    assert step > 6500 if reorder else step < 2500


def test_the_shipped_plan_has_thirty_paths_and_none_of_the_evaluation() -> None:
    transfers = host_record.load_plan(ROOT / "lab/plans/training.toml")
    assert len(transfers) == 30
    assert len({t.link.seed for t in transfers}) == 30
    assert {t.cc for t in transfers} == {"reno", "cubic", "bbr"}
    assert sum(t.link.reorder for t in transfers) == 3
    assert sum(bool(t.link.rate_steps) for t in transfers) == 2
    assert sum(t.link.burst_start > 0 for t in transfers) == 2
    for transfer in transfers:
        link = transfer.link
        assert 3e6 <= link.rate_bps <= 12e6 and 15e3 <= link.delay_us <= 120e3
        assert link.queue_packets >= 8
        assert not (9.5e6 <= link.rate_bps <= 10.5e6 and 38e3 <= link.delay_us <= 62e3)
        assert not 95e3 <= link.delay_us <= 105e3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[a\n", "not valid TOML"),
        ("", "no transfers"),
        ("x = 1\n", "outside a table"),
        (GOOD + "colour = 1\n", "unknown key colour"),
        (GOOD.replace("rtt_us = 20000\n", ""), "rtt_us is missing"),
        (GOOD.replace("queue_packets = 10\n", ""), "queue_packets"),
        (GOOD + "loss = 1.5\n", "loss is a probability"),
        (GOOD + 'loss = "much"\n', r"Expected `float`, got `str` - at `\$.loss`"),
        (GOOD.replace("8000000", '"10M"'), r"Expected `int`, got `str` - at `\$.rate_bps`"),
        (GOOD + "rate_steps = [[3.0]]\n", r"at `\$.rate_steps\[0\]`"),
        (GOOD.replace("8000000", "0"), "rate_bps must be positive"),
        (GOOD.replace("[a]", '["../a"]'), "becomes a folder"),
        (GOOD + "rate_steps = [[3.0, 1000000], [1.0, 2000000]]\n", "in order of time"),
    ],
)
def test_bad_plans_are_refused_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    plan = _plan(tmp_path / "plan.toml", text)
    with pytest.raises(NdmError, match=message) as caught:
        host_record.load_plan(plan)
    assert str(plan) in str(caught.value) and "\n" not in str(caught.value)


def test_only_events_of_the_sending_socket_are_kept(tmp_path: Path) -> None:
    (tmp_path / "per_cpu/cpu0").mkdir(parents=True)
    stats = tmp_path / "per_cpu/cpu0/stats"
    stats.write_text("entries: 4\noverrun: 0\n")
    kept = [
        " x-1 [000] b..1. 1.0: tcp_probe: src=10.77.0.1:4000 dest=10.77.0.2:1 srtt=5",
        " x-1 [000] b..1. 1.1: tcp_cong_state_set: sport=4000 dport=1 saddr=10.77.0.1 cong_state=3",
    ]
    others = [line.replace("10.77.0.1", "10.9.9.9") for line in kept]
    others += [kept[0].replace(":4000", ":40001"), "# tracer: nop"]
    with_pointers = [line + " skbaddr=000000ab skaddr=000000cd" for line in kept]
    (tmp_path / "trace").write_text("\n".join(others + with_pointers) + "\n")
    assert host_record._event_lines(tmp_path, 4000).splitlines() == kept
    stats.write_text("entries: 4\noverrun: 17\n")
    with pytest.raises(NdmError, match="17 kernel events lost"):
        host_record._event_lines(tmp_path, 4000)


def test_recording_needs_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    plan = _plan(tmp_path / "plan.toml", GOOD)
    with pytest.raises(NdmError, match="needs root"):
        host_record.record_plan(plan, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_only_names_a_transfer_of_the_plan(tmp_path: Path) -> None:
    with pytest.raises(NdmError, match=r"no transfer \[b\]"):
        host_record.record_plan(_plan(tmp_path / "plan.toml", GOOD), tmp_path / "out", "b")


def _agrees_with_the_capture(folder: Path, run: dict[str, Any], drops: list[Any]) -> list[Any]:
    """Every dropped data packet was seen leaving; exactly these are retransmitted."""
    truth, port = run["truth"], run["sender_port"]
    data = [
        segment
        for segment in pcap.segments(folder / "sender.pcap.zst", pcap.CaptureReport())
        if segment.source[1] == port and segment.payload
    ]
    sent: dict[int, list[int]] = {}
    for segment in data:
        sent.setdefault(segment.seq, []).append(segment.time_ns)
    repaired = 0
    for row in drops:
        times = sent[int(row["seq"])]
        at_ns = int(row["t_ns"])
        assert min(times) <= at_ns
        repaired += any(time_ns > at_ns for time_ns in times)
    assert sum(len(times) - 1 for times in sent.values()) == repaired
    assert len(drops) - repaired <= 3
    assert repaired - 3 <= truth["retransmitted_segments"] <= repaired
    return data


def _agrees_with_the_kernel(folder: Path, run: dict[str, Any], data: list[Any]) -> None:
    """Nothing but the sending socket, and no RTT below the path's."""
    port = run["sender_port"]
    columns = tcp_probe.read_columns(folder / "tcp_probe.txt.zst")
    assert set(columns) == {(port, 5201)}
    probe = columns[port, 5201]
    (flow,), _ = capture.read(folder / "sender.pcap.zst")
    rtts_us = flow.acks["rtt_us"][flow.acks["rtt_us"] >= 0]
    # A smoothed RTT need not come down to the path's: a late handshake, then a queue.
    assert 20_000 <= rtts_us.min() < 23_000
    assert probe.srtt_us.min() >= 20_000
    assert np.median(probe.srtt_us) == pytest.approx(np.median(rtts_us), rel=0.1)
    assert len(probe.state_t_s) and len(probe.retransmit_t_s)
    offset_s = (run["clock"]["realtime_ns"] - run["clock"]["monotonic_ns"]) / 1e9
    assert data[0].time_ns / 1e9 - 0.1 < probe.t_s[0] + offset_s < data[-1].time_ns / 1e9
    (polled,) = ss.read(folder / "ss.txt.zst")
    assert polled.cc_name == "cubic" and polled.facts["unknown_tokens"] == 0
    with streams.open_text(folder / "iperf3.json.zst") as text_stream:
        report = text_stream.read()
    assert "system_info" not in report and "cookie" not in report


def test_a_real_recording_agrees_with_its_truth(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reason = _cannot_record()
    if reason:
        pytest.skip(f"cannot record: {reason}")
    before = set(Path("/run/netns").glob("ndm-*")) if Path("/run/netns").is_dir() else set()
    text = GOOD.replace("seconds = 2", "seconds = 3") + "loss = 0.004\nseed = 11\n"
    plan = _plan(tmp_path / "plan.toml", text)
    with namespaces.making():
        (folder,) = host_record.record_plan(plan, tmp_path / "out")

    assert sorted(path.name for path in folder.iterdir()) == [
        *("drops.csv", "iperf3.json.zst", "run.toml"),
        *("sender.pcap.zst", "ss.txt.zst", "tcp_probe.txt.zst"),
    ]
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["a"]
    assert set(Path("/run/netns").glob("ndm-*")) == before
    assert not list((TRACING / "instances").glob(f"ndm-host-{os.getpid()}-*"))

    run = tomllib.loads((folder / "run.toml").read_text(encoding="utf-8"))
    truth = run["truth"]
    with (folder / "drops.csv").open(encoding="ascii") as stream:
        drops = list(csv.DictReader(stream))
    assert len(drops) == truth["drops_random"] + truth["drops_queue"] > 0
    assert truth["mean_mbps"] <= 8.0 * 1448 / 1500 + 0.1

    data = _agrees_with_the_capture(folder, run, drops)
    _agrees_with_the_kernel(folder, run, data)

    # Again: finished runs are left alone.
    before = (folder / "run.toml").stat().st_mtime_ns
    capsys.readouterr()
    with namespaces.making():
        host_record.record_plan(plan, tmp_path / "out")
    assert (folder / "run.toml").stat().st_mtime_ns == before
    assert "there already" in capsys.readouterr().err
