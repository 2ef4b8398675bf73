# SPDX-License-Identifier: GPL-2.0-only
"""`ndm lab board`: the scoreboard of a suite."""

from __future__ import annotations

import argparse
import hashlib
import math
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import orjson

from ndm_tcp import files, model_json
from ndm_tcp.errors import NdmError
from ndm_tcp.lab.guest import externals, kernel_patches, suite, workers
from ndm_tcp.lab.guest.collect import jain
from ndm_tcp.lab.guest.externals import Externals
from ndm_tcp.lab.paths.reading import PUBLISHED_WORDS
from ndm_tcp.lab.paths.scenario import UNDER_TEST, Scenario
from ndm_tcp.lab.score import control, figures, html, tables
from ndm_tcp.lab.score.metrics import Cell, RunMetrics, cells, number, winning_rates

EXAMPLE = """example:
  ndm lab board published --cc reno,cubic,bbr,ndm_tcp --seeds 3 -o out/board
  ndm lab board ccbench --cc all,ndm_tcp --seeds 1 -o out/board
  ndm lab board published/a1-extreme-jitter.toml --cc bbr,ceiling --seeds 1 -o out/a1
  ndm lab board published --cc ndm_tcp --beside docs/board/published.csv -o out/mine
  ndm lab board fairness --cc bbr,mine --cc-module ~/tcp_mine --seeds 3 -o out/rivals"""

BBR_SOURCE = "net/ipv4/tcp_bbr.c"
SETS = {"ccBench Set I (reduced)": "set1-", "ccBench Set II (reduced)": "set2-"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `ndm lab board`."""
    suite.add_arguments(parser, "all", 5)
    workers.add_simulator(parser)
    parser.add_argument("--full", action="store_true", help="with captures and traces")
    parser.add_argument(
        "--picture",
        type=Path,
        metavar="FILE",
        help="cwnd, RTT and rate over time, of each scenario: .png, .svg",
    )
    parser.add_argument(
        "--beside",
        type=Path,
        metavar="CSV",
        help="an earlier board, for the results of other algorithms, which then do not run again",
    )


def metrics(outcome: suite.Outcome) -> RunMetrics:
    """The figures of one run; flows of another algorithm than the tested count as others.

    Shares and Jain's index are taken while all flows send. A web page counts as one flow; its
    rate is that of all objects from the first request to the last byte.
    """
    result, scenario = outcome.result, outcome.job.scenario
    assert result is not None
    flows: list[dict[str, Any]] = result["flows"]
    tested = [r for r, f in zip(flows, scenario.flows, strict=True) if f.cc == UNDER_TEST]
    web = result.get("web")
    page = [web] if web and scenario.web and scenario.web.cc == UNDER_TEST else []
    parts = tested + page
    sent = [float(part.get("segments", 0)) for part in parts]
    resent = sum(part["retransmissions"] for part in parts)

    def mean(key: str) -> float:
        pairs = [(w, part[key]) for w, part in zip(sent, parts, strict=True) if key in part]
        weight = sum(w for w, _ in pairs)
        return sum(w * x for w, x in pairs) / weight if weight else math.nan

    share, index = sum(f["share"] for f in tested), float(result.get("jain", 1.0))
    if web:
        rates = [float(web["mbps"]), *(float(flow["common_mbps"]) for flow in flows)]
        ours = sum(float(part.get("common_mbps", web["mbps"])) for part in parts)
        share, index = ours / sum(rates), jain(rates)

    return RunMetrics(
        scenario=scenario.name,
        cc=outcome.job.cc,
        seed=outcome.job.seed,
        goodput_mbps=sum(f["goodput_mbps"] for f in tested) + sum(p["mbps"] for p in page),
        retransmissions=resent,
        retransmitted_share=resent / sum(sent) if sum(sent) else 0.0,
        rtt_mean_ms=mean("rtt_mean_ms"),
        rtt_p95_ms=mean("rtt_p95_ms"),
        zero_intervals=sum(f.get("zero_intervals", math.nan) for f in tested),
        share=min(share, 1.0),  # parts are rounded
        jain=index,
    )


def published_text(figures: dict[str, Any]) -> str:
    """The published figures of one algorithm in a few words."""
    words = [
        f"{number(float(figures[key]))} {word}"
        for key, word in PUBLISHED_WORDS.items()
        if key in figures
    ]
    where = f" ({figures['where']})" if "where" in figures else ""
    return ", ".join(words) + where


def published(scenarios: list[Scenario], ccs: list[str]) -> dict[tuple[str, str], str]:
    """(scenario, algorithm) to its published figures, for the algorithms on the board."""
    return {
        (s.name, figures["cc"]): published_text(figures)
        for s in scenarios
        for figures in s.published
        if figures["cc"] in ccs
    }


def _notes(scenarios: list[Scenario], ccs: list[str]) -> dict[str, str]:
    """Each scenario, and published figures of algorithms that are not on the board."""
    notes = {}
    for s in scenarios:
        others = [f"{f['cc']} {published_text(f)}" for f in s.published if f["cc"] not in ccs]
        extra = f" Published: {'; '.join(others)}." if others else ""
        runs = f" {s.repeat} runs per seed." if s.repeat > 1 else ""
        notes[s.name] = f"{s.title}.{extra}{runs}"
    return notes


def _only_best_window(board: list[Cell], ccs: list[str], swept: set[str]) -> list[Cell]:
    """Of a sweep, keep the best window and call it the ceiling; windows of `ccs` stay, too."""
    windows = {f"fixed_cwnd:{packets}" for packets in suite.CEILING_WINDOWS}
    kept: list[Cell] = []
    seen: set[str] = set()
    for cell in board:  # best goodput first within a scenario
        if cell.cc not in windows or cell.cc in ccs:
            kept.append(cell)
        if cell.cc in windows and cell.scenario in swept - seen:
            seen.add(cell.scenario)
            kept.append(replace(cell, cc=f"ceiling (cwnd {cell.cc.partition(':')[2]})"))
    return kept


def remarks(ccs: list[str], others: Externals) -> list[str]:
    """Sentences on the whole board: which BBR it shows, and what came from outside."""
    found = []
    if "bbr" in ccs:
        changed = kernel_patches.change(others.patches, BBR_SOURCE)
        by = ", ".join(patch.name for patch in changed)
        found.append(
            f"`bbr` is the one of the kernel as {by} changed it."
            if by
            else "`bbr` is the one in Linux: BBR version 1."
        )
    parts = [f"{name} ({content})" for name, content in others.digests()]
    if parts:
        found.append(f"In every guest but the control's: {', '.join(parts)}.")
    return found


def build(
    outcomes: list[suite.Outcome],
    scenarios: list[Scenario],
    ccs: list[str],
    command: str,
    earlier: Sequence[Cell] = (),
    others: Externals = externals.NONE,
    own: Sequence[suite.Outcome] = (),
    simulated: bool = False,
) -> tables.Board:
    """The board of finished and failed runs.

    Args:
        outcomes: of every run.
        scenarios: in the order to show.
        ccs: the algorithms that ran.
        command: how to make it again.
        earlier: cells of another board; those of other algorithms in these scenarios are shown.
        others: what the runs had from outside the project.
        own: of the control's runs, in the lab's own guest.
        simulated: whether the runs were the simulator's.

    Raises:
        NdmError: every run failed.
    """
    if all(o.result is None for o in outcomes):
        raise NdmError(f"every run failed; the first: {outcomes[0].error}")
    order = {s.name: i for i, s in enumerate(scenarios)}
    lo = {s.name for s in scenarios if s.topology == "lo" and suite.CEILING in ccs}
    board = _only_best_window(_cells(outcomes, order), ccs, lo)
    shown = {*ccs, *(cell.cc for cell in board)}  # one whose runs all failed has no old result
    paths = {s.name: where(s, simulated) for s in scenarios}
    board = [replace(cell, path=paths[cell.scenario]) for cell in board]
    board += [c for c in earlier if c.cc not in shown and c.scenario in order]
    board.sort(key=lambda c: (order[c.scenario], -c.mean["goodput_mbps"], c.cc))
    compared = control.compare(_cells(own, order), board) if own else None
    ccs = sorted({*ccs, *(cell.cc for cell in board)})
    rates = {}
    for title, prefix in SETS.items():
        chosen = [cell for cell in board if re.match(prefix, cell.scenario)]
        if chosen:
            rates[title] = winning_rates(chosen, set_two=prefix == "set2-")
    return tables.Board(
        title="The board",
        command=command,
        cells=board,
        notes=_notes(scenarios, ccs),
        published=published(scenarios, ccs),
        rates=rates,
        failed=sorted(
            f"{o.job.folder.name}: {o.error}" for o in [*outcomes, *own] if o.result is None
        ),
        remarks=remarks(ccs, others),
        control=compared,
    )


def _cells(outcomes: Sequence[suite.Outcome], order: dict[str, int]) -> list[Cell]:
    """Of the runs that ended well, scenarios in their order."""
    good = [metrics(o) for o in outcomes if o.result is not None]
    good.sort(key=lambda m: (order[m.scenario], m.cc, m.seed))
    return cells(good)


def where(scenario: Scenario, simulated: bool) -> str:
    """What the results of a scenario depend on beside modules and seeds."""
    digest = hashlib.sha256(scenario.content()).hexdigest()[:8]
    return f"{'simulator' if simulated else 'lab'} {digest}"


def require_same_paths(
    earlier: Sequence[Cell], scenarios: Sequence[Scenario], ccs: Sequence[str], simulated: bool
) -> None:
    """Refuse results of other paths, or of the simulator beside the lab's.

    Args:
        earlier: cells of another board; one that does not know where it ran is not refused.
        scenarios: of this one.
        ccs: the algorithms that run now.
        simulated: whether they do in the simulator.
    """
    here = {s.name: where(s, simulated) for s in scenarios}
    for cell in earlier:
        now = here.get(cell.scenario, "")
        if now and cell.path and cell.path != now and cell.cc not in ccs:
            (place, digest), (other, same) = now.split(), cell.path.split()
            apart = (
                f"the {place}'s for the {other}'s" if digest == same else f"{now} for {cell.path}"
            )
            raise NdmError(
                f"--beside: {cell.scenario} is another path here ({apart}); "
                f"run it again, with --cc {cell.cc}"
            )


def json_text(board: tables.Board) -> str:
    """Means and deviations of every cell, and the runs that failed."""
    found = {"cells": [asdict(cell) for cell in board.cells], "failed": board.failed}
    found |= {"rates": board.rates, "remarks": board.remarks}
    if board.control:
        found["control"] = asdict(board.control)
    return orjson.dumps(found, option=orjson.OPT_INDENT_2).decode()  # NaN: null


def standing(suite_name: str, seeds: int) -> list[str]:
    """A sentence that says what results of the suite are worth."""
    if not suite.is_development(suite_name):
        return []
    lab_seeds = "one lab seed" if seeds == 1 else f"{seeds} lab seeds"
    return [
        f"A development board with {lab_seeds}: it may steer decisions, and is no held-out test."
    ]


def _control(args: argparse.Namespace) -> list[suite.Outcome]:
    """The runs of the control: without externals."""
    plain = {"cc": ",".join(control.ALGORITHMS), "kernel_patch": [], "cc_module": []}
    words = argparse.Namespace(**{**vars(args), **plain})
    return suite.run_all(words, args.out / "runs", not args.full, tagged=True)[2]


def _shown(path: Path) -> str:
    """A path below the working directory without that; of others the name."""
    whole, here = path.resolve(), Path.cwd()
    return str(whole.relative_to(here) if whole.is_relative_to(here) else whole.name)


def network_of(kmod: Path | None, always: bool = False) -> list[str]:
    """A sentence that says which network a module's sources have.

    Of the shipped one only if always.

    Raises:
        NdmError: its file is damaged.
    """
    path = kmod / "generated" / model_json.NAME if kmod else model_json.SHIPPED
    if not path.is_file():  # a .ko, or another algorithm
        return []
    found, shipped = model_json.number(path), model_json.number()
    if found != shipped:
        return [f"ndm_tcp has the network {found}, not the shipped {shipped}."]
    return [f"ndm_tcp has the shipped network, {shipped}."] * always


def _command(args: argparse.Namespace) -> str:
    """How to make the board again; externals without their folders."""
    words = f"ndm lab board {args.suite} --cc {args.cc} --seeds {args.seeds} -o DIR"
    words += " --simulate" if args.simulate else ""
    words += " --full" if args.full else ""
    words += f" --kmod {_shown(args.kmod)}" if args.kmod else ""
    words += "".join(f" --kernel-patch {path.name}" for path in args.kernel_patch)
    words += "".join(f" --cc-module {path.resolve().name}" for path in args.cc_module)
    return words + (f" --beside {args.beside}" if args.beside else "")


def main(args: argparse.Namespace) -> int:
    """Run `ndm lab board`; exit code 1 if a run failed."""
    others = externals.given(args)
    if others and args.beside:
        raise NdmError(
            "--beside: those results are of the lab's own kernel without other modules; "
            "leave it out, or --kernel-patch and --cc-module"
        )
    picture = figures.format_of(args.picture) if args.picture else ""
    if picture and args.simulate:
        raise NdmError(
            "--picture: the simulator keeps no flow over time; leave it out, or --simulate"
        )
    remarks = [*standing(args.suite, args.seeds), *network_of(args.kmod, bool(others))]
    earlier = tables.read(args.beside) if args.beside else []
    if earlier:
        here = suite.load_suite(args.suite)
        require_same_paths(earlier, here, suite.algorithms(args.cc), args.simulate)
    if others:
        args.cc = ",".join(dict.fromkeys([*suite.algorithms(args.cc), *control.ALGORITHMS]))
    scenarios, ccs, outcomes = suite.run_all(args, args.out / "runs", not args.full, tagged=True)
    own = _control(args) if others else []
    words = _command(args)
    board = build(outcomes, scenarios, ccs, words, earlier, others, own, args.simulate)
    board = replace(board, remarks=[*remarks, *board.remarks])
    print(json_text(board) if args.json else tables.terminal(board))
    files.write_text(args.out / "board.md", tables.markdown(board))
    files.write_text(args.out / "board.csv", tables.comma_separated(board))
    files.write_text(args.out / "board.html", html.page(board, outcomes))
    print(f"\nwrote {args.out}/board.md, board.csv, board.html", file=sys.stderr)
    if picture:
        with files.replacing(args.picture) as temporary:
            temporary.write_bytes(figures.picture(board, outcomes, picture))
        print(f"wrote {args.picture}", file=sys.stderr)
    return 1 if board.failed else 0
