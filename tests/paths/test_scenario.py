# SPDX-License-Identifier: GPL-2.0-only
"""A model as a scenario: its values arrive, bounds and unknowns are filled as documented."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest

from ndm_tcp.errors import NdmError
from ndm_tcp.lab.paths.scenario import Burst
from ndm_tcp.paths import model as models
from ndm_tcp.paths import scenario
from ndm_tcp.paths.model import Kind, Level, Rival, Seen, Value

from .made import at_least, model


def test_values_arrive_in_the_scenario() -> None:
    made = scenario.scenario(
        model(
            levels=(Level(0.0, Value.exact(10e6)), Level(2.0, Value.exact(4e6))),
            loss=Value.exact(0.01),
            jitter_us=Value.exact(2000),
            reorder=True,
            ack_hold_us=Value.exact(2500),
        )
    )
    link = made.link
    assert link is not None
    assert (link.rate_bps, link.rtt_us, link.queue_packets) == (10_000_000, 40_000, 60)
    assert (link.loss, link.jitter_us, link.reorder) == (0.01, 2000, True)
    # The flow's first ACK comes some round trips after the run's start.
    ((at_s, bps),) = link.steps
    assert at_s == pytest.approx(2.0 + 4.5 * 0.04) and bps == 4_000_000
    assert made.host.read_wait_us == 2500 and link.ack_hold_us == (0, 0)
    assert [flow.cc for flow in made.flows] == ["$cc"]


def test_long_gathering_of_acks_is_the_links() -> None:
    made = scenario.scenario(model(ack_hold_us=Value.exact(30_000)))
    assert made.link is not None and made.link.ack_hold_us == (15_000, 30_000)
    assert made.host.read_wait_us == 1


@pytest.mark.parametrize(("rtt_us", "wait_us"), [(40_000, 3000), (20_000, 2000), (100, 10)])
def test_gathering_that_nobody_saw_is_short(rtt_us: int, wait_us: int) -> None:
    """It counts as RTT in a target window, so a local network must not get 3 ms of it."""
    made = scenario.scenario(model(rtt_us=Value.exact(rtt_us), ack_hold_us=Value.exact(0)))
    assert made.host.read_wait_us == wait_us


def test_bursts_take_the_place_of_independent_losses() -> None:
    made = scenario.scenario(model(loss=Value.exact(0.02), burst=Burst(0.01, 0.5, 0.5)))
    assert made.link is not None and made.link.burst is not None
    assert made.link.loss == 0 and made.link.burst.start == 0.01


def test_a_rival_that_was_there_before_leads() -> None:
    before = scenario.scenario(model(rivals=(Rival("bbr", Kind.ASSUMED, 0.0),)))
    assert [(f.cc, f.start_s, f.sender) for f in before.flows] == [("$cc", 1.0, 0), ("bbr", 0.0, 1)]
    later = scenario.scenario(model(rivals=(Rival("cubic", Kind.MEASURED, 2.0),)))
    assert [(f.cc, f.start_s) for f in later.flows] == [("$cc", 0.0), ("cubic", 2.0)]
    # All end together, so that the flow is never alone again.
    assert before.flows[0].end_s() == before.flows[1].end_s()


def test_a_queue_that_never_overflowed_is_larger_than_what_it_held() -> None:
    assert scenario.queue_packets(model()) == 60
    bdp = 10e6 / 8 / 1500 * 0.04
    assert scenario.queue_packets(model(queue_packets=at_least(4))) == round(bdp)
    assert scenario.queue_packets(model(queue_packets=at_least(100))) == 125


def test_codel_has_room_for_all_that_it_delays() -> None:
    """A short queue in the capture is CoDel's doing, not its limit."""
    made = model(queue_packets=at_least(50.0), qdisc="fq_codel")
    link = scenario.scenario(made).link
    assert link and (link.qdisc, link.queue_packets) == ("fq_codel", 10_240)


def test_draws_stay_around_the_intervals_and_zero_stays_zero() -> None:
    given = model(loss=Value(0.01, 0.005, 0.02))
    assert scenario.draw(given, 0) is given
    drawn = [scenario.draw(given, seed) for seed in range(1, 200)]
    assert drawn[5] == scenario.draw(given, 6)
    for name in ("rtt_us", "queue_packets", "loss"):
        value = getattr(given, name)
        logs = np.log([getattr(one, name).value / value.value for one in drawn])
        width = math.log(value.high / value.low) / (2 * 1.96)
        assert np.std(logs) == pytest.approx(width, rel=0.25), name
        assert abs(np.mean(logs)) < 0.3 * width
    assert {one.jitter_us.value for one in drawn} == {0.0}


def test_a_policer_is_a_bucket_without_a_queue() -> None:
    made = scenario.scenario(model(bucket_packets=Value.exact(80.0), queue_packets=Value.exact(1)))
    assert made.link is not None
    assert (made.link.bucket_packets, made.link.queue_packets) == (80, 1)
    plain = scenario.scenario(model()).link
    assert plain is not None and plain.bucket_packets == 1


def test_models_come_back_from_disk_and_damage_is_named(tmp_path: Path) -> None:
    given = model(rivals=(Rival("bbr", Kind.ASSUMED, 0.0),), burst=Burst(0.1, 0.2, 0.3))
    path = tmp_path / f"mine{models.SUFFIX}"
    models.write(given, path)
    assert models.load_all(tmp_path) == [given]
    text = path.read_text()
    for damage in (
        "",
        "[]",
        text.replace('"format": 1', '"format": 9'),
        text.replace("40000", "x"),
    ):
        path.write_text(damage)
        with pytest.raises(NdmError, match="run: ndm path estimate"):
            models.read(path)
    with pytest.raises(NdmError, match="no path model in it; run: ndm path estimate"):
        models.load_all(tmp_path / "none")


def test_the_mean_rate_is_over_time() -> None:
    two = (Level(0.0, Value.exact(10e6)), Level(3.0, Value.exact(2e6)))
    assert dataclasses.replace(model(), levels=two).rate_bps == pytest.approx(8e6)
    after = (*two, Level(60.0, Value.exact(50e6)), Level(90.0, Value.exact(1e6)))
    assert dataclasses.replace(model(), levels=after).rate_bps == pytest.approx(8e6)


@pytest.mark.parametrize(
    ("seconds", "rtt_ms", "sent_s"),
    [(10.05, 60.0, 10), (10.6, 640.0, 10), (10.6, 50.0, 11), (0.3, 50.0, 1)],
)
def test_a_flow_sends_for_as_long_as_the_captured_one(
    seconds: float, rtt_ms: float, sent_s: int
) -> None:
    """The capture ends when the queue that the flow left is empty."""
    one = model(seconds=seconds, seen=Seen(9.0, rtt_ms, rtt_ms, 0.01))
    (flow,) = scenario.scenario(one).flows
    assert flow.seconds == sent_s
    for changes in ({"seen": None}, {"sampling": "poll"}):
        (unknown,) = scenario.scenario(dataclasses.replace(one, **changes)).flows
        assert unknown.seconds == max(1, round(seconds))
    # A label is for all of the captured rounds.
    (asked,) = scenario.scenario(one, seconds=seconds).flows
    assert asked.seconds == math.ceil(seconds)


@pytest.mark.parametrize(
    ("mbps", "scale", "bytes_"),
    [(200, 11, 49_152 << 11), (200, 7, 0), (200, 6, 49_152 << 6), (10, 11, 0), (10, 6, 0)],
    ids=["larger", "the lab's own", "smaller", "too slow to need it", "slow"],
)
def test_the_receivers_buffer_arrives_where_it_decides(
    mbps: float, scale: int, bytes_: int
) -> None:
    """On fast and far paths BBR gets what the receiver's buffer holds."""
    levels, rtt = (Level(0.0, Value.exact(mbps * 1e6)),), Value.exact(170_000)
    one = model(levels=levels, rtt_us=rtt, buffer_bytes=49_152 << scale)
    assert scenario.scenario(one).host.buffer_bytes == bytes_
    assert "buffer_bytes" not in scenario.text(dataclasses.replace(one, buffer_bytes=0))


def test_draws_stay_within_intervals_that_are_longer_on_one_side() -> None:
    """A few random losses, an upper bound, and a bucket."""
    given = model(
        loss=Value(0.0002, 0.0, 0.0005),
        rtt_us=Value(40_000, 28_000, 40_000, Kind.AT_MOST),
        bucket_packets=Value(20, 15, 30),
    )
    drawn = [scenario.draw(given, seed) for seed in range(1, 401)]
    for name in ("loss", "rtt_us", "bucket_packets"):
        value = getattr(given, name)
        found = np.array([getattr(one, name).value for one in drawn])
        assert (found > 0).all() and (found >= value.low).all() and (found <= value.high).all()
        assert len(set(found.tolist())) > 100
        below = float(np.mean(found < value.value))
        assert below == pytest.approx(0.5, abs=0.05)
    bursts = model(loss=Value(0.01, 0.005, 0.02), burst=Burst(0.001, 0.1, 1.0))
    one = scenario.draw(bursts, 1)
    assert one.burst is not None
    assert one.burst.start / 0.001 == pytest.approx(one.loss.value / 0.01) != 1


def test_few_draws_lie_on_both_sides_and_two_paths_have_others() -> None:
    given = model("a", queue_packets=Value(60, 50, 72))
    values = [scenario.draw(given, draw).queue_packets.value for draw in (1, 2)]
    assert values[0] * values[1] == pytest.approx(60**2, rel=0.02)  # the interval is nearly even
    assert min(values) < 60 < max(values)
    other = scenario.draw(dataclasses.replace(given, name="b"), 1)
    assert other.queue_packets.value not in values


def test_all_draws_of_a_model_have_the_same_buffers() -> None:
    """Just at the limit some draws need more, some less."""
    for mbps in np.linspace(60, 90, 16):
        rate = Value(mbps * 1e6, mbps * 0.9e6, mbps * 1.1e6)
        one = model(levels=(Level(0.0, rate),), rtt_us=Value(170_000, 150_000, 190_000))
        one = dataclasses.replace(one, buffer_bytes=49_152 << 11, queue_packets=at_least(60.0))
        drawn = {scenario.scenario(scenario.draw(one, k)).host.buffer_bytes for k in range(12)}
        assert len(drawn) == 1
