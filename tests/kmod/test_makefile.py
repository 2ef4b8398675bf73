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
-w) [ -z "$REFUSES" ] || exit 255; echo "${2#*=}" >"$SETTING"; echo "$2" ;;
esac
"""


class Host:
    """A setting, and what the Makefile keeps of it."""

    def __init__(self, folder: Path, setting: str, refuses: bool = False) -> None:
        self.setting, self.previous = folder / "setting", folder / "previous"
        self.setting.write_text(f"{setting}\n")
        (folder / "sysctl").write_text(SYSCTL)
        (folder / "sysctl").chmod(0o755)
        self.env = os.environ | {
            "PATH": f"{folder}:{os.environ['PATH']}",
            "SETTING": str(self.setting),
            "REFUSES": "1" if refuses else "",
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
    """The kernel loads an installed one by its alias, so only the sysctl can tell."""
    host = Host(tmp_path, "bbr", refuses=True)
    done = host.make("enable")
    assert done.returncode and f"run: make -C {ROOT}/kmod load" in done.stderr
    assert host.default == "bbr" and not host.previous.exists()


def test_enable_keeps_what_it_replaced(tmp_path: Path) -> None:
    host = Host(tmp_path, "bbr")
    for _ in range(2):
        assert host.make("enable").returncode == 0
        assert host.default == "ndm_tcp" and host.previous.read_text() == "bbr\n"


def test_load_needs_a_build(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "kmod", tmp_path / "kmod", ignore=shutil.ignore_patterns("*.ko"))
    command = ["make", "-s", "-C", str(tmp_path / "kmod"), "load"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode and f"ndm_tcp.ko: not built; run: make -C {tmp_path}/kmod" in done.stderr
