# SPDX-License-Identifier: GPL-2.0-only
"""What the module leaves CUBIC, simulated."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ndm_tcp.lab.guest import uml_build
from ndm_tcp.lab.sim.build import build
from ndm_tcp.worth import rules

from .bench import bench_shares as bench
from .kmod.lab import need_simulator


def test_short_rounds_take_no_more_than_long_ones(tmp_path: Path) -> None:
    """A packet in each of them outgrew CUBIC, which adds about half a packet there."""
    program = need_simulator()
    kmod = rules.without("half packets", uml_build.KMOD, tmp_path / "kmod")
    drawn = bench.drawn(8, 90, bench.beside_cubic)
    paths = [path for path in drawn if path[1].link and path[1].link.rtt_us < 16_000]
    share, without = (
        bench.means(one, "ndm_tcp", paths, bench.tested_share) for one in (program, build(kmod))
    )
    print(f"\n{len(paths)} paths: {np.median(share):.3f}, {np.median(without):.3f} without")
    assert 0.4 < np.median(share) < 0.58 < np.median(without)
    assert np.mean((share >= 0.4) & (share <= 0.6)) > 0.6
