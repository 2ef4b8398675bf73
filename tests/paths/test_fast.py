# SPDX-License-Identifier: GPL-2.0-only
"""Fast links that a lossy flow does not fill: its own slow times are no rivals, and no steps."""

from __future__ import annotations

import contextlib
import itertools
from pathlib import Path

from ndm_tcp.lab.guest import run as lab_run
from ndm_tcp.lab.guest import suite
from ndm_tcp.paths.estimate import estimate
from ndm_tcp.paths.observed import TooShortError

from ..kmod.lab import need_kernel
from .known import errors, flows

FAST = {one.name: one for one in suite.load_suite("validation-fast")}


RUNS = {
    "valid-01-fast": "bbr",  # levels of 0.4 to 0.7 of the link
    "valid-13-far-loss": "bbr",  # a slow start that losses end
    "valid-14-fast-heavy-loss": "cubic",  # a window of a few packets
    "valid-15-fast-heavy-loss": "cubic",
}


def test_losses_on_a_fast_link_are_no_rivals(tmp_path: Path) -> None:
    """Of three draws each; some are too short, or show a bound only."""
    need_kernel()
    right, wrong = 0, []
    for (name, cc), seed in itertools.product(RUNS.items(), (1, 2, 3)):
        folder = tmp_path / f"{name}-{seed}"
        lab_run.run(FAST[name], cc, seed, folder)
        ((flow, known),) = flows(folder)
        with contextlib.suppress(TooShortError):
            made = estimate(flow, name)
            found = errors(made, known, flow)
            if made.rivals or len(made.levels) > 1 or not found.covered.get("rate", True):
                wrong.append(folder.name)
            right += abs(found.rate) < 0.5 and folder.name not in wrong
    print(f"\n{right} right; wrong: {wrong}")
    assert len(wrong) <= 3 and right >= 7  # two, three with another kernel's draws
