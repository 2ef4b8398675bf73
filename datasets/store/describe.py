# SPDX-License-Identifier: GPL-2.0-only
"""Content of a dataset as plain numbers, for `ndm dataset info` and the card."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from ndm_tcp import contract
from ndm_tcp.datasets.rounds.flow import LABEL_ERROR, NO_LABEL, LossCause, Sampling
from ndm_tcp.datasets.store import store

BINS = 16
MASKED = {Sampling.POLL.value: ("queue_floor",)}
"""Inputs that a way of sampling cannot give; they read 0. A poll's entropy is that of losses."""
MASKED_FORMATS = {"flent": ("loss_rate", "plasticity", "entropy")}
"""Inputs that a format cannot give: flent knows of no loss."""


def describe(dataset: store.Dataset) -> dict[str, Any]:
    """Counts by kind, and quartiles and a histogram of every input over its range."""
    rounds = dataset.rounds
    counts = {
        name: {str(k): int(v) for k, v in zip(*_unique(rounds[name]), strict=True)}
        for name in ("format", "sampling", "cwnd_source", "cc", "split")
    }
    lost = rounds["lost"].to_numpy() > 0
    causes = rounds["loss_cause"].to_numpy()[lost]
    valid = rounds["valid"].to_numpy(zero_copy_only=False)
    inputs = {}
    for i in contract.INPUTS:
        values = rounds[i.name].to_numpy()[valid] / (1 << contract.Q_INPUT)
        histogram, _ = np.histogram(values, bins=BINS, range=(i.lo, i.hi))
        quantiles = np.quantile(values, [0.05, 0.5, 0.95]) if len(values) else np.zeros(3)
        inputs[i.name] = {
            "meaning": i.meaning,
            "range": [i.lo, i.hi],
            "least": float(values.min()) if len(values) else 0.0,
            "most": float(values.max()) if len(values) else 0.0,
            "p5": float(quantiles[0]),
            "median": float(quantiles[1]),
            "p95": float(quantiles[2]),
            "histogram": histogram.tolist(),
        }
    labelled, unlabelled = labels(dataset.manifest)
    return {
        "labelled": labelled,
        "label_error_log2": _label_errors(dataset.manifest),
        "unlabelled": unlabelled,
        "contract": contract.DATA_HASH,
        "sha256": dataset.sha256,
        "flows": dataset.manifest["flows"],
        "rounds": rounds.num_rows,
        "valid_rounds": int(valid.sum()),
        # A choice of recordings lists none.
        "sources": len(dataset.manifest["sources"] or _unique(rounds["source"])[0]),
        "capture": _added(dataset.manifest["sources"], "capture"),
        "skipped": _added(dataset.manifest["sources"], "skipped"),
        "truncated": {
            s["name"]: s["truncated_at"]
            for s in dataset.manifest["sources"]
            if s["truncated_at"] is not None
        },
        "warnings": [
            f"{s['name']}: {warning}"
            for s in dataset.manifest["sources"]
            for warning in s.get("warnings", ())
        ],
        "masked": {
            kind: list(names)
            for column, masks in (("sampling", MASKED), ("format", MASKED_FORMATS))
            for kind, names in masks.items()
            if kind in counts[column]
        },
        "counts": counts,
        "rounds_with_loss": {c.name.lower(): int((causes == c).sum()) for c in LossCause},
        "inputs": inputs,
    }


def _with_rounds(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    """The flows that a dataset counts: many of a capture are too short for a round."""
    flows = (flow for source in manifest["sources"] for flow in source["flows"])
    return [flow for flow in flows if flow["rounds"]]


def labels(manifest: dict[str, Any]) -> tuple[int, dict[str, int]]:
    """How many flows have an estimated path, and why others have none: reason to count.

    Flows without rounds are not counted.
    """
    flows = _with_rounds(manifest)
    reasons = Counter(str(flow[NO_LABEL]) for flow in flows if NO_LABEL in flow)
    return sum(LABEL_ERROR in flow for flow in flows), dict(reasons.most_common())


def label_lines(flows: int, labelled: int, unlabelled: dict[str, int]) -> list[str]:
    """Where the target windows of all flows come from, a sentence each; none without labels.

    Args:
        flows: with rounds, of the dataset.
        labelled: see `labels`.
        unlabelled: see `labels`.
    """
    if not labelled and not unlabelled:
        return []

    def line(count: int, whose: str, path: str) -> str:
        flow, have, their = ("flow", "has", "its") if count == 1 else ("flows", "have", "their")
        return f"{count} {flow} of {whose} {have} a target window, by {their} {path} path"

    lines = [line(labelled, "captures", "estimated")]
    for reason, count in unlabelled.items():
        have = "has none" if count == 1 else "have none, each for this reason"
        lines.append(f"{count} {have}: {reason}")
    if rest := flows - labelled - sum(unlabelled.values()):
        lines.append(line(rest, "the lab", "known"))
    return lines


def _label_errors(manifest: dict[str, Any]) -> dict[str, float]:
    """Median and 90th percentile of the expected errors of labelled flows, |log2|."""
    errors = [flow[LABEL_ERROR] for flow in _with_rounds(manifest) if LABEL_ERROR in flow]
    if not errors:
        return {}
    return {"median": float(np.median(errors)), "p90": float(np.quantile(errors, 0.9))}


def _unique(column: Any) -> tuple[list[Any], list[int]]:
    counted = column.value_counts().to_pylist()
    rows = sorted((str(row["values"]), row["counts"]) for row in counted)
    return [k for k, _ in rows], [v for _, v in rows]


def _added(sources: list[dict[str, Any]], key: str) -> dict[str, int]:
    total = Counter[str]()
    for source in sources:
        total.update(source[key])
    return dict(total)
