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


@pytest.mark.parametrize("name", ["ROOT", "OUT", "DESTDIR", "PREFIX", "UNITS"])
@pytest.mark.parametrize("place", ["out/mine", "/of two/words", "/of two"])
def test_places_that_would_be_elsewhere_are_refused(name: str, place: str) -> None:
    """make runs in bpf/, not where the user is, and parts a name at its spaces: rm would, too."""
    for verb in ("all", "install", "uninstall", "clean"):
        assert f"{name}={place}: must be absolute" in make("-n", verb, f"{name}={place}")


def test_what_it_installs_others_may_read(built: Path, tmp_path: Path) -> None:
    words = ["make", "-s", "-C", str(BPF), f"OUT={built}", f"DESTDIR={tmp_path}"]
    subprocess.run([*words, "install"], check=True, umask=0o077)
    found = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.rglob("*")}
    files = {"ndm_bpf": 0o755, "ndm_tcp.bpf.o": 0o644, "ndm-tcp-bpf.service": 0o644}
    assert found == dict.fromkeys(found, 0o755) | files and set(files) < set(found)
    unit = next(tmp_path.rglob("*.service")).read_text()
    assert f"{tmp_path}" not in unit and "/usr/local/lib/ndm-tcp/ndm_bpf" in unit
    subprocess.run([*words, "uninstall"], check=True)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


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
