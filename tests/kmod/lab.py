# SPDX-License-Identifier: GPL-2.0-only
"""The module in the lab's kernel: scenarios, and scripts of our own."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import pyarrow as pa
import pytest

from ndm_tcp.datasets.module_event import event_lines
from ndm_tcp.errors import NdmError
from ndm_tcp.lab.guest import boot as lab_boot
from ndm_tcp.lab.guest import run as lab_run
from ndm_tcp.lab.guest import uml_build
from ndm_tcp.lab.paths.scenario import Scenario, parse
from ndm_tcp.lab.sim import build as sim_build

from ..kernel.kbuild import copy_kmod

T = TypeVar("T")
EVENT = "ndm_tcp/ndm_tcp_round"
OUTPUTS = "ndm_test_outputs.h"
# A server sends one object.
FILE = """
seconds = 10
topology = "path"
[link]
rate_bps = 4_000_000
rtt_us = 50_000
queue_packets = 100
[web]
objects = 1
bytes = 600_000
"""
Changes = Iterable[tuple[str, str]]
"""text that one file of the module has once, and its replacement; or `outputs(code)`"""
CORE_BURSTS = ("ndm_burst_shift = 12;", "ndm_burst_shift = 10;")
"""packets leave in groups of the core's size"""
FEW_END_SLOW_START = ("(lost >= NDM_FLOOD_LOST || ndm_queue_stands(x));", "true;")
"""as if a fifth of a round were eight packets"""


def need_kernel() -> uml_build.UmlKernel:
    """The lab's kernel, built if it must be; else a skipped test."""
    try:
        uml_build.need(lab_boot.TOOLS)
        return uml_build.build()
    except NdmError as error:
        _skip_without_source(error, "lab kernel")


def need_simulator() -> Path:
    """The simulator with the module as it is; a skipped test without Linux's source."""
    try:
        return sim_build.build()
    except NdmError as error:
        _skip_without_source(error, "simulator")


def _skip_without_source(error: NdmError, what: str) -> NoReturn:
    if not re.search("download|not there|apt-get", str(error)):
        raise error
    pytest.skip(f"no {what}: {error}")


def scenario(text: str, name: str = "test") -> Scenario:
    """A scenario from its text."""
    return parse(text, name, f"{name}.toml")


def change(sources: Path, changes: Changes) -> None:
    """Put changes into the module's sources."""
    for old, new in changes:
        if old == OUTPUTS:
            (sources / OUTPUTS).write_text(PREDICT % new)
            kbuild = sources / "Kbuild"
            kbuild.write_text("NDM_TEST_OUTPUTS := y\n" + kbuild.read_text())
            continue
        files = [path for path in sources.glob("ndm_*.[ch]") if "kunit" not in path.name]
        (file,) = (path for path in files if old in path.read_text())
        text = file.read_text()
        assert text.count(old) == 1, old
        file.write_text(text.replace(old, new))


NOISE, CONGESTION = "NDM_OUT_CONGESTION_LO", "NDM_OUT_CONGESTION_HI"


PREDICT = """\
/* SPDX-License-Identifier: GPL-2.0-only */
static inline void ndm_predict(u32 window, const s16 *x, s32 *out)
{
	ndm_infer(&ndm_model, x, out, NULL);
	%s
}
"""


def outputs(code: str) -> tuple[str, str]:
    """A change: statements in C that set out[] after the inference, from `window` and `x`."""
    return OUTPUTS, code


def answers(gain: object, congestion: object) -> tuple[str, str]:
    """A change: expressions in C in the place of the network's outputs, 1.0 = 65536.

    The test of a rule then does not depend on the shipped network.
    """
    return outputs(f"out[0] = {gain};\n\tout[1] = {congestion};")


SEEDS = range(1, 25)


def where(seen: Callable[[int], T], shows: Callable[[T], bool]) -> T:
    """What is seen with the first lab seed whose random draws show what a test is about.

    Which packets a path loses is chance. A new version of a program of the guest draws anew.
    """
    for seed in SEEDS:
        if shows(found := seen(seed)):
            return found
    raise AssertionError(f"no lab seed of {SEEDS} shows it")


def drive(
    text: str, to: Path, changes: Changes = (), seed: int = 1
) -> tuple[dict[str, Any], pa.Table]:
    """Run a scenario with a changed module: its result, and its rounds.

    Args:
        text: the scenario.
        to: a folder for sources and run.
        changes: of the module's sources.
        seed: of the lab.
    """
    result = _run(text, to, changes, seed, events=(EVENT,))
    return result, event_lines.read(to / "run" / "tcp_probe.txt.zst")


def measure(text: str, to: Path, changes: Changes = (), seed: int = 1) -> dict[str, Any]:
    """The result that `drive` gives, in less time: no packets and no events are kept."""
    return _run(text, to, changes, seed, light=True)


def _run(text: str, to: Path, changes: Changes, seed: int, **how: Any) -> dict[str, Any]:
    need_kernel()
    sources = copy_kmod(to / "kmod")
    change(sources, changes)
    result = lab_run.run(scenario(text), "ndm_tcp", seed, to / "run", module=sources, **how)
    assert "kernel_trouble" not in result
    return result


def need_debug_kernel() -> uml_build.UmlKernel:
    """The debugging kernel, if it is in the cache; else a skipped test."""
    need_kernel()
    kernel = uml_build.built(debug=True)
    if kernel is None:
        pytest.skip("no debugging kernel in the cache; `make test-debug` builds it once")
    return kernel


def console(
    work: Path,
    plan: str,
    files: list[Path],
    limit_s: float = 120,
    debug: bool = False,
    seed: int = 1,
) -> str:
    """What the guest says of a script, with modules and programs beside it."""
    work.mkdir()
    for path in files:
        shutil.copy(path, work)
    (work / "plan.sh").write_text(plan, encoding="ascii")
    return lab_boot.boot(work, seed, None, limit_s, debug=debug)


def boot(work: Path, plan: str, files: list[Path], *how: Any, **named: Any) -> str:
    """Run a script in the guest, given as to `console`; the console.

    Raises:
        AssertionError: the script failed, or the kernel has complained.
    """
    log = console(work, plan, files, *how, **named)
    assert lab_boot.verdict(log) is None, log[-2000:]
    troubles = [line for line in log.splitlines() if lab_boot.TROUBLE.search(line)]
    assert not troubles, log[max(log.index(troubles[0]) - 500, 0) :][:4000]
    return log
