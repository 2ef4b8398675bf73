# SPDX-License-Identifier: GPL-2.0-only
"""One flow of a trace as a picture: window, inputs and outputs of the network, decision."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ndm_tcp import contract, files, plots
from ndm_tcp.datasets.module_event import event_lines
from ndm_tcp.errors import NdmError

FORMATS = (".png", ".svg")
COLORS = {
    "network": plots.BLUE,
    "blind": plots.GREY,
    "slow_start": plots.GREEN,
    "goes_on": plots.SKY,
    "recovery": plots.RED,
    "watchdog": plots.PINK,
    "drain": plots.YELLOW,
}
NEVER = 0x7FFFFFFF
"""the threshold that a flow begins with"""


def _edges(seconds: np.ndarray[Any, np.dtype[np.float64]]) -> Any:
    """[rounds + 1]: a round lasts from the end of the one before to its own."""
    before = seconds[0] - (np.median(np.diff(seconds)) if len(seconds) > 1 else 1.0)
    return np.concatenate([[before], seconds])


def _draw_window(axis: Any, table: pa.Table, seconds: Any) -> None:
    threshold = table["ssthresh"].to_numpy().astype(float)
    threshold[threshold >= NEVER] = np.nan
    axis.step(
        seconds, threshold, where="post", color=plots.GREY, lw=1, label="slow start threshold"
    )
    axis.step(seconds, table["target"].to_numpy(), where="post", color=plots.ORANGE, label="target")
    axis.plot(seconds, table["cwnd"].to_numpy(), color=plots.BLUE, label="cwnd at the round's end")
    axis.set_ylabel("packets")
    axis.set_ylim(bottom=0)
    axis.legend(loc="lower right", fontsize=8, ncols=3)


def _draw_outputs(gains: Any, logits: Any, table: pa.Table, seconds: Any) -> None:
    valid = table["valid"].to_numpy(zero_copy_only=False)
    one = 1 << contract.Q_PRE
    for axis, name in ((gains, "cwnd_gain"), (logits, "congestion")):
        values = np.where(valid, table[name].to_numpy() / one, np.nan)
        axis.axhline(0, color=plots.GREY, lw=0.8)
        axis.plot(seconds, values, ".-", color=plots.BLUE, lw=0.8, ms=3)
    gains.set_ylabel("gain\n(log2 of a factor)")
    logits.set_ylabel("congestion\n(logit)")


def _draw_inputs(figure: Any, axis: Any, table: pa.Table, seconds: Any) -> None:
    valid = table["valid"].to_numpy(zero_copy_only=False)
    rows = []
    for item in contract.DENSE:
        share = (table[item.name].to_numpy() - item.lo_q) / (item.hi_q - item.lo_q)
        rows.append(np.where(valid, share, np.nan))
    names = [f"{item.name} [{item.lo:g}, {item.hi:g}]" for item in contract.DENSE]
    mesh = axis.pcolormesh(
        _edges(seconds), np.arange(len(rows) + 1), np.array(rows), cmap="cividis", vmin=0, vmax=1
    )
    mesh.set_rasterized(True)
    axis.set_yticks(np.arange(len(rows)) + 0.5, names, fontsize=8)
    axis.invert_yaxis()
    axis.set_ylabel("inputs [range]")
    figure.colorbar(mesh, ax=axis, label="place in its range", pad=0.01)


def _draw_why(axis: Any, table: pa.Table, seconds: Any) -> None:
    why = np.array(table["why"].to_pylist())
    for row, name in enumerate(event_lines.WHY):
        at = seconds[why == name]
        axis.plot(at, np.full(len(at), row), "|", color=COLORS[name], ms=9)
    axis.set_yticks(range(len(event_lines.WHY)), event_lines.WHY, fontsize=8)
    axis.set_ylim(len(event_lines.WHY) - 0.5, -0.5)
    axis.set_ylabel("who decided")
    axis.set_xlabel("time since the first round (s)")


def plot(table: pa.Table, out: Path) -> None:
    """Draw one flow.

    Args:
        table: its rounds, by `event_lines.SCHEMA`.
        out: .png or .svg to write.

    Raises:
        NdmError: another kind of file, or rounds of several flows.
    """
    if out.suffix not in FORMATS:
        raise NdmError(f"{out}: name it {' or '.join(FORMATS)}")
    flows = event_lines.flows(table)
    if len(flows) != 1:
        apart = len({sport for sport, *_ in flows}) == len(flows)
        names = ", ".join(str(sport) if apart else peer for sport, _, peer in flows[:5])
        option = "--port" if apart else "--peer"
        raise NdmError(f"{len(flows)} flows in one picture; choose one by {option}: {names} ...")
    from matplotlib.figure import Figure

    t_us = table["t_us"].to_numpy()
    seconds = (t_us - t_us[0]) / 1e6
    with plots.plain():
        figure = Figure(figsize=(11, 10), layout="constrained")
        axes = figure.subplots(5, sharex=True, height_ratios=(3, 1.3, 1.3, 3, 1.5))
        ((sport, dport, peer),) = flows
        figure.suptitle(f"Port {sport} to {peer or dport}: {table.num_rows} rounds")
        _draw_window(axes[0], table, seconds)
        _draw_outputs(axes[1], axes[2], table, seconds)
        _draw_inputs(figure, axes[3], table, seconds)
        _draw_why(axes[4], table, seconds)
        with files.replacing(out) as temporary:
            kind = out.suffix[1:]
            figure.savefig(temporary, format=kind, metadata=plots.NO_VERSION[kind])
