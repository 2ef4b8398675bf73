# SPDX-License-Identifier: GPL-2.0-only
"""What other algorithms would get on a captured path: runs of its model, drawn several times.

A draw takes every value of the model from its interval, and another seed of the lab. All
algorithms run the same draws, so that two of them are compared pair by pair.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ndm_tcp.errors import NdmError
from ndm_tcp.intervals import Ratio, interval
from ndm_tcp.lab.guest import suite
from ndm_tcp.lab.guest.workers import ONE, Workers
from ndm_tcp.paths import scenario
from ndm_tcp.paths.model import PathModel, Seen
from ndm_tcp.paths.replay import seen

DRAWS = 4


@dataclass(frozen=True)
class Entrant:
    """An algorithm that runs on the models."""

    cc: str
    kmod: Path | None = None
    """sources or a .ko of the module; None: the kernel's, or the shipped network"""


@dataclass(frozen=True)
class Range:
    """A measure over the draws."""

    mean: float
    low: float
    """lowest of the draws"""
    high: float
    """highest of the draws"""


@dataclass(frozen=True)
class Prediction:
    """An algorithm on a path."""

    goodput_mbps: Range
    rtt_mean_ms: Range
    rtt_p95_ms: Range
    retransmission_rate: Range
    draws: tuple[Seen, ...]


def jobs_of(
    models: Sequence[PathModel],
    name: str,
    entrant: Entrant,
    draws: Sequence[int],
    out: Path,
    seconds: Callable[[PathModel], float],
) -> list[tuple[PathModel, suite.Job]]:
    """The runs of one algorithm; a folder's name has a digest of what decides its content.

    Raises:
        NdmError: the lab cannot make a path.
    """
    found = []
    for model in models:
        for draw in draws:
            drawn = scenario.draw(model, draw)
            made = scenario.scenario(drawn, f"{model.name}-{draw}", seconds(model))
            folder = out / f"{made.name}--{name}--{suite.tag(made, entrant.cc, entrant.kmod)}"
            found.append((model, suite.Job(made, entrant.cc, draw + 1, folder, entrant.kmod)))
    return found


def _range(values: Sequence[float]) -> Range:
    return Range(float(np.mean(values)), min(values), max(values))


def predict(
    models: Sequence[PathModel],
    entrants: Mapping[str, Entrant],
    out: Path,
    draws: Sequence[int] = range(DRAWS),
    where: Workers = ONE,
    quiet: bool = False,
    seconds: Callable[[PathModel], float] = scenario.sent_s,
    left_out: dict[str, str] | None = None,
) -> dict[str, dict[str, Prediction]]:
    """Run algorithms on models.

    Args:
        models: accepted ones, each with a name of its own.
        entrants: by the name that tables show.
        out: folder of the runs; those that are there are not run again.
        draws: their numbers; 0 is the model itself.
        where: guests run.
        quiet: no progress.
        seconds: duration of a model's runs.
        left_out: gets the name of a model of which a run failed, and why; None: no model may fail.

    Returns:
        name of the model to name of the entrant to its prediction.

    Raises:
        NdmError: a run failed, or the lab cannot make a path.
    """
    work = {
        name: jobs_of(models, name, entrant, draws, out, seconds)
        for name, entrant in entrants.items()
    }
    # All at once: between two suites a CPU would wait for the other.
    runs = [job for pairs in work.values() for _, job in pairs]
    of_folder = {job.folder: model.name for pairs in work.values() for model, job in pairs}
    outcomes = {}
    for outcome in suite.execute(runs, where, True, quiet):
        if outcome.result is not None:
            outcomes[outcome.job.folder] = seen(outcome.result)
        elif left_out is None:
            raise NdmError(f"{outcome.job.folder}: {outcome.error}; run the command again")
        else:
            left_out[of_folder[outcome.job.folder]] = outcome.error
    ran = [model for model in models if not left_out or model.name not in left_out]
    found: dict[str, dict[str, Prediction]] = {model.name: {} for model in ran}
    for name, pairs in work.items():
        for model in ran:
            all_ = tuple(outcomes[job.folder] for one, job in pairs if one is model)
            found[model.name][name] = Prediction(
                _range([s.goodput_mbps for s in all_]),
                _range([s.rtt_mean_ms for s in all_]),
                _range([s.rtt_p95_ms for s in all_]),
                _range([s.retransmission_rate for s in all_]),
                all_,
            )
    return found


def compare(one: Prediction, other: Prediction) -> Ratio:
    """Goodput of one algorithm over another's on the same path, draw by draw."""
    pairs = zip(one.draws, other.draws, strict=True)
    return interval(
        [math.log(max(a.goodput_mbps, 1e-3) / max(b.goodput_mbps, 1e-3)) for a, b in pairs]
    )
