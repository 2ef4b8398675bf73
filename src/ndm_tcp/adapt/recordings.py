# SPDX-License-Identifier: GPL-2.0-only
"""Runs on the models of a user's paths: what the network learns from."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from ndm_tcp.errors import NdmError
from ndm_tcp.lab.guest import explore, suite, uml_build
from ndm_tcp.lab.paths.scenario import parse
from ndm_tcp.paths import scenario
from ndm_tcp.paths.model import Kind, PathModel

OWN = "ndm_tcp"
RIVALS = ("reno", "cubic", "bbr")
"""algorithms whose flows show what the network would not try by itself"""
PERIOD = 5
"""`training.splits` holds out the numbers 0 (validation) and 1 (test) modulo this."""
PLACES = {"val": (0,), "test": (1,), "train": (2, 3, 4)}
"""split to what a path's number is modulo `PERIOD`"""
LONGEST_S, SHORTEST_S, LEAST_RTTS = 20.0, 3.0, 30.0
"""a recording lasts as long as its capture, within these bounds"""
MOST_PACKETS = 150_000
"""of a recording: half a minute of the lab's time"""


def seconds(model: PathModel) -> float:
    """Duration of a recording."""
    wanted = max(model.seconds, LEAST_RTTS * model.rtt_us.value / 1e6)
    packets_per_s = model.rate_bps / 8 / (model.mss + scenario.HEADER_BYTES)
    longest = min(LONGEST_S, MOST_PACKETS / max(packets_per_s, 1.0))
    return float(math.ceil(max(SHORTEST_S, min(wanted, longest))))


def _features(model: PathModel) -> tuple[float, ...]:
    """Coordinates of a path in which a factor of two counts alike."""
    bdp = model.rate_bps / 8 / (model.mss + scenario.HEADER_BYTES) * model.rtt_us.value / 1e6
    return (
        math.log2(model.rate_bps),
        math.log2(max(model.rtt_us.value, 50.0)),
        math.log2(max(scenario.queue_packets(model) / max(bdp, 1.0), 0.05)),
        math.log2(model.loss.value + 1e-3),
        math.log2(model.jitter_us.value / max(model.rtt_us.value, 1.0) + 0.03),
        2.0 * bool(model.rivals),
    )


def spread(models: Sequence[PathModel], most: int) -> list[PathModel]:
    """At most so many models, each as different as possible from those before it."""
    left = sorted(models, key=lambda m: m.name)
    chosen: list[PathModel] = []
    while left and len(chosen) < most:
        points = {m.name: _features(m) for m in (*left, *chosen)}

        def apart(m: PathModel, points: Mapping[str, tuple[float, ...]] = points) -> float:
            return min((math.dist(points[m.name], points[c.name]) for c in chosen), default=0.0)

        nearest = max(left, key=apart)
        chosen.append(nearest)
        left.remove(nearest)
    return chosen


def numbers(splits: Mapping[str, str]) -> dict[str, int]:
    """Name of the model to a number that `training.splits` puts into the model's split."""
    found: dict[str, int] = {}
    used = dict.fromkeys(PLACES, 0)
    for name, split in splits.items():
        places = PLACES[split]
        turn, place = divmod(used[split], len(places))
        found[name] = PERIOD * turn + places[place]
        used[split] += 1
    return found


def jobs_of(
    models: Sequence[PathModel],
    number: Mapping[str, int],
    cc: str,
    draws: Sequence[int],
    kmod: Path | None,
    out: Path,
) -> list[suite.Job]:
    """A run of each draw of each model; the folder's name decides its split in training.

    Raises:
        NdmError: the lab cannot make a path.
    """
    code = uml_build.sources_digest(kmod) if kmod else ""
    found = []
    for model in models:
        for draw in draws:
            text = scenario.text(scenario.draw(model, draw), seconds(model))
            digest = hashlib.sha256(f"{text}{code}".encode()).hexdigest()[:8]
            name = f"path-{number[model.name]}-{model.name}-{draw}-{digest}"
            made = parse(text, name, f"path model {model.name}")
            found.append(suite.Job(made, cc, draw + 1, out / f"{name}--{cc}--{draw + 1}"))
    return found


def explorer(kmod: Path, to: Path) -> Path:
    """Sources of a module that explores with the network of `kmod`."""
    if not to.is_dir():
        explore.sources(kmod, to)
    return to


def record(jobs: Sequence[suite.Job], kmod: Path | None, at_once: int) -> list[Path]:
    """Run them; those that are there are not run again.

    Returns:
        the folders of the runs.

    Raises:
        NdmError: a run failed.
    """
    folders = []
    for outcome in suite.execute(list(jobs), at_once, False, quiet=False, kmod=kmod):
        if outcome.result is None:
            raise NdmError(f"{outcome.job.folder}: {outcome.error}; run the command again")
        folders.append(outcome.job.folder)
    return sorted(folders)


def teaches(model: PathModel) -> bool:
    """Is the model certain enough to learn from? A rate that is only a bound is not."""
    return model.levels[0].rate_bps.kind == Kind.MEASURED and not model.policer
