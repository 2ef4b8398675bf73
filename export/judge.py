# SPDX-License-Identifier: GPL-2.0-only
"""Whether a training run is fit to be exported, by the held-out paths in `RUN/metrics.json`.

The mark to beat is a network that never moves the window. A run that does not beat it would do
harm in the kernel, where each round's step acts on the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from ndm_tcp import contract as c
from ndm_tcp.errors import NdmError
from ndm_tcp.training.config import RESULTS

OVERRIDE = "--even-if-worse"
GAIN, CONGESTION = (o.name for o in c.OUTPUTS)
HELD_OUT = {"test": "test paths", "val": "val paths, which chose the epoch"}
"""split to its name; the first that has rounds judges: what chose the epoch is biased upwards"""


@dataclass(frozen=True)
class Judgement:
    """Judgement of a run by held-out rounds."""

    text: str
    """one line for card, report and screen"""
    fit: bool
    """it beats a constant window, or is not judged"""
    advice: str = ""
    """the remedy, if it is not fit"""


def _results(run: Path) -> dict[str, Any] | None:
    path = run / RESULTS
    if not path.is_file():
        return None
    try:
        results: dict[str, Any] = orjson.loads(path.read_bytes())
        if results.get("untrained") or results.get("rebuilt"):
            return results
        for split in ("train", "val", "test"):
            results[split]["rounds"], results[split]["congestion_losses"]
    except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError) as error:
        raise NdmError(
            f"{path}: not written by ndm train ({error}); run: ndm train --data DIR -o RUN"
        ) from None
    return results


def metrics(run: Path) -> dict[str, float]:
    """Metrics on held-out paths, by name, as far as the run has them."""
    results = _results(run)
    if results is None or not isinstance(results.get("val"), dict):
        return {}
    found = {
        f"{name}, {paths}": results[split].get(key)
        for split, paths in HELD_OUT.items()
        for name, key in (
            ("mean absolute error of cwnd_gain (log2)", "gain_mae"),
            ("the same for a constant window", "hold_mae"),
            ("ROC AUC of congestion", "congestion_auc"),
        )
    }
    return {name: value for name, value in found.items() if value is not None}


def judge(run: Path) -> Judgement:
    """Judge the network of a run folder by the test paths; by validation where there are none.

    Raises:
        NdmError: its metrics are damaged, or an output has never had labels and is random.
    """
    results = _results(run)
    if results is None:
        return Judgement(
            f"not judged, {RESULTS} is missing",
            False,
            "train again: ndm train --data DIR -o RUN",
        )
    if results.get("untrained"):
        return Judgement("random weights, made to compare with (--untrained)", True)
    if results.get("rebuilt"):
        return Judgement(f"rebuilt from the integers of {results['rebuilt']}, not judged", True)
    frozen, train = results.get("frozen", []), results["train"]
    both = train["congestion_losses"] and train["noise_losses"]
    for name, labels in ((GAIN, train["rounds"]), (CONGESTION, both)):
        if not labels and name not in frozen and not results.get("teachers"):
            raise NdmError(
                f"{run}: its training data had no labels for {name}, which is still random; run: "
                f"ndm train --init shipped --freeze {name} --data DIR -o NEW_RUN"
            )
    if GAIN in frozen:
        return Judgement(f"{GAIN} was not trained: it is that of {results['start']}", True)
    parts = {paths: results[s] for s, paths in HELD_OUT.items() if results[s]["rounds"]}
    if not parts:
        return Judgement(
            "not judged, the datasets hold none",
            False,
            "train again with captures of more paths",
        )
    figures = "; ".join(
        f"mean error of the step {part['gain_mae']:.4f}, of a constant window "
        f"{part['hold_mae']:.4f}, {part['rounds']} rounds of {paths}"
        for paths, part in parts.items()
    )
    judging = next(iter(parts.values()))
    if judging["gain_mae"] < judging["hold_mae"]:
        return Judgement(f"better than a constant window: {figures}", True)
    return Judgement(
        f"WORSE than a constant window: {figures}",
        False,
        "train longer (--epochs) or on more captures",
    )


def require(run: Path, even_if_worse: bool) -> Judgement:
    """Refuse a run that is not fit, unless `even_if_worse` is set.

    Raises:
        NdmError: it is not fit, and `even_if_worse` is not set; or see `judge`.
    """
    found = judge(run)
    if not found.fit and not even_if_worse:
        raise NdmError(
            f"{run}: on held-out paths {found.text}; {found.advice}, or export it all the same: "
            f"{OVERRIDE}"
        )
    return found
