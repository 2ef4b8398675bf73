# SPDX-License-Identifier: GPL-2.0-only
"""ruff and mypy over everything of ours."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from .conftest import ROOT

PYTHON = (
    "src",
    "datasets",
    "training",
    "export",
    "lab",
    "paths",
    "notebooks",
    "docs",
    "tests",
    "setup.py",
)


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


def test_notebooks_use_names_that_are_there() -> None:
    """Their branches that no test runs, too; otherwise their cells are not typed."""
    books = sorted((ROOT / "notebooks").glob("*.py"))
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--implicit-reexport", *map(str, books)],
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": "notebooks"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert books and "checked" in done.stdout, done.stdout + done.stderr
    assert not [line for line in done.stdout.splitlines() if "error: Module " in line]


def test_mypy() -> None:
    """The benchmarks are run by hand: only this notices a name that is gone."""
    benchmarks = sorted((ROOT / "tests" / "bench").glob("*.py"))
    words = [word for path in benchmarks for word in ("-m", f"tests.bench.{path.stem}")]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "-p", "ndm_tcp", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
