# SPDX-License-Identifier: GPL-2.0-only
"""Flows of the simulator as records of bpf/ndm_bpf_record.h: what the module sees in transfers."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from ndm_tcp.lab.guest.uml_build import KMOD
from ndm_tcp.lab.paths.access_paths import flow
from ndm_tcp.lab.paths.scenario import Scenario, parse
from ndm_tcp.lab.sim import build as sim_build
from ndm_tcp.lab.sim.simulate import words

SECONDS = 20
Values = tuple[int, int, int, str, tuple[str, ...]]
BULK = (
    (10, 40, 60, "", ()),
    (30, 20, 100, "", ("cubic",)),
    (200, 20, 400, "", ()),
    (10, 40, 100, "", ("bbr",)),
)
"""Mbit/s, ms, packets of queue, what else the link does, and what competes"""
ROUGH = (
    (10, 40, 60, "loss = 0.02\njitter_us = 8000\nreorder = false\n", ()),
    (10, 40, 60, "loss = 0.3\n", ()),
    (10, 40, 60, "rtt_steps = [[5, 900000]]\n", ()),
)
"""likewise, with timeouts and their undoing"""


def scenario(mbps: int, rtt_ms: int, queue: int, more: str, others: tuple[str, ...]) -> Scenario:
    """A flow under test on a path, from its beginning on beside others."""
    link = f"rate_bps = {mbps * 10**6}\nrtt_us = {rtt_ms * 1000}\nqueue_packets = {queue}\n"
    flows = flow(0, 0, SECONDS) + "".join(flow(n, 0, SECONDS, cc) for n, cc in enumerate(others, 1))
    text = f'seconds = {SECONDS}\ntopology = "path"\n[link]\n{link}{more}{flows}'
    return parse(text, f"recorded-{mbps}-{len(others)}", "recorded.toml")


def flows(folder: Path, paths: Sequence[Values]) -> list[bytes]:
    """The records of a flow on each path, with what each callback left.

    Args:
        folder: for what is made meanwhile.
        paths: such as `BULK`.

    Raises:
        NdmError: the simulator cannot be built.
    """
    simulate, out, found = folder / "simulate", folder / "records", []
    sim_build.link(Path(__file__).with_name("recorded.c"), KMOD, simulate)
    variables = {**os.environ, "NDM_RECORDS": str(out)}
    for path in paths:
        given = words(scenario(*path), "ndm_tcp", 1)
        done = subprocess.run([simulate], input=given, text=True, env=variables,
                              capture_output=True, check=False)  # fmt: skip
        assert done.returncode == 0, done.stderr
        found.append(out.read_bytes())
    return found
