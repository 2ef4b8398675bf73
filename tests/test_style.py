# SPDX-License-Identifier: GPL-2.0-only
"""ruff and mypy over everything of ours."""

from __future__ import annotations

import subprocess
import sys

import pytest

from .conftest import ROOT

PYTHON = ("src", "datasets", "training", "export", "lab", "notebooks", "tests", "setup.py")


@pytest.mark.parametrize("arguments", [("check",), ("format", "--check", "--diff")], ids=" ".join)
def test_ruff(arguments: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ruff", *arguments, *PYTHON],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_mypy() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "-p", "ndm_tcp"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
