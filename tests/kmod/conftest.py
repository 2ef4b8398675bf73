# SPDX-License-Identifier: GPL-2.0-only
"""What the scripts of the guest run."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from .lab import need_kernel


def compiled(name: str, folder: Path) -> Path:
    """A program of this folder, for the guest."""
    need_kernel()
    out = folder / name
    source = Path(__file__).with_name(f"{name}.c")
    words = ["gcc", "-static", "-O2", "-Wall", "-Wextra", "-Werror", "-o", str(out), str(source)]
    subprocess.run(words, check=True)
    return out


@pytest.fixture(scope="session")
def flow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """flow.c, compiled."""
    return compiled("flow", tmp_path_factory.mktemp("flow"))


@pytest.fixture(scope="session")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """crowd.c, compiled."""
    return compiled("crowd", tmp_path_factory.mktemp("crowd"))
