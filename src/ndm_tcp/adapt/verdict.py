# SPDX-License-Identifier: GPL-2.0-only
"""Use the adapted network, or stay with another algorithm? Scores, intervals, one sentence."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ndm_tcp.intervals import FEWEST, Ratio, interval, student
from ndm_tcp.paths.model import PathModel, Seen
from ndm_tcp.paths.predict import Prediction
from ndm_tcp.selection import points

SHIPPED, ADAPTED = "shipped", "adapted"
NOTHING = (
    "Stay with the shipped network: neither target windows nor an offset beat it on these paths."
)
Of = dict[str, dict[str, Prediction]]
"""name of the model to name of the algorithm to its runs"""
Paths = Mapping[str, int]
"""name of the model to the number of its path; one that has none is a path of its own"""
APART: Paths = {}
Rows = list[list[float]]


@dataclass(frozen=True)
class Difference:
    """The adapted network less another algorithm."""

    score: float
    """mean difference of the scores, natural logarithms"""
    low: float
    """95 % interval"""
    high: float
    goodput: Ratio
    rtt: Ratio
    pairs: int
    """paths, with fewer than three flows, with fewer than three of these draws"""


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


def score(seen: Seen) -> float:
    """The score of `ndm select`: half the logarithm of goodput^2 / RTT, less what is lost; beside
    rivals how near the share is to the fair one."""
    share, fair = (1.0 if one is None else one for one in (seen.share, seen.fair))
    lost = seen.retransmission_rate
    return points(seen.goodput_mbps, seen.rtt_mean_ms, lost, share, 1.0, fair)


def numbers(models: Iterable[PathModel]) -> Paths:
    """The path of each model, by its name."""
    return {model.name: model.path for model in models}


def scores(of: Of, name: str, paths: Paths) -> list[float]:
    """Scores of one algorithm, one a witness: see `_witnesses`."""
    each = {model: [[score(run)] for run in runs[name].draws] for model, runs in of.items()}
    return [row[0] for row in _witnesses(each, paths)]


def count(models: Iterable[str], paths: Paths) -> int:
    """How many paths these models are of."""
    return len({paths.get(name) or name for name in models})


def _witnesses(each: Mapping[str, Rows], paths: Paths) -> Rows:
    """One mean row of each path; with few paths of each flow; with few flows of each draw's number.

    Flows over one path share what is peculiar to it, and draws of one flow what is peculiar to
    the flow: they are no independent witnesses.
    """
    of_path: dict[int | str, Rows] = {}
    flows = {name: np.mean(rows, axis=0).tolist() for name, rows in each.items()}
    for name, row in flows.items():
        of_path.setdefault(paths.get(name) or name, []).append(row)
    if len(of_path) >= FEWEST:
        return [np.mean(rows, axis=0).tolist() for rows in of_path.values()]
    if len(flows) >= FEWEST:
        return list(flows.values())
    return [np.mean(rows, axis=0).tolist() for rows in zip(*each.values(), strict=True)]


def grows(new: Sequence[float], old: Sequence[float], errors: float = 2.0) -> bool:
    """Are the new scores higher than the old ones by more than so many standard errors?"""
    apart = np.subtract(new, old)
    error = apart.std(ddof=1) / math.sqrt(len(apart)) if len(apart) > 1 else 0.0
    return bool(apart.mean() > errors * error)


def _logs(runs: Mapping[str, Prediction], other: str) -> Rows:
    """(score, log goodput, log RTT) differences, one row a draw."""
    return [
        [
            score(a) - score(b),
            math.log(max(a.goodput_mbps, 1e-3) / max(b.goodput_mbps, 1e-3)),
            math.log(max(a.rtt_mean_ms, 1e-3) / max(b.rtt_mean_ms, 1e-3)),
        ]
        for a, b in zip(runs[ADAPTED].draws, runs[other].draws, strict=True)
    ]


def difference(of: Of, other: str, paths: Paths = APART) -> Difference:
    """The adapted network less another on the user's paths."""
    rows = _witnesses({name: _logs(runs, other) for name, runs in of.items()}, paths)
    return Difference(
        *student([row[0] for row in rows]),
        interval([row[1] for row in rows]),
        interval([row[2] for row in rows]),
        len(rows),
    )


def differences(of: Of, paths: Paths = APART) -> dict[str, Difference]:
    """Name of each other algorithm to the adapted network less it."""
    names = next(iter(of.values()))
    return {name: difference(of, name, paths) for name in names if name != ADAPTED}


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
