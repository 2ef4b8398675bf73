# SPDX-License-Identifier: GPL-2.0-only
"""The arithmetic: C against the specification, the specification against real numbers."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ndm_tcp import contract as c
from ndm_tcp import core, fixedpoint


def test_tanh_is_the_same_in_c_for_every_input_inside_and_around_the_table() -> None:
    limit = 1 << (c.Q_PRE + c.TANH_RANGE_LOG2)
    edges = [-(2**31), -(2**31) + 1, 2**31 - 1]
    x = np.concatenate([np.arange(-limit - 2000, limit + 2000), edges]).astype(np.int32)
    spec = fixedpoint.tanh(x.astype(np.int64))
    assert np.array_equal(core.tanh(x), spec)
    assert np.abs(spec / 2**15 - np.tanh(x / 65536.0)).max() * 2**15 < 1.6
    assert (np.diff(spec[:-3]) >= 0).all()


def test_tanh_is_odd() -> None:
    x = np.arange(0, 600_000, 7, dtype=np.int64)
    assert np.array_equal(fixedpoint.tanh(x), -fixedpoint.tanh(-x))


def test_exp2_is_the_same_in_c_and_close_to_real() -> None:
    gain = np.arange(-65536, 65537, dtype=np.int32)
    spec = fixedpoint.exp2(gain.astype(np.int64))
    assert np.array_equal(core.exp2(gain), spec)
    assert np.abs(spec / 65536 / 2.0 ** (gain / 65536.0) - 1).max() < 1e-4
    assert (spec[0], spec[65536], spec[-1]) == (32768, 65536, 131072)


def test_rounding_is_half_up() -> None:
    acc = np.array([-3, -2, -1, 0, 1, 2, 3, 5, 6], dtype=np.int64)
    assert fixedpoint.round_shift(acc, 1).tolist() == [-1, -1, 0, 0, 1, 1, 2, 3, 3]


@given(st.lists(st.integers(0, 15), min_size=2, max_size=16))
def test_entropy_is_shannon_entropy(bins: list[int]) -> None:
    ring = 0
    for value in bins:
        ring = (ring << 4 | value) & (2**64 - 1)
    got = core.entropy(np.array([ring], np.uint64), np.array([len(bins)], np.uint32))[0] / 4096
    counts = np.bincount(bins)
    p = counts[counts > 0] / len(bins)
    assert abs(got - float(-(p * np.log2(p)).sum()) / 4) < 2 / 4096


def test_entropy_takes_many_values() -> None:
    """The module this project replaces knew only 0 and 1."""
    rng = np.random.default_rng(0)
    rings = rng.integers(0, 2**63, 500, dtype=np.uint64) & rng.integers(
        0, 2**63, 500, dtype=np.uint64
    )
    assert len(np.unique(core.entropy(rings, np.full(500, 16, np.uint32)))) > 20


def test_a_gain_adds_a_packet_and_saturates() -> None:
    cwnd = np.array([4, 4, 4, 10, 2**32 - 1, 1000], np.uint32)
    gain = np.array([6554, -6554, 0, -65536, 65536, 65536], np.int32)
    assert core.apply_gain(cwnd, gain).tolist() == [5, 4, 5, 6, 2**32 - 1, 2001]


def test_the_window_in_a_recovery_is_the_one_aimed_at() -> None:
    state = np.array([0, 1, 2, 3, 3, 3, 4])
    cwnd = np.array([7, 7, 7, 7, 30, 7, 7])
    ssthresh = np.array([20, 20, 20, 20, 20, 2**31 - 1, 20])
    assert core.window(state, cwnd, ssthresh).tolist() == [7, 7, 7, 20, 30, 7, 7]


def test_cut_is_half_the_probability_of_congestion() -> None:
    logits = np.linspace(-8, 8, 33)
    cwnd = np.full(33, 100_000, np.uint32)
    got = core.cut(cwnd, (logits * 65536).astype(np.int32)) / 100_000
    want = 1 - 0.5 / (1 + np.exp(-logits))
    assert np.abs(got - want).max() < 5e-5
    assert got.min() >= 0.5
    assert math.isclose(got[16], 0.75, abs_tol=1e-4)
