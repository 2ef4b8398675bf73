# SPDX-License-Identifier: GPL-2.0-only
"""The pure functions under KUnit, in the lab's kernel."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ndm_tcp.lab.guest import uml_build

from ..kernel.kbuild import KMOD, change_one_weight, copy_kmod
from .lab import boot, need_kernel

RESULT = re.compile(r"^(?:\[[^]]*\])?\s*(ok|not ok) \d+ ndm_test_(\w+)$", re.MULTILINE)
CASES = re.findall(r"KUNIT_CASE\(ndm_test_(\w+)\)", (KMOD / "ndm_kunit.c").read_text())


def results(sources: Path, work: Path) -> dict[str, str]:
    """Case to ok or not ok, of the suite built from a copy of kmod/."""
    need_kernel()
    kbuild = sources / "Kbuild"
    kbuild.write_text("NDM_KUNIT := 1\n" + kbuild.read_text())
    module = uml_build.build_module(sources)
    log = boot(work, f"insmod /run/host/{module.name}\nrmmod {module.stem}\n", [module])
    return {name: verdict for verdict, name in RESULT.findall(log)}


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("kunit")
    return results(copy_kmod(folder / "kmod"), folder / "work")


@pytest.mark.parametrize("name", CASES)
def test_case(name: str, suite: dict[str, str]) -> None:
    assert suite[name] == "ok"


def test_wrong_code_fails_its_case(tmp_path: Path) -> None:
    sources = copy_kmod(tmp_path / "kmod")
    change_one_weight(sources)
    control = sources / "ndm_control.h"
    text = control.read_text().replace(">> 17", ">> 16")
    control.write_text(text)
    found = results(sources, tmp_path / "work")
    assert {name for name, verdict in found.items() if verdict != "ok"} == {"cut", "golden"}
