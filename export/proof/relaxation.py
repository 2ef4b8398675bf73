# SPDX-License-Identifier: GPL-2.0-only
"""Sound upper bounds of an output over sub-boxes, in int64 with every rounding accounted for.

Two bounds, the better one counts. Integer interval arithmetic needs no argument: every step is
monotone. The other replaces each tanh by straight lines above and below it and carries the
output's expression back to the inputs, where its maximum over a box is at a corner (the linear
relaxation known from CROWN, Zhang et al. 2018, here on a grid of slopes so that it is exact in
integers). It bounds the real network; |fixed - real| is added.

A line needs no proof of its slope: for any slope a, tanh p - a p <= beta on [l, u] where beta
is the largest of its values at l, at u and, where the maximum of tanh p - a p over all p > 0
can lie between them, of that maximum. So slopes are free to choose; `lines` tries a few. A
clamp to [-1, 1] in place of tanh has its maximum at l, at u or at its upper knee, exactly.
"""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt

from ndm_tcp import contract as c
from ndm_tcp import fixedpoint
from ndm_tcp.export.proof import enclosure
from ndm_tcp.fixedpoint import IntArray, Layer

SLOPE_BITS = 8  # slopes of lines: multiples of 1/256
LINE_BITS = 24  # offsets of lines
COEFFICIENT_BITS = 20  # coefficients of activations and inputs
SUM_BITS = COEFFICIENT_BITS + LINE_BITS  # the constant part
BIAS_BITS = 20
SPARE = 61  # bits that an intermediate may take
FAR = 1 << 40  # where the maximum lies for slope 0, Q16
WIDE = 16 << c.Q_PRE
"""Beyond it lines are level, so that no offset exceeds 1 + 16."""

Lines = tuple[IntArray, IntArray]
"""Slope in 2**-SLOPE_BITS and offset in 2**-LINE_BITS, [batch, n] each."""


@functools.cache
def peaks() -> tuple[IntArray, IntArray, IntArray]:
    """Per slope a = 0 .. 2**SLOPE_BITS: the maximum of tanh p - a p over p >= 0, and where.

    Returns:
        the maximum from above in 2**-LINE_BITS; an interval [Q16] that holds its place.
        tanh p - a p is concave there: between nodes it exceeds the line between them by at
        most h**2 / 8 max |tanh''| < h**2 / 10, and its maximum lies next to the largest node.
    """
    shift = enclosure.FINE - enclosure.UNIT_BITS
    low = np.array([lo >> shift for lo, _ in enclosure.tanh_nodes()], dtype=np.int64)
    x = np.arange(len(low), dtype=np.int64) << enclosure.STEP_BITS  # Q16
    slopes = np.arange(1 << SLOPE_BITS, dtype=np.int64)[:, None] + 1
    value = low - (slopes * x << (enclosure.UNIT_BITS - SLOPE_BITS - c.Q_PRE))
    top = value.argmax(axis=1)
    bend = (1 << (2 * enclosure.STEP_BITS)) // 10 + 1  # Q32
    high = value.max(axis=1) + 1 + (bend << (enclosure.UNIT_BITS - 2 * c.Q_PRE))
    maximum = -(-high >> (enclosure.UNIT_BITS - LINE_BITS))
    # Nodes are known to one unit: two steps to either side, values are lower by far more.
    reach = 2 << enclosure.STEP_BITS
    first, last = x[top] - reach, x[top] + reach
    return (
        np.concatenate([[1 << LINE_BITS], maximum]),
        np.concatenate([[FAR], first]),
        np.concatenate([[FAR], last]),
    )


@functools.cache
def _segment_arrays() -> tuple[IntArray, IntArray]:
    errors = np.array(enclosure.segment_errors(), dtype=np.int64)
    cut = enclosure.UNIT_BITS - LINE_BITS
    return errors[:, 0] >> cut, -(-errors[:, 1] >> cut)


def tanh_above(pre: IntArray) -> IntArray:
    """tanh of Q16 integers from above, in 2**-LINE_BITS."""
    low, high = _segment_arrays()
    index = np.minimum(np.abs(pre) >> enclosure.STEP_BITS, enclosure.STEPS)
    value = fixedpoint.tanh(pre) << (LINE_BITS - c.Q_ACT)
    result: IntArray = np.where(pre >= 0, value - low[index], value + high[index])
    return result


def offset(slope: IntArray, low: IntArray, high: IntArray) -> IntArray:
    """beta with tanh p <= slope p + beta for every real p in [low, high] (Q16)."""
    maximum, first, last = peaks()
    scale = LINE_BITS - SLOPE_BITS - c.Q_PRE
    ends = np.maximum(
        tanh_above(low) - (slope * low << scale), tanh_above(high) - (slope * high << scale)
    )
    inside = (first[slope] <= high) & (low <= last[slope])
    result: IntArray = np.where(inside, np.maximum(ends, maximum[slope]), ends)
    return result


def lines(low: IntArray, high: IntArray) -> Lines:
    """A line above tanh on [low, high]: of a few slopes, the one lowest in the middle."""
    one = 1 << SLOPE_BITS
    _, first, last = peaks()
    place = np.maximum((first + last) >> 1, 0)

    def chord(a: IntArray, b: IntArray) -> IntArray:
        rise = (fixedpoint.tanh(b) - fixedpoint.tanh(a)) << (SLOPE_BITS + c.Q_PRE - c.Q_ACT)
        result: IntArray = np.clip(rise // np.maximum(b - a, 1), 0, one)
        return result

    def at(p: IntArray) -> IntArray:
        t = fixedpoint.tanh(p)
        result: IntArray = one - (t * t >> (2 * c.Q_ACT - SLOPE_BITS))
        return np.clip(result, 0, one)

    middle = (low + high) >> 1
    tangent = chord(low, high)
    candidates = [at(low), at(high), at(middle), tangent]
    for _ in range(4):  # the line through `low` that touches the curve
        tangent = chord(low, np.clip(place[tangent], low + 1, np.maximum(high, low + 1)))
    candidates.append(tangent)
    scale = LINE_BITS - SLOPE_BITS - c.Q_PRE
    slope = candidates[0]
    beta = offset(slope, low, high)
    for other in candidates[1:]:
        trial = offset(other, low, high)
        better = (trial + (other * middle << scale)) < (beta + (slope * middle << scale))
        slope, beta = np.where(better, other, slope), np.where(better, trial, beta)
    flat = np.zeros_like(slope)
    wide = np.maximum(-low, high) > WIDE
    return np.where(wide, flat, slope), np.where(wide, offset(flat, low, high), beta)


def clamp_lines(low: IntArray, high: IntArray) -> Lines:
    """A line above the clamp to [-1, 1] on [low, high]: of a few slopes, as `lines`."""
    one, knee = np.int64(1) << SLOPE_BITS, np.int64(1) << c.Q_PRE
    scale = LINE_BITS - c.Q_PRE
    bend: IntArray = np.clip(np.full_like(low, knee), low, high)

    def at(p: IntArray) -> IntArray:
        result: IntArray = np.clip(p, -knee, knee)
        return result

    def offset(slope: IntArray) -> IntArray:
        values = [(at(p) << scale) - (slope * p << (scale - SLOPE_BITS)) for p in (low, high, bend)]
        result: IntArray = np.maximum.reduce(values)
        return result

    def chord(end: IntArray) -> IntArray:
        rise = (at(end) - at(low)) << SLOPE_BITS
        result: IntArray = np.clip(rise // np.maximum(end - low, 1), 0, one)
        return result

    middle = (low + high) >> 1
    flat = np.zeros_like(low)
    slope, beta = flat, offset(flat)
    for other in (flat + one, chord(high), chord(bend)):
        trial = offset(other)
        better = trial + (other * middle << (scale - SLOPE_BITS)) < beta + (
            slope * middle << (scale - SLOPE_BITS)
        )
        slope, beta = np.where(better, other, slope), np.where(better, trial, beta)
    wide = np.maximum(-low, high) > WIDE
    return np.where(wide, flat, slope), np.where(wide, offset(flat), beta)


def layer_lines(layer: Layer, low: IntArray, high: IntArray) -> Lines:
    """Lines above a layer's activations on [low, high], [batch, out]."""
    bent = layer.n_out - layer.clamped
    parts = (
        lines(low[:, :bent], high[:, :bent]),
        clamp_lines(low[:, bent:], high[:, bent:]),
    )
    slope, beta = (np.concatenate(sides, axis=1) for sides in zip(*parts, strict=True))
    return slope, beta


def slack(layers: list[Layer]) -> list[int]:
    """Per layer: Q16 units by which a real pre-activation may leave the integer interval.

    Forward with slopes of at most 1, which holds for points and for the ends of intervals.
    """
    errors = [0] * c.N_DENSE
    table = max(max(-low, high) for low, high in enclosure.segment_errors())
    table = max(table, enclosure.UNIT >> c.Q_ACT)  # a clamp is off by at most one
    result = []
    for number, layer in enumerate(layers):
        off = []
        for r in range(layer.n_out):
            passed = sum(abs(int(w)) * e for w, e in zip(layer.weight[r], errors, strict=True))
            passed = enclosure.ceil_shift(passed, enclosure.weight_bits(layer, number, r))
            off.append(passed + (1 << (enclosure.UNIT_BITS - c.Q_PRE - 1)))
        result.append(enclosure.ceil_shift(max(off), enclosure.UNIT_BITS - c.Q_PRE))
        errors = [value + table for value in off]
    return result


class Bounder:
    """Upper bounds of sign * output over batches of sub-boxes."""

    def __init__(self, layers: list[Layer], output: int, sign: int) -> None:
        self.layers, self.output, self.sign = layers, output, sign
        errors = enclosure.output_errors(layers, enclosure.rows(layers))[output]
        width = max(-errors[0], errors[1])
        self.epsilon = enclosure.ceil_shift(width, enclosure.UNIT_BITS - c.Q_PRE)
        self.slack = slack(layers)
        self.weights, self.bias_low, self.bias_high = [], [], []
        for number, layer in enumerate(layers):
            bits = np.array([enclosure.weight_bits(layer, number, r) for r in range(layer.n_out)])
            align = (c.WEIGHT_SHIFT_MAX - bits)[:, None]
            self.weights.append(layer.weight.astype(np.int64) << align)
            down = bits + (c.Q_INPUT if number == 0 else c.Q_ACT)
            bias = layer.bias.astype(np.int64) << BIAS_BITS
            self.bias_low.append(bias >> down)
            self.bias_high.append(-(-bias >> down))
        self.linear = self._fits()

    def _fits(self) -> bool:
        """Do all sums of `_upper` fit 64 bits, whichever layer they start from?

        If not, intervals have to do. Followed in Python's integers, coefficient by coefficient.
        """
        for start in range(len(self.layers)):
            d, total, worst = np.array([], dtype=object), 0, 0
            for number in range(start, -1, -1):
                weight = np.abs(self.weights[number]).astype(object)
                bias = np.maximum(np.abs(self.bias_low[number]), np.abs(self.bias_high[number]))
                if number == start:  # one row at a time: the largest of each column
                    one = 1 << (SLOPE_BITS + COEFFICIENT_BITS)
                    grown, constant = weight.max(axis=0) * one, int(bias.max()) * one
                else:
                    grown, constant = d @ weight, int(d @ bias.astype(object))
                coefficient = (grown >> (SLOPE_BITS + c.WEIGHT_SHIFT_MAX)) + 1
                span = (18 if number else 3) << LINE_BITS  # of a line's offset, of an input
                total += (constant >> (SLOPE_BITS + BIAS_BITS - LINE_BITS)) + 1
                total += int(coefficient.sum()) * span
                worst = max(worst, int(grown.max()), constant, total)
                d = coefficient << SLOPE_BITS
            if worst.bit_length() > SPARE:
                return False
        return True

    def _upper(
        self,
        layer: int,
        rows: npt.NDArray[np.int64],
        relaxed: list[tuple[Lines, Lines]],
        ends: tuple[IntArray, IntArray],
    ) -> tuple[IntArray, IntArray]:
        """Upper bound of rows . (pre-activations of `layer`), and its coefficients of inputs.

        Args:
            layer: whose pre-activations.
            rows: [o, n_out] integers, whole numbers (1, -1, 0).
            relaxed: lines above and below the activations of the layers before.
            ends: the sub-boxes, [batch, dense].

        Returns:
            [batch, o] in Q16, rounded up, and [batch, o, dense] in 2**-COEFFICIENT_BITS.
        """
        batch = len(ends[0])
        d = np.broadcast_to(rows << SLOPE_BITS + COEFFICIENT_BITS, (batch, *rows.shape))
        total = np.zeros((batch, len(rows)), dtype=np.int64)
        largest = np.array([max(abs(lo), abs(hi)) for lo, hi in enclosure.box()])
        for number in range(layer, -1, -1):
            bias = np.where(d > 0, self.bias_high[number], self.bias_low[number])
            constant = (d * bias).sum(axis=-1)
            total = total + -(-constant >> (SLOPE_BITS + BIAS_BITS - LINE_BITS))
            drop = SLOPE_BITS + c.WEIGHT_SHIFT_MAX
            coefficient = (d @ self.weights[number] + (1 << (drop - 1))) >> drop
            # Rounding a coefficient by half a unit costs half a unit times its factor.
            if number:
                total = total + (coefficient.shape[-1] << (LINE_BITS - 1))
                (a_up, b_up), (a_down, b_down) = relaxed[number - 1]
                up, down = np.maximum(coefficient, 0), np.minimum(coefficient, 0)
                total = total + (up * b_up[:, None] + down * b_down[:, None]).sum(axis=-1)
                d = up * a_up[:, None] + down * a_down[:, None]
            else:
                total = total + (int(largest.sum()) << (LINE_BITS - 1 - c.Q_INPUT))
                up, down = np.maximum(coefficient, 0), np.minimum(coefficient, 0)
                value = (up * ends[1][:, None] + down * ends[0][:, None]).sum(axis=-1)
                total = total + (value << (LINE_BITS - c.Q_INPUT))
        return -(-total >> (SUM_BITS - c.Q_PRE)), coefficient

    def interval(self, lo: IntArray, hi: IntArray) -> list[tuple[IntArray, IntArray]]:
        """Integer pre-activations [batch, out] per layer, from below and above."""
        found = []
        for layer in self.layers:
            weight = layer.weight.astype(np.int64)
            up, down = np.maximum(weight, 0).T, np.minimum(weight, 0).T
            n = layer.shift.astype(np.int64)
            low = fixedpoint.round_shift(lo @ up + hi @ down + layer.bias, n)
            high = fixedpoint.round_shift(hi @ up + lo @ down + layer.bias, n)
            found.append((low, high))
            lo, hi = fixedpoint.activate(layer, low), fixedpoint.activate(layer, high)
        return found

    def __call__(self, lo: IntArray, hi: IntArray) -> tuple[IntArray, IntArray, IntArray]:
        """Bound sub-boxes.

        Args:
            lo, hi: [batch, dense], Q12.

        Returns:
            [batch] upper bounds of sign * output in Q16, the clamp left out; [batch, dense] the
            corner where the relaxation is largest; [batch] the input to halve next.
        """
        pres = self.interval(lo, hi)
        low, high = (end[:, self.output] for end in pres[-1])
        bound = high if self.sign > 0 else -low
        if not self.linear:
            return bound, lo, (hi - lo).argmax(axis=1)
        relaxed: list[tuple[Lines, Lines]] = []
        for number, layer in enumerate(self.layers[:-1]):
            low, high = pres[number][0] - self.slack[number], pres[number][1] + self.slack[number]
            if number:
                every = np.eye(layer.n_out, dtype=np.int64)
                above, _ = self._upper(number, every, relaxed, (lo, hi))
                below, _ = self._upper(number, -every, relaxed, (lo, hi))
                low, high = np.maximum(low, -below), np.minimum(high, above)
            slope, beta = layer_lines(layer, -high, -low)  # both activations are odd
            relaxed.append((layer_lines(layer, low, high), (slope, -beta)))
        row = np.zeros((1, self.layers[-1].n_out), dtype=np.int64)
        row[0, self.output] = self.sign
        upper, coefficient = self._upper(len(self.layers) - 1, row, relaxed, (lo, hi))
        bound = np.minimum(bound, upper[:, 0] + self.epsilon)
        corner = np.where(coefficient[:, 0] > 0, hi, lo)
        return bound, corner, (np.abs(coefficient[:, 0]) * (hi - lo)).argmax(axis=1)
