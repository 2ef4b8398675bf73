# SPDX-License-Identifier: GPL-2.0-only
"""Flows and captures that show no path: each is refused, for a reason that says what to do."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ndm_tcp.cli import run_command
from ndm_tcp.datasets.readers import run_folder
from ndm_tcp.datasets.rounds.flow import FlowRecords, Sampling
from ndm_tcp.errors import NdmError
from ndm_tcp.paths import replay, report
from ndm_tcp.paths.estimate import estimate
from ndm_tcp.paths.model import Kind
from ndm_tcp.paths.observed import observe, seen, silent_s

from ..conftest import TRACES
from .made import jittered


@pytest.fixture(scope="module")
def clean() -> FlowRecords:
    (flow,), _ = run_folder.read(TRACES / "lab" / "train-01-clean--cubic--1")
    return flow


def test_an_application_that_sends_too_little_is_refused(clean: FlowRecords) -> None:
    acks = clean.acks.copy()
    acks["app_limited"] = 1
    with pytest.raises(NdmError, match="application-limited at 100%"):
        estimate(replace(clean, acks=acks), "idle.pcap")


def test_a_sender_that_is_silent_for_most_of_the_time_is_refused(clean: FlowRecords) -> None:
    """Two bursts far apart: hardly an ACK is application-limited."""
    assert silent_s(clean.acks) < 0.1
    acks = clean.acks.copy()
    half = len(acks) // 2
    acks["inflight"][half - 1] = 0
    acks["now_us"][half:] += 30 * clean.acks["now_us"][-1]
    with pytest.raises(NdmError, match=r"nothing in flight for .* s: .*; record a bulk transfer"):
        estimate(replace(clean, acks=acks), "idle.pcap")
    short = clean.acks.copy()
    short["inflight"][half - 1] = 0
    short["now_us"][half:] += clean.acks["now_us"][-1]
    made = estimate(replace(clean, acks=short), "pause.pcap")
    assert 0.4 < made.app_limited < 0.6
    more = replay.Replay(made, "cubic", made.seen, (9e9,), "", 1) if made.seen else None
    assert (
        more
        and "the sender had no data" in report.Replays.of({made.name: more}).rejected[made.name]
    )


def test_rtts_of_a_coarse_clock_are_named(clean: FlowRecords) -> None:
    none = np.zeros(len(clean.acks), np.int32)
    with pytest.raises(NdmError, match=r"^0 RTT samples .* the clock of the capture is too coarse"):
        estimate(replace(clean, captured_rtt_us=none), "coarse.pcap")


def test_a_flow_without_full_segments_is_refused(clean: FlowRecords) -> None:
    with pytest.raises(NdmError, match="size of a packet is unknown"):
        estimate(replace(clean, mss=None), "odd.pcap")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("ndpi_tor.pcap", "captured near the receiver"),
        ("ndpi_ps_vue_oneway.pcap", "no ACK direction captured"),
    ],
)
def test_wrong_captures_are_named(
    name: str,
    reason: str,
    realdata: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "out"
    assert run_command(["path", "estimate", str(realdata / name), "-o", str(out)]) == 2
    said = capsys.readouterr().err
    assert name in said and reason in said
    assert not out.exists() or not list(out.iterdir())


@pytest.mark.parametrize("step_us", [100, 500, 1000, 4000])
def test_a_clock_that_is_too_coarse_is_named(step_us: int) -> None:
    """Rounded times made a link 20 % faster, with rivals, and jitter and losses of their own."""
    packets_per_s = 8e5 / step_us  # one in 1.25 steps
    flow = jittered(((0.0, packets_per_s),), 0.0, 200, saw=400)
    estimate(flow, "x")
    for name in ("now_us", "rtt_us", "srtt_us"):
        flow.acks[name] = flow.acks[name] // step_us * step_us
    with pytest.raises(NdmError, match=rf"has steps of {step_us} us, too coarse for packets"):
        estimate(flow, "x")


@pytest.mark.parametrize("sampling", ["per_ack", "poll"])
@pytest.mark.parametrize("years", [1 / 100, 30])
def test_a_clock_set_forward_is_named(years: float, sampling: str) -> None:
    """Arrays over the time that passed would take all memory."""
    flow = jittered(((0.0, 1000.0),), 0.0, 200, saw=400)
    flow.acks["now_us"][2000:] += round(years * 365 * 86_400e6)
    with pytest.raises(NdmError, match=r"days between two (ACKs|polls), 4\.\d s after the first"):
        estimate(replace(flow, sampling=Sampling(sampling)), "x")


def test_goodput_and_rtt_of_a_month_take_no_more_memory() -> None:
    flow = jittered(((0.0, 1000.0),), 0.0, 200, saw=400)
    flow.acks["now_us"] *= 300_000
    o = observe(flow)
    assert o.seconds > 20 * 86_400
    tracemalloc.start()
    assert seen(flow, o).rtt_mean_ms > 0
    assert tracemalloc.get_traced_memory()[1] < 200e6
    tracemalloc.stop()


@pytest.mark.parametrize(("window", "jitter_s"), [(45, 0.002), (45, 0.0005), (200, 0.002)])
def test_a_window_of_constant_size_is_no_link(window: int, jitter_s: float) -> None:
    """Buffers of sender or receiver hold such a flow; jitter looks like a queue."""
    for seed in range(1, 6):
        link = ((0.0, 80_000.0),)
        made = estimate(jittered(link, jitter_s, window, base_s=0.04, seed=seed), "x")
        assert [v.rate_bps.kind for v in made.levels] == [Kind.AT_LEAST]
        assert made.label_error_log2 == 1


@pytest.mark.parametrize("jitter_s", [0.0, 0.001, 0.002])
def test_a_window_of_constant_size_may_fill_a_link(jitter_s: float) -> None:
    made = estimate(jittered(((0.0, 1000.0),), jitter_s, 80, base_s=0.04), "x")
    assert [v.rate_bps.kind for v in made.levels] == [Kind.MEASURED]
    assert made.levels[0].rate_bps.value == pytest.approx(12e6, rel=0.02)
