# SPDX-License-Identifier: GPL-2.0-only
"""Fast links that a lossy flow does not fill: its own slow times are no rivals, and no steps."""

from __future__ import annotations

from pathlib import Path

import pytest

from ndm_tcp.lab.guest import run as lab_run
from ndm_tcp.lab.guest import suite
from ndm_tcp.paths.estimate import estimate

from ..kmod.lab import need_kernel
from .known import errors, flows

FAST = {one.name: one for one in suite.load_suite("validation-fast")}


@pytest.mark.parametrize(
    ("name", "cc"),
    [
        ("valid-01-fast", "bbr"),  # levels of 0.4 to 0.7 of the link
        ("valid-13-far-loss", "bbr"),  # a slow start that losses end
        ("valid-14-fast-heavy-loss", "cubic"),  # a window of a few packets
        ("valid-15-fast-heavy-loss", "cubic"),
    ],
)
def test_losses_on_a_fast_link_are_no_rivals(name: str, cc: str, tmp_path: Path) -> None:
    need_kernel()
    lab_run.run(FAST[name], cc, 1, tmp_path / "run")
    ((flow, known),) = flows(tmp_path / "run")
    made = estimate(flow, name)
    assert not made.rivals and len(made.levels) == 1
    found = errors(made, known, flow)
    assert abs(found.rate) < 0.5 and found.covered["rate"]
