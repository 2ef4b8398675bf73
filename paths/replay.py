# SPDX-License-Identifier: GPL-2.0-only
"""Run a path model in the lab with the captured algorithm, and compare with the capture.

A capture leaves some values open: the size of a queue that never overflowed, the algorithm of a
rival. Each open value has candidates; the model whose replay is closest to the capture is kept.
A model whose closest replay misses the captured goodput by more than a tenth is rejected.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ndm_tcp.errors import NdmError
from ndm_tcp.lab.guest import run as lab_run
from ndm_tcp.lab.guest import suite
from ndm_tcp.paths import scenario
from ndm_tcp.paths.model import Kind, PathModel, Rival, Seen, Value

ASSUMED_CCS = ("cubic", "bbr")
"""of a flow whose algorithm is not known: the default of Linux, macOS and Windows, and what
large senders use; the closest replay decides"""
RIVAL_CCS = ("cubic", "bbr")
"""what a rival may be: one that fills the queue until it overflows, one that keeps a rate"""
QUEUE_FACTORS = (1.0, 4.0)
"""of the size of a queue that never overflowed"""
MISS = 0.1
"""of the captured goodput: a replay that is further off is rejected"""
WEIGHT_RTT = 0.5
"""of an RTT's miss beside the goodput's: it varies more from run to run"""


@dataclass(frozen=True)
class Replay:
    """The closest replay of a model."""

    model: PathModel
    """with the candidate's values"""
    cc: str
    """the algorithm of the replay"""
    replayed: Seen
    folder: str
    """of the run"""
    candidates: int

    @property
    def goodput_miss(self) -> float:
        """Replayed over captured goodput, minus 1."""
        seen = self.model.seen
        return self.replayed.goodput_mbps / max(seen.goodput_mbps, 1e-9) - 1 if seen else 0.0

    @property
    def accepted(self) -> bool:
        """Is the model close enough to predict with?"""
        return abs(self.goodput_miss) <= MISS


def seen(result: dict[str, Any]) -> Seen:
    """The measures of the flow under test in a result.json of the lab."""
    flow = next(flow for flow in result["flows"] if flow["tested"])
    return Seen(
        goodput_mbps=float(flow["goodput_mbps"]),
        rtt_mean_ms=float(flow.get("rtt_mean_ms", math.nan)),
        rtt_p95_ms=float(flow.get("rtt_p95_ms", math.nan)),
        retransmission_rate=flow["retransmissions"] / max(1, flow.get("segments", 1)),
    )


def distance(one: Seen, other: Seen | None) -> float:
    """How far apart two flows are: logarithms of goodput, mean RTT and its 95th percentile."""
    if other is None:
        return 0.0

    def log(a: float, b: float) -> float:
        return abs(math.log(a / b)) if a > 0 and b > 0 else 0.0

    return (
        log(max(one.goodput_mbps, 1e-3), max(other.goodput_mbps, 1e-3))
        + WEIGHT_RTT * log(one.rtt_mean_ms, other.rtt_mean_ms)
        + WEIGHT_RTT * log(one.rtt_p95_ms, other.rtt_p95_ms)
    )


def algorithms(model: PathModel, given: str | None = None) -> tuple[str, ...]:
    """The algorithms to replay with.

    Raises:
        NdmError: the lab's kernel does not have the captured one.
    """
    cc = given or model.cc
    if cc is None:
        return ASSUMED_CCS
    if cc not in (*lab_run.IN_TREE, *lab_run.OUR_MODULES):
        raise NdmError(
            f"{model.name}: the lab's kernel has no {cc}; name the nearest with --cc, such as bbr"
        )
    return (cc,)


def candidates(model: PathModel) -> Iterator[PathModel]:
    """The model with each combination of what the capture leaves open."""
    queues = QUEUE_FACTORS if model.queue_packets.kind == Kind.AT_LEAST else (1.0,)
    open_rivals = any(rival.kind == Kind.ASSUMED for rival in model.rivals)
    ccs: Sequence[str | None] = RIVAL_CCS if open_rivals else (None,)
    for factor, cc in itertools.product(queues, ccs):
        rivals = tuple(
            Rival(cc, r.kind, r.start_s) if cc and r.kind == Kind.ASSUMED else r
            for r in model.rivals
        )
        queue = model.queue_packets
        if factor != 1.0:
            size = factor * scenario.queue_packets(model)
            queue = Value.exact(size / scenario.UNSEEN_QUEUE, queue.kind)
        yield replace(model, rivals=rivals, queue_packets=queue)


def replay(
    models: Sequence[PathModel], out: Path, cc: str | None = None, jobs: int = 1
) -> dict[str, Replay | NdmError]:
    """Replay models; every candidate once.

    Args:
        models: each with a name of its own.
        out: folder of the runs; those that are there are not run again.
        cc: the algorithm; None: the captured one.
        jobs: guests at a time.

    Models that were imported have no flow to replay, and are left out.

    Returns:
        name of the model to its closest replay, or why there is none.
    """
    found: dict[str, Replay | NdmError] = {}
    models = [model for model in models if model.seen is not None]
    work: list[tuple[PathModel, str, suite.Job]] = []
    for model in models:
        try:
            pairs = itertools.product(algorithms(model, cc), candidates(model))
            for number, (with_cc, candidate) in enumerate(pairs):
                name = f"{model.name}-{number}"
                made = scenario.scenario(candidate, name)
                digest = hashlib.sha256(made.text.encode()).hexdigest()[:8]
                job = suite.Job(made, with_cc, 1, out / f"{name}--{with_cc}--{digest}")
                work.append((candidate, with_cc, job))
        except NdmError as error:
            found[model.name] = error
    results = {
        outcome.job.folder: outcome
        for outcome in suite.execute([job for *_, job in work], jobs, True, quiet=False)
    }
    for model in models:
        if model.name in found:
            continue
        mine = [entry for entry in work if entry[0].name == model.name]
        done = []
        for candidate, with_cc, job in mine:
            result = results[job.folder].result
            if result is not None:
                done.append(Replay(candidate, with_cc, seen(result), job.folder.name, len(mine)))
        if done:
            found[model.name] = min(done, key=lambda r: distance(r.replayed, model.seen))
        else:
            why = results[mine[0][2].folder].error
            found[model.name] = NdmError(f"{model.name}: no replay ran ({why})")
    return found
