# SPDX-License-Identifier: GPL-2.0-only
"""Captures that begin in mid-flow: where the queue never emptied, the lowest RTT has some in it."""

from __future__ import annotations

from dataclasses import replace

from ndm_tcp.datasets.readers import run_folder
from ndm_tcp.datasets.rounds.flow import FlowRecords
from ndm_tcp.errors import NdmError
from ndm_tcp.paths.estimate import estimate
from ndm_tcp.paths.model import Kind, PathModel

from ..conftest import TRACES

COLUMNS = ("acks", "rwnd_limited", "loss_cause", "captured_rtt_us")
BOUND = 1.1
"""of the baseline RTT: what is further off must be called a bound"""


def begun(flow: FlowRecords, part: float) -> FlowRecords:
    """What a capture from there on has of a flow."""
    first = int(part * len(flow.acks))
    rest = {name: getattr(flow, name)[first:].copy() for name in COLUMNS}
    return replace(flow, facts={**flow.facts, "handshake": 0}, **rest)


def test_a_queue_that_never_emptied_leaves_bounds() -> None:
    (flow,), _ = run_folder.read(TRACES / "lab" / "train-02-clean--cubic--1")
    whole, rest = estimate(flow, "a"), estimate(begun(flow, 1 / 3), "a")
    assert whole.rtt_us.kind == Kind.MEASURED and rest.rtt_us.kind == Kind.AT_MOST
    assert rest.rtt_us.value > 1.3 * whole.rtt_us.value
    assert rest.queue_packets.kind == Kind.AT_LEAST
    assert rest.queue_packets.value < whole.queue_packets.value
    assert any("began before the capture" in note for note in rest.notes)
    assert rest.label_error_log2 > whole.label_error_log2
    assert not any("began" in note for note in whole.notes)


def test_a_queue_that_emptied_leaves_measures() -> None:
    """Random loss halves the window now and then, and the link has pauses."""
    (flow,), _ = run_folder.read(TRACES / "lab" / "train-04-loss--cubic--1")
    rest = estimate(begun(flow, 1 / 3), "a")
    assert rest.rtt_us.kind == Kind.MEASURED
    assert not any("began before the capture" in note for note in rest.notes)


def test_most_wrong_baselines_are_called_bounds() -> None:
    """Of the recordings without jitter: nine of ten wrong ones at least."""
    wrong, bounds, right, kept = 0, 0, 0, 0
    for folder in sorted((TRACES / "lab").iterdir()):
        if "jitter" in folder.name or "reorder" in folder.name:
            continue
        flow = run_folder.read(folder)[0][0]
        true_us = estimate(flow, "a").rtt_us.value
        for part in (1 / 5, 1 / 3, 1 / 2):
            made = _estimate(begun(flow, part))
            if made is None:
                continue
            off = made.rtt_us.value > BOUND * true_us
            wrong, right = wrong + off, right + (not off)
            bounds += off and made.rtt_us.kind == Kind.AT_MOST
            kept += not off and made.rtt_us.kind == Kind.MEASURED
    print(f"\n{bounds} of {wrong} wrong ones are bounds, {kept} of {right} right ones are not")
    assert bounds > 0.9 * wrong > 30 and kept > 0.6 * right > 30


def _estimate(flow: FlowRecords) -> PathModel | None:
    try:
        return estimate(flow, "a")
    except NdmError:
        return None
