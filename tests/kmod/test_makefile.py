# SPDX-License-Identifier: GPL-2.0-only
"""`make -C kmod`: its refusals; `enable` and `disable` with a sysctl that only writes to a file."""

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
-w) [ -z "$REFUSES" ] && [ "${2#*=}" != gone ] || exit 255
    echo "${2#*=}" >"$SETTING"; echo "$2" ;;
esac
"""


class Host:
    """A setting, and what the Makefile keeps of it."""

    def __init__(self, folder: Path, setting: str, refuses: bool = False, user: int = 0) -> None:
        self.setting, self.previous = folder / "setting", folder / "previous"
        self.allowed = folder / "allowed"
        self.setting.write_text(f"{setting}\n")
        self.allowed.write_text("reno ndm_tcp\n")
        for name, text in (("sysctl", SYSCTL), ("id", f"#!/bin/sh\necho {user}\n")):
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
        self.env = os.environ | {
            "PATH": f"{folder}:{os.environ['PATH']}",
            "SETTING": str(self.setting),
            "REFUSES": "1" if refuses else "",
        }

    def make(self, *words: str) -> subprocess.CompletedProcess[str]:
        files = [f"PREVIOUS={self.previous}", f"ALLOWED={self.allowed}"]
        command = ["make", "-s", "-C", str(ROOT / "kmod"), *files, *words]
        return subprocess.run(command, env=self.env, capture_output=True, text=True, check=False)

    @property
    def default(self) -> str:
        return self.setting.read_text().strip()


def test_disable_changes_nothing_of_others(tmp_path: Path) -> None:
    host = Host(tmp_path, "bbr")
    done = host.make("disable")
    assert (done.returncode, done.stdout) == (0, "ndm_tcp is not the default\n")
    assert host.default == "bbr"


# "gone": an algorithm whose module was unloaded since.
@pytest.mark.parametrize(("kept", "then"), [("bbr", "bbr"), ("", "cubic"), ("gone", "cubic")])
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


def test_enable_needs_root(tmp_path: Path) -> None:
    host = Host(tmp_path, "bbr", user=1000)
    done = host.make("enable")
    assert done.returncode and "enable: not root; run it with sudo" in done.stderr
    assert host.default == "bbr" and not host.previous.exists()


def test_enable_changes_nothing_where_the_kernel_would_refuse(tmp_path: Path) -> None:
    """In another network namespace than the host's, and the host has not allowed it there."""
    host = Host(tmp_path, "bbr")
    host.allowed = Path("/proc/sys/kernel/ostype")  # as there, root cannot write it
    done = host.make("enable")
    assert done.returncode and "not the host's network namespace" in done.stderr
    assert host.default == "bbr" and not host.previous.exists()


@pytest.mark.parametrize("name", ["KDIR", "DESTDIR", "INSTALL_MOD_PATH"])
@pytest.mark.parametrize("place", ["out/image", "/of two/words", "/of two"])
def test_places_that_would_be_elsewhere_are_refused(name: str, place: str, tmp_path: Path) -> None:
    """make and Kbuild run in other folders, and part a name at its spaces."""
    for verb in ("module", "install", "uninstall", "clean"):
        done = Host(tmp_path, "bbr").make("-n", verb, f"{name}={place}")
        assert done.returncode and f"{name}={place}" in done.stderr, verb
        assert "must be absolute and without spaces" in done.stderr


def test_a_checkout_with_a_space_in_its_name(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "kmod", tmp_path / "k mod", ignore=shutil.ignore_patterns("*.ko"))
    command = ["make", "-s", "-C", str(tmp_path / "k mod")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode and "Kbuild builds nothing in a folder with a space" in done.stderr
    for verb in ("selftest", "status", "help"):  # they need no Kbuild
        subprocess.run([*command, verb], check=True)


def test_load_needs_a_build(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "kmod", tmp_path / "kmod", ignore=shutil.ignore_patterns("*.ko"))
    command = ["make", "-s", "-C", str(tmp_path / "kmod"), "load"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode and f"ndm_tcp.ko: not built; run: make -C {tmp_path}/kmod" in done.stderr
