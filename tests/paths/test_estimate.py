# SPDX-License-Identifier: GPL-2.0-only
"""Estimated paths of captures against the paths that were made: bars, kinds, and user errors."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from ndm_tcp.cli import run_command
from ndm_tcp.datasets.readers import run_folder, sources
from ndm_tcp.datasets.rounds.flow import FlowRecords
from ndm_tcp.errors import NdmError
from ndm_tcp.paths import assemble, holds, label, losses, model, order, rates, report, trains
from ndm_tcp.paths.estimate import estimate, name_of
from ndm_tcp.paths.model import Burst, Kind, PathModel, Rival
from ndm_tcp.paths.observed import observe
from ndm_tcp.paths.smooth import most_frequent, running_median

from ..conftest import TRACES
from .known import Errors, Known, errors, flows
from .made import at_least, jittered
from .made import model as made_model

MLAB = TRACES / "third_party" / "mlab_ndt_bulk_17Mbps.pcap.gz"


@dataclass(frozen=True)
class Row:
    """A flow whose path is known."""

    run: Path
    flow: FlowRecords
    known: Known
    model: PathModel
    errors: Errors


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    """Every flow of the shipped recordings."""
    found = []
    for path in sorted({p.parent for p in TRACES.rglob("sender.pcap*")}):
        for flow, known in flows(path):
            made = estimate(flow, path.name)
            found.append(Row(path, flow, known, made, errors(made, known, flow)))
    assert len(found) > 90
    return found


def high(values: list[float]) -> float:
    """90th percentile of the absolute values that there are."""
    there = np.abs([value for value in values if np.isfinite(value)])
    assert len(there)
    return float(np.percentile(there, 90))


def test_a_lone_flow_shows_its_path(rows: list[Row]) -> None:
    """Rates within 1 %, baseline RTTs within 2 %, queues within 5 % for nine flows in ten."""
    lone = [row.errors for row in rows if row.known.group == "lone"]
    assert len(lone) >= 40
    assert high([e.rate for e in lone]) < 0.01
    assert high([e.base for e in lone]) < 0.02
    assert high([e.queue for e in lone]) < 0.05
    assert sum(np.isfinite(e.queue) for e in lone) >= 30
    assert high([e.queue_bound for e in lone]) < 0.02
    assert max(e.false_loss for e in lone) < 0.001


def test_emulated_paths_of_this_host_do(rows: list[Row]) -> None:
    """Real kernels and clocks; the truth leaves out what the host itself adds to the RTT."""
    lone = [row.errors for row in rows if row.known.group == "host, lone"]
    assert len(lone) >= 20
    assert high([e.rate for e in lone]) < 0.01
    assert high([e.base for e in lone]) < 0.03
    assert high([e.queue for e in lone]) < 0.05


def test_jitter_leaves_rates_and_blurs_the_rest(rows: list[Row]) -> None:
    jitter = [row for row in rows if row.known.group in ("jitter in order", "reordering")]
    assert len(jitter) >= 15
    assert high([row.errors.rate for row in jitter]) < 0.01
    assert high([row.errors.base for row in jitter]) < 0.2
    assert high([row.errors.queue for row in jitter]) < 0.4
    assert {row.model.reorder for row in jitter if row.known.reorder} == {True}
    assert {row.model.reorder for row in jitter if not row.known.reorder} == {False}
    assert all(row.model.jitter_us.value for row in jitter)
    # Beside reordering packets that are only late count as lost.
    assert max(row.errors.false_loss for row in jitter if not row.known.reorder) < 0.001


def test_steps_and_rivals_are_found_and_none_invented(rows: list[Row]) -> None:
    """Beside a rival that got 5 % of the link one first flow in ten does not notice it."""
    steady = [row for row in rows if not row.known.jitter_us]
    assert not [row.run.name for row in steady if row.errors.rivals > 0]
    assert sum(row.errors.rivals < 0 for row in steady) <= 1
    assert sum(row.known.rivals for row in steady) == 10
    assert not [row.run.name for row in steady if row.errors.steps and not row.model.rivals]
    assert sum(len(row.known.levels) > 1 for row in steady) >= 5


def test_labels_are_near_those_of_the_true_path(rows: list[Row]) -> None:
    used = [row for row in rows if row.model.label_error_log2 <= label.WORST]
    found = np.array([e for e in (row.errors.label for row in used) if np.isfinite(e)])
    assert len(found) >= 50
    assert np.mean(found < 0.1) >= 0.8
    assert np.mean(found < 0.24) >= 0.92


def test_reordering_with_losses_gives_no_label(rows: list[Row]) -> None:
    """Packets that were only late count as lost, and the window depends on whether any are."""
    of_lab = [row.model for row in rows if row.known.group == "reordering"]
    lossy = [m for m in of_lab if m.loss.value]
    assert lossy and all(m.label_error_log2 > label.WORST for m in lossy)
    assert any(m.label_error_log2 <= label.WORST for m in of_lab if not m.loss.value)


def test_intervals_hold_the_truth(rows: list[Row]) -> None:
    """Nine in ten at least; those of losses miss what the overflow hides, see docs/paths.md."""
    lab = [row.errors.covered for row in rows if not row.known.group.startswith("host")]
    for name, least in (("rate", 0.9), ("base", 0.9), ("queue", 0.95), ("jitter", 0.75)):
        held = [covered[name] for covered in lab if name in covered]
        assert np.mean(held) >= least, name


def test_a_model_has_what_the_lab_measured_of_the_flow(rows: list[Row]) -> None:
    """A replay is compared with these, so they have to be measured alike."""
    for row in rows:
        if not (row.run / "result.json").is_file():
            continue
        result = json.loads((row.run / "result.json").read_text())
        port = row.flow.sender_port
        truth = next(flow for flow in result["flows"] if flow["port"] == port)
        seen = row.model.seen
        assert seen is not None
        assert seen.goodput_mbps == pytest.approx(truth["goodput_mbps"], rel=0.01)
        assert seen.rtt_mean_ms == pytest.approx(truth["rtt_mean_ms"], rel=0.07)
        assert seen.rtt_p95_ms == pytest.approx(truth["rtt_p95_ms"], rel=0.05)
        share = truth["retransmissions"] / truth["segments"]
        assert seen.retransmission_rate == pytest.approx(share, abs=0.001)


def test_models_go_through_their_file(rows: list[Row], tmp_path: Path) -> None:
    for row in rows[::9]:
        path = tmp_path / f"{row.model.name}{model.SUFFIX}"
        model.write(row.model, path)
        assert model.read(path) == row.model
        assert msgspec.json.decode(path.read_bytes())["format"] == model.FORMAT


def test_three_real_links(realdata: Path) -> None:
    """tc on Linux 6.18: the truth is in the folder's name and in README.md beside it."""
    truth = {
        "cubic_20M_40ms_q60": (20e6, 60, 0.0),
        "bbr_20M_40ms_loss05": (20e6, 0, 0.005),
        "reno_50M_20ms_q30": (50e6, 30, 0.0),
    }
    for name, (bps, queue, loss) in truth.items():
        (flow,), _ = run_folder.read(realdata / "paired" / name)
        made = estimate(flow, name)
        assert made.rate_bps == pytest.approx(bps, rel=0.01)
        assert len(made.levels) == 1 and not made.rivals
        assert not queue or made.queue_packets.value == pytest.approx(queue, abs=2)
        assert made.loss.value == pytest.approx(loss, abs=0.0015)


def test_a_speed_test_of_mlab() -> None:
    """Nobody knows its path; but nothing arrives faster than the link sends."""
    (flow,) = sources.read(MLAB).flows
    made = estimate(flow, MLAB.name)
    assert made.seen is not None and made.seen.goodput_mbps < made.rate_bps / 1e6
    assert made.rtt_us.value == pytest.approx(43.3e3, rel=0.02)
    assert made.queue_packets.kind == Kind.AT_LEAST
    assert [round(level.rate_bps.value / 1e6) for level in made.levels] == [31, 18, 15, 12]


# --- what a capture cannot show ---------------------------------------------------------------
@pytest.fixture(scope="module")
def clean() -> FlowRecords:
    (flow,), _ = run_folder.read(TRACES / "lab" / "train-01-clean--cubic--1")
    return flow


def cut(flow: FlowRecords, n: int) -> FlowRecords:
    """Its first ACKs."""
    columns = ("acks", "rwnd_limited", "loss_cause", "captured_rtt_us")
    return replace(flow, **{name: getattr(flow, name)[:n].copy() for name in columns})


def test_a_flow_of_a_local_network_is_marked(
    clean: FlowRecords, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit is moved instead of the flow: no capture of a data centre ships."""
    far = estimate(clean, "far")
    monkeypatch.setattr(assemble, "LOCAL_S", 2 * far.rtt_us.value / 1e6)
    near = estimate(clean, "near")
    assert far.label_error_log2 < label.WORST < near.label_error_log2
    assert not any("local network" in note for note in far.notes)
    assert any("local network" in note for note in near.notes)


def test_jitter_that_hides_the_queue_leaves_no_negative_one(
    clean: FlowRecords, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure = losses.measure

    def hidden(*args: Any) -> losses.Losses:
        return replace(measure(*args), queue=-5.0, overflow=False)

    monkeypatch.setattr(losses, "measure", hidden)
    bound = estimate(clean, "hidden").queue_packets
    assert (bound.kind, bound.value) == (Kind.AT_LEAST, 1.0)


@pytest.mark.parametrize(
    ("pps", "jitter_s", "window", "base_s", "saw"),
    [
        (1000, 0.006, 150, 0.06, 0),
        (1000, 0.006, 40, 0.06, 0),
        (1000, 0.006, 150, 0.06, 400),
        (4000, 0.002, 160, 0.02, 600),
        (300, 0.03, 60, 0.1, 0),
    ],
    ids=["standing queue", "unfilled", "saw", "fast saw", "slow link"],
)
def test_jitter_is_known_however_the_flow_sends(
    pps: float, jitter_s: float, window: int, base_s: float, saw: int
) -> None:
    """A flow's own queue varies its RTT, too, and bursts show more of the jitter than a stream."""
    flow = jittered(((0.0, pps),), jitter_s, window, base_s, saw=saw)
    found = estimate(flow, "jittered").jitter_us.value
    assert found == pytest.approx(jitter_s * 1e6, rel=0.2)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(
    ("pps", "jitter_s", "window", "base_s", "saw"),
    [(1000, 0.006, 150, 0.06, 400), (300, 0.03, 60, 0.1, 0), (1000, 0.01, 5, 0.06, 0)],
    ids=["seldom empty", "never empty", "few packets"],
)
def test_the_baseline_beside_jitter_is_not_that_of_the_lowest_rtts(
    pps: float, jitter_s: float, window: int, base_s: float, saw: int, seed: int
) -> None:
    """Many packets, and a queue, leave the lowest RTTs too high; few packets leave them too low."""
    flow = jittered(((0.0, pps),), jitter_s, window, base_s, saw=saw, seed=seed)
    found = estimate(flow, "jittered").rtt_us
    assert found.value == pytest.approx(base_s * 1e6, abs=0.65 * jitter_s * 1e6)
    assert found.low < base_s * 1e6 < found.high


def test_a_level_begins_where_its_rate_does() -> None:
    """Drops after a step hide its queue; a faster link empties it."""
    pps = np.array([10.0, 10, 7, 5, 5, 5, 5])
    w = rates.Windows(np.zeros(7, int), np.zeros(7, int), pps, np.arange(7.0), 1.0)
    queued = np.ones(7, dtype=bool)
    assert rates._begin(w, queued, np.array([0, 1]), 6, 5.0) == 2.5
    assert rates._begin(w, ~queued, np.array([0, 1]), 6, 5.0) == 5.5
    up = replace(w, rate=np.array([5.0, 5, 5, 8, 8, 8, 10]))
    assert rates._begin(up, queued & (pps > 8), np.array([0, 1]), 6, 10.0) == 1.5
    # Whatever its rate, the level before keeps its first window.
    assert rates._begin(replace(w, rate=np.full(7, 5.0)), queued, np.array([2, 3]), 6, 5.0) == 2.5


@pytest.mark.parametrize("cc", ["cubic", "bbr"])
def test_steps_stay_where_a_receiver_merges_acks(cc: str) -> None:
    """Six packets an ACK, as with GRO; only in recovery such ACKs say little of the link."""
    (flow,), _ = run_folder.read(TRACES / "lab" / f"train-10-step--{cc}--1")
    last = np.arange(2, len(flow.acks), 3)
    acks = flow.acks[last].copy()
    for name in ("acked", "lost"):
        total = np.cumsum(flow.acks[name].astype(np.int64))[last]
        acks[name] = np.diff(total, prepend=0)
    merged = replace(flow, acks=acks, rwnd_limited=None, captured_rtt_us=None)
    known, found = estimate(flow, "as it was"), estimate(merged, "merged")
    assert len(known.levels) == len(found.levels) == 2
    for one, other in zip(known.levels, found.levels, strict=True):
        assert other.rate_bps.value == pytest.approx(one.rate_bps.value, rel=0.02)


@pytest.mark.parametrize("blurred", [False, True])
def test_losses_near_a_full_queue_are_no_random_loss(blurred: bool) -> None:
    """Random losses come at any length of the queue; those that jitter blurs only near the top."""
    rng = np.random.default_rng(1)
    queue = 10 * (1 + np.sin(np.arange(20_000) / 300))  # 0 to 20 packets
    acked, counted = np.full(20_000, 2), queue < 17
    passed = int(acked[counted].sum())
    at = np.sort(rng.choice(np.flatnonzero(counted), 240, replace=False))
    n = np.ones(240, int)
    around = losses._highest_around(queue)
    found = losses._below(around, acked, counted, losses.loss_levels(at, queue), n, blurred)
    assert found == (240, passed)
    early = np.sort(rng.choice(np.flatnonzero(counted & (queue > 14)), 240, replace=False))
    at, n = np.sort(np.concatenate([at, early])), np.ones(480, int)
    lost, there = losses._below(around, acked, counted, losses.loss_levels(at, queue), n, blurred)
    assert lost / there == pytest.approx(240 / passed if blurred else 480 / passed, rel=0.2)


def test_a_short_flow_is_refused(clean: FlowRecords) -> None:
    with pytest.raises(NdmError, match=r"too short: .* packets in .* record a longer"):
        estimate(cut(clean, 50), "short.pcap")
    with pytest.raises(NdmError, match="too short"):
        estimate(cut(clean, 0), "empty.pcap")


def test_two_seconds_suffice(clean: FlowRecords) -> None:
    n = int(np.searchsorted(clean.acks["now_us"], 2_000_000))
    made, whole = estimate(cut(clean, n), "two.pcap"), estimate(clean, "whole.pcap")
    assert made.rate_bps == pytest.approx(whole.rate_bps, rel=0.01)
    assert made.rtt_us.value == pytest.approx(whole.rtt_us.value, rel=0.02)


def test_one_bad_file_spoils_no_batch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = tmp_path / "mine.pcap.zst"
    shutil.copy(TRACES / "lab" / "train-01-clean--cubic--1" / "sender.pcap.zst", good)
    bad = tmp_path / "bad.pcap"
    bad.write_bytes(b"\xd4\xc3\xb2\xa1 and nothing more")
    out = tmp_path / "out"
    assert run_command(["path", "estimate", str(good), str(bad), "-o", str(out)]) == 1
    told = capsys.readouterr()
    assert told.err.count("left out") == 1 and "bad.pcap" in told.err
    (path,) = out.glob(f"*{model.SUFFIX}")
    assert model.read(path).name == "mine-20001"
    for word in ("rate", "baseline RTT", "queue", "random loss", "Mbit/s"):
        assert word in told.out
    for name, text in report.facts(model.read(path)):
        assert re.search(f"^  {re.escape(name)} +{re.escape(text)}$", told.out, re.M), name
    assert run_command(["path", "estimate", str(good), "-o", str(out), "--json"]) == 0
    (made,) = json.loads(capsys.readouterr().out)
    assert made["name"] == "mine-20001"


def test_every_value_of_a_model_is_named() -> None:
    rivals = (Rival("cubic", Kind.ASSUMED, 0.0),) * 3 + (Rival("bbr", Kind.MEASURED, 2.5),)
    one = made_model(rivals=rivals, burst=Burst(0.001, 0.3, 0.7), queue_packets=at_least(70))
    told = dict(report.facts(one))
    assert told["rivals"] == "3 x assumed cubic from the start, bbr from 2.5 s"
    assert dict(report.facts(replace(one, joined=True)))["rivals"].startswith(
        "3 x assumed cubic from before"
    )
    assert told["random loss"] == "0 %, in bursts that begin at 0.100% of the packets"
    assert told["queue"] == "at least 70 packets, droptail"
    assert dict(report.facts(made_model()))["rivals"] == "none seen"
    assert told["receiver's buffer"] == "not known"
    assert dict(report.facts(made_model(buffer_bytes=49_152 << 7)))["receiver's buffer"].startswith(
        "about 6.3 MB"
    )
    assert dict(report.facts(made_model(buffer_bytes=49_152 << 2)))["receiver's buffer"] == (
        "about 0.2 MB"
    )


def test_the_window_scale_tells_the_receivers_buffer(clean: FlowRecords) -> None:
    """The lab's hosts have Linux's 6 MB; a handshake without a scale may have been cut."""
    assert clean.facts["window_scale"] == 7
    assert estimate(clean, "clean").buffer_bytes == 6 << 20
    for unknown in (0, -1):
        facts = {**clean.facts, "window_scale": unknown}
        assert not estimate(replace(clean, facts=facts), "cut").buffer_bytes
    small = observe(replace(clean, facts={**clean.facts, "window_scale": 1}))
    assert small.buffer_bytes == 49_152 << 1
    full = replace(small, flight=small.flight + 100)
    assert full.buffer_bytes == 2 * round(full.flight.max()) * full.mss, "so much was used"


def test_an_ss_log_tells_the_receivers_buffer(tmp_path: Path) -> None:
    line = (
        "ESTAB 0 0 10.0.0.1:4 10.0.0.2:5 cubic wscale:9,7 rto:240 rtt:{}/2 mss:1448 cwnd:50 "
        "bytes_acked:{} delivered:{} minrtt:40"
    )
    polls = [(k, 40 + k % 10, 1448 * 100 * k, 100 * k) for k in range(1, 60)]
    log = "".join(f"{1_700_000_000 + k / 10:.9f}\n{line.format(*of)}\n" for k, *of in polls)
    (tmp_path / "ss.log").write_text(log)
    (flow,) = sources.read(tmp_path / "ss.log").flows
    assert estimate(flow, "ss").buffer_bytes == 49_152 << 9


def test_names_are_file_names(clean: FlowRecords) -> None:
    assert name_of("a b ü.pcap.gz", clean) == "a-b--20001"
    assert name_of("run.json.zst", replace(clean, sender_port=None)) == f"run-{clean.flow_id[:8]}"


# --- the tools ---------------------------------------------------------------------------------
def test_the_most_frequent_value() -> None:
    x = np.array([1.0, 1.01, 0.99, 1.0, 2.0, 3.0, 2.02])
    value, count = most_frequent(x, 0.02)
    assert value == pytest.approx(1.0, rel=0.01) and count == 4


def test_running_medians_are_numpys() -> None:
    x = np.random.default_rng(3).normal(size=60)
    ours = running_median(x, 5)
    assert ours[2:-2] == pytest.approx([np.median(x[i - 2 : i + 3]) for i in range(2, 58)])
    assert (running_median(x[:3], 5) == np.median(x[:3])).all()


def test_a_clock_is_seen_through_others_packets() -> None:
    """Of the gaps of a train four in ten hold one to three packets of rivals."""
    rng = np.random.default_rng(5)
    each = np.where(rng.random(200) < 0.4, rng.integers(2, 5, 200), 1) * 1e-3
    each *= 1 + rng.normal(size=200) * 1e-3
    found = trains.clock(trains.Gaps(each, np.arange(200.0)))
    assert found.pps == pytest.approx(1000, rel=0.002)
    assert trains.clock(trains.Gaps(each, np.arange(200.0)), to_s=3.0) == trains.NONE
    jittered = trains.Gaps(rng.exponential(1e-3, 200), np.arange(200.0))
    assert trains.clock(jittered) == trains.NONE


@pytest.mark.parametrize("gap_us", [23.4, 54.3, 120.7])
def test_a_clock_of_whole_microseconds_is_exact(gap_us: float) -> None:
    """Captures have no finer times: of 54 and 55 us neither is the gap."""
    t = np.floor(np.arange(200) * gap_us) * 1e-6
    found = trains.clock(trains.Gaps(np.diff(t), t[1:]))
    assert found.pps == pytest.approx(1e6 / gap_us, rel=1e-3)


def test_levels_are_found_where_the_rate_steps() -> None:
    rng = np.random.default_rng(7)
    x = np.concatenate([np.full(60, 5.0), np.full(40, 4.5), np.full(100, 5.2)])
    parts = rates.segments(x + rng.normal(size=200) * 0.02, 10)
    assert [q for _, q in parts] == pytest.approx([60, 100, 200], abs=3)
    assert rates.segments(np.full(50, 3.0) + rng.normal(size=50) * 0.02, 5) == [(0, 50)]


def test_packets_of_a_train_wait_for_one_another(clean: FlowRecords) -> None:
    """Trains of four every 10 ms, at 1,000 packets a second; each begins with an idle link."""
    number = np.arange(40)
    o = replace(observe(clean), used=number + 1, sent=(number // 4 * 0.01).astype(np.float64))
    assert trains.own_wait(o, 1000.0) == pytest.approx(number % 4 * 1e-3)
    assert trains.own_wait(o, 200.0)[-1] == pytest.approx(39 / 200 - 0.09)


def test_many_overflows_show_the_whole_packets_of_a_queue() -> None:
    """The packet in service waits, too, so lengths exceed the queue by up to one."""
    assert losses._whole(6.7, 200) == 6
    # Few overflows come at one part of the service, and it may be its end.
    assert losses._whole(5.8, 9) == 6


@pytest.mark.parametrize(("acked", "beyond"), [(3, 0.004), (12, 0.010)])
def test_packets_that_wait_behind_others_are_not_held_by_the_receiver(
    clean: FlowRecords, acked: int, beyond: float
) -> None:
    """The gaps have no rule; the second packet's ACK would have come at once."""
    gap = np.random.default_rng(1).uniform(0.006, 0.012, 999)
    gap *= 0.012 / np.percentile(gap, 75)
    at = np.concatenate([[0.0], np.cumsum(gap)])
    rtt, calm = np.full(1000, 0.1), np.ones(1000, bool)
    o = replace(observe(clean), at=at, acked=np.full(1000, acked), rtt=rtt, calm=calm)
    found = holds.measure(o)
    assert not found.timer
    assert found.longest == pytest.approx(0.012)
    assert found.beyond == pytest.approx(beyond)


@pytest.mark.parametrize("times", [1, 2, 6])
def test_what_one_overflow_loses_is_no_random_loss(times: int) -> None:
    """Losses of a slow start that fills a long queue twice over are noticed while it empties, so
    at any length of it; a few of the next overflow may follow."""
    flow = jittered(((0.0, 1000.0),), 0.0, 60)
    for number, first in enumerate(np.linspace(500, 3500, times).astype(int)):
        flow.acks["lost"][first : first + 60] = 2 if not number or times > 2 else [1] + [0] * 59
    o = observe(flow)
    queue = np.random.default_rng(1).uniform(0, 60, len(o.at))
    made = losses.measure(o, order.measure(o, trains.NONE), queue, 1000.0, np.inf)
    assert (made.random > 0) == (times > 2)
