# SPDX-License-Identifier: GPL-2.0-only
"""Populations of networks beside one another in the closed loop: by data, size or teachers.

    ndm train --data DIR... --seeds 5 -o out/many
    ndm train --data DIR... --seeds 5 --hidden 16,8 --teachers out/many -o out/small
    python -m ndm_tcp.worth.populations out/many out/small --suites validation -o out/compared

Prints a table for each suite: each population less the first, as docs/worth.md does. Resumes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ndm_tcp import files
from ndm_tcp.errors import NdmError
from ndm_tcp.intervals import FEWEST
from ndm_tcp.lab.guest import suite, workers
from ndm_tcp.lab.guest.workers import Workers
from ndm_tcp.selection import sources
from ndm_tcp.training import population
from ndm_tcp.worth import experiment
from ndm_tcp.worth.experiment import MEASURES, Of, cell, difference, values

COMMITTED = "committed"


def table(found: Of, groups: dict[str, list[str]], one: str) -> str:
    """Markdown: each population less the first, on a suite."""
    (first, reference), *others = groups.items()
    paths = sorted(path for path in found[reference[0]] if path.startswith(f"{one}/"))
    lines = [
        f"`{one}`, {len(paths)} paths, less {first} ({len(reference)})",
        "",
        "| networks | " + " | ".join(MEASURES) + " |",
        "|" + " --- |" * (1 + len(MEASURES)),
    ]
    for name, members in others:
        cells = [
            cell(difference(*(values(found, side, m, paths) for side in (members, reference))))
            for m in MEASURES
        ]
        lines.append("| " + " | ".join([f"{name} ({len(members)})", *cells]) + " |")
    return "\n".join(lines)


def modules(
    folders: Sequence[Path], committed: bool, out: Path
) -> tuple[dict[str, Path], dict[str, list[str]]]:
    """Network to sources of its module, and population to its networks.

    Raises:
        NdmError: two populations of one name, or too few networks.
    """
    made: dict[str, Path] = {}
    groups: dict[str, list[str]] = {}
    if committed:
        made[COMMITTED] = sources(None, out / "kmod" / COMMITTED)
        groups[COMMITTED] = [COMMITTED]
    for folder in folders:
        runs = population.members(folder)
        if folder.name in groups:
            raise NdmError(f"{folder}: two populations of this name; rename one")
        if len(runs) < FEWEST:
            raise NdmError(f"{folder}: fewer than {FEWEST} networks; run ndm train --seeds 5")
        groups[folder.name] = [f"{folder.name}-{run.name}" for run in runs.values()]
        for name, run in zip(groups[folder.name], runs.values(), strict=True):
            made[name] = sources(run, out / "kmod" / name, even_if_worse=True, reports=False)
    return made, groups


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of every comparison of modules."""
    parser.add_argument("-o", "--out", type=Path, required=True, help="resumes")
    parser.add_argument("--suites", default="validation", help="separated by commas")
    parser.add_argument("--lab-seeds", type=int, default=1, help="runs of each path")
    workers.add_arguments(parser)
    workers.add_simulator(parser)


def checked(args: argparse.Namespace) -> tuple[list[str], Workers]:
    """The suites of these options, and where guests run.

    Raises:
        NdmError: one of the options is wrong.
    """
    where = workers.workers_of(args)
    if args.lab_seeds < 1:
        raise NdmError("--lab-seeds must be at least 1; name more")
    suites = [name for name in args.suites.split(",") if name]
    for name in suites:
        suite.load_suite(name)
    return suites, where


def compare(
    made: dict[str, Path],
    groups: dict[str, list[str]],
    suites: Sequence[str],
    where: Workers,
    args: argparse.Namespace,
    page: str,
) -> None:
    """Run what is missing; print the tables, and write them to a page in the folder."""
    found = experiment.measured(made, suites, args.lab_seeds, where, args.out)
    text = "\n\n".join(table(found, groups, one) for one in suites) + "\n"
    files.write_text(args.out / page, text)
    print(text, end="")


def main(argv: list[str] | None = None) -> int:
    """Compare populations."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path, help="populations: of ndm train --seeds")
    parser.add_argument("--committed", action="store_true", help="less the committed network")
    add_arguments(parser)
    args = parser.parse_args(argv)
    suites, where = checked(args)
    if len(args.folders) + args.committed < 2:
        raise NdmError("one population: name another, or add --committed")
    suite.prepare(where)
    made, groups = modules(args.folders, args.committed, args.out)
    compare(made, groups, suites, where, args, "populations.md")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except NdmError as error:
        sys.exit(f"worth: {error}")
