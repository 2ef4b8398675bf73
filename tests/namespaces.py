# SPDX-License-Identifier: GPL-2.0-only
"""Three network namespaces on this host: sender, router with a token bucket, receiver."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

MBPS, QUEUE_KB = 60, 150
RECEIVER = "10.2.0.2"
PLAN = f"""
set -eu
for n in s r d; do ip netns add $P$n; ip -n $P$n link set lo up; done
join() {{ ip link add $2 netns $P$1 gso_max_segs 1 type veth peer name $4 netns $P$3 gso_max_segs 1
	ip -n $P$1 link set $2 up; ip -n $P$3 link set $4 up; }}
join s a0 r a1
join r b0 d b1
ip -n ${{P}}s addr add 10.1.0.2/24 dev a0; ip -n ${{P}}r addr add 10.1.0.1/24 dev a1
ip -n ${{P}}r addr add 10.2.0.1/24 dev b0; ip -n ${{P}}d addr add {RECEIVER}/24 dev b1
ip -n ${{P}}s route add default via 10.1.0.1
ip -n ${{P}}d route add default via 10.2.0.1
ip netns exec ${{P}}r sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward'
tc -n ${{P}}r qdisc add dev b0 root tbf rate ${{MBPS}}mbit burst 16k limit ${{QUEUE_KB}}k
"""


def making() -> FileLock:
    """Held where a network namespace is made, which inherits the host's default, and where a test
    changes that default."""
    return FileLock(Path(tempfile.gettempdir()) / "ndm-tcp-tests-namespaces.lock")


@contextlib.contextmanager
def three(mbps: int = MBPS, queue_kb: int = QUEUE_KB) -> Iterator[str]:
    """The prefix of their names, which end with s, r and d; skips where there can be none."""
    for tool in ("ip", "tc", "iperf3"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is missing: make test-packages")
    if os.geteuid():
        pytest.skip("not root: no network namespaces")
    prefix = f"ndm{os.getpid() % 100000}"
    env = os.environ | {"P": prefix, "MBPS": str(mbps), "QUEUE_KB": str(queue_kb)}
    with making():
        made = subprocess.run(["sh", "-c", PLAN], env=env, capture_output=True, text=True)
    try:
        if made.returncode:
            pytest.skip(f"no namespaces with a token bucket here: {made.stderr.strip()[-200:]}")
        yield prefix
    finally:
        for name in "srd":
            subprocess.run(["ip", "netns", "del", prefix + name], capture_output=True)


def inside(name: str) -> list[str]:
    """The words that run a command in a namespace."""
    return ["ip", "netns", "exec", name]


@contextlib.contextmanager
def transfers(path: str, seconds: float, *clients: list[str]) -> Iterator[list[dict[str, Any]]]:
    """Bulk transfers at once, one iperf3 for each list of options, to ports from 5201 on.

    Yields:
        A list that has what iperf3 wrote of each once the block has ended.
    """
    servers, started = list[subprocess.Popen[Any]](), list[subprocess.Popen[Any]]()
    found = list[dict[str, Any]]()
    ports = range(5201, 5201 + len(clients))
    for port in ports:
        command = ["iperf3", "-s", "-1", "-p", str(port)]
        servers.append(subprocess.Popen([*inside(f"{path}d"), *command], stdout=subprocess.DEVNULL))
    time.sleep(0.5)
    for port, options in zip(ports, clients, strict=True):
        command = ["iperf3", "-c", RECEIVER, "-p", str(port), "-t", str(seconds), "-J", *options]
        started.append(
            subprocess.Popen([*inside(f"{path}s"), *command], stdout=subprocess.PIPE, text=True)
        )
    try:
        yield found
        found += [json.loads(client.communicate()[0]) for client in started]
        for server in servers:
            server.wait(10)
    finally:
        for process in (*started, *servers):
            if process.poll() is None:
                process.kill()
                process.wait()
