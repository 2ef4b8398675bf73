# SPDX-License-Identifier: GPL-2.0-only
"""Signals end a command, whenever they come, and leave nothing behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ndm_tcp import interrupts
from ndm_tcp.bpf import loader
from ndm_tcp.datasets.readers import simulated
from ndm_tcp.errors import NdmError
from ndm_tcp.lab.guest import boot

from .conftest import TRACES

AT_FORK = """
import os, signal, sys
from ndm_tcp.cli import run_command
parent = os.getpid()
signal.signal(signal.SIGINT, signal.default_int_handler)  # a script's background ignores it
def interrupt():
    os.kill(parent, signal.{signal})
os.register_at_fork({where}=interrupt)
sys.exit(run_command(sys.argv[1:]))
"""

AT_PART = """
import sys, time
from ndm_tcp.cli import run_command
from ndm_tcp.datasets.builder import parts
made, make = [], parts.make
def slow(task):
    if len(made) == 2:
        time.sleep({seconds})
    made.append(task)
    return make(task)
parts.make = slow
sys.exit(run_command(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    ("command", "where", "number"),
    [
        ("build", "before", signal.SIGINT),
        ("build", "after_in_parent", signal.SIGINT),
        ("build", "after_in_child", signal.SIGTERM),
        ("train", "after_in_parent", signal.SIGTERM),
    ],
)
def test_a_signal_in_a_fork_is_not_lost(
    tmp_path: Path, dataset: Path, command: str, where: str, number: signal.Signals
) -> None:
    traces = [str(folder) for folder in sorted(TRACES.glob("*-clean"))[:3]]
    words = {
        "build": ["dataset", "build", *traces, "--jobs", "2"],
        "train": ["train", "--data", str(dataset), "--seeds", "2", "--objective", "awbc"],
    }[command]
    program = [sys.executable, "-c", AT_FORK.format(where=where, signal=number.name)]
    done = subprocess.run(
        [*program, *words, "-o", str(tmp_path / "out")], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 128 + number, done.stderr
    assert "Exception ignored" not in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists() or command == "train"


def test_a_signal_leaves_no_temporary_files(tmp_path: Path) -> None:
    """Of the simulator: its build, and recordings that have not ended."""
    (tmp_path / "tmp").mkdir()
    words = ["lab", "record", "training", "--cc", "cubic", "--simulate", "-o", str(tmp_path / "o")]
    program = [sys.executable, "-m", "ndm_tcp.cli", *words]
    env = os.environ | {"TMPDIR": str(tmp_path / "tmp")}
    pipe = subprocess.PIPE
    with subprocess.Popen(program, env=env, stdout=pipe, stderr=pipe, text=True) as running:
        for _ in range(600):
            if [*(tmp_path / "tmp").iterdir()] and any((tmp_path / "o").rglob("result.json")):
                break
            time.sleep(0.1)
        running.send_signal(signal.SIGTERM)
        said = running.communicate(timeout=60)[1]
    assert running.returncode == 143 and "run the same command again" in said, said
    assert "Traceback" not in said
    assert not [*(tmp_path / "tmp").iterdir()]
    assert not [*(tmp_path / "o").rglob(f".{simulated.STEM}")]


def test_an_ignored_signal_stays_ignored() -> None:
    """That of a terminal which closes, under nohup; Ctrl-C in the background of a script."""
    before = {n: signal.signal(n, signal.SIG_IGN) for n in (signal.SIGHUP, signal.SIGINT)}
    try:
        with interrupts.signals_as_exit(), interrupts.deferred():
            for number in before:
                signal.raise_signal(number)
        with pytest.raises(SystemExit), interrupts.signals_as_exit(), interrupts.deferred():
            signal.raise_signal(signal.SIGTERM)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def ended(running: subprocess.Popen[str], number: signal.Signals) -> str:
    """What the process, and not its children, said at this signal."""
    running.send_signal(number)
    said = running.communicate(timeout=20)[1]
    assert running.returncode == 128 + number, said
    return said


def test_finished_parts_of_a_build_stay(tmp_path: Path) -> None:
    """For the next run."""
    slow = AT_PART.format(seconds=30)
    traces = [str(folder) for folder in sorted(TRACES.glob("*-clean"))[:3]]
    words = ["dataset", "build", *traces, "--jobs", "1", "-o", str(tmp_path / "out")]
    program = [sys.executable, "-c", slow, *words]
    with subprocess.Popen(program, stderr=subprocess.PIPE, text=True) as running:
        for _ in range(600):
            if len([*tmp_path.rglob("*.parquet")]) >= 2:
                break
            time.sleep(0.1)
        assert "run the same command again" in ended(running, signal.SIGTERM)
    assert len([*tmp_path.rglob("*.parquet")]) >= 2


@contextlib.contextmanager
def training(dataset: Path, out: Path) -> Iterator[subprocess.Popen[str]]:
    """Two networks, of which one has begun to train."""
    options = ["--seeds", "2", "--objective", "awbc", "--epochs", "4000", "-o", str(out)]
    program = [sys.executable, "-m", "ndm_tcp.cli", "train", "--data", str(dataset), *options]
    with subprocess.Popen(program, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        assert "epoch" in running.stderr.readline()
        yield running


def test_the_parent_of_a_training_ends_its_processes(tmp_path: Path, dataset: Path) -> None:
    with training(dataset, tmp_path / "many") as running:
        began_s = time.monotonic()
        ended(running, signal.SIGTERM)
    assert time.monotonic() - began_s < 15


def test_processes_end_with_a_training_that_is_killed(tmp_path: Path, dataset: Path) -> None:
    """Its parent has no time to end them: they trained on, and then waited for good."""
    with training(dataset, tmp_path / "many") as running:
        children = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()
        assert len(children) == 2
        running.kill()
    left = children
    for _ in range(100):
        if not (left := [pid for pid in left if Path(f"/proc/{pid}/exe").exists()]):
            break
        time.sleep(0.1)
    for pid in left:
        os.kill(int(pid), signal.SIGKILL)
    assert not left


def test_the_loader_ends_with_the_reader_of_events(tmp_path: Path) -> None:
    loader = tmp_path / "ndm_bpf"
    loader.write_text(f"#!/bin/sh\necho $$ >{tmp_path}/pid\nexec sleep 40\n")
    loader.chmod(0o755)
    words = ["bpf", "events", "--folder", str(tmp_path)]
    program = [sys.executable, "-m", "ndm_tcp.cli", *words]
    with subprocess.Popen(program, stderr=subprocess.PIPE, text=True) as running:
        while not (tmp_path / "pid").is_file() or not (tmp_path / "pid").read_text():
            time.sleep(0.05)
        ended(running, signal.SIGTERM)
    assert not Path(f"/proc/{int((tmp_path / 'pid').read_text())}").exists()


def test_a_signal_while_the_loader_begins_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process was there, and nobody knew it yet."""
    path = tmp_path / "ndm_bpf"
    path.write_text("#!/bin/sh\nexec sleep 40\n")
    path.chmod(0o755)
    begun: list[subprocess.Popen[str]] = []
    popen = subprocess.Popen

    def interrupted(*args: Any, **more: Any) -> subprocess.Popen[str]:
        begun.append(popen(*args, **more))
        signal.raise_signal(signal.SIGINT)
        return begun[0]

    monkeypatch.setattr(subprocess, "Popen", interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a background ignores it
    try:
        with pytest.raises(KeyboardInterrupt), loader.started(tmp_path, "events"):
            raise AssertionError("went on")
    finally:
        signal.signal(signal.SIGINT, before)
    assert begun[0].poll() == -signal.SIGTERM


def test_a_guest_that_the_system_kills_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it does where memory runs out: its last words would say nothing of that."""
    process = subprocess.Popen(
        ["sh", "-c", "echo words; kill -9 $$"], stdout=subprocess.PIPE, start_new_session=True
    )
    monkeypatch.setattr(boot, "start_kernel", lambda *_: process)
    with pytest.raises(NdmError, match="the guest was killed, as Linux does where memory runs out"):
        boot.boot(tmp_path, 1, None, 60)
