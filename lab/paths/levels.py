# SPDX-License-Identifier: GPL-2.0-only
"""Values that change at times, such as the rate of a link."""

from __future__ import annotations

from collections.abc import Sequence


def mean(levels: Sequence[tuple[float, float]], until_s: float) -> float:
    """Over the time until then.

    Args:
        levels: (from s, value from then on), ascending.
        until_s: end of the last one; those that begin later do not count.
    """
    last_s = max(until_s, 1e-9)
    ends = [*(min(from_s, last_s) for from_s, _ in levels[1:]), last_s]
    spans = [max(end - from_s, 0.0) for (from_s, _), end in zip(levels, ends, strict=True)]
    parts = zip(spans, levels, strict=True)
    return sum(span * value for span, (_, value) in parts) / max(sum(spans), 1e-9)
