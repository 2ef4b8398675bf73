# SPDX-License-Identifier: GPL-2.0-only
"""Marks on this kernel: the core reports each, and the window is cut once in a round."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from pyroute2 import netns

from ndm_tcp.bpf import loader
from ndm_tcp.datasets.module_event import event_lines

from ..namespaces import inside
from ..replay import assert_replays

SECONDS = 6.0
PORT = 5401
CE_AT, INFO_BYTES = 196, 200  # of tcpi_delivered_ce in struct tcp_info
CWR = 2


@pytest.fixture
def two() -> Iterator[list[str]]:
    """Two namespaces without a link."""
    if os.geteuid() or not os.access("/dev/net/tun", os.W_OK):
        pytest.skip("not root, or no /dev/net/tun")
    names = [f"ndm{os.getpid() % 100000}{end}" for end in "ab"]
    try:
        for name in names:
            subprocess.run(["ip", "netns", "add", name], check=True)
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


@contextlib.contextmanager
def entered(name: str) -> Iterator[None]:
    netns.pushns(name)
    try:
        yield
    finally:
        netns.popns()


def drain(server: socket.socket) -> None:
    made, _ = server.accept()
    with made:
        while made.recv(1 << 16):
            pass


def transfer(two: list[str]) -> tuple[int, int]:
    """A bulk transfer of some seconds: the path's marks, and the sender's count of them."""
    for name in two:
        knob = "echo 1 >/proc/sys/net/ipv4/tcp_ecn"
        subprocess.run([*inside(name), "sh", "-c", knob], check=True)
    words = [sys.executable, str(Path(__file__).with_name("marker.py")), *two]
    path = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert path.stdout is not None and path.stdout.readline() == "ready\n"
    with entered(two[1]):
        server = socket.create_server(("10.7.0.2", PORT))
    with entered(two[0]):
        sender = socket.socket()
    with server, sender:
        threading.Thread(target=drain, args=(server,), daemon=True).start()
        sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, loader.NAME.encode())
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 18)
        sender.settimeout(10)
        sender.connect(("10.7.0.2", PORT))
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            sender.send(b"x" * (1 << 14))
        time.sleep(1)
        info = sender.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, INFO_BYTES)
    marks = int(path.communicate("", timeout=20)[0])
    return marks, int.from_bytes(info[CE_AT : CE_AT + 4], sys.byteorder)


def test_marks_cut_once_in_a_round(two: list[str], loaded: Path, tmp_path: Path) -> None:
    marks, cuts = 0, []
    # A busy host may leave few rounds in which the queue stood.
    for turn in range(4):
        text = tmp_path / f"rounds-{turn}.txt"
        with text.open("w") as out:
            reader = subprocess.Popen([loaded / "ndm_bpf", "events"], stdout=out)
            time.sleep(0.5)
            more, counted = transfer(two)
            reader.send_signal(signal.SIGTERM)
            assert reader.wait(10) == 0
        table = event_lines.read(text)
        rows = [row for row in table.to_pylist() if row["dport"] == PORT]
        marks += more
        cuts += [
            (before, row)
            for before, row in pairwise(rows)
            if row["ca_state"] == CWR and before["ca_state"] != CWR
        ]
        print(
            f"\n{len(rows)} rounds, {more} marks, {counted} counted, {len(cuts)} reductions so far"
        )
        assert assert_replays(table) > 20
        if len(cuts) > 3:
            break
    assert marks > 20 and len(cuts) > 3
    # A reduction for every mark would be more of them, and deeper.
    assert len(cuts) < marks / 2
    for before, row in cuts:
        part = 0.5 if before["why"] == "slow_start" else 0.8
        assert row["ssthresh"] >= part * min(before["cwnd"], row["cwnd"]) - 1, (before, row)
