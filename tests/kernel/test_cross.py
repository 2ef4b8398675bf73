# SPDX-License-Identifier: GPL-2.0-only
"""The module for machines that are not here: arm64, and the 32 bits of arm and i386; its style."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from . import cross
from .cross import MACHINES, Machine
from .kbuild import KMOD, BuildFailed, Unavailable, copy_kmod
from .test_object import HELPERS

AEABI = re.compile(r"__aeabi_(?:u?ldivmod|[fd]\w+|\w+2[fd])$")
"""arm's names for division of 64 bits, which the kernel has not, and for floating point"""
# A module of its own compiles faster than all of ours.
WIDE = """
#include <linux/module.h>
#include <net/tcp.h>

static struct tcp_congestion_ops ndm_wide;

u64 ndm_bad(u64 a, u64 b);
u64 ndm_bad(u64 a, u64 b)
{
	return a / b;
}

static int __init ndm_wide_init(void)
{
	return tcp_register_congestion_control(&ndm_wide);
}
module_init(ndm_wide_init);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("divides 64 bits by 64 bits");
"""


def machines(*soon: str) -> list[object]:
    """All; of those that are not named the tests are long."""
    return [
        pytest.param(one, marks=() if one.arch in soon else pytest.mark.long, id=one.arch)
        for one in MACHINES
    ]


def compiled(machine: Machine, sources: Path) -> Path:
    """The module, or a skipped test that says what is missing."""
    try:
        return cross.build(machine, sources)
    except Unavailable as error:
        pytest.skip(str(error))


def helpers(machine: Machine, module: Path) -> list[str]:
    """Functions of libgcc that the kernel does not have."""
    words = [f"{machine.triplet}-nm", "-u", str(module)]
    names = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    assert "tcp_register_congestion_control" in names
    return [name for name in names if HELPERS.match(name) or AEABI.match(name)]


@pytest.mark.parametrize("machine", machines("arm64", "i386"))
def test_builds_without_warnings_or_helpers(machine: Machine, tmp_path: Path) -> None:
    module = compiled(machine, copy_kmod(tmp_path / "kmod"))
    assert helpers(machine, module) == []
    header = subprocess.run(
        [f"{machine.triplet}-readelf", "-h", str(module)], capture_output=True, text=True
    ).stdout
    assert f"ELF{machine.bits}" in header


@pytest.mark.parametrize("machine", machines("i386"))
def test_a_wide_division_is_noticed(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "Kbuild").write_text((KMOD / "Kbuild").read_text())
    (tmp_path / "ndm_tcp.c").write_text(WIDE)
    # Of 64 bits, only 128 would need help.
    assert len(helpers(machine, compiled(machine, tmp_path))) == (machine.bits == 32)


def test_a_private_area_that_is_too_large_does_not_compile(tmp_path: Path) -> None:
    sources = copy_kmod(tmp_path / "kmod")
    path = sources / "ndm_flow.h"
    old = "	s32 congestion:20;	/* the"
    assert path.read_text().count(old) == 1
    path.write_text(path.read_text().replace(old, "	s64 too_much[2];\n" + old))
    with pytest.raises(BuildFailed, match="BUILD_BUG_ON failed: sizeof"):
        compiled(MACHINES[1], sources)


def style(sources: Path) -> subprocess.CompletedProcess[str]:
    """`make style` with the checkpatch.pl of the kernel's source."""
    try:
        checkpatch = cross.trees() / "source" / "scripts" / "checkpatch.pl"
    except Unavailable as error:
        pytest.skip(str(error))
    words = ["make", "-s", "-C", str(sources), "style", f"CHECKPATCH={checkpatch}"]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def test_checkpatch_has_nothing_to_say(tmp_path: Path) -> None:
    sources = copy_kmod(tmp_path / "kmod")
    done = style(sources)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr
    # The others have been read: once is enough.
    for path in sources.glob("ndm_*.[ch]"):
        if path.name not in ("ndm_watchdog.h", "ndm_types.h"):
            path.unlink()
    with (sources / "ndm_watchdog.h").open("a") as file:
        file.write("static int ndm_bad(int a) { if(a) return 1; return 0; }\n")
    assert "ndm_watchdog.h" in style(sources).stdout
