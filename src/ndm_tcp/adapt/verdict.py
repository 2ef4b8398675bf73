# SPDX-License-Identifier: GPL-2.0-only
"""Use the adapted network, or stay with another algorithm? One sentence, and why."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ndm_tcp.intervals import student
from ndm_tcp.paths.difference import Difference, Of, Paths, score, witnesses

SHIPPED, ADAPTED = "shipped", "adapted"
NOTHING = (
    "Stay with the shipped network: neither target windows nor an offset beat it on these paths."
)


@dataclass(frozen=True)
class Guard:
    """Adapted less shipped on suites that neither was trained for."""

    suites: str
    """those that were compared: all, or the one that refuses the network"""
    scenarios: int
    score: float
    low: float
    high: float

    @property
    def passed(self) -> bool:
        """Not significantly worse."""
        return self.high >= 0


def scores(of: Of, name: str, paths: Paths) -> list[float]:
    """Scores of one algorithm, one a witness: see `witnesses`."""
    each = {model: [[score(run)] for run in runs[name].draws] for model, runs in of.items()}
    return [row[0] for row in witnesses(each, paths)]


def grows(new: Sequence[float], old: Sequence[float], errors: float = 2.0) -> bool:
    """Are the new scores higher than the old ones by more than so many standard errors?"""
    apart = np.subtract(new, old)
    error = apart.std(ddof=1) / math.sqrt(len(apart)) if len(apart) > 1 else 0.0
    return bool(apart.mean() > errors * error)


def guard(suites: str, adapted: Mapping[str, float], shipped: Mapping[str, float]) -> Guard:
    """Compare two networks' points, scenario by scenario, on all suites and on each.

    What a network gains on one suite must not hide what it loses on another.

    Args:
        suites: names, separated by commas.
        adapted: suite and scenario, with a slash between them, to points.
        shipped: the same of the shipped network.
    """
    apart = {name: adapted[name] - shipped[name] for name in sorted(shipped)}
    of_suite: dict[str, list[float]] = {}
    for name, value in apart.items():
        of_suite.setdefault(name.rpartition("/")[0], []).append(value)
    every = Guard(suites, len(apart), *student([*apart.values()]))
    found = [every, *(Guard(one, len(v), *student(v)) for one, v in of_suite.items())]
    refuse = [one for one in found if not one.passed]
    return min(refuse, key=lambda one: one.score, default=every)


def sentence(
    apart: Mapping[str, Difference], guarded: Guard | None, same: bool = False
) -> tuple[bool, str]:
    """Whether to use the adapted network, and why in one sentence.

    Args:
        apart: `differences`.
        guarded: None: no guard suite was run.
        same: it is the shipped one.
    """
    if guarded is not None and not guarded.passed:
        return False, (
            f"Stay with the shipped network: the adapted one is significantly worse on the "
            f"{guarded.scenarios} paths of {guarded.suites} (score {guarded.score:+.3f} "
            f"[{guarded.low:+.3f}, {guarded.high:+.3f}])."
        )
    better = {name: d for name, d in apart.items() if name != SHIPPED and d.high < 0}
    if better:
        best = min(better, key=lambda name: better[name].score)
        return False, (
            f"Stay with {best}: on your paths it is significantly better than the "
            f"{SHIPPED if same else ADAPTED} network "
            f"(score {-better[best].score:+.3f} [{-better[best].high:+.3f}, "
            f"{-better[best].low:+.3f}])."
        )
    if same:
        return False, NOTHING
    to = apart[SHIPPED]
    said = (
        f"score {to.score:+.3f} [{to.low:+.3f}, {to.high:+.3f}]; "
        f"goodput x{to.goodput.ratio:.3f} [{to.goodput.low:.3f}, {to.goodput.high:.3f}], "
        f"RTT x{to.rtt.ratio:.3f} [{to.rtt.low:.3f}, {to.rtt.high:.3f}]"
    )
    if to.low > 0:
        return (
            True,
            f"Use the adapted network: it is significantly better than the shipped one ({said}).",
        )
    return False, (
        f"Stay with the shipped network: the adapted one is not significantly better ({said})."
    )
