# SPDX-License-Identifier: GPL-2.0-only
"""The path of a captured flow as its label: a scenario, of which training takes target windows.

A flow of the lab has the path that was made for it. Of a capture the path is estimated, and its
rounds get the target window that the lab's `truth` computes for such a path. Where the estimate is
not good enough for that, the flow has no label and the reason is kept.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

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
from ndm_tcp.paths.model import HEADER_BYTES, PathModel

WORST = 0.24
"""|log2| of a target window: a label that is further off teaches less than the shipped network
knows, whose own error is that large (docs/paths.md)"""
POLLS = "polls hold no RTT samples; ndm adapt replays their path, and records what they lack"
UNDER_TEST = "ndm_tcp"
"""whom the target window is for"""


def label(flow: FlowRecords, beside: Sequence[FlowRecords] = ()) -> FlowRecords:
    """The flow with its estimated path as truth, or with the reason why not as a fact."""
    return _labelled(flow, lambda: estimate(flow, "capture", beside))


def label_by(
    models: Mapping[str, PathModel], flow: FlowRecords, _beside: Sequence[FlowRecords] = ()
) -> FlowRecords:
    """The same with one of these models, by the flow's id, in place of an estimate."""

    def known() -> PathModel:
        if flow.flow_id in models:
            return models[flow.flow_id]
        raise NdmError("no model of its path was accepted or given; ndm path replay shows why")

    return _labelled(flow, known)


def _labelled(flow: FlowRecords, model_of: Callable[[], PathModel]) -> FlowRecords:
    if flow.truth is not None:
        return flow
    if flow.sampling is Sampling.POLL:
        return _without(flow, POLLS)
    try:
        model = model_of()
        if model.label_error_log2 > WORST:
            return _without(flow, "the estimate of its path is too uncertain to teach")
        # To the last ACK, also where ndm adapt runs a model for less.
        lasts_s = int(flow.acks["now_us"].max(initial=0)) / 1e6
        model = _in_packets_of_the_lab(model)
        text = scenario.text(model, lasts_s)
    except NdmError as error:
        return _without(flow, str(error))
    start_us = round(1e6 * scenario.first_ack_s(model))
    facts = {**flow.facts, LABEL_ERROR: round(model.label_error_log2, 3)}
    return replace(flow, truth=PathTruth(text, UNDER_TEST, 0, start_us), facts=facts)


def _in_packets_of_the_lab(model: PathModel) -> PathModel:
    """A link that carries as many of the lab's packets as it does of the flow's.

    Target windows are packets: those of a path of the same rate would be seven times too large for
    a flow with jumbo frames.
    """
    return replace(
        model.times(1 / model.lab_packets),
        mss=truth.IP_PACKET_BYTES - HEADER_BYTES,
        header_bytes=HEADER_BYTES,
    )


def _without(flow: FlowRecords, reason: str) -> FlowRecords:
    return replace(flow, facts={**flow.facts, NO_LABEL: reason})


def labeller(models: Sequence[PathModel] | None = None) -> Labeller:
    """For `build`: what labels a flow, and a digest of what decides its label.

    Args:
        models: of the flows; None: estimated from their records.
    """
    if models is None:
        return Labeller(label, _code())
    known: dict[str, PathModel] = {}
    for model in models:
        other = known.setdefault(model.flow_id, model)
        if other is not model:
            names = f"{other.name} and {model.name}"
            raise NdmError(f"{names} are models of one flow, {model.flow_id}; delete one of them")
    digest = hashlib.sha256(_code().encode() + msgspec.json.encode(known, order="sorted"))
    return Labeller(functools.partial(label_by, known), digest.hexdigest())


@functools.cache
def _code() -> str:
    here = Path(__file__).resolve().parent
    code = [*sorted(here.rglob("*.py")), Path(truth.__file__)]
    text = "\n".join(f"{path.name}:{files.sha256(path)}" for path in code)
    return hashlib.sha256(text.encode()).hexdigest()
