# SPDX-License-Identifier: GPL-2.0-only
"""What the window never does, for any network: the control law, gone through case by case."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from .conftest import ROOT

CONTROL = "kmod/ndm_control.h"
BREAKS = {
    "flood": ("x[NDM_IN_LOSS_RATE] >= NDM_FLOOD", "x[NDM_IN_LOSS_RATE] > NDM_FLOOD"),
    "excuse": ("2 * NDM_ONE + 1);", "2 * NDM_ONE);"),
    "growth after a mark": ("ndm_min(target, window + 1)", "ndm_min(target, window + 2)"),
    "growth unused": ("if (flags & NDM_LAW_UNUSED)", "if (false)"),
    "ceiling": ("ndm_min(target, ceiling)", "ndm_min(target, ceiling + 1)"),
    "cut": ("ndm_sigmoid(congestion)) >> 17", "ndm_sigmoid(congestion)) >> 16"),
}
"""claim to a change of the law that breaks it"""


def run(folder: Path, root: Path) -> subprocess.CompletedProcess[str]:
    """Compile tests/law.c with the headers below a root, and run it."""
    program = folder / "law"
    subprocess.run(
        ["gcc", "-O2", "-Wall", "-Wextra", "-Werror", f"-I{root}", f"-I{ROOT}",
         str(ROOT / "tests" / "law.c"), "-o", str(program)],
        check=True,
    )  # fmt: skip
    return subprocess.run([program], capture_output=True, text=True)


def test_the_law_holds_for_every_window(tmp_path: Path) -> None:
    done = run(tmp_path, ROOT)
    print(done.stdout)
    assert done.returncode == 0, done.stdout
    assert int(done.stdout.split()[0]) > 3_000_000_000


@pytest.mark.parametrize("claim", BREAKS)
def test_a_broken_law_is_found(claim: str, tmp_path: Path) -> None:
    old, new = BREAKS[claim]
    (tmp_path / "kmod").mkdir()
    for file in (ROOT / "kmod").glob("*.h"):
        (tmp_path / "kmod" / file.name).write_text(file.read_text())
    (tmp_path / "kmod" / "generated").symlink_to(ROOT / "kmod" / "generated")
    header = tmp_path / CONTROL
    text = header.read_text()
    assert text.count(old) == 1
    header.write_text(text.replace(old, new))
    done = run(tmp_path, tmp_path)
    assert done.returncode == 1 and done.stdout.startswith(claim), done.stdout
