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


def need_debug_kernel() -> uml_build.UmlKernel:
    """The debugging kernel, if it is in the cache; else a skipped test."""
    need_kernel()
    kernel = uml_build.built(debug=True)
    if kernel is None:
        pytest.skip("no debugging kernel in the cache; `make test-debug` builds it once")
    return kernel


def console(
    work: Path, plan: str, files: list[Path], limit_s: float = 120, debug: bool = False
) -> str:
    """What the guest says of a script, with modules and programs beside it."""
    work.mkdir()
    for path in files:
        shutil.copy(path, work)
    (work / "plan.sh").write_text(plan, encoding="ascii")
    return guest.boot(work, 1, None, limit_s, debug=debug)


def boot(
    work: Path, plan: str, files: list[Path], limit_s: float = 120, debug: bool = False
) -> str:
    """Run a script in the guest; the console.

    Raises:
        AssertionError: the script failed, or the kernel has complained.
    """
    log = console(work, plan, files, limit_s, debug)
    assert guest.verdict(log) is None, log[-2000:]
    troubles = [line for line in log.splitlines() if guest.TROUBLE.search(line)]
    assert not troubles, log[max(log.index(troubles[0]) - 500, 0) :][:4000]
    return log
