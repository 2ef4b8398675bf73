# SPDX-License-Identifier: GPL-2.0-only
"""One algorithm less another over many paths: score, goodput and RTT, with 95 % intervals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from ndm_tcp.intervals import FEWEST, Ratio, interval, student
from ndm_tcp.paths.model import PathModel, Seen
from ndm_tcp.paths.predict import Prediction
from ndm_tcp.selection import points

Of = dict[str, dict[str, Prediction]]
"""name of the model to name of the algorithm to its runs"""
Paths = Mapping[str, int]
"""name of the model to the number of its path; one that has none is a path of its own"""
APART: Paths = {}
Rows = list[list[float]]
HEAD = ["against", "score", "goodput", "mean RTT", "pairs"]


@dataclass(frozen=True)
class Difference:
    """One algorithm less another."""

    score: float
    """mean difference of the scores, natural logarithms"""
    low: float
    """95 % interval"""
    high: float
    goodput: Ratio
    rtt: Ratio
    pairs: int
    """paths, with fewer than three flows, with fewer than three of these draws"""


def score(seen: Seen) -> float:
    """The score of `ndm select`: half the logarithm of goodput^2 / RTT, less what is lost; beside
    rivals how near the share is to the fair one."""
    share, fair = (1.0 if one is None else one for one in (seen.share, seen.fair))
    lost = seen.retransmission_rate
    return points(seen.goodput_mbps, seen.rtt_mean_ms, lost, share, 1.0, fair)


def numbers(models: Iterable[PathModel]) -> Paths:
    """The path of each model, by its name."""
    return {model.name: model.path for model in models}


def count(models: Iterable[str], paths: Paths) -> int:
    """How many paths these models are of."""
    return len({paths.get(name) or name for name in models})


def witnesses(each: Mapping[str, Rows], paths: Paths) -> Rows:
    """One mean row of each path; with few paths of each flow; with few flows of each draw's number.

    Flows over one path share what is peculiar to it, and draws of one flow what is peculiar to
    the flow: they are no independent witnesses.

    Args:
        each: name of the model to a row a draw.
        paths: of the models.
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


def _logs(one: Prediction, other: Prediction) -> Rows:
    """(score, log goodput, log RTT) differences, one row a draw."""
    return [
        [
            score(a) - score(b),
            math.log(max(a.goodput_mbps, 1e-3) / max(b.goodput_mbps, 1e-3)),
            math.log(max(a.rtt_mean_ms, 1e-3) / max(b.rtt_mean_ms, 1e-3)),
        ]
        for a, b in zip(one.draws, other.draws, strict=True)
    ]


def difference(of: Of, one: str, other: str, paths: Paths = APART) -> Difference:
    """An algorithm less another on the same models and draws."""
    each = {name: _logs(runs[one], runs[other]) for name, runs in of.items()}
    rows = witnesses(each, paths)
    return Difference(
        *student([row[0] for row in rows]),
        interval([row[1] for row in rows]),
        # A run that delivered next to nothing may have no RTT.
        interval([row[2] for row in rows if not math.isnan(row[2])] or [math.nan]),
        len(rows),
    )


def differences(of: Of, one: str, paths: Paths = APART) -> dict[str, Difference]:
    """Name of each other algorithm to this one less it."""
    names = next(iter(of.values()))
    return {name: difference(of, one, name, paths) for name in names if name != one}


def table_rows(found: Mapping[str, Difference]) -> list[list[str]]:
    """A row an algorithm, under `HEAD`."""
    return [
        [
            name,
            f"{d.score:+.3f} [{d.low:+.3f}, {d.high:+.3f}]",
            *(f"x{r.ratio:.3f} [{r.low:.3f}, {r.high:.3f}]" for r in (d.goodput, d.rtt)),
            str(d.pairs),
        ]
        for name, d in found.items()
    ]
