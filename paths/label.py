# SPDX-License-Identifier: GPL-2.0-only
"""The path of a captured flow as its label: a scenario, of which training takes target windows.

A flow of the lab has the path that was made for it. Of a capture the path is estimated, and its
rounds get the target window that the lab's `truth` computes for such a path. Where the estimate is
not good enough for that, the flow has no label and the reason is kept.
"""

from __future__ import annotations

import functools
import hashlib
from dataclasses import replace
from pathlib import Path

from ndm_tcp import files
from ndm_tcp.datasets.builder.parts import Labeller
from ndm_tcp.datasets.rounds.flow import (
    LABEL_ERROR,
    NO_LABEL,
    FlowRecords,
    PathTruth,
    Sampling,
)
from ndm_tcp.errors import NdmError
from ndm_tcp.lab.paths import truth
from ndm_tcp.paths import scenario
from ndm_tcp.paths.estimate import estimate

WORST = 0.24
"""|log2| of a target window: a label that is further off teaches less than the shipped network
knows, whose own error is that large (docs/paths.md)"""
POLLS = "polls hold no RTT samples; ndm adapt replays their path, and records what they lack"
UNDER_TEST = "ndm_tcp"
"""whom the target window is for"""


def label(flow: FlowRecords) -> FlowRecords:
    """The flow with its estimated path as truth, or with the reason why not as a fact."""
    if flow.truth is not None:
        return flow
    if flow.sampling is Sampling.POLL:
        return _without(flow, POLLS)
    try:
        model = estimate(flow, "capture")
        if model.label_error_log2 > WORST:
            return _without(flow, "the estimate of its path is too uncertain to teach")
        text = scenario.text(model)
    except NdmError as error:
        return _without(flow, str(error))
    start_us = round(1e6 * scenario.first_ack_s(model))
    facts = {**flow.facts, LABEL_ERROR: round(model.label_error_log2, 3)}
    return replace(flow, truth=PathTruth(text, UNDER_TEST, 0, start_us), facts=facts)


def _without(flow: FlowRecords, reason: str) -> FlowRecords:
    return replace(flow, facts={**flow.facts, NO_LABEL: reason})


@functools.cache
def labeller() -> Labeller:
    """For `build`: this function, and a digest of the code that decides what it returns."""
    here = Path(__file__).resolve().parent
    code = [*sorted(here.rglob("*.py")), Path(truth.__file__)]
    text = "\n".join(f"{path.name}:{files.sha256(path)}" for path in code)
    return Labeller(label, hashlib.sha256(text.encode()).hexdigest())
