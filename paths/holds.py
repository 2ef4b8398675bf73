# SPDX-License-Identifier: GPL-2.0-only
"""ACKs that leave in groups: a busy receiver, or Wi-Fi, holds them back."""

from __future__ import annotations

import numpy as np

from ndm_tcp.paths.observed import Observed

GROUP_S = 5e-5
"""ACKs so close to one another left together: a link of 100 Mbit/s sends a packet in 120 us"""
GROUPED_SHARE = 0.3
"""of the ACKs in groups, for there to be a hold"""
LONGEST_PERCENTILE = 95
"""of the gaps between groups: a sender's own pauses are longer"""


def measure(o: Observed) -> float:
    """Longest time between two groups of ACKs, s; 0: ACKs do not come in groups."""
    gap = np.diff(o.t)
    together = gap < GROUP_S
    if not len(gap) or together.mean() < GROUPED_SHARE:
        return 0.0
    between = gap[~together]
    return float(np.percentile(between, LONGEST_PERCENTILE)) if len(between) else 0.0
