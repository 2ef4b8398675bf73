# SPDX-License-Identifier: GPL-2.0-only
"""What the network, the luck of its training and each fixed rule are worth in the closed loop.

    ndm train --data DIR... --shares S,... --seeds 5 -o out/many
    python -m ndm_tcp.worth.experiment out/many --data DIR... -o out/worth --pages docs

The population and policies simpler than a network run the same paths with the same seeds of the
lab; so does the shipped network with and without each of the module's rules. Resumes. `--part`
runs one of the two. Each has a page of its own.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ndm_tcp import files, teaching
from ndm_tcp.errors import NdmError
from ndm_tcp.intervals import FEWEST, student, welch
from ndm_tcp.lab.guest import suite, workers
from ndm_tcp.lab.guest.workers import Workers
from ndm_tcp.lab.paths import sealed_paths, truth
from ndm_tcp.selection import LEAST, nearness, runs_of, sources
from ndm_tcp.training import checkpoint, objective, population
from ndm_tcp.worth import policies, rules

Floats = npt.NDArray[np.float64]
POLICIES, RULES = "policies", "rules"
SUITES = {
    POLICIES: ("validation", "validation-jitter", "validation-access"),
    RULES: (
        "lan",
        "validation",
        "validation-access",
        "validation-shallow",
        "validation-pages",
        "validation-pairs",
        "validation-fast",
    ),
}
"""rules: those that they were made for, too"""
LAB_SEEDS = {POLICIES: 1, RULES: 3}
NONE = float("nan")
SHIPPED = "shipped"
NOISE = "other draws"
"""the shipped network with as many other lab seeds: what it differs by is no network's doing"""
SCORE, GOODPUT, RTT, LOST, SHARE, JAIN = "score", "goodput", "RTT", "retransmitted", "share", "Jain"
MEASURES = (SCORE, GOODPUT, RTT, LOST, SHARE, JAIN)
"""goodput and RTT: logarithms, of paths without another algorithm; share: how near to the fair one,
beside another algorithm; Jain's index: of equal flows. Elsewhere they are not numbers."""
Of = dict[str, dict[str, dict[str, float]]]
"""module to scenario to measure"""


def policy_modules(folder: Path, data: Sequence[Path], out: Path) -> dict[str, Path]:
    """Name to the sources of each module with another policy.

    Args:
        folder: of a population.
        data: its datasets, in the same order.
        out: for the sources.
    """
    runs = population.members(folder)
    trained = checkpoint.load_policy(next(iter(runs.values())))[1]
    made = {}
    for run in runs.values():
        to = out / "kmod" / run.name
        made[run.name] = sources(run, to, even_if_worse=True, reports=False)
    fitted = None
    for name in policies.NAMES:
        tag = name.replace(" ", "-")
        # Of a run before: a fit takes minutes.
        text = out / "policies" / f"{tag}-{fit_digest(trained)}.h"
        if not text.exists():
            fitted = fitted or policies.rounds(data, trained.config, trained.dataset_sha256)
            files.write_text(text, policies.code(name, fitted))
        made[name] = policies.module(text.read_text(), out / "kmod" / tag)
    return made


def rule_modules(out: Path) -> dict[str, Path]:
    """The same of the shipped network's module, and of it without each rule."""
    made = {SHIPPED: sources(None, out / "kmod" / SHIPPED)}
    for name in rules.RULES:
        to = out / "kmod" / f"without-{name.replace(' ', '-')}"
        made[f"without {name}"] = rules.without(name, made[SHIPPED], to)
    return made


def fit_digest(trained: checkpoint.Checkpoint) -> str:
    """Of all that a fit depends on: the rounds, the settings of the training, and the code."""
    h = hashlib.sha256(trained.dataset_sha256.encode())
    h.update(json.dumps({**trained.config.to_dict(), "seed": 0}, sort_keys=True).encode())
    for code in (policies, objective, truth, teaching):
        h.update(Path(str(code.__file__)).read_bytes())
    return h.hexdigest()[:12]


def measured(
    made: Mapping[str, Path], suites: Sequence[str], lab_seeds: int, where: Workers, out: Path
) -> Of:
    """Run all modules; means over the lab's seeds."""
    found: Of = {}
    for number, (name, kmod) in enumerate(made.items(), 1):
        print(f"{name}: module {number} of {len(made)}", file=sys.stderr, flush=True)
        each: dict[str, list[tuple[int, list[float]]]] = {}
        tag, seeds = name.replace(" ", "-"), lab_seeds * (1 + (name == SHIPPED))
        for scenario, run in runs_of(tag, kmod, suites, seeds, where, out):
            m, alone = run.metrics, run.fair == 1
            row = [
                run.points,
                float(np.log(max(m.goodput_mbps, LEAST))) if alone else NONE,
                float(np.log(max(m.rtt_mean_ms, LEAST))) if alone else NONE,
                m.retransmitted_share,
                NONE if alone else nearness(m.share, run.fair),
                m.jain if alone and run.flows > 1 else NONE,
            ]
            each.setdefault(scenario, []).append((m.seed, row))
        for scenario, runs in each.items():
            rows = [row for _, row in sorted(runs)]
            half = len(rows) // 2 if name == SHIPPED else len(rows)
            for group, part in ((name, rows[:half]), (NOISE, rows[half:])):
                if part:
                    means = np.mean(part, axis=0).tolist()
                    found.setdefault(group, {})[scenario] = dict(zip(MEASURES, means, strict=True))
    return found


@dataclass(frozen=True)
class Interval:
    """A mean difference and its 95 % interval."""

    mean: float
    low: float
    high: float

    @property
    def significant(self) -> bool:
        """Does the interval exclude zero?"""
        return self.low > 0 or self.high < 0


def difference(ones: Floats, others: Floats) -> Interval:
    """Mean of some modules less that of others, [paths, networks] each, and its 95 % interval.

    The same paths, so pairs; other networks, so no pairs: Student's t over the paths' differences
    and Welch's over the networks' means add as errors do. Few training seeds so give a wide
    interval; one network alone has no spread. Rows that are not numbers are left out.
    """
    kept = ~(np.isnan(ones).any(axis=1) | np.isnan(others).any(axis=1))
    if not kept.any():
        return Interval(NONE, NONE, NONE)
    ones, others = ones[kept], others[kept]
    mean, low, _ = student((ones.mean(axis=1) - others.mean(axis=1)).tolist())
    half = mean - low
    groups = [group.mean(axis=0).tolist() for group in (ones, others) if group.shape[1] > 1]
    if groups:
        middle, low, _ = welch(*groups) if len(groups) > 1 else student(groups[0])
        half = math.hypot(half, middle - low)
    return Interval(mean, mean - half, mean + half)


def less(found: Of, name: str, others: Sequence[str], measure: str, where: str = "") -> Interval:
    """One module less others, over the scenarios whose name contains `where`."""
    scenarios = [scenario for scenario in sorted(found[name]) if where in scenario]
    return difference(*(values(found, one, measure, scenarios) for one in ([name], others)))


def values(found: Of, names: Sequence[str], measure: str, scenarios: Sequence[str]) -> Floats:
    """[scenarios, modules] of a measure."""
    rows = [[found[name][scenario][measure] for name in names] for scenario in scenarios]
    return np.array(rows, np.float64).reshape(len(scenarios), len(names))


# --- the page --------------------------------------------------------------------------------


def cell(of: Interval) -> str:
    """As in a table of Markdown; two paths have no interval."""
    if not np.isfinite([of.mean, of.low]).all():
        return "-"
    text = f"{of.mean:+.3f} [{of.low:+.3f}, {of.high:+.3f}]"
    return f"**{text}**" if of.significant else text


def _table(found: Of, rows: Mapping[str, Sequence[str]], first: str, where: str = "") -> str:
    heads = [first, *MEASURES]
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    for name, others in rows.items():
        cells = [cell(less(found, name, others, m, where)) for m in MEASURES]
        lines.append("| " + " | ".join([name, *cells]) + " |")
    return "\n".join(lines)


def spread(found: Of, seeds: Sequence[str]) -> str:
    """What networks of several training seeds differ by."""
    means = [float(np.mean([one[SCORE] for one in found[s].values()])) for s in seeds]
    return (
        f"The scores of the {len(seeds)} networks, one a training seed, have a standard deviation "
        f"of {np.std(means, ddof=1):.4f}; the best is {max(means) - min(means):.4f} above the "
        "worst."
    )


@dataclass(frozen=True)
class Part:
    """What one part of the experiment found."""

    suites: list[str]
    lab_seeds: int
    found: Of

    def on(self, one: str) -> Of:
        """Of one suite."""
        return {
            name: {key: of for key, of in scenarios.items() if key.startswith(f"{one}/")}
            for name, scenarios in self.found.items()
        }

    def paths(self, one: str) -> int:
        """Of a suite."""
        return len(next(iter(self.on(one).values())))

    def listed(self) -> str:
        """Its suites with their sizes."""
        return ", ".join(f"`{one}` ({self.paths(one)} paths)" for one in self.suites)


MEANING = """Made by `python -m ndm_tcp.worth.experiment`, on development suites:
they have steered decisions.

Differences, mean and 95 % interval over {over} (Student's t). The score is that
of [`ndm select`](training.md#the-score). Goodput and RTT are natural logarithms, so +0.010 is 1 %,
on paths without another algorithm; retransmitted is a part of the segments; share is how near the
flow is to the fair share, 1 at it, beside another algorithm; Jain's index is that of equal flows.
**Bold**: the interval excludes zero. There are {count} intervals here, and of twenty one does so
without a difference.

{suites}; lab seeds: {lab_seeds}."""
POLICY_PAGE = """# Policies in the network's place

{meaning}

Each less the networks of {seeds} training seeds, {parameters} weights and biases each. All run in
the same module, with all rules. `constant` predicts no step, and that a loss is as likely overflow
as random, so it never returns to slow start; `hand rule` steps towards 1.2 BDP; `linear` and
`quadratic` are regressions on the network's inputs and means; `tree` has six levels. The last
three were fitted to the rounds that trained the networks.

{tables}

{spread}
"""
NAMED = "Those that are named after it; other paths of these suites have jitter, too."
RULE_PAGE = """# The module without one of its rules

{meaning}

The shipped network, {network}, without a rule less with all. It is one training seed: what another
one would show is in no interval. First the noise floor: with other lab
seeds, that is other random losses and jitter. No difference as small as that says anything.

{legend}

{tables}
"""


def _counted(text: str) -> str:
    """Fill in how many intervals a page shows."""
    return text.replace("{count}", str(text.count("]") - text.count("](")))


def _meaning(part: Part, over: str) -> str:
    return MEANING.format(
        suites=part.listed(), lab_seeds=part.lab_seeds, count="{count}", over=over
    )


def policy_page(part: Part, parameters: int) -> str:
    """docs/worth.md: all paths, those of jitter, and each suite; parameters: of a network."""
    seeds = [name for name in part.found if name.startswith("seed-")]
    rows = {name: seeds for name in policies.NAMES}
    tables = [
        f"## On all\n\n{_table(part.found, rows, 'policy')}",
        f"## On paths with jitter\n\n{NAMED}\n\n{_table(part.found, rows, 'policy', 'jitter')}",
        *(f"## On `{one}`\n\n{_table(part.on(one), rows, 'policy')}" for one in part.suites),
    ]
    return _counted(
        POLICY_PAGE.format(
            meaning=_meaning(part, "paths and training seeds"),
            seeds=len(seeds),
            parameters=parameters,
            tables="\n\n".join(tables),
            spread=spread(part.found, seeds),
        )
    )


def rule_page(part: Part) -> str:
    """docs/rules.md."""
    off = {name: [SHIPPED] for name in (NOISE, *(f"without {rule}" for rule in rules.RULES))}
    tables = [f"## On `{one}`\n\n{_table(part.on(one), off, 'module')}" for one in part.suites]
    return _counted(
        RULE_PAGE.format(
            meaning=_meaning(part, "paths"),
            network=sealed_paths.network(),
            legend="\n".join(f"- {name}: {rule.does}." for name, rule in rules.RULES.items()),
            tables="\n\n".join(tables),
        )
    )


def ready(part: str, args: argparse.Namespace) -> list[str]:
    """The suites of a part, before it runs for hours.

    Raises:
        NdmError: there is no such suite, or there are too few networks.
    """
    asked = args.suites.split(",") if args.suites else SUITES[part]
    suites = [name for name in asked if name]
    for name in suites:
        suite.load_suite(name)
    if part == POLICIES and len(population.members(args.folder)) < FEWEST:
        raise NdmError(f"{args.folder}: fewer than {FEWEST} networks; run ndm train --seeds 5")
    return suites


def run(part: str, suites: list[str], where: Workers, args: argparse.Namespace) -> None:
    """Run what is missing of a part; write what it found, and its page, or print that."""
    made = (
        rule_modules(args.out)
        if part == RULES
        else policy_modules(args.folder, args.data, args.out)
    )
    lab_seeds = args.lab_seeds or LAB_SEEDS[part]
    found = measured(made, suites, lab_seeds, where, args.out)
    one = Part(suites, lab_seeds, found)
    files.write_text(args.out / f"{part}.json", json.dumps(asdict(one), indent=1) + "\n")
    if part == RULES:
        name, text = "rules.md", rule_page(one)
    else:
        network = checkpoint.load_policy(next(iter(population.members(args.folder).values())))[0]
        name, text = "worth.md", policy_page(one, sum(p.numel() for p in network.parameters()))
    if args.pages:
        files.write_text(args.pages / name, text)
    else:
        print(text)


def main(argv: list[str] | None = None) -> int:
    """Run what is missing, and write the pages."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="a population: of ndm train --seeds")
    parser.add_argument("--data", nargs="+", type=Path, required=True, help="that trained it")
    parser.add_argument("-o", "--out", type=Path, required=True, help="resumes")
    parser.add_argument("--part", choices=(POLICIES, RULES), help="default: both")
    parser.add_argument("--suites", help="default: those of the part")
    parser.add_argument("--lab-seeds", type=int, help="default: those of the part")
    workers.add_arguments(parser)
    workers.add_simulator(parser)
    parser.add_argument("--pages", type=Path, metavar="DIR", help="for worth.md and rules.md")
    args = parser.parse_args(argv)
    where = workers.workers_of(args)
    if where.simulated and args.pages:
        raise NdmError("--pages: these are of the lab; leave it out, or --simulate")
    if args.lab_seeds is not None and args.lab_seeds < 1:
        raise NdmError("--lab-seeds must be at least 1; name more")
    parts = (args.part,) if args.part else (POLICIES, RULES)
    suites = {part: ready(part, args) for part in parts}
    suite.prepare(where)
    for part in parts:
        run(part, suites[part], where, args)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except NdmError as error:
        sys.exit(f"worth: {error}")
