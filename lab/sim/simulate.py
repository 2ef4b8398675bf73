# SPDX-License-Identifier: GPL-2.0-only
"""A run of a scenario in the simulator: the lab's results in a hundredth of the time.

The simulator hosts the module's headers and Linux's own tcp_cubic.c and tcp_bbr.c, unchanged,
between a sender and a receiver that do what the kernel's do for bulk transfers. docs/simulator.md
says how close it comes to the lab.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ndm_tcp import files
from ndm_tcp.datasets.readers.simulated import KIND, RECORDING, STEM
from ndm_tcp.datasets.readers.simulated import SEGMENT_BYTES as MSS
from ndm_tcp.errors import NdmError
from ndm_tcp.lab.guest.collect import jain, rounded
from ndm_tcp.lab.guest.externals import Externals
from ndm_tcp.lab.guest.jobs import RESULT, Job, Outcome
from ndm_tcp.lab.guest.run import split_cc
from ndm_tcp.lab.guest.scrub import compress
from ndm_tcp.lab.guest.uml_build import KMOD
from ndm_tcp.lab.paths.scenario import UNDER_TEST, Flow, Link, Scenario

ZSTD_LEVEL = 3
NAMED = 3
"""scenarios in a message"""
LATEST_S = 600
"""within which a run ends: for messages before the data that are lost or wait in a queue"""
MOST_WAIT_US = 3000
"""of the reading program; with 20 ms the simulator's window grew to 1.8 times the lab's goodput"""
READ_US_MORE = 51
"""us that the lab's reader waits longer than it asks for: Linux's timer slack, and a little"""
ALGORITHMS = ("reno", "cubic", "bbr", "ndm_tcp", "fixed_cwnd")
Program = Callable[[Path], Path]
"""sources of a module to the simulator's program with it"""


def refusal(scenario: Scenario) -> str:
    """Why the simulator does not have this scenario; empty if it does."""
    link = scenario.link
    if link is None:
        return "it is on the loopback device"
    if scenario.web:
        return "it has a page"
    if scenario.host.ecn or link.qdisc != "droptail":
        return f"it has {'ECN' if scenario.host.ecn else link.qdisc}"
    reasons = {
        "hosts that hand over GSO packets": link.offloads,
        "packets that overtake others": link.reorder,
        "its bottleneck on the sending host": link.shaper == "sender",
        "jitter that is neither normal nor uniform": link.jitter_distribution == "pareto",
        "buffers of its own": scenario.host.buffer_bytes > 0,
        "a program that reads after more than 3 ms": scenario.host.read_wait_us > MOST_WAIT_US,
    }
    return next((f"it has {what}" for what, has in reasons.items() if has), "")


def has(scenario: Scenario, cc: str) -> bool:
    """Can the simulator run this?"""
    return not refusal(scenario) and {*scenario.algorithms(split_cc(cc)[0])} <= {*ALGORITHMS}


def known(scenarios: Sequence[Scenario], ccs: Sequence[str], others: Externals) -> list[Scenario]:
    """The scenarios that the simulator has; a line on stderr counts the others.

    Raises:
        NdmError: it has none of them, or not one of the algorithms.
    """
    if others:
        raise NdmError("--kernel-patch and --cc-module: only the lab has; leave out --simulate")
    if unknown := {split_cc(cc)[0] for cc in ccs} - {*ALGORITHMS}:
        raise NdmError(
            f"--cc {', '.join(sorted(unknown))}: only the lab has algorithms besides "
            f"{', '.join(ALGORITHMS)}; leave out --simulate"
        )
    found = [scenario for scenario in scenarios if all(has(scenario, cc) for cc in ccs)]
    if not found:
        why = refusal(scenarios[0]) or "a flow has another algorithm"
        raise NdmError(f"{scenarios[0].name}: {why}, which only the lab has; leave out --simulate")
    if left := [scenario.name for scenario in scenarios if scenario not in found]:
        names = ", ".join(left[:NAMED]) + (", ..." if len(left) > NAMED else "")
        print(
            f"ndm: {len(left)} of {len(scenarios)} scenarios left out: only the lab has {names}",
            file=sys.stderr,
        )
    return found


def _path_words(link: Link) -> list[str]:
    values: dict[str, float] = {
        "bps": link.rate_bps,
        "rtt_us": link.rtt_us,
        "queue": link.queue_packets,
        "bucket": link.bucket_packets,
        "loss": link.loss,
        "ack_loss": link.ack_loss,
        "jitter_us": link.jitter_us,
        "uniform": link.jitter_distribution == "uniform",
        "ordered": bool(link.jitter_us or link.rtt_steps),
        "slot_from_us": link.slot_us[0],
        "slot_to_us": link.slot_us[1],
        "hold_from_us": link.ack_hold_us[0],
        "hold_to_us": link.ack_hold_us[1],
        "ack_bps": link.ack_rate_bps,
        "ack_queue": link.ack_queue_packets,
    }
    if link.burst:
        values |= {f"burst_{k}": getattr(link.burst, k) for k in ("start", "end", "loss")}
    words = [f"path {name} {float(value)!r}" for name, value in values.items()]
    steps = [(at, bps, -1) for at, bps in link.steps]
    steps += [(at, -1, us) for at, us in link.rtt_steps]
    return words + [f"step {at!r} {bps} {us}" for at, bps, us in sorted(steps)]


def words(scenario: Scenario, cc: str, seed: int) -> str:
    """What the simulator reads.

    Raises:
        NdmError: it does not have this scenario.
    """
    if why := refusal(scenario):
        raise NdmError(f"{scenario.name}: {why}, which only the lab has; use ndm lab run")
    assert scenario.link is not None
    name, params = split_cc(cc)
    draw = int(hashlib.sha256(f"{scenario.name} {name} {seed}".encode()).hexdigest()[:16], 16)
    lines = [f"seed {draw}", f"end {scenario.end_s() + LATEST_S}", *_path_words(scenario.link)]
    lines += [f"param {key} {value}" for key, value in params.items()]
    read_us = scenario.host.read_wait_us + READ_US_MORE
    for flow in scenario.flows:
        tested = name if flow.cc == UNDER_TEST else flow.cc
        lines.append(f"flow {tested} {flow.start_s} {flow.seconds} {flow.extra_rtt_us} {read_us}")
    return "\n".join(lines) + "\n"


def _flow(flow: Flow, cc: str, line: list[float]) -> dict[str, Any]:
    sent, resent, arrived, _, _, _, _, silent, rtt_us, late_us, measured_ns = line
    measured_s = measured_ns / 1e9 or flow.seconds  # none if it never began
    return {
        "cc": cc if flow.cc == UNDER_TEST else flow.cc,
        "tested": flow.cc == UNDER_TEST,
        "start_s": flow.start_s,
        "seconds": flow.seconds,
        "goodput_mbps": rounded(arrived * MSS * 8 / measured_s / 1e6),
        "bytes": int(arrived) * MSS,
        "segments": int(sent),
        "retransmissions": int(resent),
        "silent_intervals": int(silent),
        "rtt_mean_ms": rounded(rtt_us / 1e3),
        "rtt_p95_ms": rounded(late_us / 1e3),
    }


def simulate(
    program: Path, scenario: Scenario, cc: str, seed: int, acks: Path | None = None
) -> dict[str, Any]:
    """Run a scenario once; what of result.json the simulator has.

    Args:
        program: see `build`.
        scenario: with flows, and nothing that `refusal` names.
        cc: the algorithm under test: reno, cubic, bbr, ndm_tcp, or `fixed_cwnd` as in `Job.cc`.
        seed: of random numbers; they are not the lab's.
        acks: a file for the recording, `datasets.readers.simulated.RECORD`; None: no recording.

    Raises:
        NdmError: it does not have this scenario or algorithm.
    """
    scenario = scenario.begun(seed)
    given = words(scenario, cc, seed)
    cc, _ = split_cc(cc)
    command = [program, *([acks] if acks else [])]
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NdmError(
            f"{scenario.name} with {cc}: {done.stderr.strip() or 'the simulator failed'}"
        )
    lines = [[float(word) for word in line.split()] for line in done.stdout.splitlines()]
    for number, line in enumerate(lines):
        if line[2] and not line[10]:
            raise NdmError(
                f"{scenario.name} with {cc}: flow {number} began and did not end; use ndm lab run"
            )
    flows = [_flow(flow, cc, line) for flow, line in zip(scenario.flows, lines, strict=True)]
    # As the lab: of all that each has sent, if all are there for less than a second.
    long = lines[0][6] >= 1e9 and any(line[5] for line in lines)
    rates = [f["goodput_mbps"] for f in flows]
    if long:
        rates = [common * MSS * 8e3 / ns for _, _, _, _, _, common, ns, *_ in lines]
    total = sum(rates)
    for result, rate in zip(flows, rates, strict=True):
        result["common_mbps"] = rounded(rate)
        result["share"] = rounded(rate / total, 4) if total else 0.0
    return {
        "scenario": scenario.name,
        "cc": cc,
        "seed": seed,
        "kernel": "simulator",
        "flows": flows,
        "total_mbps": rounded(sum(flow["goodput_mbps"] for flow in flows)),
        "jain": rounded(jain(rates), 4),
        "drops": {
            "random": int(sum(line[3] for line in lines)),
            "queue": int(sum(line[4] for line in lines)),
        },
    }


def _run(job: Job, program: Path, light: bool) -> dict[str, Any]:
    if light:
        return simulate(program, job.scenario, job.cc, job.seed)
    # In the run's folder: what a killed run leaves, the next one writes over.
    acks = job.folder / f".{STEM}"
    job.folder.mkdir(parents=True, exist_ok=True)
    try:
        result = simulate(program, job.scenario, job.cc, job.seed, acks)
        compress(job.folder / RECORDING, KIND + acks.read_bytes(), ZSTD_LEVEL)
    finally:
        acks.unlink(missing_ok=True)
    return result


def attempt(job: Job, kmod: Path | None, program: Program, light: bool) -> Outcome:
    """Run a job in the simulator, and leave its scenario and result in its folder.

    Args:
        job: what to run.
        kmod: sources of ndm_tcp in the place of the checkout's.
        program: as `build`.
        light: without a recording.
    """
    try:
        result = _run(job, program(kmod or KMOD), light)
    except NdmError as error:
        return Outcome(job, None, str(error))
    files.write_text(job.folder / "scenario.toml", job.scenario.text)
    files.write_text(job.folder / RESULT, json.dumps(result, indent=1) + "\n")
    return Outcome(job, result)
