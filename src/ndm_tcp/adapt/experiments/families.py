# SPDX-License-Identifier: GPL-2.0-only
"""Is adapting worth it? Families of paths as a site might have them, measured on the true paths.

CUBIC and BBR are captured on some paths of a family. The network is adapted from these captures
alone, with several training seeds, and runs on other paths of the family, which only the lab knows.
To save time, each model is drawn once, and all models train; `ndm adapt` draws three times.

    python -m ndm_tcp.adapt.experiments.families satellite -o out/families --seeds 5

Of real captures nobody knows the true paths. They are measured on draws of their models:

    python -m ndm_tcp.adapt.experiments.families --captures DIR... -o out/families
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from ndm_tcp import files
from ndm_tcp.adapt import recordings, steps, windows
from ndm_tcp.adapt.command import shipped_rounds
from ndm_tcp.errors import NdmError
from ndm_tcp.intervals import student
from ndm_tcp.lab.guest import suite, uml_build, workers
from ndm_tcp.lab.guest.workers import Workers
from ndm_tcp.lab.paths.scenario import Scenario, parse
from ndm_tcp.paths import difference, scenario
from ndm_tcp.paths.model import PathModel, Seen
from ndm_tcp.paths.predict import Entrant, predict
from ndm_tcp.paths.replay import SEEDS, Replay, replay, seen

CAPTURED = ("cubic", "bbr")
CAPTURES, JUDGED = 5, 8
"""paths of a family to capture, and others to judge on"""
LAB_SEEDS = 2
FULL_PACKET = 1500
SEED = 20261126


@dataclass(frozen=True)
class Ranges:
    """Of one family; each path draws from them, log-uniformly where both ends are above 0."""

    mbps: tuple[float, float]
    rtt_ms: tuple[float, float]
    queue_bdp: tuple[float, float]
    loss: tuple[float, float] = (0.0, 0.0)
    jitter: tuple[float, float] = (0.0, 0.0)
    """of the RTT"""
    burst: bool = False
    steps: bool = False
    """does the rate change every two seconds by up to a factor of two?"""
    policed: bool = False
    """a token bucket of that many BDPs, in place of the queue"""
    offloads: bool = False
    seconds: int = 15


FAMILIES = {
    "satellite": Ranges((4, 12), (550, 650), (0.5, 1.3), (0.004, 0.015), seconds=20),
    "dsl": Ranges((2, 8), (15, 45), (5, 12), jitter=(0.05, 0.12)),
    "wifi": Ranges((20, 60), (8, 30), (1, 3), jitter=(0.05, 0.2), burst=True),
    "short-queue": Ranges((40, 100), (8, 25), (0.06, 0.2)),
    "policer": Ranges((4, 40), (15, 80), (0.5, 3), policed=True),
    "data-centre": Ranges((400, 900), (0.15, 0.5), (2, 6), offloads=True, seconds=5),
    "jitter": Ranges((20, 200), (10, 80), (0.8, 3), (0.002, 0.02), (0.05, 0.3), seconds=10),
    "cellular": Ranges((3, 12), (60, 150), (1, 3), (0.005, 0.02), (0.1, 0.2), steps=True),
}


def _log(rng: random.Random, low: float, high: float) -> float:
    return low * (high / low) ** rng.random() if low > 0 else 0.0


def path(family: str, number: int) -> Scenario:
    """A path of a family; the same number gives the same path."""
    r, rng = FAMILIES[family], random.Random(f"{SEED} {family} {number}")
    bps, rtt_us = 1e6 * _log(rng, *r.mbps), 1e3 * _log(rng, *r.rtt_ms)
    queue = max(2, round(_log(rng, *r.queue_bdp) * bps * rtt_us / 8e6 / FULL_PACKET))
    lines = [f"seconds = {r.seconds}", 'topology = "path"', "[link]", f"rate_bps = {bps:.0f}"]
    lines += [f"rtt_us = {rtt_us:.0f}"]
    if r.policed:
        lines += ["queue_packets = 1", f"bucket_packets = {queue}"]
    else:
        lines.append(f"queue_packets = {queue}")
    if r.burst:
        lines.append(f"burst = {{ start = {_log(rng, 3e-4, 2e-3):.5f}, end = 0.3, loss = 0.7 }}")
    if loss := _log(rng, *r.loss):
        lines.append(f"loss = {loss:.5f}")
    if share := _log(rng, *r.jitter):
        lines.append(f"jitter_us = {share * rtt_us:.0f}")
    if r.steps:
        at = [[t, round(bps * 2 ** rng.uniform(-1, 1))] for t in range(2, r.seconds, 2)]
        lines.append(f"steps = {at}".replace("(", "[").replace(")", "]"))
    if r.offloads:
        lines.append("offloads = true")
    if r.rtt_ms[1] > 500:  # Linux's default buffers do not fill such a path
        lines += ["[host]", "buffer_bytes = 16777216"]
    return parse("\n".join(lines) + "\n", f"{family}-{number}", f"family {family}")


def captured(family: str, out: Path, where: Workers) -> tuple[list[Path], dict[str, str]]:
    """Record the captures of a family; copies of the packets alone, and each one's algorithm."""
    paths = [path(family, number) for number in range(CAPTURES)]
    work = [
        suite.Job(one, cc, 1, out / "true" / f"{one.name}--{cc}--1")
        for one in paths
        for cc in CAPTURED
    ]
    copies, ccs = [], {}
    (out / "captures-only").mkdir(parents=True, exist_ok=True)
    for outcome in suite.execute(work, where, False, quiet=False):
        if outcome.result is None:
            raise NdmError(f"{outcome.job.folder}: {outcome.error}")
        name = f"{outcome.job.scenario.name}-{outcome.job.cc}"
        copy = out / "captures-only" / f"{name}.pcap.zst"
        shutil.copy(outcome.job.folder / "sender.pcap.zst", copy)
        copies.append(copy)
        ccs[copy.name] = outcome.job.cc
    return sorted(copies), ccs


def replayed(
    copies: Sequence[Path], ccs: dict[str, str], out: Path, where: Workers
) -> tuple[dict[str, Replay | NdmError], dict[str, str]]:
    """Replays of the captures' models by name, and why other captures have no model.

    Args:
        copies: the captures.
        ccs: file name to algorithm; without it the closest replay decides.
        out: folder.
        where: guests run.
    """
    from ndm_tcp.paths.estimate_command import estimate_all

    made, refused = estimate_all(copies, out / "paths", True)
    models = [replace(m, cc=ccs.get(m.source, m.cc)) for m in made.values()]
    return replay(models, out / "paths" / "runs" / "replay", None, where), refused


def accepted(
    copies: Sequence[Path], ccs: dict[str, str], out: Path, where: Workers
) -> tuple[list[PathModel], list[str]]:
    """Models whose replay is close and that teach, and why the others are not there."""
    found, refused = replayed(copies, ccs, out, where)
    reasons = list(refused.values())
    good = []
    for name, one in found.items():
        if isinstance(one, Replay) and one.accepted and recordings.teaches(one.model):
            good.append(one.model)
        elif isinstance(one, Replay):
            why = f"replay misses by {one.goodput_miss:+.2f}"
            reasons.append(f"{name}: {'its rate is only a bound' if one.accepted else why}")
        else:
            reasons.append(str(one))
    return good, reasons


def networks(
    models: list[PathModel],
    copies: list[Path],
    setting: steps.Steps,
    seeds: int,
    started_s: float,
) -> list[tuple[Path, Path]]:
    """Adapt with several seeds from one set of recordings; their runs and modules' sources.

    None, if the loop finds nothing to teach.
    """
    models = windows.measured(models, setting.runs / "windows", setting.draws, setting.where)
    splits = steps.captures(copies, setting, models)
    plan = recordings.Plan.of(recordings.spread(models, CAPTURES), splits, setting.draws)
    # Networks of other seeds are alike, and every search takes minutes.
    recorded, _, first = steps.recorded(setting, plan, started_s)
    random_ = any(scenario.scenario(m, m.name).draws() for m in plan.models)
    several = replace(setting, draws=SEEDS if random_ else 1)
    targets, offset = steps.search(several, plan.models, first)
    files.write_text(setting.out / "search", f"targets {targets}, offset {offset:+.2f}\n")
    if not targets and not offset:
        return []
    found = []
    for seed in range(1, seeds + 1):
        turn = setting.iterations - 1 + seed
        run = steps.train(setting, recorded, turn, seed, targets, offset)
        found.append((run, steps.module(run, setting.out / f"kmod-{seed}")))
    return found


def as_shipped(
    adapted: list[tuple[Path, Path]], guards: str, setting: steps.Steps, started_s: float
) -> tuple[list[Path], list[dict[str, object]]]:
    """What `ndm adapt` would ship of each network, itself or its mean; what the guard found."""
    if not guards:
        return [kmod for _, kmod in adapted], []
    kmods: list[Path] = []
    found: list[dict[str, object]] = []
    for run, kmod in adapted:
        kmod, last, refused = steps.guarded(setting, guards, run, kmod, started_s)
        of_mean = asdict(last) if refused else None
        kmods.append(kmod)
        found.append({"network": asdict(refused or last), "mean": of_mean})
    return kmods, found


def on_true_paths(
    family: str,
    kmods: dict[str, Path | None],
    ccs: dict[str, str],
    out: Path,
    where: Workers,
    first: int = CAPTURES,
) -> dict[str, dict[str, list[Seen]]]:
    """Algorithm to path to its runs, on paths of the family, from `first` on, not captured."""
    paths = [path(family, first + number) for number in range(JUDGED)]
    found: dict[str, dict[str, list[Seen]]] = {}
    for name, kmod in kmods.items():
        tags = {one.name: suite.tag(one, ccs[name], kmod) for one in paths}
        folder = out / "judged"
        work = [
            suite.Job(one, ccs[name], seed, folder / f"{one.name}--{name}-{tags[one.name]}--{seed}")
            for one in paths
            for seed in range(1, LAB_SEEDS + 1)
        ]
        for outcome in suite.execute(work, where, True, quiet=False, kmod=kmod):
            if outcome.result is None:
                raise NdmError(f"{outcome.job.folder}: {outcome.error}")
            of = found.setdefault(name, {}).setdefault(outcome.job.scenario.name, [])
            of.append(seen(outcome.result))
    return found


def on_models(
    models: list[PathModel],
    kmods: dict[str, Path | None],
    ccs: dict[str, str],
    out: Path,
    where: Workers,
) -> dict[str, dict[str, list[Seen]]]:
    """The same on draws of the models that no recording had."""
    entrants = {name: Entrant(ccs[name], kmod) for name, kmod in kmods.items()}
    draws = range(steps.JUDGED, steps.JUDGED + SEEDS)
    found = predict(models, entrants, out / "judged", draws, where, seconds=recordings.seconds)
    return {name: {m: [*found[m][name].draws] for m in found} for name in kmods}


def _means(of: dict[str, list[Seen]], measure: Callable[[Seen], float]) -> dict[str, float]:
    return {name: float(np.mean([measure(one) for one in runs])) for name, runs in of.items()}


def compared(found: dict[str, dict[str, list[Seen]]], seeds: int) -> dict[str, object]:
    """Adapted less the others, of each measure twice: over paths, each the mean of all training
    seeds, and over training seeds, each the mean of all paths. Both with a 95 % interval."""
    measures: dict[str, Callable[[Seen], float]] = {
        "score": difference.score,
        "log_goodput": lambda s: float(np.log(max(s.goodput_mbps, 1e-3))),
        "log_rtt": lambda s: float(np.log(max(s.rtt_mean_ms, 1e-3))),
        "retransmitted": lambda s: s.retransmission_rate,
    }
    result: dict[str, object] = {}
    for other in ("shipped", *CAPTURED):
        row: dict[str, dict[str, list[float]]] = {}
        for name, measure in measures.items():
            theirs = _means(found[other], measure)
            mine = [_means(found[f"adapted-{n}"], measure) for n in range(1, seeds + 1)]
            apart = np.array([[one[path] - theirs[path] for path in theirs] for one in mine])
            row[name] = {
                "over paths": [*student(apart.mean(axis=0).tolist())],
                "over training seeds": [*student(apart.mean(axis=1).tolist())],
            }
        result[f"adapted less {other}"] = row
    return result


def run(
    family: str,
    out: Path,
    seeds: int,
    where: Workers,
    guards: str,
    captures: list[Path] | None = None,
    first: int = CAPTURES,
) -> dict[str, object]:
    """One family, or captures by this name, up to the comparison and the guard; resumes."""
    started_s = time.monotonic()
    out = out / family
    setting = steps.Steps(out, shipped_rounds(), 1, steps.ITERATIONS, where)
    copies, ccs = (captures, {}) if captures else captured(family, out, setting.real)
    models, reasons = accepted(copies, ccs, out, setting.real)
    steps.say(f"{family}: {len(models)} of {len(copies)} captures accepted", started_s)
    adapted = networks(models, copies, setting, seeds, started_s)
    steps.say(f"{family}: {len(adapted)} networks adapted", started_s)
    ships, guard_of = as_shipped(adapted, guards, setting, started_s)
    kmods: dict[str, Path | None] = {**dict.fromkeys(CAPTURED), "shipped": uml_build.KMOD}
    kmods |= {f"adapted-{n}": kmod for n, kmod in enumerate(ships or [uml_build.KMOD] * seeds, 1)}
    algorithm = {name: name if name in CAPTURED else recordings.OWN for name in kmods}
    if captures:
        found = on_models(models, kmods, algorithm, out, setting.real)
    else:
        found = on_true_paths(family, kmods, algorithm, out, setting.real, first)
    mean = {
        name: {
            "goodput_mbps": float(np.mean([*_means(of, lambda s: s.goodput_mbps).values()])),
            "rtt_mean_ms": float(np.mean([*_means(of, lambda s: s.rtt_mean_ms).values()])),
            "retransmitted": float(
                np.mean([*_means(of, lambda s: s.retransmission_rate).values()])
            ),
        }
        for name, of in found.items()
    }
    result = {
        "family": family,
        "simulated": where.simulated,
        "guards": guard_of,
        "accepted": len(models),
        "captures": len(copies),
        "rejected": reasons,
        "mean": mean,
        **compared(found, seeds),
    }
    files.write_text(out / "result.json", json.dumps(result, indent=1) + "\n")
    steps.say(f"{family}: measured on {len(found['shipped'])} paths", started_s)
    return result


def main() -> None:
    """Run families one after the other."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0] if __doc__ else "")
    parser.add_argument("families", nargs="*", metavar="FAMILY", help=", ".join(FAMILIES))
    parser.add_argument("--captures", nargs="+", type=Path, help="adapt to these, too")
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=5, help="trainings of each family")
    parser.add_argument(
        "--first-judged",
        type=int,
        default=CAPTURES,
        help="number of the first path to judge on; those from 5 on steered decisions",
    )
    parser.add_argument("--guard", default="", help="suites to run each network on, too")
    workers.add_arguments(parser)
    workers.add_simulator(parser)
    args = parser.parse_args()
    where = workers.workers_of(args)
    if args.first_judged < CAPTURES:
        parser.error(f"--first-judged {args.first_judged}: captured; name {CAPTURES} or more")
    if unknown := {*args.families} - {*FAMILIES}:
        parser.error(f"no such family: {', '.join(unknown)}; there are {', '.join(FAMILIES)}")
    uml_build.build()
    for family in args.families:
        found = run(family, args.out, args.seeds, where, args.guard, first=args.first_judged)
        print(json.dumps(found, indent=1))
    if args.captures:
        found = run("captures", args.out, args.seeds, where, args.guard, args.captures)
        print(json.dumps(found, indent=1))


if __name__ == "__main__":
    try:
        main()
    except NdmError as error:
        sys.exit(f"families: {error}")
