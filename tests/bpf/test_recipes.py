# SPDX-License-Identifier: GPL-2.0-only
"""The commands of docs/recipes.md, with the BPF form, in network namespaces of this host."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyroute2 import netns

from ndm_tcp.bpf import default, loader

from ..conftest import ROOT
from ..namespaces import RECEIVER, inside
from .conftest import build

PAGE = (ROOT / "docs" / "recipes.md").read_text()
ELSEWHERE = "203.0.113.1"
PORT = 5301
LISTEN = f"""
import socket, sys, time
server = socket.create_server(("", {PORT}))
print("ready", flush=True)
sys.stdin.read()
"""


def commands(title: str) -> list[str]:
    """The blocks of commands of a recipe."""
    section = PAGE[PAGE.index(f"\n## {title}\n") :].split("\n## ")[1]
    found = re.findall(r"```\n(.*?)```", section, flags=re.DOTALL)
    assert found, title
    return found


def run(words: list[str], script: str) -> subprocess.CompletedProcess[str]:
    """Run commands of the page as it says, with $CC."""
    return subprocess.run(
        [*words, "sh", "-ec", script],
        env=os.environ | {"CC": loader.NAME},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def listening(path: str) -> Iterator[str]:
    """The namespaces, with a program that accepts connections to two addresses."""
    for words in (
        ["-n", f"{path}d", "addr", "add", f"{ELSEWHERE}/32", "dev", "lo"],
        ["-n", f"{path}r", "route", "add", f"{ELSEWHERE}/32", "via", RECEIVER],
    ):
        subprocess.run(["ip", *words], check=True)
    command = [*inside(f"{path}d"), sys.executable, "-c", LISTEN]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    server.stdout.readline()
    yield path
    server.communicate("")


@pytest.fixture
def allowed() -> Iterator[None]:
    """The host's list of allowed algorithms, restored afterwards."""
    before = default.ALLOWED.read_text()
    yield
    default.ALLOWED.write_text(before)


@contextlib.contextmanager
def connection(path: str, address: str) -> Iterator[socket.socket]:
    """From the sender; the socket stays in its namespace."""
    netns.pushns(f"{path}s")
    try:
        made = socket.create_connection((address, PORT), timeout=10)
    finally:
        netns.popns()
    with made:
        yield made


def algorithm(made: socket.socket) -> str:
    name = made.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
    return name.rstrip(b"\0").decode()


def used(path: str, address: str) -> str:
    with connection(path, address) as made:
        return algorithm(made)


def test_the_unit_loads_and_unloads(built: Path, loadable: Path, alone: None) -> None:
    """Its two commands, as systemd runs them; before other tests have it loaded."""
    if loader.NAME in default.available():
        pytest.skip("somebody uses ndm_tcp_bpf on this host")
    text = (ROOT / "bpf" / "ndm-tcp-bpf.service").read_text().replace("@LIB@", str(build(built)))
    for key, there in (("ExecStart", True), ("ExecStop", False)):
        (command,) = re.findall(rf"^{key}=(.*)$", text, flags=re.MULTILINE)
        subprocess.run(command.split(), check=True)
        assert (loader.NAME in default.available()) is there


def test_one_socket(listening: str, loaded: Path) -> None:
    with connection(listening, RECEIVER) as made:
        before = algorithm(made)
        assert before != loader.NAME
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, loader.NAME.encode())
        assert algorithm(made) == loader.NAME
    assert used(listening, RECEIVER) == before


def test_who_may_choose_it(listening: str, loaded: Path, allowed: None) -> None:
    """A program without CAP_NET_ADMIN may not, until the page's command allows it."""
    program = (
        "import os, socket; os.setuid(65534); "
        f"socket.socket().setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b'{loader.NAME}')"
    )
    (_, allow) = commands("One socket")
    words = [sys.executable, "-c", program]
    refused = subprocess.run(words, capture_output=True, text=True, check=False)
    assert os.strerror(errno.EPERM) in refused.stderr
    assert run([], allow).returncode == 0
    subprocess.run(words, check=True)


def test_one_destination(listening: str, loaded: Path) -> None:
    there, back = commands("One destination")
    before = used(listening, ELSEWHERE)
    assert run(inside(f"{listening}s"), there).returncode == 0
    routes = run(inside(f"{listening}s"), "ip route show").stdout
    assert f"203.0.113.0/24 via 10.1.0.1 dev a0 congctl {loader.NAME}" in routes
    with connection(listening, ELSEWHERE) as old:
        assert algorithm(old) == loader.NAME
        assert used(listening, RECEIVER) == before != loader.NAME
        assert run(inside(f"{listening}s"), back).returncode == 0
        assert used(listening, ELSEWHERE) == before
        assert algorithm(old) == loader.NAME  # it keeps what it began with


def test_one_container(listening: str, loaded: Path, allowed: None) -> None:
    there, back = (text.replace("NAME", f"{listening}s") for text in commands("One container"))
    host = default.SYSCTL.read_text()
    allow, choose = there.splitlines()
    # Not tried before it is allowed: a refusal leaks a reference to the algorithm.
    assert loader.NAME not in default.ALLOWED.read_text().split(), "the host had not allowed it"
    assert run([], f"{allow}\n{choose}").returncode == 0
    assert used(listening, RECEIVER) == loader.NAME
    assert default.SYSCTL.read_text() == host
    assert run([], back).returncode == 0
    assert used(listening, RECEIVER) == host.strip()


@pytest.mark.parametrize("prefix", ["/usr", "/usr/local"])
def test_the_unit_is_installed_and_sound(built: Path, tmp_path: Path, prefix: str) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is missing: apt-get install systemd")
    # Its commands must exist for systemd: so the prefix is a folder here.
    here = tmp_path / "root"
    words = ["make", "-s", "-C", str(ROOT / "bpf"), f"OUT={built}"]
    subprocess.run([*words, f"DESTDIR={here}", f"PREFIX={prefix}", "install"], check=True)
    (unit,) = here.rglob("ndm-tcp-bpf.service")
    folder = "lib/systemd/system" if prefix == "/usr" else "etc/systemd/system"
    assert unit == here / folder / unit.name
    text = unit.read_text()
    assert f"ExecStart={prefix}/lib/ndm-tcp/ndm_bpf load" in text and "@" not in text
    for name in ("ndm_bpf", "ndm_tcp.bpf.o"):
        assert (here / prefix[1:] / "lib/ndm-tcp" / name).is_file()
    real = tmp_path / unit.name
    real.write_text(text.replace(f"={prefix}/", f"={here}{prefix}/"))
    checked = subprocess.run(
        ["systemd-analyze", "verify", real], capture_output=True, text=True, check=False
    )
    said = [line for line in checked.stderr.splitlines() if unit.name in line]
    assert checked.returncode == 0 and not said, checked.stderr
    subprocess.run([*words, f"DESTDIR={here}", f"PREFIX={prefix}", "uninstall"], check=True)
    assert not [path for path in here.rglob("*") if path.is_file()]
