# SPDX-License-Identifier: GPL-2.0-only
"""A comparison as tables for a terminal, and as a page."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from ndm_tcp import files, pages, plots
from ndm_tcp.ab.compare import KEYS, LEAST_MBPS, Comparison, Group, Mean, Pair
from ndm_tcp.ab.flows import Flow
from ndm_tcp.intervals import Ratio
from ndm_tcp.paths.report import table

RESULT, PAGE = "ab.json", "index.html"
GROUP_HEAD = [
    *("group", "flows", "left out", "goodput Mbit/s", "median", "RTT ms", "median"),
    *("retransmitted %", "baseline RTT ms"),
]
PAIR_HEAD = ["group", "beside", "goodput ratio", "RTT ratio", "retransmitted, % points", "verdict"]


def json_text(found: Comparison) -> str:
    """JSON; an interval that has no end has null there."""
    return msgspec.json.format(msgspec.json.encode(found), indent=1).decode()


def _number(value: float, digits: int = 3) -> str:
    return f"{value:.{digits}g}" if abs(value) < 1000 else f"{value:.0f}"


def _interval(value: float, low: float, high: float, digits: int = 3) -> str:
    if math.isnan(value):
        return "-"
    if math.isinf(high):
        return f"{_number(value, digits)} [not known]"
    return f"{_number(value, digits)} [{_number(low, digits)}, {_number(high, digits)}]"


def _ratio(found: Ratio) -> str:
    """Five digits: beside a verdict, a ratio near 1 must show on which side of 1 it is."""
    return _interval(found.ratio, found.low, found.high, 5)


def _points(value: float, low: float, high: float) -> str:
    return _interval(100 * value, 100 * low, 100 * high)


def _mean(mean: Mean | None, scale: float = 1.0) -> str:
    if mean is None:
        return "-"
    return _interval(scale * mean.mean, scale * mean.low, scale * mean.high)


def group_rows(groups: Sequence[Group]) -> list[list[str]]:
    """A row a group; means with their 95 % intervals."""
    rows = []
    for g in groups:
        medians = ["-" if m is None else _number(m.median) for m in (g.goodput_mbps, g.rtt_ms)]
        rows.append(
            [
                *(g.name, str(g.flows), str(sum(g.left_out.values()))),
                *(_mean(g.goodput_mbps), medians[0], _mean(g.rtt_ms), medians[1]),
                _mean(g.retransmission_rate, 100.0),
                "-" if g.base_rtt_ms is None else _number(g.base_rtt_ms),
            ]
        )
    return rows


def verdict(pair: Pair) -> str:
    """Whether goodput differs."""
    if pair.warnings:
        return "see the warnings"
    if not pair.goodput.significant:
        return "no difference"
    return "more goodput" if pair.goodput.low > 1 else "less goodput"


def pair_rows(pairs: Sequence[Pair]) -> list[list[str]]:
    """A row for every group beside the reference."""
    return [
        [
            *(p.name, p.reference, _ratio(p.goodput), _ratio(p.rtt)),
            _points(*p.retransmission_rate),
            verdict(p),
        ]
        for p in pairs
    ]


def warnings(found: Comparison) -> list[str]:
    """All warnings, each with the pair that it is about."""
    return [
        *(f"{p.name} beside {p.reference}: {text}" for p in found.pairs for text in p.warnings),
        *found.warnings,
    ]


def left_out_rows(found: Comparison) -> list[list[str]]:
    """A row a reason: how many flows of each group."""
    reasons = sorted({reason for group in found.groups for reason in group.left_out})
    return [[reason, *(str(g.left_out.get(reason, 0)) for g in found.groups)] for reason in reasons]


def screen(found: Comparison) -> str:
    """For a terminal."""
    lines = [table(GROUP_HEAD, group_rows(found.groups)), ""]
    if rows := left_out_rows(found):
        lines += [table(["left out", *(g.name for g in found.groups)], rows), ""]
    if found.pairs:
        lines += [table(PAIR_HEAD, pair_rows(found.pairs)), ""]
    lines += [f"WARNING: {text}" for text in warnings(found)]
    return "\n".join(lines).rstrip()


def _between_decades(value: float, _position: int | None) -> str:
    """2 and 5 of each decade have a label."""
    return f"{value:g}" if f"{value:.0e}"[0] in "25" else ""


@plots.plain()
def _picture(found: Comparison, flows: Sequence[Flow]) -> str:
    """The share of each group's flows with less than a goodput, and than an RTT."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FormatStrFormatter, FuncFormatter

    figure = Figure(figsize=(9, 3.2), layout="constrained")
    panels = figure.subplots(1, 2)
    colors = [plots.BLUE, plots.ORANGE, plots.GREEN, plots.RED, plots.PINK, plots.SKY]
    for number, group in enumerate(found.groups):
        kept = [f for f in flows if not f.left_out and KEYS[found.by](f) == group.name]
        color = plots.CC.get(group.name, colors[number % len(colors)])
        measures = (
            [max(f.goodput_mbps, LEAST_MBPS) for f in kept],
            [f.rtt_ms for f in kept if f.rtt_ms > 0],
        )
        for panel, values in zip(panels, measures, strict=True):
            if values:
                panel.ecdf(values, label=group.name, color=color)
    for panel, title in zip(panels, ("goodput, Mbit/s", "mean RTT, ms"), strict=True):
        panel.set(title=title, xscale="log", ylabel="share of the flows", ylim=(0, 1))
        panel.xaxis.set_major_formatter(FormatStrFormatter("%g"))
        panel.xaxis.set_minor_formatter(FuncFormatter(_between_decades))
    if panels[0].lines:
        panels[0].legend()
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", metadata=plots.NO_VERSION["svg"])
    return pages.image(buffer.getvalue(), "svg+xml")


def write(found: Comparison, flows: Sequence[Flow], source: str, folder: Path) -> Path:
    """Write ab.json and the page.

    Args:
        found: the comparison.
        flows: those that it is of.
        source: what was read, for the title.
        folder: is made if it is not there.
    """
    files.write_text(folder / RESULT, json_text(found) + "\n")
    values: dict[str, Any] = {
        "title": f"Algorithms on {source}",
        "warnings": warnings(found),
        "pair_head": PAIR_HEAD,
        "pairs": pair_rows(found.pairs),
        "group_head": GROUP_HEAD,
        "groups": group_rows(found.groups),
        "left_out_head": ["why", *(group.name for group in found.groups)],
        "left_out": left_out_rows(found),
        "missed": found.missed,
        "picture": _picture(found, flows),
    }
    files.write_text(folder / PAGE, pages.render("ab.html.j2", **values))
    return folder / PAGE
