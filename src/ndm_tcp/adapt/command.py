# SPDX-License-Identifier: GPL-2.0-only
"""`ndm adapt`: captures to a network that is better on their paths, or the advice not to use it.

estimate   captures -> path models                         RUN/paths
replay     the captured algorithm on them; rejects models   RUN/paths/index.html
measure    the constant window that scores best on a model  RUN/windows
label      captures -> rounds with target windows           RUN/captures
record     Reno, CUBIC, BBR, the network on the models      RUN/recordings, RUN/recorded-N
fine-tune  from the shipped weights, lab rounds beside      RUN/network-N, RUN/network
search     what to teach, with which offset, by the loop    RUN/offsets
export     integers, certificate, golden vectors            RUN/kmod-N, RUN/kmod-last
guard      the validation suites, against the shipped one; the mean of both if it refuses
judge      all algorithms on held-out paths                 RUN/report.html, RUN/adapt.json
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from dataclasses import replace
from pathlib import Path

import msgspec

from ndm_tcp import files
from ndm_tcp.adapt import recordings, report, steps, verdict, windows
from ndm_tcp.errors import NdmError
from ndm_tcp.intervals import FEWEST
from ndm_tcp.lab.guest import workers
from ndm_tcp.lab.guest.workers import Workers
from ndm_tcp.paths import difference
from ndm_tcp.paths.model import PathModel

EXAMPLE = """example:
  ndm adapt captures/ -o out/mine           # then open out/mine/report.html
  ndm adapt captures/ -o out/mine --simulate    # in less than half the time
  ndm adapt my.pcap -o out/mine --guard validation --draws 2 --iterations 1 --seconds 5    # faster
  ndm lab run published/c-dumbbell-loss-1.toml --cc ndm_tcp --kmod out/mine/kmod

exit code 1: the report advises against an adapted network; RUN/refused then has it, or the
shipped one if nothing was better"""
NOT_ADVISED = 1
"""exit code"""
MARK = ".ndm-adapt"
"""file of a folder in which everything is of `ndm adapt`"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `ndm adapt`."""
    parser.add_argument(
        "sources", nargs="+", type=Path, metavar="SRC", help="capture, run folder, or folder"
    )
    parser.add_argument(
        "-o",
        "--out",
        type=files.folder,
        required=True,
        metavar="RUN",
        help="folder of the results; an interrupted run goes on there",
    )
    parser.add_argument(
        "--cc",
        help="the captures' algorithm (default: as captured; unknown: cubic or bbr, whose replay "
        "is closer)",
    )
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
        "--seconds",
        type=float,
        default=recordings.LONGEST_S,
        help="longest run on a model; thirty round trips are run in any case",
    )
    parser.add_argument(
        "--most-paths", type=int, default=12, help="models to record on, the most different ones"
    )
    parser.add_argument(
        "--iterations",
        type=int,
        default=steps.ITERATIONS,
        help="times to train; from the second on, also on flows of the network just trained",
    )
    parser.add_argument(
        "--guard",
        default="validation,validation-near,lan",
        help="suites on which it must not be worse; none: empty text",
    )
    workers.add_arguments(parser)
    workers.add_simulator(
        parser,
        "in the simulator, where it has the paths, all but the replay and the comparison: less "
        "than half the time (docs/adapt.md)",
    )
    parser.add_argument("--json", action="store_true", help="print adapt.json")


def main(args: argparse.Namespace) -> int:
    """Run `ndm adapt`."""
    from ndm_tcp.datasets.store import store

    for name in ("draws", "most_paths", "iterations", "seconds"):
        if getattr(args, name) < 1:
            raise NdmError(f"--{name.replace('_', '-')} must be at least 1")
    if args.draws >= steps.JUDGED:
        raise NdmError(f"--draws must be below {steps.JUDGED}: those from there on judge; lower it")
    _require_guard(args.guard)
    for folder in args.lab_rounds or ():
        store.manifest_of(folder)
    setting = steps.Steps(
        args.out,
        tuple(args.lab_rounds) if args.lab_rounds else shipped_rounds(),
        args.draws,
        args.iterations,
        workers.workers_of(args),
    )
    _claim(setting.out)
    started_s = time.monotonic()
    models, rejected = _models(args, setting.real, started_s)
    chosen = recordings.spread(models, args.most_paths)
    steps.say(f"models accepted: {len(models)}; to record on: {len(chosen)}", started_s)
    chosen = windows.measured(chosen, setting.runs / "windows", args.draws, setting.where)
    taught = {model.name: model for model in (*models, *chosen)}
    splits = steps.captures(args.sources, setting, [*taught.values()])
    steps.say("target windows measured, captures labelled", started_s)
    plan = recordings.Plan.of(chosen, splits, args.draws)
    run, kmod = steps.network(setting, plan, started_s)
    same, guarded, refused = _same(kmod), None, None
    if args.guard and not same:
        kmod, guarded, refused = steps.guarded(setting, args.guard, run, kmod, started_s)
    of = steps.judge(setting, plan, kmod, started_s)
    paths = difference.numbers(taught.values())
    apart = difference.differences(of, verdict.ADAPTED, paths)
    advised, sentence = verdict.sentence(apart, guarded, same)
    place = _place(setting.out, kmod, advised)
    held_out = sorted(model.name for model in plan.held_out)
    found = report.Adapted(
        *(sentence, advised, place.name, guarded, held_out, rejected),
        *(of, apart, same, refused, setting.where.simulated),
        {model.name: recordings.seconds(model) for model in chosen if model.name in of},
        {name: number for name, number in paths.items() if name in of},
    )
    page = report.write(found, setting.out, [*taught.values()])
    if args.json:
        print(msgspec.json.format(msgspec.json.encode(found), indent=1).decode())
    else:
        print(report.screen(found))
        print(f"network: {place}\nreport:  {page}")
    return 0 if advised else NOT_ADVISED


def _require_guard(suites: str) -> None:
    """Refuse a guard that could not refuse a network.

    Raises:
        NdmError: no such suite, or too few scenarios for an interval.
    """
    from ndm_tcp.lab.guest import suite

    scenarios = [one for name in suites.split(",") if name for one in suite.load_suite(name)]
    if suites and len(scenarios) < FEWEST:
        raise NdmError(
            f"--guard {suites}: fewer than {FEWEST} scenarios; name more, or none: --guard ''"
        )


def shipped_rounds() -> tuple[Path, ...]:
    """The lab's rounds in this checkout.

    Raises:
        NdmError: there is no checkout.
    """
    from ndm_tcp.export.integers import generated

    found = sorted((generated.ROOT / "datasets" / "lab-rounds").glob("*/dataset.json"))
    if not found:
        raise NdmError("this installation holds no rounds of the lab; name some: --lab-rounds DIR")
    return tuple(manifest.parent for manifest in found)


def _models(
    args: argparse.Namespace, where: Workers, started_s: float
) -> tuple[list[PathModel], dict[str, str]]:
    """The accepted models that are certain enough to teach, and why the others are not there.

    Raises:
        NdmError: there is none.
    """
    from ndm_tcp.paths import report as path_report
    from ndm_tcp.paths import scenario
    from ndm_tcp.paths.estimate_command import estimate_all
    from ndm_tcp.paths.replay_command import replayed

    folder = args.out / "paths"
    made, refused = estimate_all(args.sources, folder, args.json)
    rejected = dict(refused)
    if not made:
        raise NdmError(f"{args.sources[0]}: no flow shows its path; record a longer bulk transfer")
    steps.say(f"path models: {len(made)}", started_s)
    replays = replayed(folder, args.cc, replace(where, stage="replays"), [*made.values()])
    path_report.write_page(folder, replays, [], {})
    rejected |= replays.rejected
    for name, why in replays.rejected.items():
        print(f"ndm: {name}: rejected: {why}", file=sys.stderr)
    found = []
    for one in replays.replays:
        asked = args.seconds + scenario.queued_s(one.model)
        cut = replace(one.model, seconds=min(one.model.seconds, asked))
        if recordings.teaches(cut):
            found.append(cut)
        else:
            rejected[cut.name] = "its rate is only a bound, so no target window follows"
    if not found:
        raise NdmError(
            f"{args.out}: no model of the captures is fit to learn from; see "
            f"{folder / 'index.html'}"
        )
    return found, rejected


def _same(kmod: Path) -> bool:
    """Does the module have the shipped network's integers?"""
    from ndm_tcp import model_json

    mine = model_json.from_json(kmod / "generated" / model_json.NAME)
    return mine.hash() == model_json.from_json(model_json.SHIPPED).hash()


def _claim(out: Path) -> None:
    """Mark the folder as one of `ndm adapt`, which replaces what is there.

    Raises:
        NdmError: it holds something else.
    """
    mine = any((out / name).exists() for name in (MARK, report.RESULT))
    if not mine and out.is_dir() and any(out.iterdir()):
        raise NdmError(f"{out}: not empty, and of no ndm adapt; name an empty folder with -o")
    files.write_text(out / MARK, "results of ndm adapt\n")


def _place(out: Path, kmod: Path, advised: bool) -> Path:
    """Leave the module's sources as RUN/kmod, or as RUN/refused, in place of an earlier result."""
    place = out / ("kmod" if advised else "refused")
    with files.scratch(place) as scratch:
        shutil.copytree(kmod, scratch / place.name)
        for earlier in (report.RESULT, report.PAGE):
            (out / earlier).unlink(missing_ok=True)
        for name in ("kmod", "refused"):
            shutil.rmtree(out / name, ignore_errors=True)
        (scratch / place.name).rename(place)
    return place
