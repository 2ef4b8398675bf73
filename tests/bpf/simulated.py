# SPDX-License-Identifier: GPL-2.0-only
"""Flows of the simulator as records of bpf/ndm_bpf_record.h: what the module sees in transfers."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from ndm_tcp.lab.paths.access_paths import flow
from ndm_tcp.lab.paths.scenario import Scenario, parse
from ndm_tcp.lab.sim import build as sim_build
from ndm_tcp.lab.sim.simulate import words

from ..conftest import ROOT
from ..kmod.lab import need_simulator

SECONDS = 20
PATHS = ((10, 40, 60, ()), (30, 20, 100, ("cubic",)), (200, 20, 400, ()), (10, 40, 100, ("bbr",)))
"""Mbit/s, ms, packets of queue, and what competes"""


def scenario(mbps: int, rtt_ms: int, queue: int, others: tuple[str, ...]) -> Scenario:
    """A flow under test on a path, from its beginning on beside others."""
    link = f"rate_bps = {mbps * 10**6}\nrtt_us = {rtt_ms * 1000}\nqueue_packets = {queue}\n"
    flows = flow(0, 0, SECONDS) + "".join(flow(n, 0, SECONDS, cc) for n, cc in enumerate(others, 1))
    text = f'seconds = {SECONDS}\ntopology = "path"\n[link]\n{link}{flows}'
    return parse(text, f"recorded-{mbps}-{len(others)}", "recorded.toml")


def program(folder: Path) -> Path:
    """The simulator that writes records."""
    need_simulator()
    module, made = folder / "ndm.o", folder / "simulate"
    include = (f"-I{ROOT}", f"-I{sim_build.SOURCES}")
    source = Path(__file__).with_name("recorded.c")
    subprocess.run(
        ["gcc", *sim_build.OPTIONS, *include, "-w", "-c", source, "-o", module], check=True
    )
    objects = sorted(sim_build.objects().glob("*.o"))
    subprocess.run(["gcc", *objects, module, "-lm", "-o", made], check=True)
    return made


def flows(folder: Path) -> list[bytes]:
    """The records of a flow on each path, in its order; with what each callback left."""
    simulate, out, found = program(folder), folder / "records", []
    for path in PATHS:
        given, variables = (
            words(scenario(*path), "ndm_tcp", 1),
            {**os.environ, "NDM_RECORDS": str(out)},
        )
        subprocess.run([simulate], input=given, text=True, env=variables, check=True,
                       stdout=subprocess.DEVNULL)  # fmt: skip
        found.append(out.read_bytes())
    return found
