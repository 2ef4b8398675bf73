# SPDX-License-Identifier: GPL-2.0-only
"""`make -C kmod load|enable|disable`, with a sysctl that only writes to a file."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from ..conftest import ROOT

SYSCTL = """#!/bin/sh
case "$1" in
-n) cat "$SETTING" ;;
-w) echo "${2#*=}" >"$SETTING"; echo "$2" ;;
esac
"""


class Host:
    """A setting, and what the Makefile keeps of it."""

    def __init__(self, folder: Path, setting: str) -> None:
        self.setting, self.previous = folder / "setting", folder / "previous"
        self.setting.write_text(f"{setting}\n")
        (folder / "sysctl").write_text(SYSCTL)
        (folder / "sysctl").chmod(0o755)
        self.env = os.environ | {
            "PATH": f"{folder}:{os.environ['PATH']}",
            "SETTING": str(self.setting),
        }

    def make(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = ["make", "-s", "-C", str(ROOT / "kmod"), f"PREVIOUS={self.previous}", *words]
        return subprocess.run(command, env=self.env, capture_output=True, text=True, check=False)

    @property
    def default(self) -> str:
        return self.setting.read_text().strip()


def test_disable_changes_nothing_of_others(tmp_path: Path) -> None:
    host = Host(tmp_path, "bbr")
    done = host.make("disable")
    assert (done.returncode, done.stdout) == (0, "ndm_tcp is not the default\n")
    assert host.default == "bbr"


@pytest.mark.parametrize(("kept", "then"), [("bbr", "bbr"), ("", "cubic")])
def test_disable_goes_back(kept: str, then: str, tmp_path: Path) -> None:
    host = Host(tmp_path, "ndm_tcp")
    if kept:
        host.previous.write_text(f"{kept}\n")
    assert host.make("disable").returncode == 0
    assert host.default == then and not host.previous.exists()


def test_enable_needs_the_module(tmp_path: Path) -> None:
    if Path("/sys/module/ndm_tcp").exists():
        pytest.skip("ndm_tcp is loaded on this host")
    host = Host(tmp_path, "bbr")
    done = host.make("enable")
    assert done.returncode and f"not loaded; run: make -C {ROOT}/kmod load" in done.stderr
    assert host.default == "bbr" and not host.previous.exists()


def test_load_needs_a_build(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "kmod", tmp_path / "kmod", ignore=shutil.ignore_patterns("*.ko"))
    command = ["make", "-s", "-C", str(tmp_path / "kmod"), "load"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode and f"ndm_tcp.ko: not built; run: make -C {tmp_path}/kmod" in done.stderr
