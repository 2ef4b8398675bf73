# SPDX-License-Identifier: GPL-2.0-only
"""Small robust statistics that the estimates share."""

from __future__ import annotations

import numpy as np

from ndm_tcp.paths.observed import Floats

ONE_SIGMA = (16, 84)
"""percentiles between which 68 % lie: one standard deviation to each side, deaf to outliers"""


def spread(x: Floats) -> float:
    """Half the distance between the 16th and 84th percentile: a robust standard deviation."""
    return float(np.subtract(*np.percentile(x, ONE_SIGMA[::-1])) / 2) if len(x) else 0.0


def running_median(x: Floats, n: int) -> Floats:
    """Median of the n values around each one; n is odd. Ends repeat the first and last."""
    if len(x) < n:
        return np.full(len(x), np.median(x) if len(x) else 0.0)
    views = np.lib.stride_tricks.sliding_window_view(x, n)
    middle = np.partition(views, n // 2, axis=1)[:, n // 2]
    return np.concatenate([np.full(n // 2, middle[0]), middle, np.full(n - 1 - n // 2, middle[-1])])


def most_frequent(x: Floats, width: float) -> tuple[float, int]:
    """The value that most others are within a relative `width` of, and how many are.

    Args:
        x: [n] positive, n at least 1.
        width: relative.
    """
    logs = np.sort(np.log(x))
    first = np.searchsorted(logs, logs - width)
    last = np.searchsorted(logs, logs + width, side="right")
    k = int(np.argmax(last - first))
    return float(np.exp(np.median(logs[first[k] : last[k]]))), int(last[k] - first[k])
