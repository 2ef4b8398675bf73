# SPDX-License-Identifier: GPL-2.0-only
"""The module in stock Debian kernels, in QEMU: loads, carries data, unloads, refuses to lie."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import pytest

from ndm_tcp.datasets.module_event import event_lines

from ..replay import assert_replays
from .boot import NETEM_STEPS, OTHER, STEPS, Report, parse_console, prove
from .conftest import Built
from .kbuild import KERNELS, Headers, Unavailable

SERIES = [
    pytest.param(one, marks=() if one == KERNELS[-1] else pytest.mark.long) for one in KERNELS
]
"""The newest is booted by `make test`, the others by `make test-long`; all build the module."""
Result = tuple[Report, tuple[str, ...]]
"""what a boot said, and the steps it must have"""
GOOD = "\r\n".join(f"NDM-PROOF pass {name} detail" for name in STEPS)
END = "\r\nNDM-PROOF first load\r\n[ 1.0] ndm_tcp: model 0\r\nNDM-PROOF end\r\n"


@lru_cache(maxsize=len(KERNELS))
def proof(headers: Headers, module: Path, scratch: Path) -> Result | Unavailable:
    """One boot per kernel for all tests."""
    try:
        return prove(headers, scratch / headers.release, module)
    except Unavailable as error:
        return error


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("boot")


@pytest.fixture
def result(series: str, built: Built, scratch: Path) -> Result:
    """The report of a kernel, or a skipped test that says what is missing."""
    done = proof(*built(series), scratch)
    if isinstance(done, Unavailable):
        pytest.skip(str(done))
    return done


@pytest.mark.parametrize("name", STEPS + NETEM_STEPS)
@pytest.mark.parametrize("series", SERIES)
def test_step(series: str, name: str, result: Result) -> None:
    report, steps = result
    if name not in steps:
        pytest.skip("no tc or no usable sch_netem: apt-get install iproute2")
    step = report.step(name)
    assert step.passed, step.detail


@pytest.mark.parametrize("series", SERIES)
def test_the_trace_replays_bit_by_bit(series: str, result: Result, scratch: Path) -> None:
    report, steps = result
    if "trace" not in steps:
        pytest.skip("no tc or no usable sch_netem: apt-get install iproute2")
    console = scratch / f"{series}.console"
    console.write_text(report.console)
    rounds = event_lines.read(console)
    assert assert_replays(rounds) > 20
    assert set(rounds["why"].to_pylist()) >= {"network", "slow_start"}
    assert 3 in rounds["ca_state"].to_pylist()  # in a recovery too


@pytest.mark.parametrize("series", SERIES)
def test_a_swapped_network_decides(series: str, result: Result, scratch: Path) -> None:
    report, steps = result
    if "swapped-trace" not in steps:
        pytest.skip("no tc or no usable sch_netem: apt-get install iproute2")
    swapped = scratch / f"{series}.swapped"
    lines = [line for line in report.console.splitlines() if "ndm_swapped_round:" in line]
    swapped.write_text("\n".join(lines).replace("ndm_swapped_round:", "ndm_tcp_round:") + "\n")
    rounds = event_lines.read(swapped)
    assert assert_replays(rounds, OTHER.layers) > 20


@pytest.mark.parametrize("series", SERIES)
def test_kernel_log_is_clean(series: str, result: Result) -> None:
    report, _ = result
    assert report.problems(()) == []


def test_a_good_console_has_no_problems() -> None:
    assert parse_console(GOOD + END).problems(STEPS) == []


@pytest.mark.parametrize(
    ("console", "problem"),
    [
        (GOOD.replace("pass unload", "fail unload") + END, "unload"),
        (GOOD.replace("NDM-PROOF pass ipv6 detail", "") + END, "ipv6"),
        (GOOD + END.replace("NDM-PROOF end", ""), "end"),
        (GOOD + END.replace("model 0", "WARNING: CPU: 0 PID: 1 at tcp.c"), "WARNING"),
        ("Kernel panic - not syncing: Fatal exception\n", "Kernel panic"),
    ],
)
def test_a_bad_console_is_noticed(console: str, problem: str) -> None:
    assert problem in "\n".join(parse_console(console).problems(STEPS))
