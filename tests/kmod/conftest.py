# SPDX-License-Identifier: GPL-2.0-only
"""What the scripts of the guest run."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from .lab import need_kernel


@pytest.fixture(scope="session")
def flow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """flow.c, compiled."""
    need_kernel()
    out = tmp_path_factory.mktemp("flow") / "flow"
    source = Path(__file__).with_name("flow.c")
    words = ["gcc", "-static", "-O2", "-Wall", "-Wextra", "-Werror", "-o", str(out), str(source)]
    subprocess.run(words, check=True)
    return out
