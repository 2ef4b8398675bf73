# SPDX-License-Identifier: GPL-2.0-only
"""The exploring module: now and then a gain that is not the network's, upwards and downwards."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.compute as pc

from ndm_tcp.datasets.module_event import event_lines
from ndm_tcp.lab.guest import explore, uml_build
from ndm_tcp.lab.guest import run as lab_run

from .lab import EVENT, need_kernel, scenario
from .test_trace import LOSSY, PROBE


def test_excursions_go_both_ways_and_are_few(tmp_path: Path) -> None:
    need_kernel()
    made = explore.sources(uml_build.KMOD, tmp_path / "kmod")
    out = tmp_path / "run"
    lab_run.run(scenario(LOSSY), "ndm_tcp", 1, out, module=made, events=(EVENT,))
    rows = event_lines.read(out / "tcp_probe.txt.zst")
    rows = rows.filter(pc.and_(pc.equal(rows["why"], "network"), pc.greater(rows["cwnd"], 10)))
    cwnd, target = rows["cwnd"].to_numpy(), rows["target"].to_numpy()
    probed = np.clip(rows["cwnd_gain"].to_numpy() + PROBE[rows["phase"].to_numpy()], -65536, 65536)
    off = np.log2((target - 0.5) / cwnd) - probed / 65536
    off = off[target != cwnd]  # not held because the window was not used
    some = off[np.abs(off) > 0.15]
    print(f"{len(some)} of {len(off)} rounds are off, by {some.min():.2f} to {some.max():.2f}")
    assert 0.02 < len(some) / len(off) < 0.3
    assert some.min() < -0.3 and some.max() > 0.3 and np.abs(off).max() < 0.9
