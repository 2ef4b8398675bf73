# SPDX-License-Identifier: GPL-2.0-only
"""The steps of an adaptation; `command` and the experiments put them together."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ndm_tcp.adapt import recordings, verdict
from ndm_tcp.lab.guest.workers import Workers
from ndm_tcp.paths import difference
from ndm_tcp.paths.model import PathModel
from ndm_tcp.selection import GAIN, means, moved, runs_of, sources

SHARE = 0.3
"""of the weight that the user's paths have in training; the lab's rounds have the rest"""
CAPTURED = 0.1
"""of that, the captures' own rounds; recordings on their models have the rest"""
RATE, EPOCHS = 2e-3, 10
"""of fine-tuning: a tenth of the learning rate of a whole training, a third of its epochs"""
OFFSET, MOST_OFFSETS = 0.08, 4
"""log2, of the predicted step: what the loop tries at a time, and how often one way. A step is 0.6
of the way, so 0.08 moves a steady window by 0.13, or a tenth"""
DECIDED, MOST_DRAWS = 2.0, 4
"""the target windows and the shipped network get twice as many draws until so many standard errors
lie between them, up to so many times the draws that train"""
TARGETS_ERRORS = 1.0
"""standard errors by which the target windows must beat the shipped network; an offset, of which
nothing is known beforehand, must by two"""
ITERATIONS = 2
"""trainings, by default: the second one on flows of the network of the first, too"""
GUARD_SEEDS, GUARD_FIRST = 3, 101
"""of the lab, on each path of a guard: where much is lost, one seed decides whether a flow goes on.
No selection took these. The shipped network was chosen by others, so its score with those is biased
upwards"""
JUDGED = 100
"""number of the first draw to judge with, and so the most draws to train with"""


@dataclass(frozen=True)
class Steps:
    """What all steps of one adaptation share."""

    out: Path
    lab_rounds: tuple[Path, ...]
    draws: int
    """of each model: those that train, and as many to judge"""
    iterations: int
    where: Workers
    """runs happen; in the simulator all but those of `real`, where it has the path"""

    def stage(self, name: str) -> Workers:
        """Where runs happen, and what they are for."""
        return replace(self.where, stage=name)

    @property
    def runs(self) -> Path:
        """The folder of the runs there: the lab's and the simulator's do not mix."""
        from ndm_tcp.lab.guest import suite

        return suite.folder_of(self.out, self.where)

    @property
    def real(self) -> Workers:
        """The lab: replays of captures, and the comparison."""
        return replace(self.where, simulated=False)


def say(text: str, started_s: float) -> None:
    """A step that ended, and when."""
    elapsed = int(time.monotonic() - started_s)
    print(f"[{elapsed // 60}:{elapsed % 60:02}] {text}", file=sys.stderr, flush=True)


def captures(paths: Sequence[Path], steps: Steps, models: Sequence[PathModel]) -> dict[str, str]:
    """Build the labelled dataset of the captures; name of each model to its split.

    Flows between the same two hosts share a split. With less than three such paths nothing is held
    out but draws.
    """
    from ndm_tcp.datasets.builder.build import build
    from ndm_tcp.datasets.rounds.columns import Named, begins
    from ndm_tcp.datasets.store import store
    from ndm_tcp.paths.label import labeller
    from ndm_tcp.training import splits

    out, jobs = steps.out / "captures", steps.where.at_once
    build(list(paths), out, jobs, True, True, labeller=labeller(models), with_card=False)
    names = ["flow_id", "source", "path", "split"]
    rounds = store.load(out, names).rounds
    edges = np.flatnonzero(begins(rounds))
    columns = [Named.of(rounds[name]).at(edges) for name in names]
    # As the training holds them out: recordings of the lab by their scenario.
    of_flow = splits.by_path(*columns, beside_lab=bool(steps.lab_rounds))
    split = dict(zip(columns[0].tolist(), of_flow.tolist(), strict=True))
    return {model.name: split.get(model.flow_id, "train") for model in models}


def recorded(steps: Steps, plan: recordings.Plan, started_s: float) -> tuple[Path, Path, Path]:
    """Record and train, as often as asked.

    Returns:
        the dataset of all recordings, the last run of training, and the sources of its module.
    """
    from ndm_tcp.lab.guest import uml_build

    runs = steps.runs / "recordings"
    folders: list[Path] = []
    for cc in recordings.RIVALS:
        where = steps.stage(f"recordings of {cc}")
        folders += recordings.record(plan.jobs(cc, None, runs), None, where)
    kmod, explored = uml_build.KMOD, steps.out / "explore"
    for turn in range(steps.iterations):
        explorer = recordings.explorer(kmod, explored / str(turn))
        jobs = plan.jobs(recordings.OWN, explorer, runs)
        where = steps.stage(f"recordings of {f'network {turn}' if turn else verdict.SHIPPED}")
        folders += recordings.record(jobs, explorer, where)
        say(f"recordings: {len(folders)}", started_s)
        data = dataset(steps, folders, turn)
        run = train(steps, data, turn)
        # Only the last network is checked, and has reports; the loop judges, not the step.
        kmod = sources(run, steps.out / f"kmod-{turn}", even_if_worse=True, reports=False)
        say(f"network {turn + 1} of {steps.iterations} trained and exported", started_s)
    return data, run, kmod


def network(steps: Steps, plan: recordings.Plan, started_s: float) -> tuple[Path, Path]:
    """What the loop finds best to teach; the run folder, and the sources of its module.

    Without anything to teach there is no run folder, and the network is the shipped one.
    """
    data, run, kmod = recorded(steps, plan, started_s)
    taught = [m for m in plan.models if plan.splits[m.name] == "train"]
    targets, best = search(steps, taught, kmod)
    base = "target windows" if targets else "the shipped network's outputs"
    say(f"best in the loop: {base}, offset {best:+.2f}", started_s)
    last = steps.out / "network"
    if last.exists():  # of a run before
        shutil.rmtree(last)
    if not targets and not best:
        return last, sources(None, steps.out / "kmod-last")
    if best:
        run = train(steps, data, steps.iterations - 1, targets=targets, offset=best)
    shutil.copytree(run, last)
    return last, module(last, steps.out / "kmod-last")


def dataset(steps: Steps, folders: list[Path], turn: int) -> Path:
    """The rounds of the recordings."""
    from ndm_tcp.datasets.builder.build import build

    recorded = steps.out / f"recorded-{turn}"
    build(folders, recorded, steps.where.at_once, quiet=True, with_card=False)
    return recorded


def _teach(captures: Path, beside_lab: bool) -> bool:
    """Does a round of the captures have a target window, and is it of no path that is held out?"""
    from ndm_tcp.datasets.store import store
    from ndm_tcp.datasets.store.describe import labels
    from ndm_tcp.training.config import TrainConfig
    from ndm_tcp.training.objective import examples, needed

    if not labels(store.manifest_of(captures))[0]:
        return False
    config = TrainConfig()
    found = examples(store.load(captures, needed(config)).rounds, config, beside_lab)
    return bool((found.policy & (found.split == "train")).any())


def train(
    steps: Steps,
    recorded: Path,
    turn: int,
    seed: int = 1,
    targets: bool = True,
    offset: float = 0.0,
) -> Path:
    """Fine-tune the shipped network on the recordings, the captures and the lab's rounds.

    Of the lab's rounds it keeps the outputs that it has, so that it changes where the user's paths
    are and nowhere else. Li and Hoiem, "Learning without forgetting", 2016 (arXiv:1606.09282).

    Args:
        steps: the setting.
        recorded: the dataset of the recordings.
        turn: number of the training, from 0; names its folders.
        seed: of the order of rounds.
        targets: recordings and captures teach their target windows; else the shipped network's
            outputs.
        offset: log2, added to the steps that recordings and captures teach.
    """
    from ndm_tcp.datasets.store import store
    from ndm_tcp.training.config import SHIPPED, TrainConfig
    from ndm_tcp.training.loop import Trainer, deterministic

    deterministic()
    captures = steps.out / "captures"
    # Held-out rounds are the user's alone: what the lab's lose, the guard measures in the loop.
    data, shares, held_out = [recorded], [SHARE], [1.0]
    if _teach(captures, bool(steps.lab_rounds)):
        data.append(captures)
        shares, held_out = [SHARE * (1 - CAPTURED), SHARE * CAPTURED], [1.0, 0.0]
    data += steps.lab_rounds
    flows = [store.manifest_of(folder)["flows"] for folder in steps.lab_rounds]
    shares += [(1 - SHARE) * number / sum(flows) for number in flows]
    held_out += [0.0] * len(steps.lab_rounds)
    mine = len(data) - len(steps.lab_rounds)
    config = TrainConfig(
        init=SHIPPED,
        offsets=(offset,) * mine + (0.0,) * len(steps.lab_rounds),
        kept=tuple(range(mine if targets else 0, len(data))),
        lr=RATE,
        epochs=EPOCHS,
        shares=tuple(shares),
        held_out_shares=tuple(held_out),
        seed=seed,
    )
    run = steps.out / f"network-{turn}"
    if run.exists():  # of other data, or cut off; a training takes seconds
        shutil.rmtree(run)
    Trainer(data, run, config).run(name=f"network {turn + 1}")
    return run


def module(run: Path, to: Path) -> Path:
    """A copy of the module's sources with the network of a run, checked."""
    from ndm_tcp.export.check import check

    check(sources(run, to, even_if_worse=True))
    return to


def mean(run: Path, to: Path) -> Path:
    """A run folder with the mean of an adapted network's weights and the shipped one's.

    It loses less elsewhere. Wortsman et al., "Robust fine-tuning of zero-shot models", 2022
    (arXiv:2109.01903).

    Args:
        run: of the adapted network.
        to: the new folder.
    """
    import torch

    from ndm_tcp.training import checkpoint as ckpt
    from ndm_tcp.training.config import SHIPPED
    from ndm_tcp.training.model import Policy
    from ndm_tcp.training.start import load

    to.mkdir()
    # Without the metrics, which are those of the other weights: the loop judges this one.
    adapted = ckpt.load(run / ckpt.MODEL)
    shipped = Policy(adapted.config.hidden, adapted.config.mask)
    load(SHIPPED).copy_to(shipped)
    weights = shipped.state_dict()
    tensors = {k: torch.lerp(v, weights[k], 0.5) for k, v in adapted.tensors.items()}
    ckpt.save(to / ckpt.MODEL, replace(adapted, tensors=tensors))
    return to


def _tried(kmod: Path, offset: float, to: Path) -> Path:
    """The module's sources with the same network and an offset: its integers alone, no reports."""
    from ndm_tcp import contract, model_json

    last = model_json.from_json(kmod / "generated" / model_json.NAME).layers[-1]
    return moved(kmod, round(offset * 2.0 ** (int(last.shift[GAIN]) + contract.Q_PRE)), to)


def search(steps: Steps, models: Sequence[PathModel], kmod: Path) -> tuple[bool, float]:
    """What to teach on these paths, by the loop and on draws that trained.

    A better prediction of the step is not always a better flow: the target window is one for a
    steady state, and fixed rules follow the network. So the target windows are taught only if the
    network that learned them beats the shipped one; draws are doubled until that is clear. From
    there the steps get an offset, one way and then the other, as long as the score grows by more
    than its noise.

    Args:
        steps: the setting.
        models: of the paths.
        kmod: the module's sources with the network that learned the target windows.

    Returns:
        whether to teach these, rather than the shipped network's outputs; and the offset.
    """
    from ndm_tcp.lab.guest import uml_build
    from ndm_tcp.paths.predict import Entrant, predict

    runs, paths = steps.runs / "offsets" / "runs", difference.numbers(models)
    scores: dict[tuple[bool, int], list[float]] = {}
    draws = steps.draws

    def run(*wanted: tuple[bool, int]) -> None:
        """Run candidates, of target windows or not, with so many offsets; known ones are not."""
        entrants = {}
        for targets, number in (one for one in wanted if one not in scores):
            name = f"{'targets' if targets else 'shipped'}{number * OFFSET:+.2f}"
            tried = kmod if targets else uml_build.KMOD
            if number:
                tried = _tried(tried, number * OFFSET, steps.out / "offsets" / name)
            entrants[targets, number] = name, Entrant(recordings.OWN, tried)
        if not entrants:
            return
        found = predict(
            models,
            dict(entrants.values()),
            runs,
            range(draws),
            steps.stage(f"search, {' and '.join(name for name, _ in entrants.values())}"),
            seconds=recordings.seconds,
        )
        scores.update(
            {key: verdict.scores(found, name, paths) for key, (name, _) in entrants.items()}
        )

    run((True, 0), (False, 0))
    while draws < min(MOST_DRAWS * steps.draws, JUDGED) and not (
        verdict.grows(scores[True, 0], scores[False, 0], DECIDED)
        or verdict.grows(scores[False, 0], scores[True, 0], DECIDED)
    ):
        draws = min(2 * draws, JUDGED)
        scores.clear()
        run((True, 0), (False, 0))
    targets = verdict.grows(scores[True, 0], scores[False, 0], TARGETS_ERRORS)
    run((targets, 1), (targets, -1))  # at once: one after the other leaves CPUs idle
    for way in (1, -1):
        best = 0
        while abs(best) < MOST_OFFSETS:
            run((targets, best + way))
            if not verdict.grows(scores[targets, best + way], scores[targets, best]):
                break
            best += way
        if best:
            return targets, best * OFFSET
    return targets, 0.0


def guard(suites: str, kmod: Path, work: Path, where: Workers) -> verdict.Guard:
    """The adapted network and the shipped one on suites that neither was trained for.

    Args:
        suites: names, separated by commas.
        kmod: the module's sources with the adapted network.
        work: folder of the runs; those that are there are not run again.
        where: guests run.
    """
    from ndm_tcp.lab.guest import uml_build

    names = [name for name in suites.split(",") if name]
    shipped, adapted = (
        means(runs_of(name, source, names, GUARD_SEEDS, where, work, GUARD_FIRST, everything=True))
        for name, source in (("shipped", uml_build.KMOD), ("adapted", kmod))
    )
    return verdict.guard(suites, adapted, shipped)


def guarded(
    steps: Steps, suites: str, run: Path, kmod: Path, started_s: float
) -> tuple[Path, verdict.Guard, verdict.Guard | None]:
    """Run the guard; where it refuses the network, run it on `mean`.

    Args:
        steps: the setting.
        suites: names, separated by commas.
        run: of the adapted network.
        kmod: the module's sources with it.
        started_s: `time.monotonic` at the start of the command.

    Returns:
        the module's sources to judge, their guard, and the guard that refused; None: it passed.
    """
    averaged = run.with_name(f"{run.name}-mean")
    if averaged.exists():  # of a run before
        shutil.rmtree(averaged)
    found, refused = guard(suites, kmod, steps.out / "guard", steps.stage("guard")), None
    say(f"guard: {found.scenarios} paths, score {found.score:+.4f}", started_s)
    if not found.passed:
        kmod = module(mean(run, averaged), kmod.with_name(f"{kmod.name}-mean"))
        refused = found
        where = steps.stage("guard of the mean")
        found = guard(suites, kmod, steps.out / "guard", where)
        say(f"guard of the mean with the shipped network: score {found.score:+.4f}", started_s)
    return kmod, found, refused


def judge(steps: Steps, plan: recordings.Plan, kmod: Path, started_s: float) -> difference.Of:
    """All algorithms on paths that were held out; on all, with draws of their own, if none was."""
    from ndm_tcp.paths.predict import Entrant, predict

    judged = plan.held_out or plan.models
    entrants = {cc: Entrant(cc) for cc in recordings.RIVALS}
    entrants |= {verdict.SHIPPED: Entrant(recordings.OWN)}
    entrants |= {verdict.ADAPTED: Entrant(recordings.OWN, kmod)}
    draws = range(JUDGED, JUDGED + max(steps.draws, 3))
    out = steps.out / "judged"
    where = replace(steps.real, stage="comparison")
    found = predict(judged, entrants, out, draws, where, seconds=recordings.seconds)
    say(f"paths measured: {len(judged)}", started_s)
    return found
