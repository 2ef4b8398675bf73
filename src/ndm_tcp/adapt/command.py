# SPDX-License-Identifier: GPL-2.0-only
"""`ndm adapt`: captures to a network that is better on their paths, or the advice not to use it.

estimate   captures -> path models                         RUN/paths
replay     the captured algorithm on them; rejects models   RUN/paths/index.html
label      captures -> rounds with target windows           RUN/captures
record     Reno, CUBIC, BBR, the network on the models      RUN/recordings, RUN/recorded
fine-tune  from the shipped weights, lab rounds beside      RUN/network
export     integers, certificate, golden vectors            RUN/kmod
guard      the validation suites, against the shipped one
judge      all algorithms on held-out paths                 RUN/report.html, RUN/adapt.json
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from ndm_tcp.adapt import recordings, report, verdict
from ndm_tcp.errors import NdmError
from ndm_tcp.paths.model import PathModel

EXAMPLE = """example:
  ndm adapt captures/ -o out/mine           # then open out/mine/report.html
  ndm adapt my.pcap -o out/mine --guard validation --draws 2 --iterations 1    # faster
  ndm lab run published/c-dumbbell-loss-1.toml --cc ndm_tcp --kmod out/mine/kmod

exit code 1: the report advises against the adapted network; it is then in RUN/refused"""
NOT_ADVISED = 1
"""exit code"""
SHARE = 0.45
"""of the weight that the user's paths have in training; the lab's rounds have the rest"""
CAPTURED = 0.1
"""of that, the captures' own rounds; recordings on their models have the rest"""
RATE, EPOCHS = 2e-3, 10
"""of fine-tuning: a tenth of the learning rate of a whole training, a third of its epochs"""
JUDGED = 100
"""number of the first draw to judge with: training has not seen it"""


@dataclass(frozen=True)
class Steps:
    """What all steps of one adaptation share."""

    out: Path
    lab_rounds: tuple[Path, ...]
    draws: int
    """of each model: those that train, and as many to judge"""
    iterations: int
    guard: str
    jobs: int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `ndm adapt`."""
    from ndm_tcp.lab.guest import run as lab_run

    parser.add_argument(
        "sources", nargs="+", type=Path, metavar="SRC", help="capture, run folder, or folder"
    )
    parser.add_argument("-o", "--out", type=Path, required=True, metavar="RUN", help="resumes")
    parser.add_argument("--cc", help="the captures' algorithm (default: as captured, or cubic)")
    parser.add_argument(
        "--lab-rounds",
        type=Path,
        nargs="+",
        help="datasets of the lab to keep what is known (default: the checkout's)",
    )
    parser.add_argument(
        "--draws", type=int, default=3, help="runs of each model, with values from their intervals"
    )
    parser.add_argument(
        "--most-paths", type=int, default=12, help="models to record on, the most different ones"
    )
    parser.add_argument(
        "--iterations",
        type=int,
        default=2,
        help="times to train; from the second on, also on flows of the network just trained",
    )
    parser.add_argument(
        "--guard",
        default="validation,lan",
        help="suites on which it must not be worse; none: empty text",
    )
    lab_run.add_jobs(parser)
    parser.add_argument("--json", action="store_true", help="print adapt.json")


def _say(text: str, started_s: float) -> None:
    elapsed = int(time.monotonic() - started_s)
    print(f"[{elapsed // 60}:{elapsed % 60:02}] {text}", file=sys.stderr, flush=True)


def main(args: argparse.Namespace) -> int:
    """Run `ndm adapt`."""
    for name in ("draws", "most_paths", "iterations", "jobs"):
        if getattr(args, name) < 1:
            raise NdmError(f"--{name.replace('_', '-')} must be at least 1")
    steps = Steps(
        args.out,
        tuple(args.lab_rounds) if args.lab_rounds else _shipped_rounds(),
        args.draws,
        args.iterations,
        args.guard,
        args.jobs,
    )
    started_s = time.monotonic()
    models, rejected = _models(args, started_s)
    splits = _captures(args.sources, steps, models)
    chosen = recordings.spread(models, args.most_paths)
    _say(f"{len(models)} models, {len(chosen)} of them to record on", started_s)
    plan = recordings.Plan.of(chosen, splits, args.draws)
    kmod = _network(steps, plan, started_s)
    if _same(kmod):
        print("No step of training was better on the held-out rounds. " + verdict.STAY)
        return NOT_ADVISED
    guarded = _guard(steps, kmod, started_s) if steps.guard else None
    of = _judge(steps, plan, kmod, started_s)
    advised, sentence = verdict.sentence(of, guarded)
    place = _place(steps.out, kmod, advised)
    held_out = sorted(model.name for model in plan.held_out)
    found = report.Adapted(sentence, advised, place.name, guarded, held_out, rejected, of)
    page = report.write(found, steps.out, models)
    if args.json:
        print(msgspec.json.format(msgspec.json.encode(found), indent=1).decode())
    else:
        print(report.screen(found))
        print(f"network: {place}\nreport:  {page}")
    return 0 if advised else NOT_ADVISED


def _shipped_rounds() -> tuple[Path, ...]:
    """The lab's rounds in this checkout.

    Raises:
        NdmError: there is no checkout.
    """
    from ndm_tcp.export.integers import generated

    core = generated.ROOT / "datasets" / "lab-rounds" / "core"
    if not core.is_dir():
        raise NdmError("this installation holds no rounds of the lab; name some: --lab-rounds DIR")
    return (core,)


def _models(args: argparse.Namespace, started_s: float) -> tuple[list[PathModel], dict[str, str]]:
    """The accepted models that are certain enough to teach, and why the others are not there.

    Raises:
        NdmError: there is none.
    """
    from ndm_tcp.paths import report as path_report
    from ndm_tcp.paths.estimate_command import estimate_all
    from ndm_tcp.paths.replay_command import replayed

    folder = args.out / "paths"
    made, refused = estimate_all(args.sources, folder, args.json)
    rejected = dict(refused)
    if not made:
        raise NdmError(f"{args.sources[0]}: no flow shows its path; ndm path estimate says why")
    _say(f"{len(made)} path models", started_s)
    replays = replayed(folder, args.cc, args.jobs)
    path_report.write_page(folder, replays, [], {})
    rejected |= replays.rejected
    for name, why in replays.rejected.items():
        print(f"ndm: {name}: rejected: {why}", file=sys.stderr)
    found = []
    for one in replays.replays:
        if recordings.teaches(one.model):
            found.append(one.model)
        else:
            rejected[one.model.name] = "its rate is only a bound, so no target window follows"
    if not found:
        raise NdmError(
            f"{args.out}: no model of the captures is fit to learn from; see "
            f"{folder / 'index.html'}"
        )
    return found, rejected


def _captures(paths: Sequence[Path], steps: Steps, models: Sequence[PathModel]) -> dict[str, str]:
    """Build the labelled dataset of the captures; name of each model to its split.

    Flows between the same two hosts share a split. With less than three such paths nothing is held
    out but draws.
    """
    from ndm_tcp.datasets.builder.build import build
    from ndm_tcp.datasets.disk import store
    from ndm_tcp.paths.label import labeller

    out = steps.out / "captures"
    build(list(paths), out, steps.jobs, True, True, labeller=labeller())
    rounds = store.load(out, ["flow_id", "split"]).rounds
    pairs = zip(rounds["flow_id"].to_pylist(), rounds["split"].to_pylist(), strict=True)
    split = dict(pairs)
    return {model.name: split.get(model.flow_id, "train") for model in models}


def _network(steps: Steps, plan: recordings.Plan, started_s: float) -> Path:
    """Record and train, as often as asked; the sources of the module with the last network."""
    from ndm_tcp.lab.guest import uml_build

    runs = steps.out / "recordings"
    folders: list[Path] = []
    for cc in recordings.RIVALS:
        folders += recordings.record(plan.jobs(cc, None, runs), None, steps.jobs)
    kmod, explored = uml_build.KMOD, steps.out / "explore"
    for turn in range(steps.iterations):
        explorer = recordings.explorer(kmod, explored / str(turn))
        jobs = plan.jobs(recordings.OWN, explorer, runs)
        folders += recordings.record(jobs, explorer, steps.jobs)
        _say(f"{len(folders)} recordings", started_s)
        run = _train(steps, folders, turn)
        kmod = _export(run, steps.out / f"kmod-{turn}")
        _say(f"network {turn + 1} of {steps.iterations} trained and exported", started_s)
    return kmod


def _train(steps: Steps, folders: list[Path], turn: int) -> Path:
    """Fine-tune the shipped network on the recordings, the captures and the lab's rounds."""
    import torch

    from ndm_tcp.datasets.builder.build import build
    from ndm_tcp.datasets.disk import store
    from ndm_tcp.datasets.disk.describe import labels
    from ndm_tcp.training.config import SHIPPED, TrainConfig
    from ndm_tcp.training.loop import Trainer

    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    recorded, captures = steps.out / f"recorded-{turn}", steps.out / "captures"
    build(folders, recorded, steps.jobs, quiet=True)
    # Held-out rounds are the user's alone: what the lab's lose, the guard measures in the loop.
    data, shares, held_out = [recorded], [SHARE], [1.0]
    if labels(store.manifest_of(captures))[0]:
        data.append(captures)
        shares, held_out = [SHARE * (1 - CAPTURED), SHARE * CAPTURED], [1.0, 0.0]
    data += steps.lab_rounds
    shares += [(1 - SHARE) / len(steps.lab_rounds)] * len(steps.lab_rounds)
    held_out += [0.0] * len(steps.lab_rounds)
    config = TrainConfig(
        init=SHIPPED,
        lr=RATE,
        epochs=EPOCHS,
        shares=tuple(shares),
        held_out_shares=tuple(held_out),
    )
    run = steps.out / f"network-{turn}"
    if run.exists():  # of other data, or cut off; a training takes seconds
        shutil.rmtree(run)
    Trainer(data, run, config).run(name=f"network {turn + 1}")
    return run


def _export(run: Path, to: Path) -> Path:
    """A copy of the module's sources with the network of a run, checked."""
    from ndm_tcp.export.check import check
    from ndm_tcp.export.command import export
    from ndm_tcp.lab.guest import uml_build

    if to.exists():
        shutil.rmtree(to)
    built = shutil.ignore_patterns(*uml_build.BUILT_FILES)
    shutil.copytree(uml_build.KMOD, to, ignore=built)
    export(run, to / "generated", even_if_worse=False)
    check(to)
    return to


def _same(kmod: Path) -> bool:
    """Does the module have the shipped network's integers?"""
    from ndm_tcp import model_json

    mine = model_json.from_json(kmod / "generated" / model_json.NAME)
    return mine.hash() == model_json.from_json(model_json.SHIPPED).hash()


def _guard(steps: Steps, kmod: Path, started_s: float) -> verdict.Guard:
    """Both networks on suites that neither was trained for."""
    from ndm_tcp.lab.guest import uml_build
    from ndm_tcp.selection import measure

    suites = [name for name in steps.guard.split(",") if name]
    work = steps.out / "guard"
    shipped = measure("shipped", uml_build.KMOD, suites, 1, steps.jobs, work)
    adapted = measure("adapted", kmod, suites, 1, steps.jobs, work)
    found = verdict.guard(steps.guard, adapted, shipped)
    _say(f"guard: {found.scenarios} paths, score {found.score:+.4f}", started_s)
    return found


def _judge(steps: Steps, plan: recordings.Plan, kmod: Path, started_s: float) -> verdict.Of:
    """All algorithms on paths that were held out; on all, with draws of their own, if none was."""
    from ndm_tcp.paths.predict import Entrant, predict

    models = plan.held_out or plan.models
    judged = [replace(model, seconds=recordings.seconds(model)) for model in models]
    entrants = {cc: Entrant(cc) for cc in recordings.RIVALS}
    entrants |= {verdict.SHIPPED: Entrant(recordings.OWN)}
    entrants |= {verdict.ADAPTED: Entrant(recordings.OWN, kmod)}
    draws = range(JUDGED, JUDGED + max(steps.draws, 3))
    found = predict(judged, entrants, steps.out / "judged", draws, steps.jobs)
    _say(f"judged on {len(judged)} paths", started_s)
    return found


def _place(out: Path, kmod: Path, advised: bool) -> Path:
    """Leave the module's sources as RUN/kmod, or as RUN/refused."""
    for name in ("kmod", "refused"):
        if (out / name).exists():
            shutil.rmtree(out / name)
    place = out / ("kmod" if advised else "refused")
    shutil.copytree(kmod, place)
    return place
