# SPDX-License-Identifier: GPL-2.0-only
"""Ctrl-C while processes are started ends the command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

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
