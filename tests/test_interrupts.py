# SPDX-License-Identifier: GPL-2.0-only
"""Signals end a command, whenever they come, and leave nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ndm_tcp import interrupts

from .conftest import TRACES

AT_FORK = """
import os, signal, sys
from ndm_tcp.cli import run_command
parent = os.getpid()
def interrupt():
    os.kill(parent, signal.SIGINT)
os.register_at_fork({where}=interrupt)
sys.exit(run_command(sys.argv[1:]))
"""


@pytest.mark.parametrize("where", ["before", "after_in_parent", "after_in_child"])
@pytest.mark.parametrize("command", ["build", "train"])
def test_an_interrupt_in_a_fork_is_not_lost(
    tmp_path: Path, dataset: Path, command: str, where: str
) -> None:
    traces = [str(folder) for folder in sorted(TRACES.glob("*-clean"))[:3]]
    words = {
        "build": ["dataset", "build", *traces, "--jobs", "2"],
        "train": ["train", "--data", str(dataset), "--seeds", "2", "--objective", "awbc"],
    }[command]
    program = [sys.executable, "-c", AT_FORK.format(where=where)]
    done = subprocess.run(
        [*program, *words, "-o", str(tmp_path / "out")], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 130, done.stderr
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


def test_an_ignored_signal_stays_ignored() -> None:
    """That of a terminal which closes, under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interrupts.signals_as_exit():
            signal.raise_signal(signal.SIGHUP)
        with pytest.raises(SystemExit), interrupts.signals_as_exit():
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGHUP, before)
