# SPDX-License-Identifier: GPL-2.0-only
"""Where a lossy path is a policer, and where it is not. Policers of the lab: `test_replay`."""

from __future__ import annotations

import numpy as np
import pytest

from ndm_tcp.datasets.rounds.flow import ACK_DTYPE, FlowRecords
from ndm_tcp.paths.estimate import estimate
from ndm_tcp.paths.label import label
from ndm_tcp.paths.model import Kind

from .made import captured

PPS, RTT_US = 500, 40_000


def paced(loss: float, packets: int = 6000) -> FlowRecords:
    """A sender that its pacing holds at one rate, over a path with random loss and no queue."""
    rng = np.random.default_rng(1)
    lost = rng.random(packets) < loss
    lost[:50] = lost[-1] = False
    at = np.flatnonzero(~lost)  # a packet that arrives is acknowledged, and shows those before it
    acks = np.zeros(len(at), ACK_DTYPE)
    acks["now_us"] = at * (1_000_000 // PPS)
    acks["rtt_us"] = acks["srtt_us"] = acks["min_rtt_us"] = RTT_US + rng.integers(0, 20, len(at))
    acks["acked"] = 1
    acks["lost"] = np.diff(at, prepend=-1) - 1
    acks["inflight"] = acks["cwnd"] = PPS * RTT_US // 1_000_000
    acks["delivered"] = np.arange(1, len(at) + 1)
    return captured(acks)


@pytest.mark.parametrize("loss", [0.02, 0.03, 0.05])
def test_random_loss_of_a_paced_flow_is_no_policer(loss: float) -> None:
    """Between any two losses it has one rate, as behind a policer: that of its sender."""
    flow = paced(loss)
    found = estimate(flow, "paced")
    assert found.bucket_packets.value == 1
    assert found.levels[0].rate_bps.kind is Kind.AT_LEAST
    assert found.loss.kind is Kind.MEASURED and found.loss.low < loss < found.loss.high
    assert label(flow).truth is None
