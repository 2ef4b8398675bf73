# SPDX-License-Identifier: GPL-2.0-only
"""`ndm lab plot`: pictures of a board.csv, of two, or of runs over time."""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ndm_tcp import files, plots
from ndm_tcp.errors import NdmError
from ndm_tcp.lab.score import bars, figures
from ndm_tcp.lab.score.metrics import Cell

LEGEND_INCHES = 1.5
"""width of an entry"""
MARKS = {"reno": "v", "cubic": "^", "bbr": "D", "ndm_tcp": "o"}
EXAMPLE = """example:
  ndm lab plot docs/board/published.csv -o board.svg                # an overview
  ndm lab plot docs/board/published.csv --kind cdf -o cdf.svg
  ndm lab plot docs/board/published.csv --kind latency -o latency.svg
  ndm lab plot before/board.csv after/board.csv -o compared.svg     # the second over the first
  ndm lab plot out/bbr out/ndm_tcp -o flows.svg                     # runs of ndm lab run"""


def board(path: Path, ccs: Sequence[str]) -> bars.Board:
    """The cells of a board.csv, by scenario; only these algorithms, all if none is named.

    Raises:
        NdmError: no board, or none of the algorithms in it.
    """
    found = bars.load(path)
    if ccs:
        found = {n: {cc: c for cc, c in g.items() if cc in ccs} for n, g in found.items()}
        found = {name: group for name, group in found.items() if group}
    if not found:
        raise NdmError(f"{path}: no algorithm {', '.join(ccs)} in it; see its column cc")
    return found


def _algorithms(board: bars.Board) -> list[str]:
    """In the order of the palette, which is that of every legend."""
    names = {cc for group in board.values() for cc in group}
    order = [*plots.CC]
    return sorted(names, key=lambda cc: (order.index(cc) if cc in order else len(order), cc))


def _dots(
    panel: Any,
    made: bars.Board,
    ccs: Sequence[str],
    value: Callable[[dict[str, Cell], Cell], float],
) -> None:
    rows = np.arange(len(made))
    for cc in ccs:
        x = [value(group, group[cc]) if cc in group else np.nan for group in made.values()]
        ours = cc == "ndm_tcp"
        style = {"ms": 6 if ours else 4.5, "zorder": 3 if ours else 2, "alpha": 1 if ours else 0.8}
        panel.plot(
            x, rows, MARKS.get(cc, "s"), color=plots.color_of(cc), label=cc, clip_on=False, **style
        )
    panel.set_yticks(rows, [])
    panel.set_ylim(len(made) - 0.4, -0.6)
    panel.grid(axis="y", color="#e4e4e4", lw=0.6)


def _rtt_ms(cell: Cell) -> float:
    """Mean RTT; NaN if no run had one."""
    return cell.mean["rtt_mean_ms"] or np.nan


def _require_rtt(made: bars.Board) -> None:
    if not any(_rtt_ms(cell) > 0 for group in made.values() for cell in group.values()):
        raise NdmError("no run of the board has an RTT; draw it with --kind cdf")


def _say_if_empty(panel: Any) -> None:
    """A sentence in a panel without a single RTT; before helping lines are drawn."""
    if not any(np.isfinite(line.get_xdata(orig=False)).any() for line in panel.get_lines()):
        panel.text(0.5, 0.5, "no RTT", ha="center", transform=panel.transAxes)


def _of_the_best(group: dict[str, Cell], cell: Cell) -> float:
    """Goodput as a part of the best of Reno, CUBIC and BBR; of all if none of them is there; NaN
    if that is 0."""
    rivals = [c for cc, c in group.items() if cc in bars.RIVALS] or group.values()
    return cell.mean["goodput_mbps"] / (max(c.mean["goodput_mbps"] for c in rivals) or np.nan)


def _legend(figure: Any, where: str, handles: list[Any], labels: list[str]) -> None:
    """Above or below the panels, in as many columns as the figure is wide enough for."""
    columns = max(1, int(figure.get_figwidth() / LEGEND_INCHES))
    figure.legend(handles, labels, loc=where, ncols=min(len(labels), columns))


def overview(made: bars.Board) -> Any:
    """A row of dots for each scenario: goodput, retransmission rate, RTT.

    Raises:
        NdmError: no run has an RTT.
    """
    from matplotlib.ticker import FormatStrFormatter, LogLocator, NullFormatter

    _require_rtt(made)
    figure, axes = figures.figure_of(3, 0.9 + 0.22 * len(made), 4.1)
    left, middle, right = axes[0]
    ccs = _algorithms(made)
    _dots(left, made, ccs, _of_the_best)
    _dots(middle, made, ccs, lambda _, c: 100 * c.mean["retransmitted_share"])
    _dots(right, made, ccs, lambda _, c: _rtt_ms(c))
    left.set_yticks(range(len(made)), list(made), fontsize=8)
    left.axvline(1, color=plots.GREY, lw=0.8, ls="--")
    left.set(title="Goodput / best of Reno, CUBIC, BBR", xlim=(0, None))
    middle.set_title("Retransmitted, %")
    middle.set_xscale("symlog", linthresh=0.1)
    middle.set_xticks([0, 0.1, 1, 10], ["0", "0.1", "1", "10"])
    middle.set_xlim(0, None)
    right.set_title("Mean RTT, ms")
    right.set_xscale("log")
    right.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    right.xaxis.set_major_formatter(FormatStrFormatter("%g"))
    right.xaxis.set_minor_formatter(NullFormatter())
    _legend(figure, "outside lower center", *left.get_legend_handles_labels())
    return figure


def cdf(made: bars.Board) -> Any:
    """Over scenarios: the share of them with at most this goodput, retransmission rate, RTT.

    A scenario counts where the figure is known.
    """
    figure, axes = figures.figure_of(3, 3.2)
    values: list[tuple[str, Callable[[dict[str, Cell], Cell], float]]] = [
        (
            "Goodput / best of Reno, CUBIC, BBR",
            _of_the_best,
        ),
        ("Retransmitted, %", lambda _, c: 100 * c.mean["retransmitted_share"]),
        (
            "Mean RTT / lowest of all",
            lambda g, c: (
                _rtt_ms(c) / min((v for o in g.values() if (v := _rtt_ms(o)) > 0), default=np.nan)
            ),
        ),
    ]
    for panel, (title, value) in zip(axes[0], values, strict=True):
        for cc in _algorithms(made):
            every = (value(g, g[cc]) for g in made.values() if cc in g)
            seen = sorted(v for v in every if np.isfinite(v))
            if not seen:
                continue
            steps = np.arange(len(seen) + 1) / len(seen)
            panel.step(
                [seen[0], *seen],  # up from zero at the lowest
                steps,
                where="post",
                color=plots.color_of(cc),
                label=cc,
                lw=2 if cc == "ndm_tcp" else 1.2,
            )
        _say_if_empty(panel)
        panel.set(title=title, ylim=(0, 1.02))
    axes[0][0].set_ylabel("share of scenarios")
    _legend(figure, "outside lower center", *axes[0][0].get_legend_handles_labels())
    return figure


def latency(made: bars.Board) -> Any:
    """Latency under load: goodput over mean RTT, a panel for each scenario.

    Raises:
        NdmError: no run has an RTT.
    """
    _require_rtt(made)
    columns = min(4, len(made))
    rows = -(-len(made) // columns)
    figure, axes = figures.figure_of(columns, 2.6, 3.2, rows)
    for panel, (name, group) in zip(axes.flat, made.items(), strict=False):
        for cc, cell in group.items():
            x, y = _rtt_ms(cell), cell.mean["goodput_mbps"]
            spread = {"xerr": cell.spread["rtt_mean_ms"], "yerr": cell.spread["goodput_mbps"]}
            panel.errorbar(
                x, y, **spread, fmt=MARKS.get(cc, "s"), ms=5, color=plots.color_of(cc), label=cc
            )
        panel.set_title(name, fontsize=8)
        _say_if_empty(panel)
        panel.axhline(0, linewidth=0)  # so that the margin is one of all, not of the spread
        panel.margins(0.15)
        panel.set_ylim(bottom=0)
    for panel in axes.flat[len(made) :]:
        panel.set_visible(False)
    figure.supxlabel("mean RTT, ms (left is better)", fontsize=9)
    figure.supylabel("goodput, Mbit/s (up is better)", fontsize=9)
    handles: dict[str, Any] = {}
    for panel in axes.flat:
        handles |= dict(zip(*reversed(panel.get_legend_handles_labels()), strict=True))
    _legend(figure, "outside upper center", [*handles.values()], [*handles])
    return figure


def compared(before: bars.Board, after: bars.Board) -> Any:
    """The second board over the first: ratios of goodput and RTT, points of retransmission rate.

    Raises:
        NdmError: no scenario has an algorithm in both.
    """
    both = {
        name: {cc: cell for cc, cell in group.items() if cc in before.get(name, {})}
        for name, group in after.items()
    }
    both = {name: group for name, group in both.items() if group}
    if not both:
        raise NdmError(
            "the two boards have no scenario and algorithm in common; run both over one suite"
        )

    cells = [(cell, before[cell.scenario][cc]) for g in both.values() for cc, cell in g.items()]
    known = [(new, old) for new, old in cells if new.path and old.path]
    other = sorted({new.scenario for new, old in known if new.path != old.path})
    if other:
        print(
            f"note: {', '.join(other)} ran on another path, or in the lab for one board and in the "
            "simulator for the other",
            file=sys.stderr,
        )

    def old(cell: Cell, measure: str) -> float:
        return before[cell.scenario][cell.cc].mean[measure]

    def ratio(measure: str) -> Callable[[dict[str, Cell], Cell], float]:
        return lambda _, c: c.mean[measure] / (old(c, measure) or np.nan)

    figure, axes = figures.figure_of(3, 0.9 + 0.22 * len(both), 4.1)
    left, middle, right = axes[0]
    ccs = _algorithms(both)
    _dots(left, both, ccs, ratio("goodput_mbps"))
    _dots(right, both, ccs, ratio("rtt_mean_ms"))
    share = "retransmitted_share"
    _dots(middle, both, ccs, lambda _, c: 100 * (c.mean[share] - old(c, share)))
    left.set_yticks(range(len(both)), list(both), fontsize=8)
    left.set(title="Goodput, second / first")
    middle.set(title="Retransmitted, second - first, points")
    right.set(title="Mean RTT, second / first")
    _say_if_empty(right)
    for panel, same in ((left, 1), (middle, 0), (right, 1)):
        panel.axvline(same, color=plots.GREY, lw=0.8, ls="--")
    _legend(figure, "outside lower center", *left.get_legend_handles_labels())
    return figure


def over_time(folders: Sequence[Path]) -> Any:
    """Rate, RTT and window of the flow under test of each run.

    Raises:
        NdmError: a folder without a run, or a run without a flow over time.
    """
    runs = [(figures.algorithm_of(folder), folder) for folder in folders]
    figure, left_out = figures.time_figure(runs)
    if left_out:
        raise NdmError(
            f"{left_out[0]}: has no flow under test over time, as runs of a web page and of the "
            "simulator; draw the board.csv of such runs"
        )
    return figure


KINDS = {"overview": overview, "cdf": cdf, "latency": latency}


def draw(what: Sequence[Path], kind: str, ccs: Sequence[str]) -> Any:
    """The figure of one board, of two, or of run folders."""
    if all(path.is_dir() for path in what):
        return over_time(what)
    if len(what) == 2:
        return compared(board(what[0], ccs), board(what[1], ccs))
    if len(what) > 2:
        raise NdmError(f"{len(what)} boards: name one to draw it, or two to compare them")
    return KINDS[kind](board(what[0], ccs))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `ndm lab plot`."""
    parser.add_argument(
        "what",
        type=Path,
        nargs="+",
        metavar="WHAT",
        help="board.csv, two of them, or folders of runs",
    )
    parser.add_argument(
        "-o", "--out", type=Path, required=True, help="picture to write: .svg, .png"
    )
    parser.add_argument("--kind", choices=tuple(KINDS), default="overview", help="of one board")
    parser.add_argument(
        "--cc", default="", help="algorithms to draw, comma separated (default: all)"
    )


@plots.plain()
def main(args: argparse.Namespace) -> int:
    """Write the picture."""
    kind, buffer = figures.format_of(args.out), io.BytesIO()
    figure = draw(args.what, args.kind, [cc for cc in args.cc.split(",") if cc])
    figure.savefig(buffer, format=kind, metadata=plots.NO_VERSION[kind])
    with files.replacing(args.out) as temporary:
        temporary.write_bytes(buffer.getvalue())
    print(args.out)
    return 0
