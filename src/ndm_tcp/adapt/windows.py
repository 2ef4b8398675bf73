# SPDX-License-Identifier: GPL-2.0-only
"""The constant window that scores best on a model of a path: the window to teach there.

`lab.paths.truth` computes a window from a path's values, by rules that were chosen on many paths.
On a user's path the lab can measure it: runs of `fixed_cwnd`, which sends with one window, whatever
is lost. It is paced as ndm_tcp is: bursts overflow short queues and buckets that the window itself
does not. Beside rivals a constant window means nothing, so those models keep the computed one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from ndm_tcp.adapt import recordings
from ndm_tcp.errors import NdmError
from ndm_tcp.lab.guest import suite
from ndm_tcp.lab.guest.workers import Workers
from ndm_tcp.lab.paths import truth
from ndm_tcp.paths import difference, scenario
from ndm_tcp.paths.model import Level, PathModel
from ndm_tcp.paths.replay import seen

STEP = 1.15
"""between two windows that are tried"""
MOST = 5
"""steps from the computed window, at most"""
FEWEST_PACKETS = 4
"""the module's smallest window"""


def _flat(model: PathModel) -> PathModel:
    """The model at its mean rate: one window for all of the time."""
    rate = replace(model.levels[0].rate_bps, value=model.rate_bps)
    return replace(model, levels=(Level(0.0, rate),), window_bdp=0.0)


def computed_bdp(model: PathModel) -> float:
    """The window that `truth` computes for a lone flow on the model at its mean rate, BDPs."""
    return truth.target_bdp(scenario.scenario(_flat(model)))


def measured(models: Sequence[PathModel], out: Path, draws: int, where: Workers) -> list[PathModel]:
    """The models, those of lone flows with the window that scored best.

    From the computed window the search goes up and down in steps as long as the score grows.

    Args:
        models: each with a name of its own.
        out: folder of the runs; those that are there are not run again.
        draws: of each model.
        where: guests run.
    """
    alone = {m.name: _flat(m) for m in models if not m.rivals and not m.joined}
    start = {name: computed_bdp(model) for name, model in alone.items()}
    scores: dict[str, dict[int, float]] = {name: {} for name in alone}
    while wanted := {name: tries for name, of in scores.items() if (tries := _next(of))}:
        windows = {
            name: {k: start[name] * STEP**k for k in tries} for name, tries in wanted.items()
        }
        for name, of in _run(alone, windows, out, draws, where).items():
            scores[name] |= of
    best = {name: _best(of) for name, of in scores.items()}
    return [
        replace(m, window_bdp=start[m.name] * STEP ** best[m.name]) if m.name in best else m
        for m in models
    ]


def _best(scores: Mapping[int, float]) -> int:
    """Of equal scores the one nearest to the computed window: a small one may be the same."""
    return max(scores, key=lambda number: (scores[number], -abs(number)))


def _next(scores: Mapping[int, float]) -> list[int]:
    """Which windows to try next: the neighbours of the best one."""
    if not scores:
        return [-1, 0, 1]
    best = _best(scores)
    return [k for k in (best - 1, best + 1) if k not in scores and abs(k) <= MOST]


def _run(
    models: Mapping[str, PathModel],
    windows: Mapping[str, Mapping[int, float]],
    out: Path,
    draws: int,
    where: Workers,
) -> dict[str, dict[int, float]]:
    """Mean score over draws, by model and number of the window.

    Raises:
        NdmError: a run failed.
    """
    of: dict[suite.Job, list[tuple[str, int]]] = {}
    for name, each in windows.items():
        for draw in range(draws):
            drawn = scenario.draw(models[name], draw)
            made = scenario.scenario(drawn, f"{name}-{draw}", recordings.seconds(models[name]))
            assert made.link is not None
            for number, bdp in each.items():
                packets = max(FEWEST_PACKETS, round(bdp * truth.bdp_packets(made.link)))
                cc = f"fixed_cwnd:{packets}:paced"
                folder = out / f"{made.name}-{suite.tag(made, 'fixed_cwnd')}-{packets}"
                # Two windows of a small BDP may be the same number of packets.
                of.setdefault(suite.Job(made, cc, draw + 1, folder), []).append((name, number))
    found: dict[str, dict[int, list[float]]] = {}
    where = replace(where, stage="target windows")
    for outcome in suite.execute([*of], where, True, quiet=False):
        if outcome.result is None:
            raise NdmError(f"{outcome.job.folder}: {outcome.error}; run the command again")
        for name, number in of[outcome.job]:
            score = difference.score(seen(outcome.result))
            found.setdefault(name, {}).setdefault(number, []).append(score)
    return {name: {k: fmean(v) for k, v in each.items()} for name, each in found.items()}
