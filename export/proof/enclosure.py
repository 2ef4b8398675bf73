# SPDX-License-Identifier: GPL-2.0-only
"""Outputs of a quantised network for any input in the box, in exact and outward-rounded integers.

Ranges of every accumulator come from integer interval arithmetic. The bound on
|fixed - real| follows each rounding and each table error to the outputs, multiplied by an
interval that holds every slope it can meet on the way. Real numbers are integers in units of
2**-UNIT_BITS, rounded away from the safe side; no libm and no float takes part.

The identity behind the bound: with u the integers read as reals and v the real network,

    u_k - v_k  = sum_j W_kj e_j + rho_k          pre-activation, |rho| <= half a unit of Q16
    e'_k       = s_k (u_k - v_k) + tau_k         s_k: a slope of the activation's, u_k to v_k

so that the error of an output is a sum over all rho and tau, each with a coefficient that is a
product of weights and slopes (mean value theorem). Intervals for s and tau bound it.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from ndm_tcp import contract as c
from ndm_tcp import fixedpoint
from ndm_tcp.fixedpoint import Layer

UNIT_BITS = 40
"""Reals of a certificate: integers in units of 2**-40."""
UNIT = 1 << UNIT_BITS
FINE = 128  # bits while tanh is enclosed
STEP_BITS = c.Q_PRE + c.TANH_RANGE_LOG2 - c.TANH_STEPS_LOG2  # Q16 bits within a table step
STEPS = 1 << c.TANH_STEPS_LOG2
LIMIT = 1 << (c.Q_PRE + c.TANH_RANGE_LOG2)

Interval = tuple[int, int]
"""Lowest and highest value, both included."""


def floor_shift(value: int, bits: int) -> int:
    """value / 2**bits, rounded down."""
    return value >> bits


def ceil_shift(value: int, bits: int) -> int:
    """value / 2**bits, rounded up."""
    return -(-value >> bits)


def outward(value: Interval, bits: int) -> Interval:
    """An interval divided by 2**bits, rounded outward."""
    return floor_shift(value[0], bits), ceil_shift(value[1], bits)


def times(a: Interval, b: Interval) -> Interval:
    """Product of two intervals, exact."""
    products = [x * y for x in a for y in b]
    return min(products), max(products)


def scaled(a: Interval, factor: int) -> Interval:
    """An interval times an integer."""
    return (a[0] * factor, a[1] * factor) if factor >= 0 else (a[1] * factor, a[0] * factor)


def plus(a: Interval, b: Interval) -> Interval:
    """Sum of two intervals."""
    return a[0] + b[0], a[1] + b[1]


# --- tanh ------------------------------------------------------------------------------------


def _exp(numerator: int, bits: int) -> Interval:
    """exp(numerator / 2**bits) in units of 2**-FINE, for arguments in [0, 1): Taylor series.

    After a term t, the rest of the series is at most 2 t: the ratio of terms is below 1/2
    from the third on, and the loop ends far beyond it.
    """
    low = high = 1 << FINE
    term_low, term_high, k = low, high, 1
    while term_high > 1 or k < 4:
        term_low = term_low * numerator // (k << bits)
        term_high = -(-term_high * numerator // (k << bits))
        low += term_low
        high += term_high
        k += 1
    return low, high + 2 * term_high


@functools.cache
def tanh_nodes() -> tuple[Interval, ...]:
    """[STEPS + 1] tanh at the nodes of the table, in units of 2**-FINE.

    tanh x = (E - 1) / (E + 1) with E = exp(2 x), a growing function of E; E is the power of
    one enclosed number, by multiplications rounded outward.
    """
    one = 1 << FINE
    step = _exp(1, c.TANH_STEPS_LOG2 - c.TANH_RANGE_LOG2 - 1)
    power = (one, one)
    nodes = []
    for _ in range(STEPS + 1):
        low = (power[0] - one) * one // (power[0] + one)
        high = -(-(power[1] - one) * one // (power[1] + one))
        nodes.append((low, high))
        power = outward((power[0] * step[0], power[1] * step[1]), FINE)
    return tuple(nodes)


@functools.cache
def segment_errors() -> tuple[Interval, ...]:
    """[STEPS + 1] table minus tanh within each step of the positive half, in units.

    Between two nodes h apart, tanh(x) = chord(x) - tanh''(z) (x - x0) (x1 - x) / 2 for some z
    between them, with -tanh'' = 2 tanh (1 - tanh**2). So at every one of a step's integers the
    error is known up to the width of that factor: rounding as the table does it, plus the
    nodes' errors interpolated, minus the bend. The last entry holds beyond the table, where
    tanh is between its last node and 1.
    """
    nodes, table = tanh_nodes(), fixedpoint.tanh_table()
    one, cut, points = 1 << FINE, FINE - UNIT_BITS, 1 << STEP_BITS
    square = 2 * (c.TANH_STEPS_LOG2 - c.TANH_RANGE_LOG2)  # h**2 = 2**-square
    ends = [
        outward(((value << (FINE - c.Q_ACT)) - high, (value << (FINE - c.Q_ACT)) - low), cut)
        for value, (low, high) in zip(table, nodes, strict=True)
    ]
    f = np.arange(points, dtype=np.int64)
    weight = f * (points - f)  # (x - x0) (x1 - x) in units of h**2 / points**2
    errors = []
    for i in range(STEPS):
        (left, right), rise = nodes[i : i + 2], table[i + 1] - table[i]
        bend_low = 2 * left[0] * (one - ceil_shift(right[1] ** 2, FINE)) >> (FINE + cut)
        bend_high = ceil_shift(2 * right[1] * (one - (left[0] ** 2 >> FINE)), FINE + cut)
        exact = rise * f
        off = (((exact + points // 2) >> STEP_BITS) << STEP_BITS) - exact  # Q15 / points
        shared = off << (UNIT_BITS - c.Q_ACT)  # units / points, as all below
        low = shared + ends[i][0] * (points - f) + ends[i + 1][0] * f
        high = shared + ends[i][1] * (points - f) + ends[i + 1][1] * f
        low += -(bend_high * weight >> (square + 1 + STEP_BITS)) - 1
        high -= bend_low * weight >> (square + 1 + STEP_BITS)
        errors.append(outward((int(low.min()), int(high.max())), STEP_BITS))
    last = table[-1] << (FINE - c.Q_ACT)
    errors.append(outward((last - one, last - nodes[-1][0]), cut))
    # The checker encloses them in its own way, by up to a sixth of a unit wider.
    return tuple((low - 1, high + 1) for low, high in errors)


def table_error(pre: Interval) -> Interval:
    """Table minus tanh for every Q16 integer of an interval, in units."""
    errors = _error_array()
    found = []
    if pre[1] >= 0:
        first, last = max(pre[0], 0) >> STEP_BITS, pre[1] >> STEP_BITS
        part = errors[min(first, STEPS) : min(last, STEPS) + 1]
        found.append((int(part[:, 0].min()), int(part[:, 1].max())))
    if pre[0] < 0:
        first, last = max(-pre[1], 0) >> STEP_BITS, -pre[0] >> STEP_BITS
        part = errors[min(first, STEPS) : min(last, STEPS) + 1]
        found.append((-int(part[:, 1].max()), -int(part[:, 0].min())))
    return min(low for low, _ in found), max(high for _, high in found)


@functools.cache
def _error_array() -> npt.NDArray[np.int64]:
    """[STEPS + 1, 2]: `segment_errors`, of which a proof asks thousands of times."""
    return np.array(segment_errors(), dtype=np.int64)


@functools.cache
def slope_table() -> tuple[tuple[int, ...], tuple[int, ...]]:
    """[STEPS + 2] each: tanh' at the nodes from below and from above, in units; 0 beyond."""
    one = 1 << (2 * FINE)
    low = [floor_shift(one - high**2, 2 * FINE - UNIT_BITS) for _, high in tanh_nodes()]
    high = [ceil_shift(one - low**2, 2 * FINE - UNIT_BITS) for low, _ in tanh_nodes()]
    return (*low, 0), (*high, high[-1])


def slope(numerator: Interval) -> Interval:
    """tanh' over an interval of reals given in units, in units.

    tanh' falls with |x|: the node below the least |x| bounds it from above, the node above the
    greatest from below.
    """
    node = UNIT_BITS - (c.TANH_STEPS_LOG2 - c.TANH_RANGE_LOG2)
    low, high = numerator
    least = 0 if low <= 0 <= high else min(abs(low), abs(high))
    greatest = max(abs(low), abs(high))
    below, above = slope_table()
    return (
        max(0, below[min(ceil_shift(greatest, node), STEPS + 1)]),
        min(UNIT, above[min(least >> node, STEPS + 1)]),
    )


def tanh_integer(pre: int) -> int:
    """The table's value, Q16 to Q15, on one Python integer."""
    magnitude = abs(pre)
    if magnitude >= LIMIT:
        value = int(fixedpoint.TANH[-1])
    else:
        index, rest = magnitude >> STEP_BITS, magnitude & ((1 << STEP_BITS) - 1)
        low, high = int(fixedpoint.TANH[index]), int(fixedpoint.TANH[index + 1])
        value = low + (((high - low) * rest + (1 << (STEP_BITS - 1))) >> STEP_BITS)
    return -value if pre < 0 else value


# --- saturation ------------------------------------------------------------------------------


def clamp_integer(pre: int) -> int:
    """`fixedpoint.saturate`, Q16 to Q15, on one Python integer."""
    half_up = (pre + 1) >> 1
    return max(-(1 << c.Q_ACT), min((1 << c.Q_ACT) - 1, half_up))


def clamp_error(pre: Interval) -> Interval:
    """Saturated integer minus clamp to [-1, 1] for every Q16 integer of an interval, in units.

    Between the knees the error depends on whether the integer is odd, beyond them on nothing:
    the ends, the knees, and the neighbours of both show every case there is.
    """
    one = 1 << c.Q_PRE
    places = {end + by for end in (*pre, -one, 0, one) for by in (-2, -1, 0, 1, 2)}
    found = [
        (clamp_integer(p) << (UNIT_BITS - c.Q_ACT))
        - (max(-one, min(one, p)) << (UNIT_BITS - c.Q_PRE))
        for p in places
        if pre[0] <= p <= pre[1]
    ]
    return min(found), max(found)


def clamp_slope(numerator: Interval) -> Interval:
    """Slopes of the chords of the clamp between any two reals, given in units, in units."""
    low, high = numerator
    inside = low >= -UNIT and high <= UNIT
    outside = high <= -UNIT or low >= UNIT
    return (UNIT if inside else 0), (0 if outside else UNIT)


# --- the network -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """One neuron over the whole box."""

    accumulator: Interval
    partial: Interval
    """every partial sum, in any order of summation"""
    shift: int
    pre: Interval
    """Q16"""
    activation: Interval | None
    """Q15; None in the output layer"""
    slope: Interval | None
    """of the activation between the integer and the real pre-activation, in units"""
    table: Interval | None
    """integer minus real activation at the same pre-activation, in units"""


def weight_bits(layer: Layer, number: int, row: int) -> int:
    """Fractional bits of a row's weights."""
    return int(layer.shift[row]) + c.Q_PRE - (c.Q_INPUT if number == 0 else c.Q_ACT)


def box() -> list[Interval]:
    """The contract's inputs, Q12."""
    return [(i.lo_q, i.hi_q) for i in c.DENSE]


def rows(layers: list[Layer]) -> list[list[Row]]:
    """Interval arithmetic forward through the network: [layer][row].

    The first layer's intervals are exact (each end is attained at a corner of the box), later
    ones hold more than can be attained, since they take the activations as independent.
    """
    inputs, errors = box(), [(0, 0)] * c.N_DENSE
    result = []
    half = 1 << (UNIT_BITS - c.Q_PRE - 1)
    for number, layer in enumerate(layers):
        found, next_inputs, next_errors = [], [], []
        for r in range(layer.n_out):
            weights, bias = [int(w) for w in layer.weight[r]], int(layer.bias[r])
            n = int(layer.shift[r])
            products = [scaled(x, w) for x, w in zip(inputs, weights, strict=True)]
            low = sum(p[0] for p in products) + bias
            high = sum(p[1] for p in products) + bias
            partial = (
                sum(min(p[0], 0) for p in products) + min(bias, 0),
                sum(max(p[1], 0) for p in products) + max(bias, 0),
            )
            pre = ((low + (1 << (n - 1))) >> n, (high + (1 << (n - 1))) >> n)
            if number + 1 == len(layers):
                found.append(Row((low, high), partial, n, pre, None, None, None))
                continue
            passed = [scaled(e, w) for e, w in zip(errors, weights, strict=True)]
            total = (sum(p[0] for p in passed), sum(p[1] for p in passed))
            off = plus(outward(total, weight_bits(layer, number, r)), (-half, half))
            to_unit = UNIT_BITS - c.Q_PRE
            real = ((pre[0] << to_unit) - max(off[1], 0), (pre[1] << to_unit) - min(off[0], 0))
            if r < layer.n_out - layer.clamped:
                s, t = slope(real), table_error(pre)
                activation = (tanh_integer(pre[0]), tanh_integer(pre[1]))
            else:
                s, t = clamp_slope(real), clamp_error(pre)
                activation = (clamp_integer(pre[0]), clamp_integer(pre[1]))
            found.append(Row((low, high), partial, n, pre, activation, s, t))
            next_inputs.append(activation)
            next_errors.append(plus(outward(times(s, off), UNIT_BITS), t))
        result.append(found)
        inputs, errors = next_inputs, next_errors
    return result


def output_errors(layers: list[Layer], found: list[list[Row]]) -> list[Interval]:
    """[2] integer network minus real network before the clamp, for every input, in units.

    Backward from each output, as at the head of this file. The clamp moves neither closer to
    the other's far side: it cannot enlarge a difference.
    """
    half = 1 << (UNIT_BITS - c.Q_PRE - 1)
    result = []
    for output in range(layers[-1].n_out):
        total = (-half, half)
        bits = weight_bits(layers[-1], len(layers) - 1, output)
        coefficient = [
            outward((int(w) << UNIT_BITS, int(w) << UNIT_BITS), bits)
            for w in layers[-1].weight[output]
        ]
        for number in range(len(layers) - 2, -1, -1):
            layer = layers[number]
            sums = [(0, 0)] * layer.n_in
            for k, (row, coef) in enumerate(zip(found[number], coefficient, strict=True)):
                assert row.slope is not None and row.table is not None
                through = outward(times(coef, row.slope), UNIT_BITS)
                total = plus(total, outward(times(coef, row.table), UNIT_BITS))
                total = plus(total, outward(times(through, (-half, half)), UNIT_BITS))
                shift = weight_bits(layer, number, k)
                sums = [
                    plus(s, outward(scaled(through, int(w)), shift))
                    for s, w in zip(sums, layer.weight[k], strict=True)
                ]
            coefficient = sums
        result.append(total)
    return result


def error_bound(layers: list[Layer]) -> list[Fraction]:
    """[2] proved bound on |integer network - the same weights in real arithmetic|, in reals.

    For every input in the contract's box; rounding, table and slopes included.
    """
    errors = output_errors(layers, rows(layers))
    return [Fraction(max(-low, high), UNIT) for low, high in errors]
