# SPDX-License-Identifier: GPL-2.0-only
"""What the module leaves CUBIC, simulated."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ndm_tcp.lab.guest import uml_build
from ndm_tcp.lab.paths.truth import bdp_packets
from ndm_tcp.lab.sim.build import build
from ndm_tcp.worth import rules

from .bench import bench_shares as bench
from .kmod.lab import need_simulator


def without(names: Sequence[str], folder: Path) -> Path:
    """The simulator's program with the module without some rules."""
    kmod = uml_build.KMOD
    for name in names:
        kmod = rules.without(name, kmod, folder / name)
    return build(kmod)


def packets(path: bench.DrawnPath) -> float:
    """What the path and its queue hold."""
    link = path[1].link
    assert link
    return bdp_packets(link) + link.queue_packets


def test_short_rounds_take_no_more_than_long_ones(tmp_path: Path) -> None:
    """A packet in each of them takes more of CUBIC, which adds about half a packet there."""
    program = need_simulator()
    drawn = bench.drawn(8, 90, bench.beside_cubic)
    paths = [path for path in drawn if path[1].link and path[1].link.rtt_us < 16_000]
    share, faster = (
        bench.means(one, "ndm_tcp", paths, bench.tested_share)
        for one in (program, without(["half packets"], tmp_path))
    )
    print(f"\n{len(paths)} paths: {np.median(share):.3f}, {np.median(faster):.3f} without")
    assert 0.45 < np.median(share) < 0.55
    assert np.median(share) < np.median(faster) - 0.02
    assert np.mean((share >= 0.4) & (share <= 0.6)) > 0.6


def test_a_late_cubic_finds_a_share(tmp_path: Path) -> None:
    """Four flows that hold their shares leave it less than four CUBICs do."""
    drawn = bench.drawn(22, 200, bench.late_cubic)
    # Five flows need 20 packets for the smallest window of the module, and some to share.
    paths = [path for path in drawn if path[0] >= 1 and packets(path) >= 30]
    names = ["half packets", "quarter for an overflow", "slow growth"]
    cubic = bench.means(need_simulator(), "cubic", paths, bench.last_share)
    programs = need_simulator(), without(names, tmp_path), without(["unrivalled"], tmp_path)
    shares = [bench.means(one, "ndm_tcp", paths, bench.last_share) / cubic for one in programs]
    share, held, rivalled = (np.median(one) for one in shares)
    print(f"\n{len(paths)} paths: {share:.3f}, {held:.3f} without, {rivalled:.3f} rivalled")
    assert share > 0.8
    assert held < 0.8 * share
    # A window beyond a rival's yields no less.
    assert np.mean(np.log(shares[0])) > np.mean(np.log(shares[2])) - 0.05
