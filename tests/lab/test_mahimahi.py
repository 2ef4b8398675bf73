# SPDX-License-Identifier: GPL-2.0-only
"""Traces of delivery opportunities become rates."""

from __future__ import annotations

from pathlib import Path

import pytest

from ndm_tcp.errors import NdmError
from ndm_tcp.lab.guest import suite
from ndm_tcp.lab.paths import mahimahi, scenario


def test_rates_are_opportunities_times_1504_bytes() -> None:
    trace = [10, 20, 30, 110, 200]  # three in the first tenth, one each in the next two
    steps = mahimahi.rates(trace, 0.4)
    bits = mahimahi.OPPORTUNITY_BYTES * 8 * 10
    assert steps == [(0.0, 3 * bits), (0.1, bits), (0.2, 4 * bits), (0.3, bits)]


@pytest.mark.parametrize("lasts_ms", [10_010, 10_050])
def test_the_last_part_of_a_trace_is_no_slower(lasts_ms: int) -> None:
    """It repeats, so the bin that its end cuts goes on with its beginning."""
    times = list(range(1, lasts_ms + 1))
    steps = mahimahi.rates(times, lasts_ms / 1000)
    assert min(rate for _, rate in steps) > 0.98 * max(rate for _, rate in steps)


def test_no_opportunity_is_slow_but_not_never() -> None:
    assert mahimahi.rates([5, 250], 0.2)[1] == (0.1, mahimahi.SLOWEST_BPS)


def test_the_shipped_trace_is_current_and_has_its_mean_rate() -> None:
    assert mahimahi.SHIPPED.read_text() == mahimahi.wandering()
    times = mahimahi.read(mahimahi.SHIPPED)
    steps = mahimahi.rates(times, times[-1] / 1000)
    ends = [*(at for at, _ in steps[1:]), times[-1] / 1000]
    bits = sum(rate * (end - at) for (at, rate), end in zip(steps, ends, strict=True))
    assert bits == pytest.approx(len(times) * mahimahi.OPPORTUNITY_BYTES * 8, rel=0.01)


def test_a_scenario_follows_its_trace() -> None:
    (made,) = suite.load_suite("variable")
    assert made.link is not None
    assert made.link.rate_bps > 1_000_000 and len(made.link.steps) > 100


@pytest.mark.parametrize("times", ["seconds = 0", "seconds = 1e9", "[[flows]]\nseconds = 1e9",
                                   "[[flows]]\nstart_s = 1e9"])  # fmt: skip
def test_times_are_checked_before_a_trace_is_repeated_as_long(tmp_path: Path, times: str) -> None:
    (tmp_path / "a.trace").write_text("1\n2\n3\n")
    link = '[link]\ntrace = "a.trace"\nrtt_us = 40_000\nqueue_packets = 60\n'
    seconds, flows = (times, "") if times.startswith("s") else ("seconds = 5", times)
    text = f'{seconds}\ntopology = "path"\n{link}{flows}\n'
    with pytest.raises(NdmError, match=r"(seconds|start_s): \S+ is not in"):
        scenario.parse(text, "a", "a.toml", tmp_path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "no opportunity"),
        ("1\n2\nx\n", ":3: 'x' is not a millisecond"),
        ("5\n4\n", ":2: time falls from 5 to 4 ms"),
        ("\xff", "not a trace"),
    ],
)
def test_bad_traces_are_refused(tmp_path: Path, text: str, expected: str) -> None:
    path = tmp_path / "bad.trace"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(NdmError, match=expected):
        mahimahi.read(path)


def test_a_trace_must_lie_beside_its_scenario(tmp_path: Path) -> None:
    text = (
        'seconds = 1\ntopology = "path"\n[link]\ntrace = "{}"\nrtt_us = 1000\nqueue_packets = 9\n'
    )
    for name, expected in (("../x.trace", "in the folder"), ("none.trace", "No such file")):
        with pytest.raises(NdmError, match=expected):
            scenario.parse(text.format(name), "x", "x.toml", tmp_path)
