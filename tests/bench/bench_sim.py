# SPDX-License-Identifier: GPL-2.0-only
"""How fast the simulator is beside the lab, on the same runs, one after the other.

python tests/bench/bench_sim.py [SUITE]
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from ndm_tcp.lab.guest import suite, uml_build
from ndm_tcp.lab.guest.workers import Workers
from ndm_tcp.lab.sim import build
from ndm_tcp.lab.sim.simulate import refusal

ALGORITHMS = ("cubic", "bbr", "ndm_tcp")
PATHS = 12


def main() -> None:
    """Measure and print."""
    name = sys.argv[1] if len(sys.argv) > 1 else "validation"
    known = [s for s in suite.load_suite(name) if s.flows and not refusal(s)]
    paths = known[:: max(1, len(known) // PATHS)][:PATHS]
    uml_build.build()
    uml_build.build_module()
    build.build()
    took_s = {}
    with tempfile.TemporaryDirectory() as folder:
        for simulated in (False, True):
            out = Path(folder) / str(simulated)
            jobs = suite.jobs_of(paths, [*ALGORITHMS], 1, out)
            started_s = time.perf_counter()
            ends = list(suite.execute(jobs, Workers(1, simulated=simulated), True, quiet=True))
            took_s[simulated] = time.perf_counter() - started_s
            assert all(end.result for end in ends)
    flows_s = sum(s.end_s() for s in paths) * len(ALGORITHMS)
    for simulated, what in ((False, "lab"), (True, "simulator")):
        times = flows_s / took_s[simulated]
        print(f"{what:10} {took_s[simulated]:7.1f} s, {times:6.0f} times real time")
    print(
        f"{took_s[False] / took_s[True]:.0f} times as fast as the lab, {len(paths)} paths of {name}"
    )


if __name__ == "__main__":
    main()
