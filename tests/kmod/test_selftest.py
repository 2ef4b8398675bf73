# SPDX-License-Identifier: GPL-2.0-only
"""insmod in the lab's kernel: some golden vectors by default, all with selftest_full=1."""

from __future__ import annotations

import re
from pathlib import Path

from ndm_tcp.lab.guest import uml_build

from ..kernel.kbuild import copy_kmod
from .lab import boot, need_kernel

MODULE = "/run/host/ndm_tcp.ko"


def load(sources: Path, work: Path, plan: str) -> str:
    """The console of a script that loads the module built from a copy of kmod/."""
    need_kernel()
    return boot(work, plan, [uml_build.build_module(sources)])


def test_all_vectors_pass(tmp_path: Path) -> None:
    plan = f"insmod {MODULE} selftest_full=1\nlsmod\nrmmod ndm_tcp\n"
    log = load(copy_kmod(tmp_path / "kmod"), tmp_path / "work", plan)
    assert re.search(r"model [0-9a-f]{16}, 256 golden vectors", log)


def test_a_vector_that_is_not_among_the_few_is_noticed_only_then(tmp_path: Path) -> None:
    """One digest is changed: as if one of its vectors came out differently."""
    sources = copy_kmod(tmp_path / "kmod")
    digests = sources / "generated" / "ndm_digests.h"
    found = list(re.finditer(r"0x[0-9a-f]{15}([0-9a-f])ULL,", digests.read_text()))
    assert len(found) > 10
    at, text = found[6].start(1), digests.read_text()
    digests.write_text(text[:at] + f"{int(text[at], 16) ^ 1:x}" + text[at + 1 :])
    plan = f"insmod {MODULE}\nrmmod ndm_tcp\nif insmod {MODULE} selftest_full=1; then exit 1; fi\n"
    log = load(sources, tmp_path / "work", plan)
    assert re.search(r"golden vectors from index to element: .* index 6144, element 7167", log)
