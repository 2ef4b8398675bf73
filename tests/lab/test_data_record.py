# SPDX-License-Identifier: GPL-2.0-only
"""A recording made twice has the same bytes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ndm_tcp.datasets.store import rounds_lock, store
from ndm_tcp.lab.guest import uml_build
from ndm_tcp.lab.guest.suite import SUITES
from ndm_tcp.lab.guest.workers import ONE
from ndm_tcp.lab.recordings import again

from ..kmod.lab import need_kernel


@pytest.fixture(autouse=True)
def kernel() -> None:
    """Skips where there is none."""
    need_kernel()


@pytest.mark.parametrize(("cc", "explore"), [("cubic", False), ("ndm_tcp", True)])
def test_a_recording_made_twice_has_the_same_bytes(cc: str, explore: bool, tmp_path: Path) -> None:
    (path,) = (SUITES / "training-lan").glob("tlan-00-*.toml")
    recording = replace(
        rounds_lock.read().recordings[0], name="one", suite=str(path), cc=cc, explore=explore
    )
    found = [again.make(recording, tmp_path / n, ONE, uml_build.KMOD) for n in ("a", "b")]
    assert found[0] == found[1]
    dataset = store.load(tmp_path / "a" / "one")
    assert dataset.rounds.num_rows > 100 and dataset.manifest["flows"] == 1
