# SPDX-License-Identifier: GPL-2.0-only
"""Runs in the lab's kernel: the same twice, the truth about drops, errors in one line."""

from __future__ import annotations

import csv
import dataclasses
import io
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest
import zstandard

from ndm_tcp.datasets.readers import run_folder
from ndm_tcp.datasets.rounds.flow import LossCause
from ndm_tcp.errors import NdmError
from ndm_tcp.lab.guest import boot, root, uml_build
from ndm_tcp.lab.guest import run as lab_run
from ndm_tcp.lab.guest.suite import Job, Outcome
from ndm_tcp.lab.paths import truth
from ndm_tcp.lab.paths.scenario import MAX_SECONDS
from ndm_tcp.lab.score import board

from ..kernel.kbuild import change_one_weight, copy_kmod
from ..kmod.lab import need_kernel, scenario

LOSSY = """
seconds = 2
topology = "path"
[link]
rate_bps = 8_000_000
rtt_us = 30_000
queue_packets = 12
loss = 0.02
jitter_us = 1_000
"""
SHARED = """
seconds = 6
topology = "path"
[link]
rate_bps = 10_000_000
rtt_us = 20_000
queue_packets = 40
steps = [[3.0, 4_000_000]]
[[flows]]
cc = "reno"
[[flows]]
cc = "$cc"
sender = 1
start_s = 1
seconds = 5
extra_rtt_us = 20_000
"""
PAGE = """
seconds = 1
topology = "path"
[link]
rate_bps = 20_000_000
rtt_us = 10_000
queue_packets = 100
[web]
objects = 9
bytes = 90_001
connections = 3
"""
LOOPBACK = """
seconds = 3
topology = "lo"
[lo]
netem = "delay 20ms 5ms distribution normal loss 0.5%"
tbf = "rate 50mbit burst 5000kbit latency 50ms"
"""


@pytest.fixture(scope="module", autouse=True)
def kernel() -> uml_build.UmlKernel:
    """The lab's kernel, built if it must be."""
    return need_kernel()


def contents(folder: Path) -> dict[str, bytes]:
    """The files of a run, but for the wall-clock time that it took."""
    files = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
    result = json.loads(files["result.json"])
    assert result.pop("wall_s") > 0
    files["result.json"] = json.dumps(result).encode()
    return files


def text_of(path: Path) -> str:
    return zstandard.ZstdDecompressor().stream_reader(path.read_bytes()).read().decode()


@pytest.fixture(scope="module")
def lossy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of bbr, whose gains start at a random phase, over random loss."""
    out = tmp_path_factory.mktemp("lossy") / "run"
    lab_run.run(scenario(LOSSY), "bbr", 7, out)
    return out


def test_a_disturbed_repetition_is_the_same_byte_for_byte(
    lossy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = boot.start_kernel
    stopped = []

    def disturb(process: subprocess.Popen[bytes]) -> None:
        while process.poll() is None:
            time.sleep(0.03)
            process.send_signal(signal.SIGSTOP)
            time.sleep(0.1)
            process.send_signal(signal.SIGCONT)
            stopped.append(time.monotonic())

    def started(*args: Any, **kwargs: Any) -> subprocess.Popen[bytes]:
        process = start(*args, **kwargs)
        threading.Thread(target=disturb, args=[process], daemon=True).start()
        return process

    monkeypatch.setattr(boot, "start_kernel", started)
    busy = subprocess.Popen(["sh", "-c", "while :; do :; done"])
    try:
        lab_run.run(scenario(LOSSY), "bbr", 7, tmp_path / "again")
    finally:
        busy.kill()
        busy.wait()
    assert len(stopped) > 2
    first, second = contents(lossy), contents(tmp_path / "again")
    assert first.keys() == second.keys()
    assert [name for name in first if first[name] != second[name]] == []


def test_a_light_run_measures_the_same(lossy: Path, tmp_path: Path) -> None:
    lab_run.run(scenario(LOSSY), "bbr", 7, tmp_path / "light", light=True)
    whole, light = contents(lossy), contents(tmp_path / "light")
    assert whole.keys() - light.keys() == {"sender.pcap.zst", "tcp_probe.txt.zst"}
    assert [name for name in light if light[name] != whole[name]] in ([], ["kernel.log"])


def test_another_seed_is_another_run(lossy: Path, tmp_path: Path) -> None:
    lab_run.run(scenario(LOSSY), "bbr", 8, tmp_path / "other", light=True)
    first, second = contents(lossy), contents(tmp_path / "other")
    assert "sender.pcap.zst" in first and "tcp_probe.txt.zst" in first
    assert "sender.pcap.zst" not in second and "tcp_probe.txt.zst" not in second
    assert first["drops.csv"] != second["drops.csv"]


def test_the_dataset_builder_finds_the_truth(lossy: Path) -> None:
    result = json.loads((lossy / "result.json").read_text())
    drops = run_folder.read_drops(lossy / "drops.csv")
    causes = [cause for rows in drops.values() for _, cause in rows]
    assert causes.count(LossCause.RANDOM) == result["drops"]["random"] > 0
    assert causes.count(LossCause.QUEUE) == result["drops"]["queue"] > 0
    flows, _ = run_folder.read(lossy)
    assert len(flows) == 1
    assert "tcp_probe" in text_of(lossy / "tcp_probe.txt.zst")
    rows = text_of(lossy / "tcp_info.jsonl.zst").splitlines()
    times_ns = [json.loads(row)["t_ns"] for row in rows]
    steps_ms = [(b - a) / 1e6 for a, b in itertools.pairwise(times_ns)]
    assert len(rows) > 150 and all(9.9 < step < 10.1 for step in steps_ms)


def counters(folder: Path) -> dict[tuple[str, str], dict[str, int]]:
    """The last counters of every queueing discipline, and its longest queue."""
    rows = csv.DictReader(io.StringIO(text_of(folder / "qdisc.csv.zst")))
    last: dict[tuple[str, str], dict[str, int]] = {}
    for row in rows:
        key = row["device"], row["kind"]
        longest = max(int(row["qlen"]), last.get(key, {}).get("longest", 0))
        last[key] = {"drops": int(row["drops"]), "longest": longest}
    return last


def test_the_counters_of_the_queues_agree_with_the_drops(lossy: Path) -> None:
    drops = json.loads((lossy / "result.json").read_text())["drops"]
    last = counters(lossy)
    # Packets of the traffic generator's control may be dropped too, never the other way round.
    assert 0 <= last["b0", "pfifo"]["drops"] - drops["queue"] <= 3
    assert 0 <= last["m0", "netem"]["drops"] - drops["random"] <= 3
    assert last["b0", "pfifo"]["longest"] == 12


@pytest.mark.parametrize("qdisc", ["fq", "fq_codel", "cake"])
def test_no_drop_of_other_queues_is_missed(qdisc: str, tmp_path: Path) -> None:
    queue = "" if qdisc == "cake" else "queue_packets = 40"
    text = f"{SHARED[: SHARED.index('queue_packets')]}{queue}\nqdisc = '{qdisc}'"
    text = text.replace("seconds = 6", "seconds = 3")
    result = lab_run.run(scenario(text), "cubic", 1, tmp_path / "run", light=True)
    dropped = counters(tmp_path / "run")["b0", qdisc]["drops"]
    assert result["drops"]["random"] == 0
    assert 0 <= dropped - result["drops"]["queue"] <= 3
    assert result["drops"]["queue"] > 3


def test_a_policer_passes_a_burst_and_then_its_rate_without_a_queue(tmp_path: Path) -> None:
    text = """
seconds = 6
topology = "path"
[link]
rate_bps = 10_000_000
rtt_us = 40_000
queue_packets = 1
bucket_packets = 100
"""
    result = lab_run.run(scenario(text), "cubic", 1, tmp_path / "run", light=True)
    (flow,) = result["flows"]
    assert result["drops"]["queue"] > 50 and result["drops"]["random"] == 0
    assert flow["rtt_p95_ms"] < 44  # a queue of a hundred packets would add 120 ms
    assert flow["goodput_mbps"] < 10.2
    assert counters(tmp_path / "run")["b0", "pfifo"]["longest"] <= 1
    plain = lab_run.run(
        scenario(text.replace("bucket_packets = 100", "")),
        "cubic",
        1,
        tmp_path / "plain",
        light=True,
    )
    assert plain["flows"][0]["goodput_mbps"] < flow["goodput_mbps"]


def test_flows_share_a_router_at_their_times(tmp_path: Path) -> None:
    result = lab_run.run(scenario(SHARED), "cubic", 1, tmp_path / "run")
    reno, cubic = result["flows"]
    assert (reno["cc"], cubic["cc"]) == ("reno", "cubic")
    assert reno["share"] + cubic["share"] == pytest.approx(1, abs=1e-3)
    assert 0.5 <= result["jain"] <= 1
    assert reno["rtt_min_ms"] == pytest.approx(20, abs=3)
    assert 40 <= cubic["rtt_min_ms"] < 50  # it joins while a queue stands
    # 3 s of 10 Mbit/s and 3 s of 4 Mbit/s, less headers and the start.
    carried = sum(flow["bytes"] for flow in result["flows"]) * 8 / 1e6
    assert 30 < carried < 42
    assert counters(tmp_path / "run")["b0", "pfifo"]["longest"] == 40


def test_the_rate_changes_at_its_times_and_the_queue_stays(tmp_path: Path) -> None:
    steps = [[1.0, 2_000_000], [2.0, 8_000_000], *([2 + n / 10, 8_000_000] for n in range(1, 9))]
    text = LOSSY.replace("seconds = 2", "seconds = 3").replace("loss = 0.02", f"steps = {steps}")
    lab_run.run(scenario(text), "cubic", 1, tmp_path / "run")
    rows = csv.DictReader(io.StringIO(text_of(tmp_path / "run" / "qdisc.csv.zst")))
    clock_ns = tomllib.loads((tmp_path / "run" / "run.toml").read_text())["clock"]["realtime_ns"]
    sent = {}
    for row in rows:
        if (row["device"], row["kind"]) == ("b0", "pfifo"):
            sent[round((int(row["t_ns"]) - clock_ns) / 1e8)] = int(row["bytes"])
            assert int(row["qlen"]) <= 12
    for start, end, mbps in ((12, 19, 2), (22, 29, 8)):
        measured = (sent[end] - sent[start]) * 8 / ((end - start) * 1e5)
        assert 0.75 * mbps < measured < 1.05 * mbps, (start, measured)


def test_a_page_of_objects(tmp_path: Path) -> None:
    result = lab_run.run(scenario(PAGE), "reno", 1, tmp_path / "run", light=True)
    page = result["web"]
    # 90,001 bytes take 36 ms at 20 Mbit/s; each object takes a round trip at least.
    assert 0.036 < page["seconds"] < 0.5
    assert page["object_ms_mean"] > 10
    # At least 21 on each connection, of 30,000 bytes and 1,448 each.
    assert page["retransmissions"] == 0
    assert 63 <= page["segments"] < 70
    assert 10 < page["rtt_mean_ms"] < page["rtt_p95_ms"] < 40


def test_the_rate_of_a_file_is_that_of_all_of_it(tmp_path: Path) -> None:
    text = PAGE.replace("connections = 3", "").replace("objects = 9", "objects = 1")
    job = Job(scenario(text), "reno", 1, tmp_path / "run")
    result = lab_run.run(job.scenario, "reno", 1, job.folder, light=True)
    metrics = board.metrics(Outcome(job, result))
    assert metrics.goodput_mbps == pytest.approx(90_001 * 8e-6 / result["web"]["seconds"], rel=1e-3)
    assert metrics.rtt_mean_ms == result["web"]["rtt_mean_ms"]
    # Three round trips: ten packets, twenty, and what is left of 62.
    assert 0.03 < result["web"]["seconds"] < 0.08


def test_a_page_is_in_the_truth_of_its_run(tmp_path: Path) -> None:
    text = PAGE.replace("queue_packets = 100", "queue_packets = 100\nloss = 0.1")
    result = lab_run.run(scenario(text), "reno", 1, tmp_path / "run", light=True)
    truth = tomllib.loads((tmp_path / "run" / "run.toml").read_text())["truth"]
    assert result["drops"]["random"] > 3
    assert truth["retransmitted_segments"] >= truth["drops_random"]
    assert truth["mean_mbps"] == result["total_mbps"] == result["web"]["mbps"] > 0


def test_the_module_computes_its_golden_vectors_and_carries_data(tmp_path: Path) -> None:
    result = lab_run.run(scenario(LOOPBACK), "ndm_tcp", 1, tmp_path / "run")
    log = (tmp_path / "run" / "kernel.log").read_text()
    assert re.search(rf"ndm_tcp: model {result['model']}, \d{{2,}} golden vectors", log)
    assert "kernel_trouble" not in result
    assert result["flows"][0]["goodput_mbps"] > 20
    assert result["simulated_s"] / result["wall_s"] > 1


def test_a_wrong_weight_is_refused(tmp_path: Path) -> None:
    sources = copy_kmod(tmp_path / "kmod")
    change_one_weight(sources)
    with pytest.raises(NdmError, match="module ndm_tcp does not load.*golden"):
        lab_run.run(scenario(LOOPBACK), "ndm_tcp", 1, tmp_path / "run", module=sources)
    assert not (tmp_path / "run").exists()


def test_a_constant_window(tmp_path: Path) -> None:
    text = LOSSY.replace("loss = 0.02", "loss = 0.0").replace("jitter_us = 1_000", "")
    for cwnd in (5, 10):
        params = {"cwnd": cwnd}
        out = tmp_path / str(cwnd)
        result = lab_run.run(scenario(text), "fixed_cwnd", 1, out, params=params, light=True)
        flow = result["flows"][0]
        assert flow["cwnd_max"] == cwnd and flow["cwnd_mean"] == cwnd
        assert flow["goodput_mbps"] == pytest.approx(cwnd * 1448 * 8e-6 / 0.031, rel=0.15)


def test_a_paced_window_is_paced_as_the_module_is() -> None:
    ours = (uml_build.KMOD / "ndm_pacing.h").read_text()
    theirs = (uml_build.FIXED_CWND / "fixed_cwnd.c").read_text()
    (percent,) = re.findall(r"ndm_pacing_percent = (\d+);", ours)
    assert re.findall(r"#define FIXED_PACING_PERCENT (\d+)", theirs) == [percent]
    (shift,) = re.findall(r"ndm_burst_shift = (\d+);", ours)
    assert re.findall(r"#define FIXED_BURST_SHIFT (\d+)", theirs) == [shift]


def test_a_paced_window_that_the_path_holds_loses_nothing(tmp_path: Path) -> None:
    """As one burst it overflows the queue, again and again."""
    text = (
        'seconds = 5\ntopology = "path"\n[link]\nrate_bps = 60_000_000\n'
        "rtt_us = 20_000\nqueue_packets = 10\n"
    )
    lost = {}
    for paced in (0, 1):
        params = {"cwnd": 100, "paced": paced}
        out = tmp_path / str(paced)
        result = lab_run.run(scenario(text), "fixed_cwnd", 1, out, params=params, light=True)
        flow = result["flows"][0]
        lost[paced] = flow["retransmissions"] / flow["segments"]
    assert flow["goodput_mbps"] > 45 and lost[1] < 0.01 < 0.1 < lost[0]


@pytest.mark.parametrize(
    ("path", "full_mbps"),
    [
        ("lan/lan-300mbit-200us-calm", 286),
        ("lan/lan-1gbit-100us-calm", 954),
        ("lan/lan-10gbit-50us-calm", 8118),
    ],
)
def test_an_eighth_less_than_the_target_window_fills_a_calm_local_network(
    path: str, full_mbps: float, tmp_path: Path
) -> None:
    """The probe takes that much away for two rounds of eight."""
    text = (uml_build.LAB / "scenarios" / f"{path}.toml").read_text()
    short = scenario(re.sub(r"seconds = \d+", "seconds = 1", text, count=1))
    (target,) = truth.ideals(short, "ndm_tcp")
    params = {"cwnd": round(0.88 * target.packets_per_s * target.rtt_us / 1e6)}
    result = lab_run.run(short, "fixed_cwnd", 1, tmp_path, params=params, light=True)
    assert result["flows"][0]["goodput_mbps"] > 0.98 * full_mbps


def test_large_buffers_do_not_exhaust_the_guests_memory(tmp_path: Path) -> None:
    text = (
        'title = "far"\nseconds = 3\ntopology = "path"\n[link]\nrate_bps = 2_000_000_000\n'
        "rtt_us = 120_000\nqueue_packets = 30_000\nloss = 0.001\n"
        "[host]\nbuffer_bytes = 268_435_456\n"
    )
    params = {"cwnd": 20_000}
    result = lab_run.run(scenario(text), "fixed_cwnd", 1, tmp_path, params=params, light=True)
    # Short of memory, the receiver drops what has arrived: far more is retransmitted than was lost.
    resent, lost = result["flows"][0]["retransmissions"], result["drops"]["random"]
    assert lost > 20 and resent <= 1.2 * lost


def test_an_unknown_algorithm_is_one_line_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(NdmError, match=r"no algorithm nosuch, there are: reno .*bbr") as error:
        lab_run.run(scenario(LOOPBACK), "nosuch", 1, tmp_path / "run")
    assert "\n" not in str(error.value)
    assert list(tmp_path.glob("*")) == [tmp_path / "run.failed.log"]


def test_the_longest_scenario_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python cannot wait for 60 times as long."""
    need_kernel()
    limits: list[float] = []

    def waiting(_work: Path, _seed: int, _cpu: int | None, limit_s: float, **_: Any) -> str:
        limits.append(limit_s)
        with subprocess.Popen(["true"], stdout=subprocess.PIPE) as process:
            process.communicate(timeout=limit_s)
        raise NdmError("seen")

    monkeypatch.setattr(lab_run, "boot", waiting)
    longest = dataclasses.replace(scenario(LOOPBACK), seconds=MAX_SECONDS)
    with pytest.raises(NdmError, match="seen"):
        lab_run.run(longest, "cubic", 1, tmp_path / "run")
    assert limits[0] > MAX_SECONDS


def test_a_run_that_takes_too_long_leaves_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids = []
    start = boot.start_kernel

    def started(*args: Any, **kwargs: Any) -> subprocess.Popen[bytes]:
        pids.append((process := start(*args, **kwargs)).pid)
        return process

    monkeypatch.setattr(boot, "start_kernel", started)
    endless = scenario(LOSSY.replace("seconds = 2", "seconds = 2000"))
    with pytest.raises(NdmError, match="no end within 0.3 s"):
        lab_run.run(endless, "reno", 1, tmp_path / "run", limit_s=0.3)
    assert boot.session_members(pids[0]) == []
    assert boot.session_members(os.getsid(0))


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ("NDM-LAB end\n", None),
        ("x\nNDM-LAB error: no algorithm x\nNDM-LAB failed\n", "no algorithm x"),
        ("a\n[ 1.0] Kernel panic - not syncing: gone\nb\n", "Kernel panic - not syncing: gone"),
        ("a\nlast words\n", "last words"),
        ("says NDM-LAB end in passing\n", "in passing"),
        ("", "printed nothing"),
    ],
)
def test_only_the_mark_says_that_a_run_came_to_its_end(log: str, said: str | None) -> None:
    verdict = boot.verdict(log)
    assert verdict is None if said is None else verdict is not None and said in verdict


def test_the_guest_sees_no_other_file_of_the_host(tmp_path: Path) -> None:
    """Another installed package would move its clock and its random numbers."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "plan.sh").write_text("for f in /* /etc/* /usr/bin/*; do echo sees $f; done\n")
    log = boot.boot(work, 1, None, 60)
    seen = re.findall(r"^sees /(\S+)$", log, re.MULTILINE)
    top = ["bin", "dev", "etc", "init.sh", "lib", "lib64", "proc", "run", "sbin", "sys", "usr"]
    assert [name for name in seen if "/" not in name] == top
    programs = sorted([*root.PROGRAMS, "guest"])
    assert [name for name in seen if "/" in name] == [
        "etc/ld.so.cache",
        *(f"usr/bin/{name}" for name in programs),
    ]


KUNIT = """// SPDX-License-Identifier: GPL-2.0-only
#include <kunit/test.h>
#include <linux/module.h>

static void holds(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, 2, 1 + 1);
}

static void fails(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, 3, 1 + 1);
}

static struct kunit_case cases[] = { KUNIT_CASE(holds), KUNIT_CASE(fails), {} };
static struct kunit_suite suite = { .name = "lab", .test_cases = cases };
kunit_test_suite(suite);
MODULE_LICENSE("GPL");
"""


def test_kunit_runs_in_the_lab(tmp_path: Path) -> None:
    sources, work = tmp_path / "sources", tmp_path / "work"
    sources.mkdir()
    work.mkdir()
    (sources / "Kbuild").write_text("obj-m := lab_kunit.o\n")
    (sources / "lab_kunit.c").write_text(KUNIT)
    shutil.copy(uml_build.build_module(sources), work)
    (work / "plan.sh").write_text("insmod /run/host/lab_kunit.ko\n")
    log = boot.boot(work, 1, None, 60)
    assert boot.verdict(log) is None
    assert re.search(r"^.*    ok 1 holds$", log, re.MULTILINE)
    assert re.search(r"^.*    not ok 2 fails$", log, re.MULTILINE)
