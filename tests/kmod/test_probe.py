# SPDX-License-Identifier: GPL-2.0-only
"""The probe's cycles: two flows on one path do not keep step."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ndm_tcp.datasets.module_event import event_lines
from ndm_tcp.lab.guest import run as lab_run
from ndm_tcp.lab.guest import suite

from .lab import EVENT, need_kernel

ROUNDS = 8
LEAST, MOST = 0.03, 0.3
"""of the cycles, with a round more: an eighth, of some 130 in each flow"""
LEAST_JAIN = 0.95


def test_probes_of_two_flows_drift(tmp_path: Path) -> None:
    """With this seed and cycles of one length one of them had a quarter of the link."""
    need_kernel()
    (two,) = suite.load_suite("fairness/equal-2-flows.toml")
    result = lab_run.run(two, "ndm_tcp", 1, tmp_path / "run", events=(EVENT,))
    table = event_lines.read(tmp_path / "run" / "tcp_probe.txt.zst")
    sport, network = table["sport"].to_numpy(), np.array(table["why"].to_pylist()) == "network"
    for port in np.unique(sport):
        phase = table["phase"].to_numpy()[(sport == port) & network].astype(int)
        step = np.diff(phase) % ROUNDS
        assert set(step.tolist()) == {0, 1}
        assert set(phase[:-1][step == 0].tolist()) == {ROUNDS - 1}
        share = (step == 0).sum() / (phase == 0).sum()
        assert LEAST < share < MOST
    assert result["jain"] >= LEAST_JAIN
