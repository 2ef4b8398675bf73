# SPDX-License-Identifier: GPL-2.0-only
"""One kernel, many mount and network namespaces: what loads and unloads the algorithm for all."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ndm_tcp.bpf import default, loader
from ndm_tcp.cli import run_command

from .test_load import PINS, ndm_bpf, refused, unloaded

__all__ = ["unloaded"]
KEY = "net.ipv4.tcp_congestion_control"


@pytest.fixture
def namespace(unloaded: Path) -> Iterator[str]:
    """A network namespace that begins with the host's default."""
    name = f"ndmscope{os.getpid() % 100000}"
    yield name
    subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def add(namespace: str) -> None:
    subprocess.run(["ip", "netns", "add", namespace], check=True)


def within(namespace: str, *words: object) -> subprocess.CompletedProcess[str]:
    """In the namespace, with the mounts of this process."""
    command = ["nsenter", f"--net=/run/netns/{namespace}", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_pins_that_would_end_with_the_process_are_refused(namespace: str, unloaded: Path) -> None:
    """`ip netns exec` has a /sys of its own."""
    add(namespace)
    command = ["ip", "netns", "exec", namespace, str(unloaded / "ndm_bpf")]
    for verb in ("load", "status", "unload", "swap", "events"):
        words = [*command, verb, *(["--built-in"] if verb == "swap" else [])]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode and done.stderr.count("\n") == 1
        assert "mounts of its own" in done.stderr and "nsenter --net=" in done.stderr, verb
    assert loader.NAME not in default.available() and not PINS.exists()
    done = within(namespace, unloaded / "ndm_bpf", "load")
    assert (done.returncode, done.stderr) == (0, "")
    assert loader.NAME in default.available()


def test_of_two_loaders_at_once_one_loads(unloaded: Path) -> None:
    for _ in range(3):
        both = [
            subprocess.Popen([unloaded / "ndm_bpf", "load"], stderr=subprocess.PIPE, text=True)
            for _ in range(2)
        ]
        said = [child.communicate()[1] for child in both]
        assert sorted(child.returncode for child in both) == [0, 1]
        assert any("is loaded already" in text for text in said)
        assert loader.NAME in default.available() and ndm_bpf(unloaded, "status").returncode == 0
        assert ndm_bpf(unloaded, "unload").stdout == "flows=0\n"


def test_a_namespace_that_inherits_the_default_holds_it(
    namespace: str, unloaded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its new connections would go on with an algorithm that nothing shows."""
    words, before = ["--folder", str(unloaded)], default.SYSCTL.read_text()
    assert run_command(["bpf", "load", "--default", *words]) == 0
    add(namespace)
    assert within(namespace, "sysctl", "-n", KEY).stdout.strip() == loader.NAME
    assert run_command(["bpf", "unload", *words]) == 2
    said = capsys.readouterr().err
    command = said.strip().partition("run first: ")[2]
    assert command.startswith(f"nsenter --net=/run/netns/{namespace} sysctl")
    assert loader.NAME in default.available()
    assert default.SYSCTL.read_text().strip() == loader.NAME, "as it was before the refusal"
    subprocess.run(command.split(), check=True, capture_output=True)
    assert run_command(["bpf", "unload", *words]) == 0
    assert default.SYSCTL.read_text() == before and not default.PREVIOUS.exists()


def test_a_default_by_sysctl_is_restored_too(
    unloaded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words, before = ["--folder", str(unloaded)], default.SYSCTL.read_text()
    assert run_command(["bpf", "load", *words]) == 0
    default.SYSCTL.write_text(loader.NAME)
    assert run_command(["bpf", "unload", *words]) == 0
    assert f"the default is {before.strip()} again" in capsys.readouterr().out
    assert default.SYSCTL.read_text() == before


def test_unloading_counts_the_connections_that_stay(
    unloaded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--folder", str(unloaded)]
    assert run_command(["bpf", "load", *words]) == 0
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as one,
    ):
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, loader.NAME.encode())
        assert run_command(["bpf", "unload", *words]) == 0
    assert "connections that keep it until they close: 1" in capsys.readouterr().out


def ndm(folder: Path, *words: str) -> list[str]:
    """The command line of `ndm bpf`, for a process of its own."""
    main = "from ndm_tcp.cli import main; main()"
    return [sys.executable, "-c", main, "bpf", *words, "--folder", str(folder)]


def test_a_namespace_that_may_not_choose_it_loads_nothing(namespace: str, unloaded: Path) -> None:
    """It may choose only what the host allows; where the kernel refuses, references would stay."""
    add(namespace)
    done = within(namespace, *ndm(unloaded, "load", "--default"))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "not the host's network namespace" in done.stderr
    assert loader.NAME not in default.available()
    assert not PINS.exists() and not default.PREVIOUS.exists()


def test_a_default_that_cannot_be_written_loads_nothing(unloaded: Path) -> None:
    """As in a container whose /proc/sys is read-only."""
    script = 'mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys && exec "$@"'
    words = ["unshare", "--mount", "sh", "-ec", script, "sh", *ndm(unloaded, "load", "--default")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert f"{default.SYSCTL}: not writable" in done.stderr
    assert loader.NAME not in default.available() and not PINS.exists()


def test_a_namespace_goes_back_only_to_what_it_may_choose(namespace: str, unloaded: Path) -> None:
    """The default from before was the host's, and the namespace may not choose that."""
    before, allowed = default.SYSCTL.read_text(), default.ALLOWED.read_text()
    assert run_command(["bpf", "load", "--folder", str(unloaded)]) == 0
    default.PREVIOUS.write_text("cubic\n")
    try:
        default.ALLOWED.write_text(f"reno {loader.NAME}")
        add(namespace)
        assert within(namespace, "sysctl", "-w", f"{KEY}={loader.NAME}").returncode == 0
        done = within(namespace, *ndm(unloaded, "unload"))
        assert (done.returncode, done.stderr) == (0, "")
        assert "the default is reno again" in done.stdout
    finally:
        default.ALLOWED.write_text(allowed)
    assert default.SYSCTL.read_text() == before


def test_what_cannot_be_removed_is_named(unloaded: Path) -> None:
    """A folder in the place of a pin: nothing is loaded, and nothing could be."""
    folder = PINS / "link"
    folder.mkdir(parents=True)
    try:
        done = ndm_bpf(unloaded, "unload")
        assert done.returncode == 1 and done.stderr.count("\n") == 1
        assert f"{folder}: Is a directory; remove it" in done.stderr
    finally:
        folder.rmdir()
        PINS.rmdir()
    assert ndm_bpf(unloaded, "load").returncode == 0


def _transfer() -> None:
    """100 MB over the loopback device."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as sender,
        server.accept()[0] as receiver,
    ):
        reading = threading.Thread(target=lambda: all(iter(lambda: receiver.recv(1 << 20), b"")))
        reading.start()
        for _ in range(1600):
            sender.sendall(bytes(1 << 16))
        sender.shutdown(socket.SHUT_WR)
        reading.join()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_events_that_cannot_be_written_are_an_error(unloaded: Path) -> None:
    assert ndm_bpf(unloaded, "load").returncode == 0
    default.SYSCTL.write_text(loader.NAME)
    with Path("/dev/full").open("w") as full:
        reader = subprocess.Popen(
            [unloaded / "ndm_bpf", "events"], stdout=full, stderr=subprocess.PIPE, text=True
        )
        for _ in range(10):
            _transfer()
            if reader.poll() is not None:
                break
        reader.terminate()
        _, said = reader.communicate()
    assert reader.returncode == 1
    assert said == "ndm_bpf: the events cannot be written: No space left on device\n"


def test_a_file_that_cannot_run_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ndm_bpf").write_bytes(b"\x7fELF")
    (tmp_path / "ndm_bpf").chmod(0o755)
    for words in (["bpf", "status"], ["bpf", "events"]):
        assert run_command([*words, "--folder", str(tmp_path)]) == 2
        remedy = f"remove it, then in a checkout run: make -C bpf OUT={tmp_path}"
        assert capsys.readouterr().err == (
            f"ndm: {tmp_path}/ndm_bpf: Exec format error; {remedy}\n"
        )
    run_command(["status", "--folder", str(tmp_path)])
    shown = capsys.readouterr()
    assert "without the BPF form" in shown.err and shown.out.startswith("kernel ")


def test_an_unreadable_object_names_the_reason(unloaded: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.o"
    path.write_bytes(b"no ELF")
    assert "Unknown error" not in refused(unloaded, "load", path)


def test_a_default_of_what_is_not_loaded_is_no_error_of_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As where somebody unloaded by other means."""
    for name, text in (("SYSCTL", loader.NAME), ("AVAILABLE", "reno cubic"), ("PREVIOUS", "reno")):
        (tmp_path / name).write_text(text)
        monkeypatch.setattr(default, name, tmp_path / name)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    program = tmp_path / "ndm_bpf"
    program.write_text("#!/bin/sh\necho 'ndm_bpf: ndm_tcp_bpf is not loaded' >&2; exit 1\n")
    program.chmod(0o755)
    assert run_command(["bpf", "unload", "--folder", str(tmp_path)]) == 2
    assert capsys.readouterr().err == "ndm: ndm_tcp_bpf is not loaded\n"
    assert default.SYSCTL.read_text() == "reno"


@pytest.mark.parametrize("seconds", ["-1", "0", "nan", "inf"])
def test_seconds_that_make_no_sense(
    seconds: str, built: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["bpf", "events", "--folder", str(built), f"--seconds={seconds}"]) == 2
    assert "must be above 0" in capsys.readouterr().err
