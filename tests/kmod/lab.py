# SPDX-License-Identifier: GPL-2.0-only
"""The module in the lab's kernel: scenarios, and scripts of our own."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from ndm_tcp.errors import NdmError
from ndm_tcp.lab import guest, uml_build
from ndm_tcp.lab.scenario import Scenario, parse

EVENT = "ndm_tcp/ndm_tcp_round"


def need_kernel() -> uml_build.UmlKernel:
    """The lab's kernel, built if it must be; else a skipped test."""
    try:
        uml_build.need(guest.TOOLS)
        return uml_build.build()
    except NdmError as error:
        if os.geteuid() == 0 and not re.search("download|not there|apt-get", str(error)):
            raise
        pytest.skip(f"no lab kernel: {error}")


def scenario(text: str, name: str = "test") -> Scenario:
    """A scenario from its text."""
    return parse(text, name, f"{name}.toml")


def boot(work: Path, plan: str, files: list[Path], limit_s: float = 120) -> str:
    """Run a script in the guest, with modules and programs beside it; the console.

    Raises:
        AssertionError: the script failed, or the kernel has complained.
    """
    work.mkdir()
    for path in files:
        shutil.copy(path, work)
    (work / "plan.sh").write_text(plan, encoding="ascii")
    log = guest.boot(work, 1, None, limit_s)
    assert guest.verdict(log) is None, log[-2000:]
    assert not [line for line in log.splitlines() if guest.TROUBLE.search(line)], log[-2000:]
    return log
