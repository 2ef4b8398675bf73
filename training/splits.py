# SPDX-License-Identifier: GPL-2.0-only
"""Train, val and test by path: recordings of one path resemble each other, for any sender.

A dataset holds out whole flows. The lab records each path with many algorithms and seeds, so flow
by flow nearly every held-out path is in training, too.
"""

from __future__ import annotations

import hashlib
import re

import numpy as np
import numpy.typing as npt

RECORDING = re.compile(r"(?P<scenario>.+?)--.+--\d+$")
"""name of a run of the lab: scenario, algorithm, seed"""
NUMBERED = re.compile(r"[a-z]+-(?P<number>\d+)-.+$")
"""name of a scenario of a drawn suite: numbers run through one kind of path after the other"""
HELD_OUT = 5
"""One path in five is held out for validation, one for testing; the rest trains."""
FEWEST = 3
"""With fewer paths of the lab than that, nothing is held out."""

Names = npt.NDArray[np.str_]


def scenario_of(source: str) -> str | None:
    """The scenario that a source recorded; None if it is no run of the lab."""
    found = RECORDING.match(source)
    return found["scenario"] if found else None


def split_of(scenario: str) -> str:
    """The split of a path, the same in every dataset.

    By number, so that each kind of path with five or more is in all three splits; scenarios
    without a number by a hash of their name.
    """
    found = NUMBERED.match(scenario)
    if found:
        rank = int(found["number"])
    else:
        rank = int.from_bytes(hashlib.sha256(scenario.encode()).digest()[:8], "big")
    return {0: "val", 1: "test"}.get(rank % HELD_OUT, "train")


def by_path(
    flow: Names, source: Names, path: Names, split: Names, *, beside_lab: bool = False
) -> Names:
    """The split of each flow, such that flows of one path share it.

    Args:
        flow: [n] its name.
        source: [n] the recording it is of.
        path: [n] the path that its recording names; empty if unknown.
        split: [n] that of the dataset, which has held out whole flows.
        beside_lab: these are a part of what trains, and the rest has `FEWEST` paths of the lab.

    Returns:
        [n] of recordings of the lab the split of their scenario. Other flows over a path with a
        name take the split of the first flow of that path; the rest keep theirs.
    """
    scenarios = [scenario_of(name) for name in source.tolist()]
    enough = beside_lab or len(set(scenarios) - {None}) >= FEWEST
    first: dict[str, str] = {}
    for number in np.argsort(flow, kind="stable").tolist():
        first.setdefault(str(path[number]), str(split[number]))
    found = []
    for number, scenario in enumerate(scenarios):
        if scenario is not None:
            found.append(split_of(scenario) if enough else "train")
        else:
            found.append(first[str(path[number])] if path[number] else str(split[number]))
    return np.array(found, dtype=str)
