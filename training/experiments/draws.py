# SPDX-License-Identifier: GPL-2.0-only
"""How sure a figure is: its spread over draws of paths, with replacement."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
DRAWS = 400
"""resamples of paths and seeds behind a confidence interval"""


@dataclass(frozen=True)
class Draws:
    """Resamples of paths and seeds, the same for every variant, so that differences are paired."""

    paths: Floats
    """[draws, paths] how often each path is in; the first row has every path once"""
    seeds: Floats
    """[draws, seeds] shares that sum to 1"""

    @classmethod
    def make(cls, paths: int, seeds: int, count: int = DRAWS) -> Draws:
        rng = np.random.default_rng(0)
        p = rng.multinomial(paths, np.full(paths, 1 / paths), count).astype(np.float64)
        s = rng.multinomial(seeds, np.full(seeds, 1 / seeds), count) / seeds
        p[0], s[0] = 1, 1 / seeds
        return cls(p, s)


def weighted_auc(score: Floats, label: npt.NDArray[Any], weight: Floats) -> Floats:
    """[draws] areas under the ROC curve, rows counted by weight [draws, n]; no ties."""
    order = np.argsort(score)
    label, weight = label[order], weight[:, order]
    positive, negative = weight * (label == 1), weight * (label == 0)
    below = np.cumsum(negative, axis=1)
    total = positive.sum(1) * negative.sum(1)
    return np.asarray((positive * below).sum(1) / np.where(total > 0, total, np.nan))


def interval(values: Floats) -> dict[str, float]:
    """The first is the estimate; the others show its possible error."""
    if not np.isfinite(values).any():
        return {"mean": math.nan, "low": math.nan, "high": math.nan}
    low, high = np.nanpercentile(values[1:], [2.5, 97.5])
    return {"mean": float(values[0]), "low": float(low), "high": float(high)}
