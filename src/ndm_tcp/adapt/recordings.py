# SPDX-License-Identifier: GPL-2.0-only
"""Runs on the models of a user's paths: what the network learns from."""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ndm_tcp.errors import NdmError
from ndm_tcp.lab.guest import explore, suite
from ndm_tcp.lab.guest.workers import Workers
from ndm_tcp.paths import scenario
from ndm_tcp.paths.model import PathModel

OWN = "ndm_tcp"
RIVALS = ("reno", "cubic", "bbr")
"""algorithms whose flows show what the network would not try by itself"""
NUMBER = {"val": 0, "test": 1, "train": 2}
"""split to a number in a scenario's name that `training.splits` puts into it"""
MEASURED = 0.5
"""of a capture's time, in which its rate is no bound, from which on its path teaches"""
FEWEST_PATHS = 6
"""with fewer, all have to train"""
LONGEST_S, SHORTEST_S, LEAST_RTTS = 20.0, 3.0, 30.0
"""a recording lasts as long as its capture, within these bounds"""
MOST_PACKETS = 150_000
"""of a recording: half a minute of the lab's time"""


def seconds(model: PathModel) -> float:
    """Duration of a recording."""
    wanted = max(scenario.sent_s(model), LEAST_RTTS * model.rtt_us.value / 1e6)
    longest = min(LONGEST_S, MOST_PACKETS / max(model.packets_per_s, 1.0))
    return float(math.ceil(max(SHORTEST_S, min(wanted, longest))))


def _features(model: PathModel) -> tuple[float, ...]:
    """Coordinates of a path in which a factor of two counts alike."""
    return (
        math.log2(model.rate_bps),
        math.log2(max(model.rtt_us.value, 50.0)),
        math.log2(max(scenario.queue_packets(model) / max(model.bdp_packets, 1.0), 0.05)),
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


@dataclass(frozen=True)
class Plan:
    """Which models to record on, and what training does not see of them."""

    models: tuple[PathModel, ...]
    splits: dict[str, str]
    """name of the model to train, val or test; with few paths all are train"""
    draws: int
    """runs of each model that train"""

    @classmethod
    def of(cls, models: Sequence[PathModel], splits: Mapping[str, str], draws: int) -> Plan:
        """Hold out whole paths; draws, where paths are few or one of the splits has none.

        Args:
            models: to record on.
            splits: of these by name, equal for paths between the same hosts.
            draws: runs of each model that train.
        """
        mine = {model.name: splits[model.name] for model in models}
        if len(mine) < FEWEST_PATHS or {*mine.values()} != {*NUMBER}:
            mine = dict.fromkeys(mine, "train")
        return cls(tuple(models), mine, draws)

    @property
    def held_out(self) -> list[PathModel]:
        """The models to judge on, which choose no epoch; none: draws are held out."""
        return [model for model in self.models if self.splits[model.name] == "test"]

    def jobs(self, cc: str, kmod: Path | None, out: Path) -> list[suite.Job]:
        """A run of each draw of each model; the folder's name decides its split in training.

        Raises:
            NdmError: the lab cannot make a path.
        """
        found = []
        for model in self.models:
            for draw in range(self.draws + (not self.held_out)):
                split = self.splits[model.name] if draw < self.draws else "val"
                drawn, lasts = scenario.draw(model, draw), seconds(model)
                name = f"path-{NUMBER[split]}-{model.name}-{draw}"
                digest = suite.tag(scenario.scenario(drawn, name, lasts), cc, kmod)
                made = scenario.scenario(drawn, f"{name}-{digest}", lasts)
                folder = out / f"{made.name}--{cc}--{draw + 1}"
                found.append(suite.Job(made, cc, draw + 1, folder))
        return found


def explorer(kmod: Path, to: Path) -> Path:
    """Sources of a module that explores with the network of `kmod`."""
    if to.exists():  # of another network
        shutil.rmtree(to)
    return explore.sources(kmod, to)


def record(jobs: Sequence[suite.Job], kmod: Path | None, where: Workers) -> list[Path]:
    """Run them; those that are there are not run again.

    Returns:
        the folders of the runs.

    Raises:
        NdmError: a run failed.
    """
    folders = []
    for outcome in suite.execute(list(jobs), where, False, quiet=False, kmod=kmod):
        if outcome.result is None:
            raise NdmError(f"{outcome.job.folder}: {outcome.error}; run the command again")
        folders.append(outcome.job.folder)
    return sorted(folders)


def teaches(model: PathModel) -> bool:
    """Is the model certain enough to learn from? A rate that is mostly a bound is not."""
    return model.measured >= MEASURED
