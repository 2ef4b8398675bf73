# SPDX-License-Identifier: GPL-2.0-only
"""Figures of a board and of its runs over time."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from ndm_tcp import pages, plots
from ndm_tcp.datasets.readers import streams
from ndm_tcp.errors import NdmError
from ndm_tcp.lab.guest.suite import Outcome
from ndm_tcp.lab.score import tables
from ndm_tcp.lab.score.metrics import Cell

FORMATS = (".svg", ".png")
SHOWN = ("reno", "cubic", "bbr", "ndm_tcp", "vegas")
"""Algorithms drawn over time; more would hide each other."""
RATE_S = 1.0
"""seconds that a point of the goodput stands for"""
LEAST_STATES = 3
"""of a curve over time"""
LABEL_INCHES = 0.13
"""height of a name in the scatter, with the space around it"""
OVER_TIME = {
    "Congestion window": "packets",
    "Smoothed RTT": "ms",
    "Acknowledged per second": "Mbit/s",
}
"""panel to its unit"""


def format_of(path: Path) -> str:
    """The format of a picture, by its name.

    Raises:
        NdmError: it is not one that can be written.
    """
    if path.suffix not in FORMATS:
        raise NdmError(f"{path}: name it {' or '.join('*' + f for f in FORMATS)}")
    return path.suffix[1:]


def _bytes(figure: Any, kind: str = "png") -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, dpi=100, metadata=plots.NO_VERSION[kind])
    return buffer.getvalue()


def _image(figure: Any) -> str:
    return pages.image(_bytes(figure))


def figure_of(
    columns: int, height: float = 3.2, width: float = 5, rows: int = 1
) -> tuple[Any, Any]:
    """A figure and its panels [rows, columns]; sizes of one panel, inches."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def first_runs(outcomes: list[Outcome]) -> dict[tuple[str, str], Path]:
    """(scenario, algorithm) to the run of its first seed."""
    return {
        (o.job.scenario.name, o.job.cc): o.job.folder
        for o in sorted(outcomes, key=lambda o: -o.job.seed)
        if o.result is not None
    }


def tested_port(folder: Path, cc: str) -> int | None:
    """The sender's port of the flow under test, by result.json; the first, if there are several.

    Args:
        folder: of a run.
        cc: the algorithm under test, as the board names it.

    Returns:
        the port; None if no flow of the run is under test, as where it is a web page.
    """
    result = orjson.loads((folder / "result.json").read_bytes())
    algorithm = cc.partition(":")[0]
    for flow in result["flows"]:
        # Older runs do not mark the flow under test; its algorithm does, except beside itself.
        if flow.get("tested", flow["cc"] == algorithm):
            return int(flow["port"])
    return None


def _states(folder: Path, cc: str) -> list[dict[str, Any]]:
    """The polled states of the flow under test, in the order of time.

    Args:
        folder: of a run.
        cc: the algorithm under test, as the board names it.

    Returns:
        none if there are too few for a curve, as of a web page, or of a run in the simulator.
    """
    path = folder / "tcp_info.jsonl.zst"
    if not (path.is_file() and (folder / "result.json").is_file()):
        return []
    port = tested_port(folder, cc)
    with streams.open_bytes(path) as stream:
        rows = [orjson.loads(line) for line in stream if line.strip()]
    rows = [r for r in rows if r["sport"] == port]
    return rows if len(rows) >= LEAST_STATES else []


def _styles(runs: list[tuple[str, Path]]) -> list[tuple[str, str]]:
    """Colour and label of each run: its algorithm's, where these tell all of them apart."""
    algorithms = [cc for cc, _ in runs]
    names = [folder.resolve().name for _, folder in runs]
    paths = [str(folder) for _, folder in runs]
    labels = next((v for v in (algorithms, names) if len(set(v)) == len(runs)), paths)
    colors = [plots.color_of(cc) for cc in algorithms]
    if len(set(colors)) < len(runs):
        colors = [f"C{number}" for number in range(len(runs))]
    # matplotlib leaves labels that begin with _ out of a legend.
    return [(c, f"./{v}" if v[:1] == "_" else v) for c, v in zip(colors, labels, strict=True)]


def _draw_over_time(panels: Any, runs: list[tuple[str, Path]]) -> list[Path]:
    """Draw the runs; returns the folders of those that have no curve."""
    left_out = []
    for (cc, folder), (color, label) in zip(runs, _styles(runs), strict=True):
        rows = _states(folder, cc)
        if not rows:
            left_out.append(folder)
            continue
        t_s = np.array([r["t_ns"] for r in rows]) / 1e9
        t_s -= t_s[0]
        cwnd = np.array([r["cwnd"] for r in rows])
        rtt_ms = np.array([r["srtt_us"] or np.nan for r in rows]) / 1e3
        acked = np.array([r["bytes_acked"] for r in rows])
        grid = np.linspace(0, t_s[-1], max(int(t_s[-1] / RATE_S), 8) + 1)
        rate = np.diff(np.interp(grid, t_s, acked)) * 8e-6 / grid[1]
        curves = ((t_s, cwnd), (t_s, rtt_ms), (grid[1:], rate))
        for panel, (x, y) in zip(panels, curves, strict=True):
            panel.plot(x, y, lw=1, color=color, label=label)
    for panel, (title, unit) in zip(panels, OVER_TIME.items(), strict=True):
        panel.set(xlabel="time, s", ylabel=unit, title=title, ylim=(0, None))
    if panels[0].lines:
        panels[0].legend(fontsize=8)
    else:
        for panel in panels:
            panel.text(0.5, 0.5, "no flow over time", ha="center", transform=panel.transAxes)
    return left_out


def algorithm_of(folder: Path) -> str:
    """The algorithm under test of a run.

    Raises:
        NdmError: no run there.
    """
    try:
        return str(orjson.loads((folder / "result.json").read_bytes())["cc"])
    except (OSError, ValueError, KeyError, TypeError):
        raise NdmError(f"{folder}: no run here; expected a folder of ndm lab run") from None


def time_figure(runs: list[tuple[str, Path]]) -> tuple[Any, list[Path]]:
    """cwnd, RTT and throughput of the flow under test of (algorithm, run folder) each.

    Returns:
        the figure, and the folders of runs that have no flow over time.
    """
    figure, axes = figure_of(3)
    return figure, _draw_over_time(axes[0], runs)


@plots.plain()
def over_time(runs: list[tuple[str, Path]]) -> str:
    """cwnd, RTT and throughput of the flow under test; (algorithm, run folder) each."""
    return _image(time_figure(runs)[0])


@plots.plain()
def picture(board: tables.Board, outcomes: list[Outcome], kind: str = "png") -> bytes:
    """A PNG, or SVG, of every scenario's flows under test over time, a row of panels each."""
    folders = first_runs(outcomes)
    scenarios = [name for name, _ in tables.sections(board)]
    figure, axes = figure_of(3, rows=len(scenarios))
    for row, scenario in zip(axes, scenarios, strict=True):
        runs = [(cc, folders[scenario, cc]) for cc in SHOWN if (scenario, cc) in folders]
        _draw_over_time(row, runs)
        row[0].set_title(f"{scenario}\n{next(iter(OVER_TIME))}")
    return _bytes(figure, kind)


def spread_out(wanted: list[float], least: float) -> list[float]:
    """Rising places near the wanted rising ones in [0, 1], no two nearer than `least`."""
    found: list[float] = []
    for place in wanted:
        found.append(max(place, found[-1] + least) if found else max(place, 0.0))
    limit = 1.0
    for number in range(len(found) - 1, -1, -1):
        found[number] = min(found[number], limit)
        limit = found[number] - least
    return found


def scatter_figure(group: list[Cell]) -> Any:
    """Goodput against delay; names in a column beside the panel, where none hides another."""
    shown = [cell for cell in group if cell.mean["rtt_mean_ms"] > 0]  # unknown: NaN
    height = max(3.6, LABEL_INCHES * len(shown) + 1)
    figure, axes = figure_of(1, height)
    panel = axes[0][0]
    for cell in shown:
        panel.errorbar(
            cell.mean["rtt_mean_ms"],
            cell.mean["goodput_mbps"],
            xerr=cell.spread["rtt_mean_ms"],
            yerr=cell.spread["goodput_mbps"],
            fmt="o",
            ms=5,
            color=plots.color_of(cell.cc),
        )
    panel.axhline(0, linewidth=0)  # so that the room above is a share of all, not of the spread
    panel.margins(0.15)
    panel.set(xlabel="mean RTT, ms", ylabel="goodput, Mbit/s")
    panel.set_ylim(bottom=0)
    top = panel.get_ylim()[1]
    shown.sort(key=lambda cell: cell.mean["goodput_mbps"])
    wanted = [cell.mean["goodput_mbps"] / top for cell in shown]
    for cell, place in zip(shown, spread_out(wanted, LABEL_INCHES / (height - 0.8)), strict=True):
        panel.annotate(
            cell.cc,
            (cell.mean["rtt_mean_ms"], cell.mean["goodput_mbps"]),
            xytext=(1.03, place),
            textcoords="axes fraction",
            fontsize=7,
            va="center",
            arrowprops={"arrowstyle": "-", "lw": 0.4, "color": plots.color_of(cell.cc)},
        )
    return figure


@plots.plain()
def scatter(group: list[Cell]) -> str:
    """Goodput against delay; up and to the left is better."""
    return _image(scatter_figure(group))


@plots.plain()
def against_loss(board: tables.Board) -> str:
    """Goodput against the loss rate, for families of scenarios that differ only in it; or ""."""
    families: dict[str, dict[str, dict[float, float]]] = {}
    for cell in board.cells:
        found = re.fullmatch(r"(.+)-loss-([\d.]+)", cell.scenario)
        if found and cell.cc in SHOWN:
            family = families.setdefault(found[1], {})
            family.setdefault(cell.cc, {})[float(found[2])] = cell.mean["goodput_mbps"]
    drawn = {k: v for k, v in families.items() if any(len(points) > 1 for points in v.values())}
    if not drawn:
        return ""
    figure, axes = figure_of(len(drawn))
    for panel, (name, curves) in zip(axes[0], drawn.items(), strict=True):
        for cc, points in curves.items():
            x = sorted(points)
            panel.plot(x, [points[v] for v in x], "o-", ms=4, color=plots.color_of(cc), label=cc)
        panel.set_xscale("symlog", linthresh=0.01)
        panel.set(xlabel="loss, %", ylabel="goodput, Mbit/s", title=name, ylim=(0, None))
    axes[0][0].legend(fontsize=8)
    return _image(figure)
