# SPDX-License-Identifier: GPL-2.0-only
"""Many runs side by side: one guest per core or on a cluster; resumable, no failure hidden."""

from __future__ import annotations

import argparse
import contextlib
import functools
import hashlib
import os
import queue
import re
import sys
import time
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ndm_tcp import cluster, files, interrupts, progress
from ndm_tcp.errors import NdmError
from ndm_tcp.lab.guest import away, externals, uml_build, workers
from ndm_tcp.lab.guest import run as lab_run
from ndm_tcp.lab.guest.externals import Externals
from ndm_tcp.lab.guest.jobs import ATTEMPTS, attempt, finished, was_other
from ndm_tcp.lab.guest.jobs import RESULT as RESULT
from ndm_tcp.lab.guest.jobs import Job as Job
from ndm_tcp.lab.guest.jobs import Outcome as Outcome
from ndm_tcp.lab.guest.run import split_cc as split_cc
from ndm_tcp.lab.guest.workers import Workers
from ndm_tcp.lab.paths.scenario import Scenario, load
from ndm_tcp.lab.sim import build as sim_build
from ndm_tcp.lab.sim import simulate

SUITES = Path(__file__).resolve().parents[1] / "scenarios"
DEVELOPMENT = re.compile(r"access|ccbench|fairness|lan|published|validation(-\w+)?")
"""Suites that may steer decisions, so that none of their results is a held-out one."""

CEILING = "ceiling"
CEILING_WINDOWS = (8, 16, 24, 32, 48, 64, 96, 128, 192)
"""Packets; swept as constant windows on the loopback scenarios, whose best nobody can pass."""


def load_suite(suite: str | Path) -> list[Scenario]:
    """The scenarios of a file, a folder, or a folder's name below lab/scenarios; or of several,
    separated by commas. What lies here goes before what ships.

    Raises:
        NdmError: nothing there, or two scenarios of one name.
    """
    path = Path(suite)
    # `training` is a suite, and a folder of the checkout without scenarios.
    if not path.is_file() and not any(path.rglob("*.toml")):
        shipped = (folder / path for folder in (SUITES, SUITES.parents[1]))
        path = next((there for there in shipped if there.exists()), path)
    if path.is_file():
        return [load(path)]
    parts = [part for part in str(suite).split(",") if part]
    if len(parts) > 1 and not path.exists():
        return _unique([s for part in parts for s in load_suite(part)], suite)
    if not path.is_dir():
        known = ", ".join(sorted(p.name for p in SUITES.glob("*") if p.is_dir()))
        raise NdmError(
            f"{suite}: no scenario file, no folder, and not one of {known}; name one of these"
        )
    scenarios = [load(p) for p in sorted(path.rglob("*.toml"))]
    if not scenarios:
        raise NdmError(
            f"{path}: no scenario (*.toml) in it; "
            "name a folder of scenarios, or a suite such as validation"
        )
    return _unique(scenarios, path)


def is_development(suite: str | Path) -> bool:
    """Is one of these a development suite, or of one? As `load_suite` takes them."""
    folders = [folder for part in str(suite).split(",") for folder in Path(part).parts]
    return any(DEVELOPMENT.fullmatch(folder) for folder in folders)


def _unique(scenarios: list[Scenario], where: str | Path) -> list[Scenario]:
    names = [s.name for s in scenarios]
    if len(set(names)) < len(names):
        twice = next(n for n in names if names.count(n) > 1)
        raise NdmError(f"{where}: two scenarios are called {twice}; rename one")
    return scenarios


def algorithms(text: str) -> list[str]:
    """Names separated by commas; `all` stands for every algorithm of the kernel.

    `ceiling` sweeps constant windows where there is a ceiling to find (`CEILING_WINDOWS`).
    """
    names: list[str] = []
    for name in text.split(","):
        names += lab_run.IN_TREE if name.strip() == "all" else [name.strip()]
    names = list(dict.fromkeys(n for n in names if n))
    for name in names:
        split_cc(name)
    if not names:
        raise NdmError("--cc: no algorithm named; try --cc reno,cubic,bbr,ndm_tcp")
    return names


def add_arguments(parser: argparse.ArgumentParser, cc: str | None, seeds: int) -> None:
    """The options that `record` and `board` share.

    Args:
        parser: of the verb.
        cc: algorithms by default; None: they must be named.
        seeds: by default.
    """
    parser.add_argument(
        "suite",
        metavar="SUITE",
        help="scenario file, folder, or a name below lab/scenarios; several, separated by commas",
    )
    parser.add_argument(
        "--cc",
        default=cc,
        required=cc is None,
        help="algorithms, comma separated; all: the kernel's",
    )
    parser.add_argument(
        "--seeds",
        type=int,
        default=seeds,
        help="runs of each, times the scenario's repeat; two, if those end alike",
    )
    parser.add_argument(
        "-o", "--out", type=files.folder, required=True, help="folder; interrupted runs go on there"
    )
    workers.add_arguments(parser)
    lab_run.add_kmod(parser)
    externals.add_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print the results as JSON")


def run_all(
    args: argparse.Namespace, out: Path, light: bool, tagged: bool = False
) -> tuple[list[Scenario], list[str], list[Outcome]]:
    """Run the scenarios and algorithms of the options, into `out`.

    Args:
        args: suite, cc, seeds, jobs, engine, kmod, kernel_patch, cc_module.
        out: folder of the runs; finished ones in it are read, not run again.
        light: without captures and traces.
        tagged: whether a run's folder is named by what it ran, too: `jobs_of`.

    Returns:
        scenarios, algorithms, and how every run ended.

    Raises:
        NdmError: no such suite or algorithm, or a number below 1.
    """
    scenarios, ccs = load_suite(args.suite), algorithms(args.cc)
    if args.seeds < 1:
        raise NdmError("--seeds must be at least 1")
    others, where = externals.given(args), workers.workers_of(args)
    if where.simulated and args.kmod and args.kmod.is_file():
        raise NdmError(f"--kmod {args.kmod}: the simulator compiles sources; name their folder")
    scenarios, out = there(scenarios, ccs, where, out, others)
    names = {split_cc(job.cc)[0] for job in jobs_of(scenarios, ccs, 1, out)}
    lab_run.require_known(scenarios, names, args.kmod, others)
    if others:  # a kernel takes minutes, which should not pass in silence
        uml_build.build(patches=others.patches)
        others.build_modules()
    jobs = jobs_of(scenarios, ccs, args.seeds, out, tagged, args.kmod, others)
    if not jobs:
        raise NdmError("--cc ceiling: only for loopback scenarios; name algorithms, too")
    how = (where, light, False, args.kmod)
    first = [job for job in jobs if job.seed <= 2]
    outcomes = list(execute(first, *how))
    known = settled(outcomes)
    more = [j for j in jobs if j.seed > 2 and (j.scenario.name, j.cc) not in known]
    outcomes += execute(more, *how)
    return scenarios, ccs, outcomes


def prepare(where: Workers) -> None:
    """Build what runs there need, with progress."""
    if where.simulated:
        sim_build.build()
    else:
        uml_build.build()


def there(
    scenarios: list[Scenario],
    ccs: list[str],
    where: Workers,
    out: Path,
    others: Externals = externals.NONE,
) -> tuple[list[Scenario], Path]:
    """The scenarios that can run there, and the folder of these runs: no result of the simulator
    is taken for one of the lab."""
    if where.simulated:
        scenarios = simulate.known(scenarios, ccs, others)
    return scenarios, folder_of(out, where)


def folder_of(out: Path, where: Workers) -> Path:
    """Where in `out` the runs of these workers are."""
    return sim_build.folder(out) if where.simulated else out


def settled(outcomes: list[Outcome]) -> set[tuple[str, str]]:
    """(scenario, algorithm) where another seed is not run: a lone flow's path draws nothing at
    random, and the seeds so far ended alike to the last digit."""
    results: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for o in outcomes:
        if o.result and not o.job.scenario.draws():
            same = {k: v for k, v in o.result.items() if k not in ("seed", "wall_s")}
            results.setdefault((o.job.scenario.name, o.job.cc), []).append(same)
    return {pair for pair, found in results.items() if len(found) > 1 and found[0] == found[1]}


def jobs_of(
    scenarios: list[Scenario],
    ccs: list[str],
    seeds: int,
    out: Path,
    tagged: bool = False,
    kmod: Path | None = None,
    others: Externals = externals.NONE,
    first_seed: int = 1,
) -> list[Job]:
    """Every combination, each with its folder.

    Args:
        scenarios: to run.
        ccs: algorithms.
        seeds: of each, times the scenario's repeat.
        out: the folder of the folders.
        tagged: whether the `tag` is in the folder's name, so that no kept run of another scenario
            or network is taken for this one.
        kmod: a module in the place of the checkout's.
        others: patches of the kernel, and modules to load.
        first_seed: the lowest one.
    """
    jobs = []
    for s in scenarios:
        sweep = [f"fixed_cwnd:{n}" for n in CEILING_WINDOWS] if s.topology == "lo" else []
        wanted = (n for cc in ccs for n in (sweep if cc == CEILING else [cc]))
        names = list(dict.fromkeys(wanted))
        for cc in names:
            name = f"{s.name}--{cc.replace(':', '-')}"
            name += f"-{tag(s, split_cc(cc)[0], kmod, others)}" if tagged else ""
            numbers = range(first_seed, first_seed + seeds * s.repeat)
            folders = {seed: out / f"{name}--{seed}" for seed in numbers}
            depends = "" if tagged else tag(s, split_cc(cc)[0], kmod, others)
            jobs += [
                Job(s, cc, seed, at, others=others, tag=depends) for seed, at in folders.items()
            ]
    return jobs


def tag(
    scenario: Scenario, cc: str, kmod: Path | None = None, others: Externals = externals.NONE
) -> str:
    """8 hex digits of what a run depends on beside its seed: the scenario, and our modules' code.

    For folders that are kept while scenarios and networks change.

    Args:
        scenario: of the run.
        cc: under test.
        kmod: a module in the place of the checkout's.
        others: patches of the kernel, and modules that it loads.
    """
    total = hashlib.sha256(scenario.content())
    needed = set(scenario.algorithms(cc))
    for ours in filter(None, (kmod, uml_build.KMOD, uml_build.FIXED_CWND)):
        brought = needed & set(lab_run.module_names(ours))
        if brought:
            code = files.sha256(ours) if ours.is_file() else uml_build.sources_digest(ours)
            total.update(code.encode())
        needed -= brought
    for name, content in others.digests():
        total.update(f"{name} {content}\n".encode())
    return total.hexdigest()[:8]


def _one(
    job: Job,
    cpus: queue.Queue[int],
    light: bool,
    kmod: Path | None,
    program: simulate.Program | None,
) -> Outcome:
    if done := finished(job, light):
        return done
    if was_other(job):
        print(f"{job.folder}: of another scenario, module or guest; run again", file=sys.stderr)
    if program and simulate.has(job.scenario, job.cc):
        return simulate.attempt(job, kmod, program, light)
    cpu = cpus.get()
    try:
        return attempt(job, cpu, light, kmod)
    finally:
        cpus.put(cpu)


def _left(started_s: float, simulated_s: float, total_s: float) -> str:
    if not simulated_s:
        return "?"
    seconds = (time.monotonic() - started_s) / simulated_s * (total_s - simulated_s)
    return f"{seconds / 60:.0f} min left" if seconds > 90 else f"{seconds:.0f} s left"


def _threads(
    jobs: list[Job], where: Workers, light: bool, kmod: Path | None
) -> Generator[Outcome, None, None]:
    """The outcomes of jobs that run on this machine, in any order."""
    available = sorted(os.sched_getaffinity(0))
    cpus: queue.Queue[int] = queue.Queue()
    for number in range(where.at_once):
        cpus.put(available[number % len(available)])
    # Sources are read once for all runs, not for each.
    program = functools.cache(sim_build.build) if where.simulated else None
    with ThreadPoolExecutor(max_workers=where.at_once) as pool:
        with interrupts.deferred():  # a thread that begins has locks, too
            waiting: set[Future[Outcome]] = {
                pool.submit(_one, job, cpus, light, job.kmod or kmod, program) for job in jobs
            }
        try:
            while waiting:
                finished, waiting = interrupts.first_done(waiting)
                for future in finished:
                    yield future.result()
        finally:
            for future in waiting:
                future.cancel()


def _say_stage(jobs: list[Job], where: Workers, light: bool) -> None:
    """A line before the progress: what runs, where, how much of it, and what is there."""
    left = [job for job in jobs if not finished(job, light)]
    there = sum(where.simulated and simulate.has(job.scenario, job.cc) for job in left)
    counts = {
        "in the simulator": there,
        "in the lab": len(left) - there,
        "done before": len(jobs) - len(left),
    }
    runs = ", ".join(f"{number} {place}" for place, number in counts.items() if number)
    print(f"{where.stage}, runs: {runs}", file=sys.stderr, flush=True)


def execute(
    jobs: list[Job],
    where: Workers,
    light: bool,
    quiet: bool,
    kmod: Path | None = None,
) -> Iterator[Outcome]:
    """Run jobs, in any order of completion; finished ones are read, not run again.

    Args:
        jobs: the runs.
        where: runs happen.
        light: without captures and traces.
        quiet: no progress.
        kmod: sources, or a .ko, of another ndm_tcp than the checkout's, or of a new algorithm.
    """
    total_s = sum(job.scenario.end_s() for job in jobs)
    done_s, started_s = 0.0, time.monotonic()
    if where.stage and not quiet:
        _say_stage(jobs, where, light)
    if where.engine == cluster.RAY:
        ends = away.execute(jobs, light, kmod)
    else:
        ends = _threads(jobs, where, light, kmod)
    with progress.bar(len(jobs), "run", quiet) as bar, contextlib.closing(ends):
        for outcome in ends:
            done_s += outcome.job.scenario.end_s()
            bar.set_postfix_str(_left(started_s, done_s, total_s), refresh=False)
            bar.update()
            if outcome.result is None:
                name = outcome.job.folder.name
                times = "" if where.simulated else f" {ATTEMPTS} times"
                print(f"ndm: failed{times}: {name}: {outcome.error}", file=sys.stderr)
            yield outcome
