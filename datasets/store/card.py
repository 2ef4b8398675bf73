# SPDX-License-Identifier: GPL-2.0-only
"""The dataset card: DATASET_CARD.md and two plots, written beside every dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ndm_tcp import contract, files, plots
from ndm_tcp.datasets.store import store
from ndm_tcp.datasets.store.describe import describe

CARD = "DATASET_CARD.md"
INPUTS_PLOT, PATHS_PLOT = "inputs.png", "paths.png"
FILES = (CARD, INPUTS_PLOT, PATHS_PLOT)
MOST_SOURCES = 40
BINS = 48
STEPS = 512
"""of a distribution function"""
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
    files.write_text(folder / CARD, _text(facts, dataset.manifest))


def _table(head: list[str], rows: list[list[object]]) -> list[str]:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return [*lines, *("| " + " | ".join(map(str, row)) + " |" for row in rows), ""]


def _text(facts: dict[str, Any], manifest: dict[str, Any]) -> str:
    lines = [
        "# Dataset card",
        "",
        f"{facts['rounds']} rounds ({facts['valid_rounds']} valid) of {facts['flows']} flows from "
        f"{facts['sources']} sources. Contract of the measurements {facts['contract']}, "
        f"SHA-256 of {store.ROUNDS} {facts['sha256']}.",
        "",
        "A round is one packet-timed round trip of one TCP flow, as measured by its sender: "
        f"{contract.N_INPUTS} measured inputs and the raw numbers behind them. Columns and units "
        "are in the schema of the file. No address is stored; flow names are hashes. All flows "
        "between the same two hosts, or over the same path, are in one split.",
        "",
        "## Counts",
        "",
    ]
    rows: list[list[object]] = [
        [name, ", ".join(f"{k} {v}" for k, v in counted.items())]
        for name, counted in facts["counts"].items()
    ]
    causes = {k: v for k, v in facts["rounds_with_loss"].items() if v}
    rows.append(["rounds with loss", ", ".join(f"{k} {v}" for k, v in causes.items()) or "none"])
    lines += _table(["rounds by", ""], rows)
    lines += _labels(facts)
    lines += _masks(facts)
    lines += ["## Inputs", "", "Range of the contract, extremes of the rounds, and quantiles.", ""]
    lines += _table(
        ["#", "input", "meaning", "range", "least", "5 %", "median", "95 %", "most"],
        [
            [number, f"`{name}`", i["meaning"], f"[{i['range'][0]:g}, {i['range'][1]:g}]"]
            + [f"{i[key]:.3f}" for key in ("least", "p5", "median", "p95", "most")]
            for number, (name, i) in enumerate(facts["inputs"].items(), start=1)
        ],
    )
    lines += [f"![distribution of every input]({INPUTS_PLOT})", ""]
    lines += [f"![round trip times, rates, windows, losses]({PATHS_PLOT})", ""]
    return "\n".join(lines + _origin(facts, manifest))


def _labels(facts: dict[str, Any]) -> list[str]:
    if not facts["labelled"] and not facts["unlabelled"]:
        return []
    lines = ["## Target windows of captures", ""]
    errors = facts["label_error_log2"]
    told = f"{facts['labelled']} flows have the target window of their estimated path"
    if errors:
        told += (
            f", with an expected error of {errors['median']:.3f} (median) and {errors['p90']:.3f} "
            "(90th percentile) in log2"
        )
    lines.append(f"- {told}.")
    lines += [f"- {n} flows have none: {reason}." for reason, n in facts["unlabelled"].items()]
    return [*lines, ""]


def _masks(facts: dict[str, Any]) -> list[str]:
    lines = ["## Masks", ""]
    blind = facts["rounds"] - facts["valid_rounds"]
    lines.append(f"- {blind} rounds are blind (`valid` false): their inputs are all zero.")
    for kind, names in facts["masked"].items():
        listed = ", ".join(f"`{name}`" for name in names)
        lines.append(f"- In rounds marked {kind} these inputs have no data and are 0: {listed}.")
    if "poll" in facts["counts"]["sampling"]:
        lines.append("- Polls have no raw RTT samples: their `entropy` has no delay part.")
    if "inflight" in facts["counts"]["cwnd_source"]:
        lines.append(
            "- Where `cwnd_source` is inflight, the window is estimated from the packets in flight."
        )
    return [*lines, ""]


def _origin(facts: dict[str, Any], manifest: dict[str, Any]) -> list[str]:
    lines = ["## Origin", ""]
    packets = ", ".join(f"{k} {v}" for k, v in facts["capture"].items() if v)
    left_out = ", ".join(f"{v} x {k}" for k, v in facts["skipped"].items())
    lines += [f"Captured packets: {packets or 'none'}.", ""]
    lines += [f"Connections left out: {left_out or 'none'}.", ""]
    lines += [line for warning in facts["warnings"] for line in (f"Warning: {warning}.", "")]
    for source in manifest["failed"]:
        lines += [f"Not read: {source['name']}: {source['error']}", ""]
    for source in manifest["repeated"]:
        lines += [f"Not used: {source['name']} has the bytes of {source['same_as']}.", ""]
    rows: list[list[object]] = [
        [
            source["name"],
            source["sha256"][:16],
            len(source["flows"]),
            sum(flow["rounds"] for flow in source["flows"]),
            "" if source["truncated_at"] is None else f"cut at byte {source['truncated_at']}",
        ]
        for source in manifest["sources"]
    ]
    lines += _table(["source", "SHA-256", "flows", "rounds", ""], rows[:MOST_SOURCES])
    if len(rows) > MOST_SOURCES:
        lines += [f"And {len(rows) - MOST_SOURCES} more, in {store.MANIFEST}.", ""]
    return lines


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
    for i, panel in zip(contract.INPUTS, panels.flat, strict=True):
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


@plots.plain()
def _plot_paths(dataset: store.Dataset, facts: dict[str, Any], path: Path) -> None:
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullFormatter

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
            counts, _ = np.histogram(values[mask & good], bins=edges)
            share = 100 * counts / max(mask.sum(), 1)
            panel.stairs(share, edges, fill=True, alpha=0.55, color=COLORS[name], label=name)
        panel.set_xscale("log")
        panel.xaxis.set_minor_formatter(NullFormatter())
        panel.set_title(title, fontsize=9)
        panel.tick_params(labelsize=7)
    panels[0].set_ylabel("% of valid rounds", fontsize=8)
    panels[0].legend(fontsize=7)
    causes = facts["rounds_with_loss"]
    panels[3].barh(list(causes), list(causes.values()), color="#7a7a7a")
    panels[3].set_title("rounds with loss, by cause", fontsize=9)
    panels[3].tick_params(labelsize=7)
    panels[3].invert_yaxis()
    with files.replacing(path) as temporary:
        figure.savefig(temporary, format="png", dpi=100, metadata=plots.NO_VERSION["png"])
