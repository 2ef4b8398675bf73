# SPDX-License-Identifier: GPL-2.0-only
"""95 % intervals of means by Student's t; of ratios by the means of their logarithms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

FEWEST = 3
"""values: the interval of fewer is everything"""
STUDENT = (
    *(4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.16, 2.145),
    *(2.131, 2.12, 2.11, 2.101, 2.093, 2.086, 2.08, 2.074, 2.069, 2.064, 2.06, 2.056, 2.052),
    *(2.048, 2.045, 2.042),
)
"""97.5 % point of Student's t for 2 degrees of freedom and more"""


@dataclass(frozen=True)
class Ratio:
    """One quantity over another."""

    ratio: float
    """geometric mean"""
    low: float
    """95 % interval"""
    high: float

    @property
    def significant(self) -> bool:
        """Does the interval exclude 1?"""
        return self.low > 1 or self.high < 1


def _t(freedom: float) -> float:
    """97.5 % point of Student's t."""
    return STUDENT[min(max(int(freedom), 2) - 2, len(STUDENT) - 1)]


def student(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean and its 95 % interval; with fewer than `FEWEST` the interval is everything."""
    n, mean = len(values), float(np.mean(values))
    if n < FEWEST:
        return mean, -math.inf, math.inf
    half = _t(n - 1) * float(np.std(values, ddof=1)) / math.sqrt(n)
    return mean, mean - half, mean + half


def interval(logs: Sequence[float]) -> Ratio:
    """Mean of logarithms of ratios with its 95 % interval, as ratios."""
    return Ratio(*map(math.exp, student(logs)))


def welch(ones: Sequence[float], others: Sequence[float]) -> tuple[float, float, float]:
    """Difference of two means and its 95 % interval; the variances may differ (Welch 1947).

    With fewer than `FEWEST` values on either side the interval is everything.
    """
    difference = float(np.mean(ones)) - float(np.mean(others))
    if min(len(ones), len(others)) < FEWEST:
        return difference, -math.inf, math.inf
    a, b = (float(np.var(values, ddof=1)) / len(values) for values in (ones, others))
    if a + b == 0:
        return difference, difference, difference
    freedom = (a + b) ** 2 / (a**2 / (len(ones) - 1) + b**2 / (len(others) - 1))
    half = _t(freedom) * math.sqrt(a + b)
    return difference, difference - half, difference + half


def ratio(ones: Sequence[float], others: Sequence[float]) -> Ratio:
    """Ratio of the geometric means of two groups, from their logarithms."""
    return Ratio(*map(math.exp, welch(ones, others)))
