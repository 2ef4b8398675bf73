# SPDX-License-Identifier: GPL-2.0-only
"""Captures whose path is known, and how far a model is from it."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ndm_tcp.datasets.readers import run_folder
from ndm_tcp.datasets.rounds.flow import FlowRecords
from ndm_tcp.lab.paths import scenario as scenarios
from ndm_tcp.lab.paths import truth
from ndm_tcp.lab.paths.scenario import UNDER_TEST, Scenario
from ndm_tcp.paths import scenario
from ndm_tcp.paths.model import Kind, PathModel, Value

CODEL = ("fq_codel", "cake")
STEP_BEFORE_END_S = 1.0
"""a step so late in a flow leaves too little to see"""


@dataclass(frozen=True)
class Known:
    """The truth of one flow's path."""

    group: str
    levels: tuple[tuple[float, float], ...]
    """(s since the flow's first ACK, bit/s)"""
    rtt_us: float
    queue: float
    """packets; 0: unknown"""
    loss: float
    jitter_us: float
    reorder: bool
    qdisc: str
    rivals: bool
    joined: bool
    scenario: Scenario | None
    number: int

    def rate_bps(self, seconds: float) -> float:
        """Mean over the flow."""
        ends = [*(at for at, _ in self.levels[1:]), seconds]
        spans = [max(e - max(a, 0.0), 0.0) for (a, _), e in zip(self.levels, ends, strict=True)]
        return float(np.average([r for _, r in self.levels], weights=spans))


def _clipped(levels: list[tuple[float, float]], seconds: float) -> tuple[tuple[float, float], ...]:
    """Levels of the flow's own time; the first begins at 0."""
    before = [rate for at, rate in levels if at <= 0.0]
    inside = [(at, rate) for at, rate in levels if 0.0 < at < seconds - STEP_BEFORE_END_S]
    return ((0.0, before[-1]), *inside)


def of_lab(s: Scenario, number: int, flow: FlowRecords) -> Known | None:
    """The path of a flow of a lab's run; None for loopback and variable links."""
    assert flow.truth is not None
    if s.link is None or s.link.trace or s.web:
        return None
    link, own = s.link, s.flows[number]
    start = flow.truth.start_us / 1e6
    seconds = float(flow.acks["now_us"][-1]) / 1e6
    others = [f for i, f in enumerate(s.flows) if i != number]
    others = [f for f in others if f.start_s < own.end_s() and own.start_s < f.end_s()]
    rivals = bool(others) and link.qdisc == "droptail"
    joined = rivals and any(f.start_s <= own.start_s + 1.0 for f in others)
    levels = [(-1.0, float(link.rate_bps)), *((at - start, float(r)) for at, r in link.steps)]
    burst = link.burst
    loss = link.loss
    if burst:
        loss += burst.loss * burst.start / (burst.start + burst.end)
    group = (
        f"own queue{', beside rivals' if others else ''}"
        if link.qdisc != "droptail"
        else "joins rivals"
        if joined
        else "rivals come later"
        if rivals
        else "held ACKs"
        if link.ack_hold_us[1] or link.offloads
        else "reordering"
        if link.jitter_us and link.reorder
        else "jitter in order"
        if link.jitter_us
        else "lone"
    )
    return Known(
        group,
        _clipped(levels, seconds),
        link.rtt_us + own.extra_rtt_us,
        0 if link.qdisc in CODEL else link.queue_packets,
        loss,
        link.jitter_us,
        link.reorder and link.jitter_us > 0,
        link.qdisc,
        rivals,
        joined,
        s,
        number,
    )


def of_host(folder: Path, flow: FlowRecords) -> Known:
    """The path of a transfer over this project's emulator; its rtt leaves the host's own out."""
    run = tomllib.loads((folder / "run.toml").read_text())
    seconds = float(flow.acks["now_us"][-1]) / 1e6
    levels = [(-1.0, float(run["rate_bps"])), *((float(a), float(r)) for a, r in run["rate_steps"])]
    loss = float(run["loss"])
    if "burst_start" in run:
        start, end = run["burst_start"], run["burst_end"]
        loss += run["burst_loss"] * start / (start + end)
    jitter, reorder = run["jitter_us"], run["reorder"] and run["jitter_us"] > 0
    group = "reordering" if reorder else "jitter in order" if jitter else "lone"
    return Known(
        f"host, {group}",
        _clipped(levels, seconds),
        *(run["rtt_us"], run["queue_packets"], loss, jitter, reorder, "droptail", False, False),
        *(None, 0),
    )


def flows(folder: Path) -> Iterator[tuple[FlowRecords, Known]]:
    """The flows of a recorded run whose paths are known."""
    found, _ = run_folder.read(folder)
    if (folder / "scenario.toml").is_file():
        s = scenarios.load(folder / "scenario.toml")
        for flow in found:
            if flow.truth:
                known = of_lab(s, flow.truth.number, flow)
                if known:
                    yield flow, known
    elif "rate_bps" in (folder / "run.toml").read_text():
        yield from ((flow, of_host(folder, flow)) for flow in found)


@dataclass(frozen=True)
class Errors:
    """Of one model, relative unless its name says otherwise; nan: only a bound, or no truth."""

    rate: float
    over_time: float
    """mean |log2| of the rate over time; nan: it does not change"""
    base: float
    queue: float
    queue_bound: float
    """of a bound: by how much it is too high; nan: none"""
    loss: float
    """nan: no random loss"""
    false_loss: float
    """where there is none"""
    steps: int
    """found minus true ones"""
    rivals: int
    """1: false, -1: missed"""
    covered: dict[str, bool]
    """does the interval of this value hold the truth?"""
    label: float
    """mean |log2| of the target window; nan: not of the lab"""


def errors(model: PathModel, known: Known, flow: FlowRecords) -> Errors:
    """How far a model is from the truth."""
    rate = model.rate_bps / known.rate_bps(model.seconds) - 1
    queue = model.queue_packets
    size = queue.value / known.queue - 1 if known.queue else np.nan
    measured = queue.kind == Kind.MEASURED
    sure_base = model.rtt_us.kind == Kind.MEASURED
    covered: dict[str, bool] = {}
    if len(model.levels) == len(known.levels):
        pairs = zip(model.levels, known.levels, strict=True)
        for one, (_, bps) in pairs:
            if one.rate_bps.kind == Kind.MEASURED:
                covered["rate"] = covered.get("rate", True) and _holds(one.rate_bps, bps)
    if model.rtt_us.kind == Kind.MEASURED:
        covered["base"] = _holds(model.rtt_us, known.rtt_us)
    if measured and known.queue:
        covered["queue"] = _holds(queue, known.queue)
    if known.loss:
        covered["loss"] = _holds(model.loss, known.loss)
    if known.jitter_us:
        covered["jitter"] = _holds(model.jitter_us, known.jitter_us)
    return Errors(
        rate=rate if model.measured == 1 else np.nan,
        over_time=_over_time(model, known) if len(known.levels) > 1 else np.nan,
        base=model.rtt_us.value / known.rtt_us - 1 if sure_base else np.nan,
        queue=size if measured else np.nan,
        queue_bound=max(size, 0.0) if not measured and known.queue else np.nan,
        loss=model.loss.value / known.loss - 1 if known.loss else np.nan,
        false_loss=0.0 if known.loss else model.loss.value,
        steps=len(model.levels) - len(known.levels),
        rivals=int(bool(model.rivals)) - int(known.rivals),
        covered=covered,
        label=label_error(model, known, flow) if known.scenario else np.nan,
    )


def _over_time(model: PathModel, known: Known) -> float:
    grid = np.arange(0.0, model.seconds, 0.01)
    found = [(level.from_s, level.rate_bps.value) for level in model.levels]
    ours, true = (
        np.array([bps for _, bps in levels])[
            np.searchsorted([at_s for at_s, _ in levels], grid, side="right") - 1
        ]
        for levels in (found, known.levels)
    )
    return float(np.abs(np.log2(ours / true)).mean())


def _holds(value: Value, true: float) -> bool:
    return value.low * (1 - 1e-9) <= true <= value.high * (1 + 1e-9)


def label_error(model: PathModel, known: Known, flow: FlowRecords) -> float:
    """Mean |log2| between the target windows of the model's path and of the true one."""
    assert known.scenario is not None and flow.truth is not None
    grid = np.arange(0.5, model.seconds - 0.2, 0.05)
    if not len(grid):
        return np.nan
    cc = flow.truth.under_test
    t_us = np.round(grid * 1e6).astype(np.int64)
    srtt = flow.acks["srtt_us"][np.searchsorted(flow.acks["now_us"], t_us) - 1]
    true = truth.windows(known.scenario.text, cc)[known.number]
    said = truth.windows(scenario.text(model, model.seconds), _own(known, cc))[0]
    right = true.packets(t_us + flow.truth.start_us, srtt)
    ours = said.packets(t_us + round(1e6 * scenario.first_ack_s(model)), srtt)
    ok = (right > 0) & (ours > 0)
    return float(np.abs(np.log2(ours[ok] / right[ok])).mean()) if ok.any() else np.nan


def _own(known: Known, cc: str) -> str:
    assert known.scenario is not None
    name = known.scenario.flows[known.number].cc
    return cc if name == UNDER_TEST else name
