# SPDX-License-Identifier: GPL-2.0-only
"""Flows whose times or counters no path can have."""

from __future__ import annotations

import numpy as np
import pytest

from ndm_tcp.errors import NdmError
from ndm_tcp.paths.estimate import estimate

from .made import jittered


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("rtt_us", 1_800_000_000, "no round trip lies in it"),
        ("acked", 2**31, "its counters are damaged"),
        ("lost", 2**31, "its counters are damaged"),
        ("delivered", 2**40, "its counters are damaged"),
    ],
)
def test_a_damaged_flow_is_refused(column: str, value: int, words: str) -> None:
    """Each would end in an index that is not there, or in more memory than there is."""
    flow = jittered(((0, 800.0),), 0.004, 60)
    flow.acks[column] = min(value, np.iinfo(flow.acks.dtype[column]).max)
    with pytest.raises(NdmError, match=words):
        estimate(flow, "damaged.pcap")
