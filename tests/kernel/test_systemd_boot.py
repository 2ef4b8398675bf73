# SPDX-License-Identifier: GPL-2.0-only
"""The recipe "At boot" of docs/recipes.md: Debian with systemd, in QEMU, loads both forms."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from ..bpf.conftest import build as build_bpf
from ..bpf.test_recipes import commands
from ..conftest import ROOT
from . import boot, system
from .conftest import Built
from .kbuild import Unavailable, change_one_weight, copy_kmod, make

pytestmark = pytest.mark.long
SERIES = "6.12"
UNIT = "ndm-tcp-bpf.service"
Facts = dict[str, str]


def files(overlay: Path, block: int) -> None:
    """Run the lines of the page that write a file in /etc, in the overlay's /etc."""
    lines = [line for line in commands("At boot")[block].splitlines() if line.startswith("echo ")]
    assert lines
    for folder in ("modules-load.d", "sysctl.d"):
        (overlay / "etc" / folder).mkdir()
    script = "\n".join(lines).replace(">/etc/", f">{overlay}/etc/")
    subprocess.run(["sh", "-ec", script], check=True)


def bpf(overlay: Path, built: Path, prefix: str, root: Path = ROOT) -> None:
    """`make -C bpf install` and `systemctl enable` of the page, in the overlay."""
    words = ["make", "-s", "-C", str(ROOT / "bpf"), f"OUT={built}", f"ROOT={root}"]
    subprocess.run([*words, f"DESTDIR={overlay}", f"PREFIX={prefix}", "install"], check=True)
    systemctl = boot.need("systemctl", "systemd")
    subprocess.run([systemctl, f"--root={overlay}", "enable", UNIT], check=True)
    files(overlay, 1)


def started(overlay: Path) -> Facts:
    """The facts of a boot whose kernel had nothing to complain about."""
    try:
        report, facts = system.start(overlay)
    except Unavailable as error:
        pytest.skip(str(error))
    for fact in facts.items():
        print(*fact)
    assert report.problems(()) == []
    assert facts["multi-user"] == "active"
    return facts


@pytest.fixture
def overlay(tmp_path: Path) -> Path:
    try:
        system.base()  # before anything is built for it
    except Unavailable as error:
        pytest.skip(str(error))
    return system.stage(tmp_path / "overlay")


def test_the_module_is_the_default(overlay: Path, built: Built, tmp_path: Path) -> None:
    headers, _ = built(SERIES)
    make(headers, copy_kmod(tmp_path / "kmod"), "install", f"INSTALL_MOD_PATH={overlay}")
    files(overlay, 0)
    facts = started(overlay)
    assert 0 < int(facts["modules-end"]) < int(facts["sysctls-begin"])
    assert facts["default"] == "ndm_tcp"
    # A sysctl that names an installed module loads it too: so who did.
    assert "Inserted module 'ndm_tcp'" in facts["modules-say"]
    assert facts["failed"] == ""


def test_the_bpf_form_is_the_default(overlay: Path, tmp_path: Path) -> None:
    bpf(overlay, build_bpf(tmp_path / "bpf"), "/usr")
    facts = started(overlay)
    assert facts["unit"] == "active"
    assert 0 < int(facts["unit-end"]) < int(facts["network-begin"])
    assert int(facts["unit-end"]) < int(facts["sysctls-begin"])
    assert facts["default"] == "ndm_tcp_bpf"
    assert facts["failed"] == ""
    # Not stopped at shutdown, where the default could not be unloaded.
    assert "shutdown.target" not in facts["unit-conflicts"]


def test_a_wrong_network_does_not_stop_the_boot(overlay: Path, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "kmod", tmp_path / "kmod")
    change_one_weight(tmp_path / "kmod")
    bpf(overlay, build_bpf(tmp_path / "bpf", tmp_path), "/usr/local", tmp_path)
    facts = started(overlay)
    assert facts["unit"] == "failed"
    assert "golden vector" in facts["unit-says"]
    assert "ndm_tcp_bpf" not in facts["available"]
    assert "Couldn't write 'ndm_tcp_bpf'" in facts["sysctls-say"]  # tried, and refused
    assert facts["default"] == "cubic"
    assert facts["failed"] == UNIT
