# SPDX-License-Identifier: GPL-2.0-only
"""Offline metrics on held-out flows. Not a claim about throughput: that takes a closed loop."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ndm_tcp import contract
from ndm_tcp.datasets.rounds.columns import Named
from ndm_tcp.training.model import Policy
from ndm_tcp.training.objective import Examples

AT_ONCE = 1 << 16
"""rounds in one forward pass"""
DECISIVE = 0.05
"""Actions smaller than this (log2) are 'hold'; copying them is no achievement."""


def auc(score: npt.NDArray[Any], label: npt.NDArray[Any]) -> float | None:
    """Area under the ROC curve by ranks (ties share); None without both classes."""
    positive, negative = int((label == 1).sum()), int((label == 0).sum())
    if not positive or not negative:
        return None
    _, inverse, counts = np.unique(score, return_inverse=True, return_counts=True)
    rank = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    total = float(rank[label == 1].sum())
    return (total - positive * (positive + 1) / 2) / (positive * negative)


def calibration(
    logit: npt.NDArray[Any], label: npt.NDArray[Any], bins: int = 10
) -> tuple[float, npt.NDArray[np.float64]]:
    """Are predictions of overflow loss with 70 % right in 70 of 100 cases?

    Args:
        logit: [n]
        label: [n] 1 or 0
        bins: of equal width in probability.

    Returns:
        the Brier score, and per bin that is not empty a row of mean probability, share of label 1,
        and count: the reliability diagram.
    """
    said = 1 / (1 + np.exp(-logit.astype(np.float64)))
    which = np.minimum((said * bins).astype(int), bins - 1)
    rows = [
        (said[which == k].mean(), label[which == k].mean(), (which == k).sum())
        for k in np.unique(which)
    ]
    return float(((said - label) ** 2).mean()), np.array(rows, dtype=np.float64).reshape(-1, 3)


def _policy_metrics(gain: npt.NDArray[Any], action: npt.NDArray[Any]) -> dict[str, Any]:
    decisive = np.abs(action) > DECISIVE
    agree = np.sign(gain[decisive]) == np.sign(action[decisive])
    return {
        "rounds": len(action),
        "gain_mae": float(np.abs(gain - action).mean()) if len(action) else None,
        "hold_mae": float(np.abs(action).mean()) if len(action) else None,
        "decisive_rounds": int(decisive.sum()),
        "decisive_sign": float(agree.mean()) if decisive.any() else None,
    }


def _by_name(
    names: Named, rows: npt.NDArray[np.bool_], gain: npt.NDArray[Any], action: npt.NDArray[Any]
) -> dict[str, dict[str, Any]]:
    """Metrics of some rows by a column's texts, in the order of these; rows are sorted once."""
    at = np.flatnonzero(rows)
    at = at[np.argsort(names.number[at], kind="stable")]
    if not len(at):
        return {}
    edges = np.flatnonzero(np.diff(names.number[at])) + 1
    found = {
        str(names.at(part[:1], "unknown")[0]): _policy_metrics(gain[part], action[part])
        for part in np.split(at, edges)
    }
    return dict(sorted(found.items()))


def outputs(policy: Policy, x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """[n, 2] of inputs [n, dense], some at a time: two million rounds' hidden units take 260 MB."""
    out = np.empty((len(x), contract.N_OUTPUTS), dtype=np.float32)
    with torch.no_grad():
        for at in range(0, len(x), AT_ONCE):
            out[at : at + AT_ONCE] = policy.act(torch.from_numpy(x[at : at + AT_ONCE])).numpy()
    return out


def evaluate(policy: Policy, examples: Examples) -> dict[str, Any]:
    """Per split, per flow and per algorithm: imitation error and the congestion logit's AUC.

    `hold_mae` is the error of a network that never moves the window: the mark to beat.
    """
    out, action = outputs(policy, examples.x), examples.action
    result: dict[str, Any] = {}
    for split in ("train", "val", "test"):
        inside = examples.split == split
        rows = inside & examples.policy
        known = inside & (examples.cause >= 0)
        result[split] = {
            **_policy_metrics(out[rows, 0], action[rows]),
            "congestion_losses": int((examples.cause[known] == 1).sum()),
            "noise_losses": int((examples.cause[known] == 0).sum()),
            "congestion_auc": auc(out[known, 1], examples.cause[known]),
            "by_cc": _by_name(examples.ccs, rows, out[:, 0], action),
            "by_flow": _by_name(examples.flows, rows, out[:, 0], action),
        }
    return result
