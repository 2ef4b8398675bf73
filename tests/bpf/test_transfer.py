# SPDX-License-Identifier: GPL-2.0-only
"""Transfers of the BPF form in the running kernel, alone and beside CUBIC and BBR."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ndm_tcp.bpf import default, loader
from ndm_tcp.datasets.module_event import event_lines

from ..replay import assert_replays

MBPS, SECONDS = 60, 4
MOST_RETRANSMITTED = 0.4
"""On such a short path the shipped network retransmits a fifth; here no more than sanity."""
PLAN = f"""
set -eu
for n in s r d; do ip netns add $P$n; ip -n $P$n link set lo up; done
join() {{ ip link add $2 netns $P$1 gso_max_segs 1 type veth peer name $4 netns $P$3 gso_max_segs 1
	ip -n $P$1 link set $2 up; ip -n $P$3 link set $4 up; }}
join s a0 r a1
join r b0 d b1
ip -n ${{P}}s addr add 10.1.0.2/24 dev a0; ip -n ${{P}}r addr add 10.1.0.1/24 dev a1
ip -n ${{P}}r addr add 10.2.0.1/24 dev b0; ip -n ${{P}}d addr add 10.2.0.2/24 dev b1
ip -n ${{P}}s route add default via 10.1.0.1
ip -n ${{P}}d route add default via 10.2.0.1
ip netns exec ${{P}}r sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward'
tc -n ${{P}}r qdisc add dev b0 root tbf rate {MBPS}mbit burst 16k limit 150k
"""


@pytest.fixture(scope="module")
def path() -> Iterator[str]:
    """The prefix of three network namespaces: sender, router with a token bucket, receiver."""
    for tool in ("ip", "tc", "iperf3"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is missing: make test-packages")
    if os.geteuid():
        pytest.skip("not root: no network namespaces")
    prefix = f"ndm{os.getpid() % 100000}"
    made = subprocess.run(
        ["sh", "-c", PLAN], env=os.environ | {"P": prefix}, capture_output=True, text=True
    )
    try:
        if made.returncode:
            pytest.skip(f"no namespaces with a token bucket here: {made.stderr.strip()[-200:]}")
        yield prefix
    finally:
        for name in "srd":
            subprocess.run(["ip", "netns", "del", prefix + name], capture_output=True)


@pytest.fixture(scope="module")
def loaded(loadable: Path) -> Iterator[Path]:
    if loader.NAME in default.AVAILABLE.read_text():
        pytest.skip("somebody uses ndm_tcp_bpf on this host")
    subprocess.run([loadable / "ndm_bpf", "load"], check=True)
    yield loadable
    subprocess.run([loadable / "ndm_bpf", "unload"], check=True)


def transfer(path: str, algorithms: list[str]) -> dict[str, dict[str, Any]]:
    """Bulk transfers at once: for each algorithm what iperf3 says of its sender."""
    inside = ["ip", "netns", "exec"]
    servers, clients = [], {}
    for port in range(5201, 5201 + len(algorithms)):
        command = ["iperf3", "-s", "-1", "-p", str(port)]
        servers.append(subprocess.Popen([*inside, f"{path}d", *command], stdout=subprocess.DEVNULL))
    time.sleep(0.5)
    for port, name in enumerate(algorithms, start=5201):
        command = ["iperf3", "-c", "10.2.0.2", "-p", str(port), "-C", name, "-t", str(SECONDS)]
        clients[name] = subprocess.Popen(
            [*inside, f"{path}s", *command, "-J"], stdout=subprocess.PIPE, text=True
        )
    found = {name: json.loads(client.communicate()[0]) for name, client in clients.items()}
    for server in servers:
        server.wait(10)
    return {
        name: data["end"]["sum_sent"]
        | {"received": data["end"]["sum_received"]["bits_per_second"] / 1e6}
        for name, data in found.items()
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


def test_beside_cubic_and_bbr(path: str, loaded: Path) -> None:
    missing = {"cubic", "bbr"} - set(default.AVAILABLE.read_text().split())
    if missing:
        pytest.skip(f"this kernel has no {' and no '.join(sorted(missing))}")
    seen = transfer(path, [loader.NAME, "cubic", "bbr"])
    print({name: (row["received"], row["retransmits"]) for name, row in seen.items()})
    rates = {name: row["received"] for name, row in seen.items()}
    assert 0.6 * MBPS <= sum(rates.values()) <= 1.02 * MBPS
    assert min(rates.values()) >= 0.02 * MBPS
    sent = seen[loader.NAME]
    assert sent["retransmits"] * 1448 <= MOST_RETRANSMITTED * sent["bytes"]
