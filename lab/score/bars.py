# SPDX-License-Identifier: GPL-2.0-only
"""Which bars ndm_tcp reaches: `ndm lab bars docs/board` writes bars.md there.

Reads the boards (published, ccbench, fairness, access, sealed .csv and, where they are,
rivals-published and rivals-access .csv) and compares means over seeds. `BARS` has the bars. A bar
missed by less than two standard errors of the difference is missed, and a ~ marks it as not
significant.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ndm_tcp import files
from ndm_tcp.intervals import Ratio, interval, student
from ndm_tcp.lab.paths import sealed_paths
from ndm_tcp.lab.score import tables
from ndm_tcp.lab.score.board import SETS
from ndm_tcp.lab.score.metrics import Cell, number, winning_rates

OWN = "ndm_tcp"
RIVALS = ("reno", "cubic", "bbr")
GOODPUT = 0.98
CEILING = 0.9
MOST, LEAST = 0.95, 0.9
"""of the paths with one flow; of the best goodput on each"""
LATE = 0.8
JAIN = 0.95
SHARE = (0.33, 0.67)
ERRORS = 2
"""standard errors that a difference must have to be significant"""
BARS = {
    "published scenarios": f"{GOODPUT} of the best goodput of Reno, CUBIC and BBR; a lower "
    "retransmission rate than BBR's; no longer mean RTT than BBR's",
    "jitter on the loopback device": f"{CEILING} of the goodput of the best constant window",
    "equal flows": f"Jain's index {JAIN}",
    "beside CUBIC": "{} to {} of the goodput".format(*SHARE),
    "ccBench": "most wins in Set I, as many as HTCP in Set II",
    "paths people have": f"{GOODPUT} of the best goodput on {100 * MOST:.0f} % of the paths with "
    f"one flow, on none less than {LEAST}; a CUBIC that comes late gets {LATE} of what it gets "
    "beside CUBICs",
}
"""What ndm_tcp is to reach, set before it was measured."""
Board = dict[str, dict[str, Cell]]
"""scenario to algorithm to cell"""


def load(path: Path) -> Board:
    """A board from the CSV that `ndm lab board` writes."""
    board: Board = {}
    for cell in tables.read(path):
        board.setdefault(cell.scenario, {})[cell.cc] = cell
    return board


def _verdict(reached: bool, text: str) -> str:
    return text if reached else f"**{text}**"


def _chance(own: Cell, other: Cell, measure: str, part: float = 1) -> bool:
    """Is the difference to that part of the other less than what seeds make of it?"""
    own_error, error = (cell.spread[measure] / math.sqrt(cell.runs) for cell in (own, other))
    difference = own.mean[measure] - part * other.mean[measure]
    return abs(difference) < ERRORS * math.hypot(own_error, part * error)


def _mark(own: Cell, best: Cell) -> str:
    """Of a goodput that misses `GOODPUT` of the best."""
    return " ~" * _chance(own, best, "goodput_mbps", GOODPUT)


def _against_bbr(cells: dict[str, Cell], measure: str, reached: bool, text: str) -> str:
    chance = not reached and _chance(cells[OWN], cells["bbr"], measure)
    return _verdict(reached, text) + " ~" * chance


def _published_row(name: str, cells: dict[str, Cell]) -> tuple[str, list[bool]]:
    own, bbr = cells[OWN].mean, cells["bbr"].mean
    best = max((cells[cc] for cc in RIVALS), key=lambda cell: cell.mean["goodput_mbps"])
    most = best.mean["goodput_mbps"]
    ratio = own["goodput_mbps"] / most
    verdicts = [ratio >= GOODPUT]
    text = _verdict(verdicts[0], f"{ratio:.3f}") + (not verdicts[0]) * _mark(cells[OWN], best)
    parts = [number(own["goodput_mbps"]), number(most), text]
    mine, theirs = (100 * x["retransmitted_share"] for x in (own, bbr))
    # Where no algorithm retransmits, none can retransmit less.
    fewer = mine < theirs or mine == theirs == 0
    verdicts.append(fewer)
    shares = f"{mine:.2f} / {theirs:.2f}"
    parts.append(_against_bbr(cells, "retransmitted_share", fewer, shares))
    if all(math.isfinite(cell["rtt_mean_ms"]) for cell in (own, bbr)):
        verdicts.append(own["rtt_mean_ms"] <= bbr["rtt_mean_ms"])
        rtts = f"{number(own['rtt_mean_ms'])} / {number(bbr['rtt_mean_ms'])}"
        parts.append(_against_bbr(cells, "rtt_mean_ms", verdicts[-1], rtts))
    else:
        parts.append("-")
    return f"| {name} | {' | '.join(parts)} |", verdicts


def _published(board: Board) -> Iterator[str]:
    yield "\n## [Published scenarios](published.md)\n"
    pairs = "retransmitted %, ndm_tcp / BBR | RTT ms, ndm_tcp / BBR"
    yield f"| scenario | ndm_tcp Mbit/s | best of three | ratio | {pairs} |"
    yield "|---|---|---|---|---|---|"
    counts = [[0, 0] for _ in range(3)]
    for name, cells in board.items():
        row, verdicts = _published_row(name, cells)
        yield row
        for count, good in zip(counts, verdicts, strict=False):
            count[0] += good
            count[1] += 1
    words = ("goodput", "retransmission rate", "RTT")
    reached = ", ".join(f"{w} {a} of {b}" for w, (a, b) in zip(words, counts, strict=True))
    yield f"\nReached: {reached}.\n"
    for name, cells in board.items():
        ceiling = next((c for cc, c in cells.items() if cc.startswith("ceiling")), None)
        if ceiling and name.startswith("a"):
            own, top = (c.mean["goodput_mbps"] for c in (cells[OWN], ceiling))
            text = f"{own / top:.2f} of {number(top)} Mbit/s ({ceiling.cc})"
            yield f"- {name}: {_verdict(own >= CEILING * top, text)}, bar {CEILING}"


def _fairness(board: Board) -> Iterator[str]:
    yield "\n## [Fairness](fairness.md)\n"
    known = [cc for cc in (OWN, *RIVALS, "htcp") if all(cc in cells for cells in board.values())]
    for title, measure in (("Jain's index", "jain"), ("share of the goodput", "share")):
        names = [n for n in board if n.startswith("beside") == (measure == "share")]
        yield f"| {title} | {' | '.join(known)} |"
        yield "|---|" + "---|" * len(known)
        for name in names:
            texts = []
            for cc in known:
                value = board[name][cc].mean[measure]
                good = value >= JAIN if measure == "jain" else SHARE[0] <= value <= SHARE[1]
                judged = cc == OWN and ("equal" in name or "late" in name or "cubic" in name)
                texts.append(_verdict(good or not judged, f"{value:.3f}"))
            yield f"| {name} | {' | '.join(texts)} |"
        yield ""


def _rates(board: Board, prefix: str) -> dict[str, float]:
    """Share of won paths of every algorithm in a set of ccBench, best first."""
    cells = [c for n, group in board.items() if n.startswith(prefix) for c in group.values()]
    return winning_rates(cells, set_two=prefix == "set2-")


def _ccbench(board: Board) -> Iterator[str]:
    yield "## [ccBench, reduced](ccbench.md)\n"
    yield "| set | ndm_tcp | the five best |"
    yield "|---|---|---|"
    for title, prefix in SETS.items():
        rates = _rates(board, prefix)
        own = rates[OWN]
        bar = rates["htcp"] if prefix == "set2-" else max(rates.values())
        best = ", ".join(f"{cc} {100 * r:.1f} %" for cc, r in list(rates.items())[:5])
        yield f"| {title} | {_verdict(own >= bar, f'{100 * own:.1f} %')} | {best} |"


def _log(cells: dict[str, Cell], rival: str, measure: str) -> float:
    return math.log(cells[OWN].mean[measure] / cells[rival].mean[measure])


def _range(ratio: Ratio) -> str:
    return f"{ratio.ratio:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]"


def _lone(board: Board) -> Board:
    """The scenarios with one flow, by their names."""
    several = ("cubic", "equals", "two-flows", "staggered")
    return {n: c for n, c in board.items() if not any(word in n for word in several)}


def _over(lone: Board, rivals: Sequence[str], names: Mapping[str, str]) -> Iterator[str]:
    """ndm_tcp over others, and how often it is near the best; names: in place of a rival's."""
    yield "| over | goodput | mean RTT | retransmitted |"
    yield "|---|---|---|---|"
    for rival in rivals:
        goodput, rtt = (
            interval([_log(cells, rival, measure) for cells in lone.values()])
            for measure in ("goodput_mbps", "rtt_mean_ms")
        )
        lost = student(
            [
                100 * (c[OWN].mean["retransmitted_share"] - c[rival].mean["retransmitted_share"])
                for c in lone.values()
            ]
        )
        text = f"{lost[0]:+.2f} [{lost[1]:+.2f}, {lost[2]:+.2f}]"
        yield f"| {names.get(rival, rival)} | {_range(goodput)} | {_range(rtt)} | {text} |"
    near = [part >= GOODPUT for part in _of_best(lone, rivals).values()]
    yield (
        f"\nAt least {GOODPUT} of the best goodput on {sum(near)} of {len(near)} of these paths.\n"
    )


def _of_best(lone: Board, rivals: Sequence[str]) -> dict[str, float]:
    """Scenario to ndm_tcp's part of the best goodput of others."""
    return {
        name: cells[OWN].mean["goodput_mbps"] / max(cells[cc].mean["goodput_mbps"] for cc in rivals)
        for name, cells in lone.items()
    }


def _access(board: Board) -> Iterator[str]:
    """Paths that people have: every one that misses the bar, and CUBICs beside ndm_tcp."""
    lone = _lone(board)
    yield "\n## [Paths people have](access.md)\n"
    yield (
        f"The `access` scenarios; ndm_tcp over another algorithm, as above, over the {len(lone)} "
        "paths with one flow:\n"
    )
    yield from _over(lone, RIVALS, {})
    parts = _of_best(lone, RIVALS)
    near = sum(part >= GOODPUT for part in parts.values()) / len(parts)
    yield (
        f"Bar: {_verdict(near >= MOST, f'{100 * near:.0f} %')} of them for {100 * MOST:.0f} %, and "
        f"{_verdict(min(parts.values()) >= LEAST, f'{min(parts.values()):.3f}')} on the worst for "
        f"{LEAST}. Below {GOODPUT}:\n"
    )
    yield "| scenario | ndm_tcp, part of the best | best | retransmitted %, ndm_tcp / BBR |"
    yield "|---|---|---|---|"
    for name, part in sorted(parts.items(), key=lambda item: item[1]):
        if part >= GOODPUT:
            break
        cells = lone[name]
        best = max(RIVALS, key=lambda cc: cells[cc].mean["goodput_mbps"])
        lost = (f"{100 * cells[cc].mean['retransmitted_share']:.2f}" for cc in (OWN, "bbr"))
        text = _verdict(part >= LEAST, f"{part:.3f}") + _mark(cells[OWN], cells[best])
        yield f"| {name} | {text} | {best} | {' / '.join(lost)} |"
    for name in (name for name in board if "late-cubic" in name):
        own, same = (1 - board[name][cc].mean["share"] for cc in (OWN, "cubic"))
        part = round(own / same, 6)  # shares are rounded
        text = _verdict(part >= LATE, f"{part:.2f}")
        yield f"\n{name}: the CUBIC that comes late gets {text} of what it gets beside CUBICs."


def _outside(suites: Mapping[str, Board]) -> Iterator[str]:
    """Algorithms that are not in Linux, in a kernel that a patch changed."""
    yield "\n## Algorithms from outside\n"
    yield (
        "A kernel with BBR version 3, and two modules: one lab seed. ndm_tcp over another "
        "algorithm, as above. The boards have the patch, the modules, the network, and how far "
        "CUBIC and ndm_tcp are apart in the two kernels.\n"
    )
    for suite, board in suites.items():
        lone = _lone(board)
        yield f"[{len(lone)} scenarios of `{suite}`](rivals-{suite}.md) with one flow:\n"
        rivals = sorted(set(next(iter(lone.values()))) - {OWN})
        yield from _over(lone, rivals, {"bbr": "bbr, version 3"})


def _within_one(estimate: tuple[float, float, float]) -> str:
    """Of a share or an index: neither is below 0 or above 1."""
    mean, low, high = estimate
    return f"{mean:.3f} [{max(low, 0):.3f}, {min(high, 1):.3f}]"


def _sealed(board: Board, network: str) -> Iterator[str]:
    """Paths without another algorithm, then shares, then Jain's index."""
    lone = _lone(board)
    yield "\n## [Sealed paths](sealed.md)\n"
    yield (
        f"{len(board)} paths drawn from the number of the network, {network}: they were not known "
        "before it was. One run for each state of the module, one lab seed. ndm_tcp over another "
        f"algorithm, geometric mean and 95 % interval over the {len(lone)} paths with one flow; "
        "retransmitted: difference of the means, percentage points:\n"
    )
    yield from _over(lone, RIVALS, {})
    beside = [n for n in board if "cubic" in n]
    yield "| | paths | ndm_tcp | reno | cubic | bbr |"
    yield "|---|---|---|---|---|---|"
    for title, names, measure in (
        ("share beside CUBIC", beside, "share"),
        ("Jain's index of equal flows", [n for n in board if "equals" in n], "jain"),
    ):
        cells = [
            _within_one(student([board[n][cc].mean[measure] for n in names]))
            for cc in (OWN, *RIVALS)
        ]
        yield f"| {title} | {len(names)} | {' | '.join(cells)} |"


def headline(folder: Path) -> str:
    """The README's sentence on results: of the sealed paths with one flow."""
    board = load(folder / "sealed.csv")
    lone = _lone(board)

    medians = []

    def over(rival: str, measure: str) -> str:
        logs = [_log(cells, rival, measure) for cells in lone.values()]
        ratio = interval(logs)
        medians.append(f"{math.exp(statistics.median(logs)):.2f}")
        return f"{ratio.ratio:.2f} [{ratio.low:.2f}, {ratio.high:.2f}] times"

    parts = [over("cubic", "goodput_mbps"), over("bbr", "goodput_mbps"), over("bbr", "rtt_mean_ms")]
    near = sum(part >= GOODPUT for part in _of_best(lone, RIVALS).values())
    return (
        f"On {len(lone)} new paths with one flow, of the kinds it trained on, it had "
        f"{parts[0]} CUBIC's goodput, {parts[1]} BBR's, and {parts[2]} BBR's RTT (geometric means, "
        f"95 % intervals; medians {', '.join(medians)}); on {near} at least {GOODPUT} of the best "
        "of Reno, CUBIC and BBR."
    )


def _boards(folder: Path) -> dict[str, Board]:
    names = ("published", "ccbench", "fairness", "access", "sealed")
    return {name: load(folder / f"{name}.csv") for name in names}


def facts(folder: Path) -> dict[str, Any]:
    """The values and verdicts behind the page of a folder of boards."""
    boards = _boards(folder)
    words = ("goodput", "retransmission_rate", "rtt")  # a path without an RTT has two verdicts
    reached = {
        name: dict(zip(words, _published_row(name, cells)[1], strict=False))
        for name, cells in boards["published"].items()
    }
    fairness = {
        name: {
            cc: cell.mean["share" if name.startswith("beside") else "jain"]
            for cc, cell in cells.items()
        }
        for name, cells in boards["fairness"].items()
    }
    wins = {prefix.rstrip("-"): _rates(boards["ccbench"], prefix) for prefix in SETS.values()}
    return {"published_reached": reached, "fairness": fairness, "ccbench_wins": wins}


def text(folder: Path) -> str:
    """The page of a folder of boards."""
    boards = _boards(folder)
    runs = {
        name: sorted({c.runs for group in board.values() for c in group.values()})
        for name, board in boards.items()
    }
    seeds = [f"{name} {' or '.join(map(str, counts))}" for name, counts in runs.items()]
    lines = [
        "# Bars\n",
        "Made by `ndm lab bars docs/board`. Bold: missed; ~: by less than two "
        f"standard errors of the difference. Seeds: {', '.join(seeds)} (two where a lone flow's "
        "path draws nothing and they end alike, more where the scenario says repeat).\n",
        "A bar is what ndm_tcp is to reach:\n",
        *(f"- {where}: {what}" for where, what in BARS.items()),
    ]
    lines += _published(boards["published"])
    lines += _fairness(boards["fairness"])
    lines += _ccbench(boards["ccbench"])
    lines += _access(boards["access"])
    lines += _sealed(boards["sealed"], sealed_paths.network())
    files_of = {suite: folder / f"rivals-{suite}.csv" for suite in ("published", "access")}
    rivals = {suite: load(path) for suite, path in files_of.items() if path.exists()}
    if rivals:
        lines += _outside(rivals)
    return "\n".join(lines).rstrip("\n") + "\n"


EXAMPLE = """example:
  ndm lab bars docs/board          # of its published, ccbench, fairness, access, sealed .csv"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The argument of `ndm lab bars`."""
    parser.add_argument("folder", type=Path, metavar="DIR", help="of boards as CSV")
    parser.add_argument("--json", action="store_true", help="print values and verdicts as JSON")


def main(args: argparse.Namespace) -> int:
    """Write bars.md beside the boards, and print it."""
    page = text(args.folder)
    files.write_text(args.folder / "bars.md", page)
    print(json.dumps(facts(args.folder), indent=2) if args.json else page)
    return 0
