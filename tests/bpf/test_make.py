# SPDX-License-Identifier: GPL-2.0-only
"""`make -C bpf`: which network is built, whatever was built before."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from ..conftest import ROOT
from .conftest import BPF, build


def make(*words: str) -> str:
    """What make refuses with, in its last line."""
    done = subprocess.run(["make", "-s", "-C", str(BPF), *words], capture_output=True, text=True)
    assert done.returncode
    return done.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize("name", ["ROOT", "OUT"])
def test_a_relative_folder_is_refused(name: str) -> None:
    """make runs in bpf/, not where the user is."""
    assert f"{name}=out/mine: must be absolute" in make(f"{name}=out/mine")


def test_a_folder_without_a_module_is_refused(tmp_path: Path) -> None:
    assert f"{tmp_path}/kmod: no module with a network there" in make(f"ROOT={tmp_path}")


def test_another_network_is_built_though_its_files_are_older(built: Path, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "kmod", tmp_path / "kmod", copy_function=shutil.copy2)
    out, name = tmp_path / "out", "ndm_tcp.bpf.o"
    build(out)
    first = (out / name).stat().st_mtime_ns
    build(out)
    assert (out / name).stat().st_mtime_ns == first, "nothing to do"
    build(out, tmp_path)
    other = (out / name).stat().st_mtime_ns
    assert other > first
    build(out)
    assert (out / name).stat().st_mtime_ns > other, "and back"
