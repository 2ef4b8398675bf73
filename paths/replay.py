# SPDX-License-Identifier: GPL-2.0-only
"""Run a path model in the lab with the captured algorithm, and compare with the capture.

A capture leaves some values open: the size of a queue that never overflowed, the algorithm of a
rival. Each open value has candidates; the model whose replay is closest to the capture is kept.
Where a path draws at random, each candidate runs with several seeds. A model is rejected whose
closest replays all miss the captured goodput, on the same side, by more than a tenth. If these
differ, more seeds run before: a capture may be an unusual draw of the true path, too.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ndm_tcp.errors import NdmError
from ndm_tcp.lab.guest import run as lab_run
from ndm_tcp.lab.guest import suite
from ndm_tcp.lab.guest.workers import ONE, Workers
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
RTT_MISS = 0.25
"""of the captured mean RTT: if a replay is further off, RTTs that its model predicts are unreliable
(docs/decisions/2026-12-02-03-mark-replays-that-miss-the-rtt.md)"""
SEEDS = 3
"""of a path with random losses or jitter: one capture is one draw of them"""
MOST_SEEDS, DIFFER = 10, 0.05
"""seeds of a model that would be rejected, where its replays differ by so much: on one path with
1 % loss the goodputs of CUBIC differ by a tenth to a half"""
WEIGHT_RTT = 0.5
"""of an RTT's miss beside the goodput's: it varies more from run to run"""


_Entry = tuple[PathModel, str, list[suite.Job]]
"""a candidate, the algorithm, and its runs"""


@dataclass(frozen=True)
class Replay:
    """The closest replay of a model."""

    model: PathModel
    """with the candidate's values"""
    cc: str
    """the algorithm of the replay"""
    replayed: Seen
    """means over the seeds"""
    goodput_mbps: tuple[float, ...]
    """of each seed"""
    folder: str
    """of the run of the first seed"""
    candidates: int

    @property
    def goodput_miss(self) -> float:
        """Replayed over captured goodput, minus 1: of the seed that is nearest."""
        if self.model.seen is None:
            return 0.0
        captured = max(self.model.seen.goodput_mbps, 1e-9)
        misses = [mbps / captured - 1 for mbps in self.goodput_mbps]
        return 0.0 if min(misses) < 0 < max(misses) else min(misses, key=abs)

    @property
    def rtt_miss(self) -> float:
        """Replayed over captured mean RTT, minus 1."""
        if self.model.seen is None or not self.model.seen.rtt_mean_ms > 0:
            return 0.0
        return self.replayed.rtt_mean_ms / self.model.seen.rtt_mean_ms - 1

    @property
    def accepted(self) -> bool:
        """Is the model close enough to predict with?"""
        return abs(self.goodput_miss) <= MISS

    @property
    def accepted_without_rtt(self) -> bool:
        """Is it close enough by goodput, but not by RTT?"""
        return self.accepted and abs(self.rtt_miss) > RTT_MISS

    @property
    def undecided(self) -> bool:
        """Would other draws of the path perhaps meet the capture?"""
        return not self.accepted and max(self.goodput_mbps) > (1 + DIFFER) * min(self.goodput_mbps)


def seen(result: dict[str, Any]) -> Seen:
    """The measures of the flow under test in a result.json of the lab."""
    flow = next(flow for flow in result["flows"] if flow["tested"])
    beside = len(result["flows"]) > 1
    return Seen(
        goodput_mbps=float(flow["goodput_mbps"]),
        rtt_mean_ms=float(flow.get("rtt_mean_ms", math.nan)),
        rtt_p95_ms=float(flow.get("rtt_p95_ms", math.nan)),
        retransmission_rate=flow["retransmissions"] / max(1, flow.get("segments", 1)),
        share=flow["share"] if beside else None,
        fair=1 / len(result["flows"]) if beside else None,
    )


def distance(one: Seen, other: Seen | None) -> float:
    """How far a flow is from another: logarithms of goodput, mean RTT and its 95th percentile.

    An RTT that only the other has is infinitely far; one that only this has is not compared.
    """
    if other is None:
        return 0.0

    def log(a: float, b: float) -> float:
        if not b > 0:
            return 0.0
        return abs(math.log(a / b)) if a > 0 else math.inf

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
    open_queue = model.qdisc == "droptail" and model.queue_packets.kind == Kind.AT_LEAST
    queues = QUEUE_FACTORS if open_queue else (1.0,)
    open_rivals = any(rival.kind == Kind.ASSUMED for rival in model.rivals)
    ccs: Sequence[str | None] = RIVAL_CCS if open_rivals else (None,)
    # A log counts losses without their cause: a full queue may have dropped all of them.
    open_loss = model.loss.kind == Kind.AT_MOST and model.loss.value > 0
    losses = (model.loss, Value.exact(0.0, Kind.ASSUMED)) if open_loss else (model.loss,)
    for loss, factor, cc in itertools.product(losses, queues, ccs):
        rivals = tuple(
            Rival(cc, r.kind, r.start_s) if cc and r.kind == Kind.ASSUMED else r
            for r in model.rivals
        )
        queue = model.queue_packets
        if factor != 1.0:
            size = factor * scenario.queue_packets(model)
            queue = Value.exact(size / scenario.UNSEEN_QUEUE, Kind.ASSUMED)
        yield replace(model, rivals=rivals, queue_packets=queue, loss=loss)


def replay(
    models: Sequence[PathModel],
    out: Path,
    cc: str | None = None,
    where: Workers = ONE,
    quiet: bool = False,
) -> dict[str, Replay | NdmError]:
    """Replay models; every candidate once.

    Args:
        models: each with a name of its own.
        out: folder of the runs; those that are there are not run again.
        cc: the algorithm; None: the captured one.
        where: guests run.
        quiet: no progress.

    Models that were imported have no flow to replay, and are left out.

    Returns:
        name of the model to its closest replay, or why there is none.
    """
    found: dict[str, Replay | NdmError] = {}
    models = [model for model in models if model.seen is not None]
    work: dict[str, list[_Entry]] = {}
    for model in models:
        try:
            work[model.name] = _work(model, out, cc, SEEDS)
        except NdmError as error:
            found[model.name] = error
    found |= _measured(models, work, where, quiet)
    more: dict[str, list[_Entry]] = {}
    for model in models:
        one = found[model.name]
        if isinstance(one, Replay) and one.undecided:
            again = _work(model, out, cc, MOST_SEEDS)
            more[model.name] = [entry for entry in again if entry[2][0].folder.name == one.folder]
    for name, one in _measured(models, more, where, quiet).items():
        tried = len(work[name])
        found[name] = replace(one, candidates=tried) if isinstance(one, Replay) else one
    return found


def _measured(
    models: Sequence[PathModel], work: Mapping[str, list[_Entry]], where: Workers, quiet: bool
) -> dict[str, Replay | NdmError]:
    """The closest replay of each model that has work."""
    runs = [job for entries in work.values() for *_, each in entries for job in each]
    if not runs:
        return {}
    results = {outcome.job.folder: outcome for outcome in suite.execute(runs, where, True, quiet)}
    return {m.name: _closest(m, work[m.name], results) for m in models if m.name in work}


def _work(model: PathModel, out: Path, cc: str | None, seeds: int) -> list[_Entry]:
    """Each candidate, with a run a seed if its path draws."""
    found = []
    for number, (with_cc, candidate) in enumerate(
        itertools.product(algorithms(model, cc), candidates(model))
    ):
        name = f"{model.name}-{number}"
        made = scenario.scenario(candidate, name)
        digest = suite.tag(made, with_cc)
        numbers = range(1, seeds + 1 if made.draws() else 2)
        folders = [out / f"{name}--{with_cc}--{digest}-{seed}" for seed in numbers]
        runs = [suite.Job(made, with_cc, *pair) for pair in zip(numbers, folders, strict=True)]
        found.append((candidate, with_cc, runs))
    return found


def _closest(
    model: PathModel,
    work: Sequence[_Entry],
    results: Mapping[Path, suite.Outcome],
) -> Replay | NdmError:
    done = []
    for candidate, cc, runs in work:
        each = [seen(r) for job in runs if (r := results[job.folder].result) is not None]
        if each:
            goodput = tuple(one.goodput_mbps for one in each)
            folder = runs[0].folder.name
            done.append(Replay(candidate, cc, _mean(each), goodput, folder, len(work)))
    if not done:
        why = results[work[0][2][0].folder].error
        return NdmError(f"{model.name}: no replay ran ({why})")
    return min(done, key=lambda r: distance(r.replayed, model.seen))


def _mean(each: Sequence[Seen]) -> Seen:
    """Of the same path, so that all have a share or none has."""
    known = (name for name, value in dataclasses.asdict(each[0]).items() if value is not None)
    return replace(each[0], **{n: float(np.mean([getattr(one, n) for one in each])) for n in known})
