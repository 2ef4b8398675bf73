# SPDX-License-Identifier: GPL-2.0-only
"""The same object in stock Debian kernels, in QEMU: self-test, transfers, events, unloading.

On arm64 too, for which only the loader is compiled anew.
"""

from __future__ import annotations

import shutil
from functools import lru_cache
from pathlib import Path

import pytest

from ndm_tcp.datasets.module_event import event_lines

from ..conftest import ROOT
from ..kernel import boot
from ..kernel.kbuild import Unavailable, change_one_weight, find_headers
from ..replay import assert_replays
from . import arm64
from .conftest import build

ARM64 = "6.12-arm64"
BOOTED = ("6.12", pytest.param(ARM64, marks=pytest.mark.long))
"""Not 6.1, whose verifier refuses the object: docs/decisions."""
STEPS = ("corrupt-refused", "load", "ipv4", "ipv6", "switch", "status", "unload")
NETEM_STEPS = ("lossy", "events")
HERE = Path(__file__).resolve().parent


def machine(
    series: str, built: Path, objects: dict[str, Path], scratch: Path
) -> tuple[boot.Kernel, bytes]:
    """A kernel, and an initramfs with the loader, the objects and what sends data."""
    if series == ARM64:
        kernel, root = arm64.fetch()
        return kernel, arm64.initramfs(kernel, root, objects, scratch)
    kernel = boot.fetch_kernel(find_headers(series).release)
    archive = boot.begin_initramfs(kernel, HERE / "guest.sh", scratch)
    for name, path in objects.items():
        archive.file(name, path.read_bytes())
    archive.program(str(built / "ndm_bpf"), "bin/ndm_bpf")
    return kernel, archive.image()


@lru_cache(maxsize=len(BOOTED))
def proof(series: str, built: Path, scratch: Path) -> tuple[boot.Report, bool] | Unavailable:
    """One boot per kernel for all tests."""
    try:
        scratch.mkdir()
        shutil.copytree(ROOT / "kmod", scratch / "kmod")
        change_one_weight(scratch / "kmod")
        corrupt = build(scratch / "corrupt", scratch, "ndm_tcp.bpf.o")
        objects = {"bin/ndm_tcp.bpf.o": built, "corrupt.o": corrupt}
        objects = {name: folder / "ndm_tcp.bpf.o" for name, folder in objects.items()}
        kernel, image = machine(series, built, objects, scratch)
        return boot.run_qemu(kernel, image, limit_s=400), boot.has_netem(kernel)
    except Unavailable as error:
        return error


@pytest.fixture(scope="module", params=BOOTED)
def seen(
    request: pytest.FixtureRequest, built: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[boot.Report, bool]:
    """The report of a kernel, or a skipped test that says what is missing."""
    done = proof(request.param, built, tmp_path_factory.getbasetemp() / request.param)
    if isinstance(done, Unavailable):
        pytest.skip(str(done))
    return done


def test_every_step_and_a_clean_log(seen: tuple[boot.Report, bool]) -> None:
    report, netem = seen
    for step in report.steps:
        print(step)
    assert report.problems(STEPS + (NETEM_STEPS if netem else ())) == []


def test_the_events_replay_bit_by_bit(seen: tuple[boot.Report, bool], tmp_path: Path) -> None:
    report, netem = seen
    if not netem:
        pytest.skip("no tc or no usable sch_netem: apt-get install iproute2")
    console = tmp_path / "console"
    console.write_text(report.console)
    rounds = event_lines.read(console)
    assert assert_replays(rounds) > 20
    assert set(rounds["why"].to_pylist()) >= {"network", "slow_start"}
    assert 3 in rounds["ca_state"].to_pylist()  # in a recovery too
