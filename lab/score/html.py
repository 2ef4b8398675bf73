# SPDX-License-Identifier: GPL-2.0-only
"""A scoreboard as one self-contained HTML page with plots."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from markupsafe import Markup, escape

from ndm_tcp import pages
from ndm_tcp.lab.guest.suite import Outcome
from ndm_tcp.lab.score import control, figures, tables


def _section(
    name: str, rows: list[tuple[str, ...]], board: tables.Board, runs: list[tuple[str, Path]]
) -> dict[str, Any]:
    pictures = [
        (f"{name}: goodput over mean RTT. Up and to the left is better.",
         figures.scatter([c for c in board.cells if c.scenario == name])),
    ]  # fmt: skip
    if runs:
        text = f"{name}: one run of each algorithm, its first seed."
        pictures.append((text, figures.over_time(runs)))
    return {"name": name, "note": board.notes.get(name, ""), "rows": rows, "pictures": pictures}


def code(text: str) -> Markup:
    """Words between backticks, which are Markdown's, as code."""
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def page(board: tables.Board, outcomes: list[Outcome]) -> str:
    """The whole page; plots need the runs' folders, tables only the board."""
    folders = figures.first_runs(outcomes)
    sections = []
    for name, rows in tables.sections(board):
        runs = [(cc, folders[name, cc]) for cc in figures.SHOWN if (name, cc) in folders]
        sections.append(_section(name, rows, board, runs))
    loss = figures.against_loss(board)
    return pages.render(
        "board.html.j2",
        title=board.title,
        command=board.command,
        head=tables.HEAD,
        help=tables.HELP,
        rates={k: [(cc, 100 * r) for cc, r in v.items()] for k, v in board.rates.items()},
        overview=[("Goodput against the loss rate.", loss)] if loss else [],
        sections=sections,
        remarks=[code(remark) for remark in board.remarks],
        control=board.control,
        control_title=tables.CONTROL,
        control_head=control.HEAD,
        failed=board.failed,
    )
