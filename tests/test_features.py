# SPDX-License-Identifier: GPL-2.0-only
"""The features: the one C implementation against the contract's formulas in real numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ndm_tcp import contract as c
from ndm_tcp import core
from ndm_tcp.datasets.readers import sources
from ndm_tcp.errors import NdmError

from .conftest import TRACES

NAMES = [i.name for i in c.DENSE]
REMEMBERED = [NAMES.index(name) for name in c.MEMORY.of]
LO = np.array([i.lo_q for i in c.DENSE])
HI = np.array([i.hi_q for i in c.DENSE])


def acks(n: int, **columns: Any) -> np.ndarray[Any, Any]:
    """A clean flow: a packet a millisecond, RTT 20 ms, a round every 20 ACKs."""
    rows = np.zeros(n, core.ACK_DTYPE)
    rows["now_us"] = np.arange(n) * 1000 + 20_000
    rows["rtt_us"] = rows["srtt_us"] = rows["min_rtt_us"] = 20_000
    rows["rttvar_us"] = 500
    rows["acked"] = 1
    rows["inflight"] = rows["cwnd"] = 20
    rows["ssthresh"] = 10
    rows["delivered"] = np.arange(1, n + 1)
    rows["prior_delivered"] = np.maximum(np.arange(1, n + 1) - 20, 0)
    rows["interval_us"] = 20_000
    for name, values in columns.items():
        rows[name] = values
    return rows


def real_features(stream: np.ndarray[Any, Any]) -> list[list[float]]:
    """The contract's formulas, in floats and without looking at the C."""
    rounds: list[list[float]] = []
    start, previous, plastic, lost = int(stream["delivered"][0]), int(stream["srtt_us"][0]), 0.0, 0
    bins: list[int] = []
    gaps: list[int] = []
    last_loss, last_sample, taken, in_loss = start, 0, 0, False
    rate_halves, rate_count = [0.0, 0.0], 0
    rtts: list[list[int]] = [[], []]
    floor_count, sample_rate = 0, 0.0
    means: np.ndarray[Any, Any] | None = None
    began = int(stream["now_us"][0])
    clock, pause, paused = began // 64, 0, False
    for a in stream:
        rto = a["ca_state"] == 4 and not in_loss
        in_loss = a["ca_state"] == 4
        now, rtt, srtt = int(a["now_us"]), int(a["rtt_us"]), int(a["srtt_us"])
        waited, clock = (now // 64 - clock) % 256, now // 64
        if rtt > 0:
            acked, recent = int(a["acked"]), rtts[0] + rtts[1]
            held, shortest = rtt, min(recent) if recent else 0
            if acked >= 4 and 2 * acked >= a["cwnd"]:
                held, shortest = srtt, int(a["min_rtt_us"]) or shortest
            if waited > pause + 1 and previous <= 16_000 and shortest:
                pause = max(pause, min(max(held - shortest, 0) // 64, waited - 1))
            rtts[0].append(rtt)
            if srtt and taken < 4 and (not bins or now - last_sample >= srtt // 4):
                bins.append(min(max(int(np.floor(16 * rtt / srtt + 0.5)) - 8, 0), 15))
                last_sample, taken = now, taken + 1
        if a["lost"]:
            gap = int(a["delivered"]) - last_loss
            gaps += [min(gap.bit_length(), 15)] + [0] * min(int(a["lost"]) - 1, 16)
            last_loss, plastic, lost = int(a["delivered"]), 1.0, lost + int(a["lost"])
        if rto:
            plastic = 1.0
        if a["acked"] and a["interval_us"] > 0:
            newest = (int(a["delivered"]) - int(a["prior_delivered"])) / int(a["interval_us"])
            sample_rate = max(newest, sample_rate) if paused else newest
        returned = a["acked"] and a["prior_delivered"] >= start
        if not rto and not (returned and now - began >= a["min_rtt_us"]):
            continue
        began = now
        flight = int(a["inflight"]) + int(a["acked"])
        quiet = not rto and a["app_limited"] and not lost and a["ca_state"] == 0
        quiet = quiet and 2 * flight < a["cwnd"]
        if quiet:
            start, previous, sample_rate = int(a["delivered"]), srtt, 0.0
            continue
        if sample_rate and (not a["app_limited"] or sample_rate >= max(rate_halves)):
            rate_halves[0] = max(rate_halves[0], sample_rate)
            rate_count += 1
            if rate_count == 5:
                rate_halves, rate_count = [sample_rate, rate_halves[0]], 0
        delivered = int(a["delivered"]) - start
        lowest, high = int(a["min_rtt_us"]), max(rate_halves)
        floor = max(lowest, min(lowest + 64 * pause, 8000))

        def entropy(values: list[int]) -> float:
            values = values[-16:]
            if len(values) < 2:
                return 0.0
            p = np.unique(values, return_counts=True)[1] / len(values)
            return float(-(p * np.log2(p)).sum()) / 4

        seen = rtts[0] + rtts[1]
        low, top = (min(seen), max(seen)) if seen else (0, 0)
        window, ssthresh = int(a["cwnd"]), int(a["ssthresh"])
        if a["ca_state"] == 3 and ssthresh < 0x7FFFFFFF:
            window = max(window, ssthresh)
        if sample_rate and srtt and lowest and window and high:
            x = [
                min(floor / srtt, 1),
                lost / (lost + delivered) if lost else 0.0,
                min(high * floor / window, 2),
                0.6 * entropy(gaps) + 0.4 * entropy(bins),
                float(window < ssthresh),
                plastic,
                min(int(a["rttvar_us"]) / srtt, 2),
                max(-1.0, min((srtt - previous) / previous, 1)) if previous else 0.0,
                min(sample_rate / high, 1),
                (low - floor) / (top - floor) if top > floor and low > floor else 0.0,
            ]
            newest = np.array(x)[REMEMBERED]
            means = newest if means is None else means + (newest - means) / 16
            rounds.append([*x, *means])
        start, lost, taken, previous, sample_rate = int(a["delivered"]), 0, 0, srtt, 0.0
        plastic *= 15 / 16
        pause = pause if srtt <= 16_000 else 0
        paused = max(lowest, min(lowest + 64 * pause, 8000)) > 1.25 * lowest
        pause -= -(-pause // 16)
        floor_count += 1
        if floor_count == 4:
            rtts, floor_count = [[], rtts[0]], 0
    return rounds


@pytest.mark.parametrize("trace", ["reno-03-lossy", "bbr-06-lossy-jitter", "cubic-08-reorder"])
def test_c_matches_the_formulas_on_real_transfers(trace: str) -> None:
    for flow in sources.read(TRACES / trace).flows:
        rounds = core.replay(flow.acks)
        got = rounds.dense()[rounds.valid] / 4096
        want = np.array(real_features(flow.acks))
        assert got.shape == want.shape
        # Floors of Q12; slow rates have few bits in Q24; plasticity truncates once a round. A mean
        # stands still within 2 units, and follows an input that is off.
        tolerance = np.full(c.N_DENSE, 1.5 / 4096)
        tolerance[[2, 8]] = 4 / 4096
        tolerance[5] = 16 / 4096
        tolerance[c.N_INPUTS :] = tolerance[REMEMBERED] + 3 / 4096
        assert (np.abs(got - want) <= tolerance).all(), NAMES[
            int(np.argmax((np.abs(got - want) - tolerance).max(axis=0)))
        ]


def test_every_input_is_alive_on_the_shipped_traces() -> None:
    """Two of ten inputs of the module that this one replaces were constants."""
    x = np.concatenate(
        [
            core.replay(flow.acks).dense()
            for name in ("reno-03-lossy", "cubic-08-reorder", "bbr-03-lossy")
            for flow in sources.read(TRACES / name).flows
        ]
    )
    for number, name in enumerate(NAMES):
        expected = 2 if name == "slow_start" else 20
        assert len(np.unique(x[:, number])) >= expected, name


def test_a_round_is_a_packet_timed_round_trip() -> None:
    rounds = core.replay(acks(400))
    assert rounds.valid.all()
    assert np.diff(rounds.ack_index).tolist() == [20] * (len(rounds.ack_index) - 1)


def test_an_rto_ends_a_round_and_sets_plasticity() -> None:
    stream = acks(50)
    stream["ca_state"][30:] = 4
    plain, cut = core.replay(acks(50)), core.replay(stream)
    assert 30 in cut.ack_index and 30 not in plain.ack_index
    assert cut.x[list(cut.ack_index).index(30), NAMES.index("plasticity")] == 4096


def test_counters_may_wrap() -> None:
    stream = acks(400)
    shifted = stream.copy()
    offset = 2**32 - 150
    for name in ("delivered", "prior_delivered"):
        shifted[name] = (stream[name].astype(np.int64) + offset) % 2**32
    shifted["now_us"] += 2**32 - 100_000
    assert np.array_equal(core.replay(shifted).x[2:], core.replay(stream).x[2:])


def test_the_ack_of_a_late_packet_ends_no_round() -> None:
    """It was taken for lost and retransmitted: its ACK says that the copy was sent just now."""
    stream = acks(400)
    late = stream.copy()
    late["prior_delivered"][7::20] = late["delivered"][7::20] - 1
    assert np.array_equal(core.replay(late).ack_index, core.replay(stream).ack_index)
    spaced = np.diff(late["now_us"][core.replay(late).ack_index])
    assert (spaced >= late["min_rtt_us"][0]).all()
    # From min RTT on it may be the copy's.
    late["min_rtt_us"] = 5_000
    assert len(core.replay(late).x) > len(core.replay(stream).x)


def test_nothing_valid_without_a_sample() -> None:
    for column, value in (("interval_us", -1), ("srtt_us", 0), ("min_rtt_us", 0), ("cwnd", 0)):
        rounds = core.replay(acks(100, **{column: value}))
        assert len(rounds.x) and not rounds.valid.any(), column
        assert not rounds.x.any()


def test_delay_entropy_does_not_depend_on_the_ack_rate() -> None:
    rng = np.random.default_rng(3)
    rtt = rng.normal(20_000, 4_000, 4000).astype(np.int32).clip(1)
    stream = acks(4000, rtt_us=rtt)
    thinned = stream[1::2].copy()
    thinned["acked"] = 2
    column = NAMES.index("entropy")
    dense, sparse = core.replay(stream).x[8:, column], core.replay(thinned).x[8:, column]
    assert abs(dense.mean() - sparse.mean()) < 0.02 * 4096


def test_random_losses_have_more_entropy_than_bursts() -> None:
    rng = np.random.default_rng(4)
    column = NAMES.index("entropy")
    spread, burst = acks(8000), acks(8000)
    spread["lost"] = rng.random(8000) < 0.02
    burst["lost"][400::400] = 8
    assert (
        core.replay(spread).x[-50:, column].mean() > 2 * core.replay(burst).x[-50:, column].mean()
    )


field = {
    "u32": st.one_of(st.integers(0, 2**32 - 1), st.integers(0, 50)),
    "s32": st.one_of(st.integers(-(2**31), 2**31 - 1), st.integers(-1, 50_000)),
    "u64": st.integers(0, 2**64 - 1),
}


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(*(field[f.ctype] for f in c.ACK_FIELDS)), min_size=1, max_size=60))
def test_hostile_records_stay_inside_the_box(rows: list[tuple[int, ...]]) -> None:
    rounds = core.replay(np.array(rows, dtype=core.ACK_DTYPE))
    assert (rounds.dense() >= LO).all() and (rounds.dense() <= HI).all()


def test_state_leaves_room_for_the_controller() -> None:
    """A pointer to the memory, and 16 bytes of the module's own."""
    assert core.FEATURES_BYTES == 80 == c.PRIVATE_BYTES - 8 - 16


@pytest.mark.parametrize("trace", ["reno-03-lossy", "bbr-06-lossy-jitter"])
def test_means_follow_from_the_inputs_of_the_rounds_bit_for_bit(trace: str) -> None:
    """So datasets need not hold them."""
    for flow in sources.read(TRACES / trace).flows:
        rounds = core.replay(flow.acks)
        x = rounds.dense()[rounds.valid].astype(np.int64)
        mean = np.minimum(x[0, REMEMBERED] * 4, 32767)
        for row in x:
            mean = mean + ((np.minimum(row[REMEMBERED] * 4, 32767) - mean + 8) >> 4)
            assert (row[c.N_INPUTS :] == mean >> 2).all()


def test_means_start_with_the_first_round_and_settle() -> None:
    """Of a constant it is that constant; after a step it comes within 2/4096 of the new one."""
    stream = acks(20 * 400)
    stream["rttvar_us"][4000:] = 4_000
    dense = core.replay(stream).dense()
    now, mean = (dense[:, NAMES.index(f"rtt_variation{end}")] for end in ("", "_mean"))
    assert (mean[:190] == now[:190]).all() and now[0] != now[-1]
    step = np.flatnonzero(now == now[-1])[0]
    part = mean[step + 15] - now[0]
    assert 0.55 < part / (now[-1] - now[0]) < 0.70, "1 - (15/16)^16 = 0.64"
    assert abs(int(mean[-1]) - int(now[-1])) <= 2


def test_blind_rounds_leave_the_means_alone() -> None:
    """They neither move them nor begin them anew: half way after a step, they go on from there."""
    stream = acks(20 * 60)
    stream["rttvar_us"][200:] = 4_000
    blind = np.r_[stream[:400], stream[400:800], stream[400:]]
    for column in ("now_us", "delivered", "prior_delivered"):
        blind[column][800:] += stream[column][800] - stream[column][400]
    blind["interval_us"][400:800] = -1
    rounds, without = core.replay(blind), core.replay(stream)
    assert not rounds.valid.all() and not rounds.dense()[~rounds.valid].any()
    name = NAMES.index("rtt_variation_mean")
    means, same = (r.dense()[r.valid][:, name] for r in (rounds, without))
    count = min(len(means), len(same))
    assert count > 50 and len(np.unique(means)) > 20
    assert (np.abs(means[:count].astype(int) - same[:count]) <= 1).all()


def held(lowest_us: int, hold_us: int, groups: int = 200) -> np.ndarray[Any, Any]:
    """A flow whose ACKs come in groups: 60 packets leave after a group, evenly over the pause."""
    n, size = 60 * groups, 60
    group = np.arange(n) // size
    sent = group * hold_us + np.arange(n) % size * hold_us // size
    released = (group + 1 + lowest_us // hold_us) * hold_us
    rtt = np.maximum(released - sent, lowest_us)
    rows = acks(n, cwnd=size * 2, inflight=size, ssthresh=10)
    rows["now_us"] = 50_000 + sent + rtt
    rows["rtt_us"], rows["srtt_us"], rows["min_rtt_us"] = rtt, round(rtt.mean()), rtt.min()
    rows["rttvar_us"] = hold_us // 4
    # What an ACK acknowledges was sent when the group before had come. The first ACK of a group
    # has next to nothing of it, the last one all.
    rows["prior_delivered"] = group * size
    rows["interval_us"] = hold_us
    return rows


@pytest.mark.parametrize(("lowest_us", "hold_us"), [(150, 3_000), (900, 1_500), (3_000, 6_000)])
def test_c_matches_the_formulas_where_acks_are_held_back(lowest_us: int, hold_us: int) -> None:
    stream = held(lowest_us, hold_us)
    rounds = core.replay(stream)
    want = np.array(real_features(stream))
    assert len(want) > 100 and rounds.valid.sum() == len(want)
    assert (np.abs(rounds.x[rounds.valid] / 4096 - want[:, : c.N_INPUTS]) <= 4 / 4096).all()


def test_the_baseline_rtt_has_the_pauses_of_hosts() -> None:
    """A path of 150 us whose ACKs wait for up to 3 ms is no path with a queue of twenty BDPs."""
    x = core.replay(held(150, 3_000)).x[50:]
    ratio, bdp = x[:, NAMES.index("rtt_ratio")], x[:, NAMES.index("bdp_ratio")]
    assert ratio.min() > 0.9 * 4096
    # 60 packets arrive in a pause, half of the window.
    assert bdp.min() > 0.4 * 4096 and bdp.max() < 0.7 * 4096


def read_late(window: int, wait_us: int = 3_000, lowest_us: int = 200, rounds: int = 200) -> Any:
    """A flow whose receiver reads every wait_us, and sends one ACK for all that arrived."""
    number = np.arange(rounds) + 1
    rows = acks(rounds, cwnd=window, acked=window, inflight=0, ssthresh=2)
    rows["now_us"] = 50_000 + number * wait_us
    # The newest packet left a quarter of the time before the program read.
    rows["rtt_us"], rows["srtt_us"], rows["min_rtt_us"] = wait_us // 4, wait_us, lowest_us
    rows["rttvar_us"] = wait_us // 50
    rows["delivered"] = number * window
    rows["prior_delivered"] = (number - 1) * window
    rows["interval_us"] = wait_us
    return rows


@pytest.mark.parametrize("window", [4, 23, 200])
def test_a_receiver_that_reads_late_is_no_queue(window: int) -> None:
    """Its wait is in every RTT, so no round has a lower one to compare with."""
    stream = read_late(window)
    rounds = core.replay(stream)
    want = np.array(real_features(stream))
    assert len(want) > 100 and rounds.valid.sum() == len(want)
    assert (np.abs(rounds.x[rounds.valid] / 4096 - want[:, : c.N_INPUTS]) <= 4 / 4096).all()
    assert rounds.x[20:, NAMES.index("rtt_ratio")].min() > 0.9 * 4096


def test_acks_for_few_packets_are_no_late_reading() -> None:
    """Three packets, or less than half of the window: such ACKs come from a queue, too."""
    part = read_late(23)
    part["cwnd"] = 47
    for stream in (read_late(3), part):
        assert core.replay(stream).x[20:, NAMES.index("rtt_ratio")].max() < 0.5 * 4096


def test_jitter_of_a_long_path_is_no_pause_of_a_host() -> None:
    """A lowest RTT of 2 ms among RTTs of 40 ms and more was luck."""
    stream = held(2_000, 6_000)
    stream["srtt_us"] = 40_000
    ratio = core.replay(stream).x[20:, NAMES.index("rtt_ratio")]
    assert set(ratio.tolist()) == {int(stream["min_rtt_us"][0]) * 4096 // 40_000}


def test_on_long_paths_the_baseline_rtt_is_the_lowest() -> None:
    """From 8 ms on inputs are what they were when the network was trained."""
    stream = held(9_000, 3_000)
    ratio = core.replay(stream).x[20:, NAMES.index("rtt_ratio")]
    lowest, srtt = int(stream["min_rtt_us"][0]), int(stream["srtt_us"][0])
    assert set(ratio.tolist()) == {lowest * 4096 // srtt}


def test_steady_acks_are_no_pause() -> None:
    """A queue that stands delays every ACK, and none is waited for."""
    stream = acks(4000, rtt_us=5_000, srtt_us=5_000, min_rtt_us=1_000)
    ratio = core.replay(stream).x[20:, NAMES.index("rtt_ratio")]
    assert set(ratio.tolist()) == {4096 // 5}


def test_requests_and_responses_are_no_rounds() -> None:
    """A loss makes one, and so does a window that is used, or more to send than that."""
    still = {"inflight": 0, "cwnd": 100, "app_limited": 1, "min_rtt_us": 1_000}
    quiet = acks(400, prior_delivered=np.arange(400), **still)
    assert len(core.replay(quiet).x) == 0
    lossy = quiet.copy()
    lossy["lost"][200] = 1
    (at,) = core.replay(lossy).ack_index
    assert at == 200
    full = quiet.copy()
    full["inflight"][300:] = 60
    assert core.replay(full).ack_index.tolist() == list(range(300, 400))
    busy = quiet.copy()
    busy["app_limited"][350:] = 0
    assert core.replay(busy).ack_index.tolist() == list(range(350, 400))


def test_foreign_records_are_refused() -> None:
    with pytest.raises(NdmError, match="expected"):
        core.replay(np.zeros(3, dtype=np.int64))
