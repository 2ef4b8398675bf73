# SPDX-License-Identifier: GPL-2.0-only
"""`ndm select`: choose one network of a population, by a score in the closed loop.

Every network is exported into a copy of kmod and runs the same scenarios with the same lab seeds.
The score is fixed here and explained in docs/training.md. `selection.json` of the population holds
all scores, and `ndm export` of a member shows them in its card. Lies beside the rooms, since it
needs both the exports and the lab.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import orjson

from ndm_tcp import files, model_json
from ndm_tcp.errors import NdmError
from ndm_tcp.export.report.chosen import SELECTION
from ndm_tcp.lab.guest import workers
from ndm_tcp.lab.guest.workers import Workers

if TYPE_CHECKING:
    from ndm_tcp.lab.guest.suite import Outcome
    from ndm_tcp.lab.score.metrics import RunMetrics

EXAMPLE = """example:
  ndm train --data out/data --seeds 8 -o out/many
  ndm select out/many                      # validation, three lab seeds
  ndm select out/many --suites validation,validation-wide --lab-seeds 5
  ndm export out/many/seed-3 --shipped     # the chosen one; its card shows all of them"""

WORK = "select"
FEWEST_SEEDS = 3
"""of the lab: one run of a closed loop is one draw"""
GAIN = 0
"""number of the output that predicts the step"""
LEAST_SCENARIOS = 2
LEAST = 1e-3
"""Mbit/s, and part of a share: floor in place of nothing, whose logarithm is infinite"""


def nearness(share: float, fair: float) -> float:
    """How near a share of the goodput is to the fair one: 1 at it, 0 as far off as can be."""
    return 1 - abs(share - fair) / max(fair, 1 - fair)


def points(
    goodput_mbps: float,
    rtt_mean_ms: float,
    retransmitted_share: float,
    share: float,
    jain: float,
    fair: float,
) -> float:
    """The score of one run, in natural logarithms.

    Half the logarithm of goodput^2 / RTT, less the retransmitted share, and that of Jain's index;
    beside other algorithms that of how near the share is to the fair one, instead of the first.

    Args:
        goodput_mbps: of the flows under test.
        rtt_mean_ms: of these.
        retransmitted_share: of their packets.
        share: of the goodput of all flows.
        jain: Jain's index over all flows.
        fair: the share that would be fair; 1: no other algorithm sends.
    """
    lost = retransmitted_share
    if fair < 1:
        return math.log(max(nearness(share, fair), LEAST)) - lost
    rtt = rtt_mean_ms if math.isfinite(rtt_mean_ms) and rtt_mean_ms > 0 else 1.0
    power = math.log(max(goodput_mbps, LEAST)) - math.log(rtt) / 2
    return power - lost + math.log(max(jain, LEAST))


def sources(run: Path | None, to: Path, even_if_worse: bool = False, reports: bool = True) -> Path:
    """A copy of kmod with the network of a run; without one, with the committed network.

    Args:
        run: of a training.
        to: the folder to make, or to make anew.
        even_if_worse: export a run that does not beat a constant window, too.
        reports: write the export's reports into the run.

    Raises:
        NdmError: see `export`.
    """
    from ndm_tcp.export.chain import export
    from ndm_tcp.export.integers import generated
    from ndm_tcp.lab.guest import uml_build

    if to.exists():
        shutil.rmtree(to)
    built = shutil.ignore_patterns(*uml_build.BUILT_FILES)
    shutil.copytree(generated.GENERATED.parent, to, ignore=built)
    if run is not None:
        export(run, to / "generated", even_if_worse=even_if_worse, reports=reports)
    return to


def moved(kmod: Path, units: int, to: Path) -> Path:
    """A copy of the module's sources whose network predicts larger steps.

    Args:
        kmod: the sources.
        units: of the last bias, in its last place.
        to: the folder to make, or to make anew.
    """
    from ndm_tcp.export.integers import generated
    from ndm_tcp.export.integers.network import IntegerNetwork

    if to.exists():
        shutil.rmtree(to)
    shutil.copytree(kmod, to)
    model = model_json.from_json(kmod / "generated" / model_json.NAME)
    last = model.layers[-1]
    bias = last.bias.copy()
    bias[GAIN] += units
    layers = [*model.layers[:-1], replace(last, bias=bias)]
    generated.write(IntegerNetwork(replace(model, layers=layers)), to / "generated")
    return to


@dataclass(frozen=True)
class Measured:
    """One run."""

    metrics: RunMetrics
    points: float
    fair: float
    """the share of the goodput that would be fair; 1: no other algorithm sends"""
    flows: int


def runs_of(
    name: str,
    kmod: Path,
    suites: Sequence[str],
    lab_seeds: int,
    where: Workers,
    work: Path,
    first_seed: int = 1,
    everything: bool = False,
) -> Iterator[tuple[str, Measured]]:
    """(suite and scenario, figures) of each run of a module. Resumes.

    Args:
        name: of the module; its runs have a folder of this name.
        kmod: its sources.
        suites: whose scenarios to run.
        lab_seeds: runs of each.
        where: runs happen.
        work: folder of the runs.
        first_seed: of these.
        everything: scenarios that the simulator does not have run in the lab; else none does.

    Raises:
        NdmError: a run failed.
    """
    from ndm_tcp.lab.guest import suite

    for one in suites:
        out = work / "runs" / name / Path(one).stem
        scenarios = suite.load_suite(one)
        if everything:
            out = suite.folder_of(out, where)
        else:
            scenarios, out = suite.there(scenarios, ["ndm_tcp"], where, out)
        # Runs of another module or scenario are no results of this one: `tag` has both.
        runs = suite.jobs_of(
            scenarios, ["ndm_tcp"], lab_seeds, out, True, kmod, first_seed=first_seed
        )
        stage = f"{where.stage}, {name} on {one}" if where.stage else ""
        at = replace(where, stage=stage)
        for outcome in suite.execute(runs, at, light=True, quiet=False, kmod=kmod):
            if outcome.result is None:
                raise NdmError(f"{outcome.job.folder}: {outcome.error}; run the command again")
            yield f"{one}/{outcome.job.scenario.name}", _figures(outcome)


def _figures(outcome: Outcome) -> Measured:
    from ndm_tcp.lab.paths.scenario import UNDER_TEST
    from ndm_tcp.lab.score import board

    m, scenario = board.metrics(outcome), outcome.job.scenario
    ccs = [flow.cc for flow in scenario.flows] + ([scenario.web.cc] if scenario.web else [])
    tested = ccs.count(UNDER_TEST)
    fair = tested / len(ccs) if tested else 1.0
    worth = points(m.goodput_mbps, m.rtt_mean_ms, m.retransmitted_share, m.share, m.jain, fair)
    return Measured(m, worth, fair, len(ccs))


def means(runs: Iterable[tuple[str, Measured]]) -> dict[str, float]:
    """Scenario to the mean of its points over the lab's seeds."""
    found: dict[str, list[float]] = {}
    for scenario, run in runs:
        found.setdefault(scenario, []).append(run.points)
    return {scenario: float(np.mean(values)) for scenario, values in sorted(found.items())}


def measure(
    name: str, kmod: Path, suites: Sequence[str], lab_seeds: int, where: Workers, work: Path
) -> dict[str, float]:
    """Scenario to the mean of its points, with the lab's seeds from 1 on.

    Raises:
        NdmError: a run failed.
    """
    return means(runs_of(name, kmod, suites, lab_seeds, where, work))


def _placed(apart: npt.NDArray[np.float64]) -> dict[str, float]:
    """Score and standard error, of a network's points less a mean, [scenarios], two at least."""
    error = apart.std(ddof=1) / math.sqrt(len(apart))
    return {"score": float(apart.mean()), "standard_error": float(error)}


def choose(measured: dict[str, dict[str, float]]) -> tuple[str, dict[str, dict[str, float]]]:
    """The best of a population, and where each network lies.

    Args:
        measured: name of a network to scenario to points; the same scenarios for all.

    Returns:
        the name with the highest score, the first of equal ones; and per name its score (mean
        points over scenarios, less the mean over networks) and its standard error (over scenarios).
    """
    scenarios = sorted(next(iter(measured.values())))
    table = np.array([[measured[name][s] for s in scenarios] for name in measured])
    apart = table - table.mean(axis=0)
    placed = {name: _placed(row) for name, row in zip(measured, apart, strict=True)}
    return max(placed, key=lambda name: placed[name]["score"]), placed


def noise(copies: int, suites: Sequence[str], lab_seeds: int, where: Workers, work: Path) -> float:
    """What closed loops make of nothing: the spread of one network's scores.

    Args:
        copies: of the committed network, each with one bias a unit or two away. More units would
            be another network in the end.
        suites: as for `select`; so are `lab_seeds` and `where`.
        work: folder of the runs.

    Returns:
        the standard deviation of the copies' scores.
    """
    shipped = sources(None, work / "kmod" / "shipped")
    scores = []
    for number in range(copies):
        units = (number + 1) // 2 * (-1) ** number
        print(f"noise: copy {number + 1} of {copies}", file=sys.stderr, flush=True)
        # The network itself may have run already, beside a population.
        name = f"shipped{units:+}" if units else "shipped"
        kmod = moved(shipped, units, work / "kmod" / name) if units else shipped
        points_of = measure(name, kmod, suites, lab_seeds, where, work)
        scores.append(float(np.mean([*points_of.values()])))
    return float(np.std(scores, ddof=1))


def _require_suites(suites: Sequence[str]) -> None:
    """Refuse what the lab cannot run, and a single scenario."""
    from ndm_tcp.lab.guest import run as lab_run
    from ndm_tcp.lab.guest import suite

    found = [suite.load_suite(one) for one in suites]
    for scenarios in found:
        lab_run.require_known(scenarios, ["ndm_tcp"], None)
    if sum(map(len, found)) < LEAST_SCENARIOS:
        raise NdmError(
            f"--suites {','.join(suites)}: one scenario, and so no standard error; name more"
        )


def select(
    folder: Path,
    suites: Sequence[str],
    lab_seeds: int,
    where: Workers,
    beside_shipped: bool,
    copies: int = 0,
) -> dict[str, Any]:
    """Run all networks of a population, and choose one.

    Args:
        folder: of the population.
        suites: names, folders or files of scenarios.
        lab_seeds: runs of each scenario.
        where: guests run.
        beside_shipped: run the committed network too; it is scored, not chosen.
        copies: of the committed network, for the noise; 0: the noise is not measured.

    Returns:
        the content of `selection.json`.

    Raises:
        NdmError: no population, no fit network in it, or a run of the lab failed.
    """
    from ndm_tcp.training import population

    runs = population.members(folder)
    _require_suites(suites)
    work, refused = folder / WORK, {}
    measured: dict[str, dict[str, float]] = {}
    for number, (seed, run) in enumerate(runs.items(), 1):
        print(f"seed {seed}: network {number} of {len(runs)}", file=sys.stderr, flush=True)
        try:
            kmod = sources(run, work / "kmod" / run.name)
        except NdmError as reason:
            refused[run.name] = str(reason)
            continue
        measured[run.name] = measure(run.name, kmod, suites, lab_seeds, where, work)
    if not measured:
        raise NdmError(
            f"{folder}: no network of it can be exported: {next(iter(refused.values()))}"
        )
    chosen, placed = choose(measured)
    if beside_shipped:
        print("the committed network", file=sys.stderr, flush=True)
        kmod = sources(None, work / "kmod" / "shipped")
        theirs = measure("shipped", kmod, suites, lab_seeds, where, work)
        mean = {s: float(np.mean([m[s] for m in measured.values()])) for s in theirs}
        placed["shipped"] = _placed(np.array([theirs[s] - mean[s] for s in theirs]))
        measured["shipped"] = theirs
    result: dict[str, Any] = {
        "suites": list(suites),
        "lab_seeds": lab_seeds,
        "chosen": chosen,
        "networks": placed,
        "numbers": {
            name: model_json.number(work / "kmod" / name / "generated" / model_json.NAME)
            for name in placed
        },
        "refused": refused,
        "points": measured,
    }
    if copies:
        spread = noise(copies, suites, lab_seeds, where, work)
        result["noise"] = {"copies": copies, "standard_deviation": spread}
    for name, row in placed.items():
        if name != "shipped":
            metrics = orjson.loads((folder / name / "metrics.json").read_bytes())
            row["val_loss"] = metrics["val_loss"]
    text = orjson.dumps(result, option=orjson.OPT_INDENT_2).decode()
    files.write_text(folder / SELECTION, text + "\n")
    # Again, so that its card shows the population; headers come out the same.
    sources(folder / chosen, work / "kmod" / chosen)
    return result


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `ndm select`."""
    parser.add_argument("folder", metavar="RUN", type=Path, help="of ndm train --seeds")
    parser.add_argument(
        "--suites",
        default="validation",
        metavar="SUITES",
        help="scenario files, folders or names below lab/scenarios, separated by commas",
    )
    parser.add_argument("--lab-seeds", type=int, default=FEWEST_SEEDS, help="runs of each scenario")
    workers.add_arguments(parser)
    parser.add_argument(
        "--beside-shipped",
        action="store_true",
        help="run the committed network too; it is scored, not chosen",
    )
    parser.add_argument(
        "--noise",
        type=int,
        default=0,
        metavar="COPIES",
        help="run so many copies of the committed network, one bias some units off, too: their "
        "scores differ by noise; 0: none",
    )
    parser.add_argument("--json", action="store_true", help="print selection.json")


def screen(result: dict[str, Any]) -> str:
    """A table for a person, best first."""
    lines = [f"{'network':10}{'score':>9}{'s.e.':>9}{'held-out loss':>15}"]
    networks = result["networks"]
    for name in sorted(networks, key=lambda n: -networks[n]["score"]):
        row = networks[name]
        loss = f"{row['val_loss']:15.5f}" if "val_loss" in row else " " * 15
        mark = "  chosen" if name == result["chosen"] else ""
        lines.append(f"{name:10}{row['score']:+9.4f}{row['standard_error']:9.4f}{loss}{mark}")
    lines += [f"{name:10}refused: {why}" for name, why in result["refused"].items()]
    if "noise" in result:
        spread, copies = result["noise"]["standard_deviation"], result["noise"]["copies"]
        lines.append(f"noise: {copies} copies of one network spread by {spread:.4f} (s.d.)")
    return "\n".join(lines)


def main(args: argparse.Namespace) -> int:
    """Run `ndm select`."""
    if args.lab_seeds < FEWEST_SEEDS:
        raise NdmError(f"--lab-seeds must be at least {FEWEST_SEEDS}: one run is one draw")
    where = workers.workers_of(args)
    suites = [name for name in args.suites.split(",") if name]
    if not suites:
        raise NdmError("--suites: none named; try --suites validation")
    if args.noise < 0 or args.noise == 1:
        raise NdmError("--noise: name at least two copies, or 0 for none")
    result = select(args.folder, suites, args.lab_seeds, where, args.beside_shipped, args.noise)
    print(json.dumps(result, indent=2) if args.json else screen(result))
    return 0
