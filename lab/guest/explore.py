# SPDX-License-Identifier: GPL-2.0-only
"""Sources of a module that explores: kmod/ndm_explore.h describes the excursions.

Today's module has a flag for it in Kbuild. Modules of earlier commits, which made recordings of
datasets/rounds.lock, have none: they get the same code as a patch.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from ndm_tcp.errors import NdmError

DECISION = "ndm_law(window, out[NDM_OUT_CWND_GAIN], ca->phase++"
EXPLORING = "ndm_law(window, out[NDM_OUT_CWND_GAIN] + ndm_explore(ca), ca->phase++"
BEFORE = "/* Set the target of the next round; who did?"
FLAG = re.compile(r"^NDM_EXPLORE\s*:?=\s*y\b", re.MULTILINE)
"""in a Kbuild"""
EXPLORE = """\
/* For recordings: both of the watchdog's: room counts the rounds left, unused is the step. */
static s32 ndm_explore(struct ndm *ca)
{
	u32 random = get_random_u32();

	if (ca->watchdog.room) {
		ca->watchdog.room--;
	} else {
		if (random & 15)
			return 0;
		ca->watchdog.unused = random >> 4 & 15;
		ca->watchdog.room = random >> 8 & 3;
	}
	return ((s32)ca->watchdog.unused * 2 - 15) * 3277;
}

"""


def explores(kmod: Path) -> bool:
    """Does a module of these sources explore?"""
    kbuild = kmod / "Kbuild"
    return kbuild.is_file() and bool(FLAG.search(kbuild.read_text(encoding="utf-8")))


def sources(kmod: Path, to: Path) -> Path:
    """Copy the module's sources and make them explore.

    Args:
        kmod: sources of ndm_tcp.
        to: the folder to make.

    Raises:
        NdmError: the sources are neither today's nor those of an earlier commit.
    """
    if not (kmod / "ndm_tcp.c").is_file():
        raise NdmError(f"{kmod}: no ndm_tcp.c; --explore needs the sources of ndm_tcp as --kmod")
    if (kmod / "ndm_explore.h").is_file():
        shutil.copytree(kmod, to)
        kbuild = (to / "Kbuild").read_text(encoding="utf-8")
        (to / "Kbuild").write_text(f"NDM_EXPLORE := y\n{kbuild}", encoding="utf-8")
        return to
    return _patched(kmod, to)


def _patched(kmod: Path, to: Path) -> Path:
    """A copy of an earlier commit's sources, patched."""
    text = (kmod / "ndm_tcp.c").read_text(encoding="utf-8")
    for mark in (DECISION, BEFORE):
        if text.count(mark) != 1:
            raise NdmError(
                f"{kmod}/ndm_tcp.c: not one place with {mark!r} to explore at; "
                "leave out --explore, or name sources of this repository"
            )
    shutil.copytree(kmod, to)
    text = text.replace(DECISION, EXPLORING).replace(BEFORE, EXPLORE + BEFORE)
    (to / "ndm_tcp.c").write_text(text, encoding="utf-8")
    return to
