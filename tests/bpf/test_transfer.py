# SPDX-License-Identifier: GPL-2.0-only
"""Transfers of the BPF form in the running kernel, alone and beside CUBIC and BBR."""

from __future__ import annotations

import select
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ndm_tcp.bpf import default, loader
from ndm_tcp.datasets.module_event import event_lines

from .. import namespaces
from ..namespaces import MBPS
from ..replay import assert_replays

SECONDS = 4
MOST_RETRANSMITTED = 0.4
"""On such a short path the shipped network retransmits a fifth; here no more than sanity."""

SHORT_BUCKET = "tbf rate 100mbit burst 16k limit 60k"
"""Its queue of 40 packets is less than the window of a path with this host's pauses and the rate of
a burst of tokens; by that rate the module retransmitted 1.5 to 8.8 % (median of three runs)."""
LEAST_OF_SHORT = 0.5
"""of its rate; on an idle host more than 0.95"""
MOST_OF_SHORT = 0.0125
"""of the segments; 0.3 to 0.8 % on a busy host"""

SWITCHES = """
import itertools, socket, sys
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
for name in itertools.cycle(sys.argv[1:]):
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
"""
"""a flow more and a flow less, without a pause"""


def transfer(path: str, algorithms: list[str]) -> dict[str, dict[str, Any]]:
    """Bulk transfers at once: for each algorithm what iperf3 says of its sender."""
    with namespaces.transfers(path, SECONDS, *(["-C", name] for name in algorithms)) as found:
        pass
    ends = {name: data["end"] for name, data in zip(algorithms, found, strict=True)}
    return {
        name: end["sum_sent"]
        | {
            "received": end["sum_received"]["bits_per_second"] / 1e6,
            "received_bytes": end["sum_received"]["bytes"],
        }
        for name, end in ends.items()
    }


def counters(folder: Path) -> dict[str, str]:
    return loader.facts(loader.run(folder, "status")[1])


def test_a_lone_transfer_fills_the_path(path: str, loaded: Path, tmp_path: Path) -> None:
    """And its events are the module's: `ndm trace` reads them, Python computes them again."""
    before = int(counters(loaded)["rounds"])
    text = tmp_path / "rounds.txt"
    with text.open("w") as out:
        reader = subprocess.Popen([loaded / "ndm_bpf", "events"], stdout=out)
        time.sleep(0.5)
        seen = transfer(path, [loader.NAME])[loader.NAME]
        reader.send_signal(signal.SIGTERM)
        assert reader.wait(10) == 0
    print(seen)
    assert 0.5 * MBPS <= seen["received"] <= MBPS
    assert seen["retransmits"] * 1448 <= MOST_RETRANSMITTED * seen["bytes"]
    after = counters(loaded)
    table = event_lines.read(text)
    assert int(after["rounds"]) - before == table.num_rows > 100
    assert after["flows"] == "0" and after["events_lost"] == "0" and after["no_memory"] == "0"
    assert assert_replays(table) > 50
    assert {"slow_start", "network"} <= set(table["why"].to_pylist())
    assert table["dport"].to_pylist().count(5201) == table.num_rows


def test_a_flow_without_memory_does_as_reno(path: str, loaded: Path) -> None:
    """No round's end steers it: it must neither flood the path nor shrink for good."""
    knob = "/proc/sys/net/core/optmem_max"
    sender = namespaces.inside(f"{path}s")
    read = subprocess.run([*sender, "cat", knob], capture_output=True, text=True, check=False)
    if read.returncode:
        pytest.skip("this kernel has one limit of sockets' memory for the host")
    before = counters(loaded)
    subprocess.run([*sender, "sh", "-c", f"echo 0 >{knob}"], check=True)
    try:
        with namespaces.transfers(path, SECONDS, ["-C", loader.NAME]) as found:
            pass
    finally:
        subprocess.run([*sender, "sh", "-c", f"echo {read.stdout.strip()} >{knob}"], check=True)
    grew = {n: int(counters(loaded)[n]) - int(before[n]) for n in ("rounds", "no_memory")}
    windows = [one["streams"][0]["snd_cwnd"] // 1448 for one in found[0]["intervals"]]
    sent = found[0]["end"]["sum_sent"]
    print(grew, windows, sent)
    assert grew["no_memory"] == grew["rounds"] > 20
    # A queue of 100 packets, and the path holds hardly any.
    assert all(20 <= window <= 250 for window in windows[1:])
    assert sent["retransmits"] * 1448 <= 0.02 * sent["bytes"]
    assert found[0]["end"]["sum_received"]["bits_per_second"] > 0.5e6 * MBPS


def test_readers_come_and_go(loaded: Path) -> None:
    """One at a time, also after one that was killed; and no count is lost by it."""
    words = [loaded / "ndm_bpf", "events"]
    switches = subprocess.Popen([sys.executable, "-c", SWITCHES, loader.NAME, "reno"])
    try:
        for number in range(100):
            reader = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            time.sleep(0.02)
            if number % 50 == 0:
                assert select.select([reader.stderr], [], [], 0.5) == ([], [], [])
                second = subprocess.run(
                    words, capture_output=True, text=True, check=False, timeout=10
                )
                said = f"process {reader.pid} reads the events"
                assert second.returncode == 1 and said in second.stderr
                reader.kill()
            reader.send_signal(signal.SIGTERM)
            reader.communicate()
        assert switches.poll() is None
    finally:
        switches.kill()
        switches.wait()
    assert counters(loaded)["flows"] == "0"


def test_a_reader_sees_no_events_of_before_it(path: str, loaded: Path, tmp_path: Path) -> None:
    """A reader that was killed cannot end the events; what it leaves is not the next one's."""
    words, lines = [loaded / "ndm_bpf", "events"], []
    for name, signal_ in (("killed", signal.SIGKILL), ("next", signal.SIGTERM)):
        with (tmp_path / name).open("w") as out:
            reader = subprocess.Popen(words, stdout=out)
            time.sleep(0.5)
            if name == "killed":
                transfer(path, [loader.NAME])
            reader.send_signal(signal_)
            reader.wait(10)
        lines.append(len((tmp_path / name).read_text().splitlines()))
        if name == "killed":
            transfer(path, [loader.NAME])
    assert lines[0] > 100 and lines[1] == 0


def test_beside_cubic_and_bbr(path: str, loaded: Path) -> None:
    missing = {"cubic", "bbr"} - set(default.available())
    if missing:
        pytest.skip(f"this kernel has no {' and no '.join(sorted(missing))}")
    began = time.monotonic()
    seen = transfer(path, [loader.NAME, "cubic", "bbr"])
    took = time.monotonic() - began
    print({name: (row["received"], row["retransmits"]) for name, row in seen.items()}, took)
    rates = {name: row["received"] for name, row in seen.items()}
    assert sum(rates.values()) >= 0.6 * MBPS
    # Each rate is of its own seconds: on a busy host the transfers don't all begin at once.
    delivered = sum(row["received_bytes"] for row in seen.values()) * 8e-6
    assert delivered <= 1.02 * MBPS * took, "the transfers don't share the path"
    assert min(rates.values()) >= 0.02 * MBPS
    sent = seen[loader.NAME]
    assert sent["retransmits"] * 1448 <= MOST_RETRANSMITTED * sent["bytes"]


def test_a_burst_of_tokens_is_not_the_rate(path: str, loaded: Path) -> None:
    """A bucket passes bursts at the host's speed; no window grows by it. Last: a new bucket."""
    bucket = ["tc", "-n", f"{path}r", "qdisc", "replace", "dev", "b0", "root"]
    subprocess.run([*bucket, *SHORT_BUCKET.split()], check=True)
    seen = [transfer(path, [loader.NAME])[loader.NAME] for _ in range(3)]
    shares = [row["retransmits"] * 1448 / row["bytes"] for row in seen]
    print(shares, [row["received"] for row in seen])
    assert statistics.median(shares) <= MOST_OF_SHORT
    assert statistics.median(row["received"] for row in seen) >= 100 * LEAST_OF_SHORT
