# SPDX-License-Identifier: GPL-2.0-only
"""A scoreboard as text: for the terminal, Markdown and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from ndm_tcp.errors import NdmError
from ndm_tcp.lab.score import control
from ndm_tcp.lab.score.metrics import MEASURES, Cell, plus_minus


@dataclass(frozen=True)
class Board:
    """Everything a scoreboard shows."""

    title: str
    command: str
    """how to make it again"""
    cells: list[Cell]
    notes: dict[str, str]
    """scenario to its description, in a sentence"""
    published: dict[tuple[str, str], str]
    """(scenario, algorithm) to the published figures"""
    rates: dict[str, dict[str, float]]
    """ccBench set to algorithm to winning rate"""
    failed: list[str]
    """runs that failed twice, with the reason; a board without them would flatter"""
    remarks: list[str] = field(default_factory=list)
    """sentences on the whole board"""
    control: control.Control | None = None
    """of a board with externals"""


HEAD = (
    "algorithm",
    "Mbit/s",
    "retransmitted",
    "retr. %",
    "RTT ms",
    "RTT p95 ms",
    "zero s",
    "share",
    "Jain",
    "published",
)

HELP = {
    "algorithm": "congestion control under test",
    "Mbit/s": "goodput: what arrived at the receiving application",
    "retransmitted": "segments sent more than once",
    "retr. %": "retransmission rate: retransmitted / sent segments",
    "RTT ms": "mean of the smoothed RTT, over all polls",
    "RTT p95 ms": "95th percentile of the smoothed RTT",
    "zero s": "seconds in which iperf3's sender wrote nothing, as its socket's buffer was full",
    "share": "part of the goodput of all flows, while all of them send",
    "Jain": "Jain's index of the flows' goodputs; 1: all equal",
    "published": "figures that the experiment's authors published",
}
"""title of a column to its meaning"""


def row(board: Board, cell: Cell) -> tuple[str, ...]:
    """One algorithm's line, by `HEAD`."""
    return (
        cell.cc,
        plus_minus(cell, "goodput_mbps"),
        plus_minus(cell, "retransmissions"),
        plus_minus(cell, "retransmitted_share", 100),
        plus_minus(cell, "rtt_mean_ms"),
        plus_minus(cell, "rtt_p95_ms"),
        plus_minus(cell, "zero_intervals"),
        plus_minus(cell, "share"),
        plus_minus(cell, "jain"),
        board.published.get((cell.scenario, cell.cc), ""),
    )


def sections(board: Board) -> list[tuple[str, list[tuple[str, ...]]]]:
    """Scenario and its rows, in the board's order."""
    return [
        (scenario, [row(board, cell) for cell in group])
        for scenario, group in groupby(board.cells, key=lambda c: c.scenario)
    ]


CONTROL = "A/A control: the same algorithms in the lab's own guest and in the one with externals"


def _aligned(table: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(r[i]) for r in table) for i in range(len(table[0]))]
    return [
        "  " + "  ".join(f"{text:{w}}" for text, w in zip(r, widths, strict=True)).rstrip()
        for r in table
    ]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """In Markdown."""
    return [
        "| " + " | ".join(head) + " |",
        "|" + "---|" * len(head),
        *("| " + " | ".join(r) + " |" for r in rows),
    ]


def terminal(board: Board) -> str:
    """Aligned columns, a block per scenario."""
    lines = list(board.remarks)
    for scenario, rows in sections(board):
        lines += ["", f"{scenario}: {board.notes.get(scenario, '')}".rstrip(": ")]
        lines += _aligned([HEAD, *rows])
    for name, rates in board.rates.items():
        lines += ["", f"{name}: share of scenarios won"]
        lines += [f"  {cc:16} {100 * rate:5.1f} %" for cc, rate in rates.items()]
    if board.control:
        lines += ["", CONTROL, *board.control.summary]
        lines += _aligned([control.HEAD, *board.control.rows])
    lines += [f"failed: {reason}" for reason in board.failed]
    return "\n".join(lines).strip("\n")


def markdown(board: Board) -> str:
    """A page for docs/."""
    lines = [f"# {board.title}", "", f"Made by `{board.command}`. Mean ± standard deviation over "]
    lines[-1] += "runs; one number means one run. Where a lone flow's path draws nothing and two "
    lines[-1] += "seeds end alike (± 0 throughout), no more were run. "
    lines[-1] += "Flows are as the scenario files say; beside others each begins up to an RTT "
    lines[-1] += "later, by the seed."
    for remark in board.remarks:
        lines += ["", remark]
    if board.control:
        lines += ["", f"## {CONTROL}", "", *board.control.summary, ""]
        lines += _table(control.HEAD, board.control.rows)
    for scenario, rows in sections(board):
        lines += ["", f"## {scenario}", "", board.notes.get(scenario, ""), ""]
        lines += _table(HEAD, rows)
    for name, rates in board.rates.items():
        lines += ["", f"## {name}: share of scenarios won", ""]
        won = [(cc, f"{100 * rate:.1f} %") for cc, rate in rates.items()]
        lines += _table(("algorithm", "won"), won)
    if board.failed:
        lines += ["", "## Failed runs", "", *(f"- {reason}" for reason in board.failed)]
    return "\n".join(lines) + "\n"


MEASURED = ("scenario", "cc", "runs", *(f"{m}_{kind}" for m in MEASURES for kind in ("mean", "sd")))
"""columns of boards that do not know where they ran"""
COLUMNS = (*MEASURED, "path")


def comma_separated(board: Board) -> str:
    """One line per scenario and algorithm; mean and spread of every measure."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    for cell in board.cells:
        values = [f"{part[m]:.6g}" for m in MEASURES for part in (cell.mean, cell.spread)]
        writer.writerow([cell.scenario, cell.cc, cell.runs, *values, cell.path])
    return stream.getvalue()


def read(path: Path) -> list[Cell]:
    """The cells of a board, in its order, from what `comma_separated` wrote.

    Raises:
        NdmError: no such file, or no board.
    """
    other = NdmError(f"{path}: not a board; expected the board.csv of `ndm lab board`")
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            reader = csv.DictReader(stream)
            if tuple(reader.fieldnames or ()) not in (COLUMNS, MEASURED):
                raise other
            return [_cell(row) for row in reader]
    except OSError as error:
        raise NdmError(f"{path}: {error.strerror}; expected a board.csv") from None
    except UnicodeDecodeError:
        raise other from None
    except (TypeError, ValueError) as error:
        raise NdmError(f"{path}: damaged: {error}; run ndm lab board again") from None


def _cell(row: dict[str, str]) -> Cell:
    mean, spread = ({m: float(row[f"{m}_{kind}"]) for m in MEASURES} for kind in ("mean", "sd"))
    path = row.get("path") or ""
    return Cell(row["scenario"], row["cc"], int(row["runs"]), mean, spread, path)
