# SPDX-License-Identifier: GPL-2.0-only
"""The dataset card: DATASET_CARD.md and two plots, written beside a dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ndm_tcp import contract, files, pages, plots
from ndm_tcp.datasets.store import store
from ndm_tcp.datasets.store.describe import describe, label_lines

CARD = "DATASET_CARD.md"
INPUTS_PLOT, PATHS_PLOT = "inputs.png", "paths.png"
FILES = (CARD, INPUTS_PLOT, PATHS_PLOT)
MOST_SOURCES = 40
BINS = 48
STEPS = 512
"""of a distribution function"""
STEADY = (1.0, 2.0, 5.0)
"""times powers of ten: numbers at steady distances on a log scale"""
COLORS = {"per_ack": plots.BLUE, "poll": plots.ORANGE}


class _Columns:
    """The columns of a dataset, read one at a time."""

    def __init__(self, path: Path) -> None:
        self.file = pq.ParquetFile(path)
        self.num_rows: int = self.file.metadata.num_rows

    def __getitem__(self, name: str) -> pa.ChunkedArray:
        return self.file.read(columns=[name])[name]


def write(folder: Path) -> None:
    """Write the card of the dataset in a folder."""
    dataset = store.Dataset(
        _Columns(folder / store.ROUNDS),
        store.manifest_of(folder),
        files.sha256(folder / store.ROUNDS),
    )
    facts = describe(dataset)
    _plot_inputs(dataset, folder / INPUTS_PLOT)
    _plot_paths(dataset, facts, folder / PATHS_PLOT)
    files.write_text(folder / CARD, text(facts, dataset.manifest))


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {n}" for name, n in counts.items() if n)


def text(facts: dict[str, Any], manifest: dict[str, Any]) -> str:
    """The card in Markdown, of `describe()` and of a manifest."""
    counts = {name: _listed(counted) for name, counted in facts["counts"].items()}
    counts["rounds with loss"] = _listed(facts["rounds_with_loss"]) or "none"
    inputs = [
        [number, f"`{name}`", i["meaning"], f"[{i['range'][0]:g}, {i['range'][1]:g}]"]
        + [f"{i[key]:.3f}" for key in ("least", "p5", "median", "p95", "most")]
        for number, (name, i) in enumerate(facts["inputs"].items(), start=1)
    ]
    sources = [
        [
            source["name"],
            source["sha256"][:16],
            len(source["flows"]),
            sum(flow["rounds"] for flow in source["flows"]),
            "" if source["truncated_at"] is None else f"cut at byte {source['truncated_at']}",
        ]
        for source in manifest["sources"]
    ]
    return pages.render(
        "dataset_card.md.j2",
        facts=facts,
        labels=label_lines(facts["flows"], facts["labelled"], facts["unlabelled"]),
        counts=counts.items(),
        inputs=inputs,
        sources=sources,
        most=MOST_SOURCES,
        packets=_listed(facts["capture"]),
        left_out=", ".join(f"{n} x {reason}" for reason, n in facts["skipped"].items()),
        failed=manifest["failed"],
        repeated=manifest["repeated"],
        inputs_plot=INPUTS_PLOT,
        paths_plot=PATHS_PLOT,
        rounds_file=store.ROUNDS,
        manifest_file=store.MANIFEST,
    )


def _samplings(rounds: Any) -> dict[str, Any]:
    """Sampling to a mask of its valid rounds."""
    valid = rounds["valid"].to_numpy()
    sampling = rounds["sampling"].to_numpy()
    return {name: valid & (sampling == name) for name in COLORS if (sampling == name).any()}


@plots.plain()
def _plot_inputs(dataset: store.Dataset, path: Path) -> None:
    from matplotlib.figure import Figure

    masks = _samplings(dataset.rounds)
    columns = -(-contract.N_INPUTS // 2)
    figure = Figure(figsize=(2.7 * columns, 5.6), layout="constrained")
    panels = figure.subplots(2, columns, squeeze=False, sharey=True)
    for spare in panels.flat[contract.N_INPUTS :]:
        spare.set_visible(False)
    for i, panel in zip(contract.INPUTS, panels.flat, strict=False):
        values = dataset.rounds[i.name].to_numpy() / (1 << contract.Q_INPUT)
        for name, mask in masks.items():
            # A jump is a value that many rounds share, such as no loss at all.
            counts, edges = np.histogram(values[mask], bins=STEPS, range=(i.lo, i.hi))
            below = np.concatenate([[0], 100 * np.cumsum(counts) / max(mask.sum(), 1)])
            label = f"{name}, {mask.sum():,} rounds"
            panel.plot(edges, below, color=COLORS[name], lw=1.6, label=label)
        panel.set_title(f"{i.index} {i.name}")
        panel.set(xlim=(i.lo, i.hi), ylim=(0, 101))
        panel.grid(color="#e4e4e4", lw=0.6)
    for panel in panels[:, 0]:
        panel.set_ylabel("% of valid rounds up to this value")
    figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    with files.replacing(path) as temporary:
        figure.savefig(temporary, format="png", dpi=100, metadata=plots.NO_VERSION["png"])


def log_axis(panel: Any, low: float, high: float) -> None:
    """x on a log scale, with at least two numbers: a narrow range holds fewer powers of ten."""
    from matplotlib.ticker import FormatStrFormatter, LogLocator, MaxNLocator, NullFormatter

    panel.set_xscale("log")
    if np.floor(np.log10(high)) - np.ceil(np.log10(low)) < 2:
        inside = [n for n in np.outer(10.0 ** np.arange(-9, 10), STEADY).flat if low <= n <= high]
        ticks = LogLocator(subs=STEADY) if len(inside) > 1 else MaxNLocator(4)
        panel.xaxis.set_major_locator(ticks)
        panel.xaxis.set_major_formatter(FormatStrFormatter("%g"))
    panel.xaxis.set_minor_formatter(NullFormatter())


@plots.plain()
def _plot_paths(dataset: store.Dataset, facts: dict[str, Any], path: Path) -> None:
    from matplotlib.figure import Figure

    rounds, masks = dataset.rounds, _samplings(dataset.rounds)
    interval_us = rounds["rate_interval_us"].to_numpy().astype(float)
    mss = np.nan_to_num(rounds["mss"].to_numpy().astype(float), nan=1448.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        rate = rounds["rate_packets"].to_numpy() * mss * 8 / interval_us
    series = {
        "smoothed RTT, ms": rounds["srtt_us"].to_numpy() / 1e3,
        "delivery rate, Mbit/s": np.where(interval_us > 0, rate, np.nan),
        "window, packets": rounds["cwnd"].to_numpy().astype(float),
    }
    figure = Figure(figsize=(12, 2.8), layout="constrained")
    panels = figure.subplots(1, 4)
    for (title, values), panel in zip(series.items(), panels[:3], strict=True):
        good = np.isfinite(values) & (values > 0)
        low, high = np.quantile(values[good], [0, 1]) if good.any() else (1.0, 2.0)
        edges = np.geomspace(low, max(high, low * 1.01), BINS)
        for name, mask in masks.items():
            # Counts: as shares, ten polls would dwarf a thousand rounds.
            counts, _ = np.histogram(values[mask & good], bins=edges)
            label = f"{name}, {mask.sum():,}"
            panel.stairs(counts, edges, fill=True, alpha=0.55, color=COLORS[name], label=label)
        log_axis(panel, low, high)
        panel.set_title(title, fontsize=9)
        panel.tick_params(labelsize=7)
    panels[0].set_ylabel("valid rounds", fontsize=8)
    panels[0].legend(fontsize=7)
    causes = facts["rounds_with_loss"]
    panels[3].barh(list(causes), list(causes.values()), color="#7a7a7a")
    panels[3].set_title("rounds with loss, by cause", fontsize=9)
    panels[3].tick_params(labelsize=7)
    panels[3].invert_yaxis()
    with files.replacing(path) as temporary:
        figure.savefig(temporary, format="png", dpi=100, metadata=plots.NO_VERSION["png"])
