# SPDX-License-Identifier: GPL-2.0-only
"""The numbers of check_certificate.py: activations enclosed, sub-boxes bounded.

Standard library only.
"""

from __future__ import annotations

import math
from fractions import Fraction as Q
from typing import Any

Box = list[tuple[int, int]]
UNIT, BITS = 256, 8
"""Steps of the table per 1.0, and the bits of a Q16 number within one."""
STEPS = 8 * UNIT
Layers = list[list[tuple[list[int], int, int, bool]]]
"""Rows of (weights, bias, shift, is it clamped rather than tanh?)."""


def require(holds: object, what: str) -> None:
    """Refuse the certificate."""
    if not holds:
        raise ValueError(what)


class Tanh:
    """The table with its error, step by step, against tanh from continued fractions."""

    def __init__(self, table: list[int]) -> None:
        require(len(table) == STEPS + 1 and table[0] == 0, "ndm_tables.h: ndm_tanh_table")
        require(table == sorted(table) and table[-1] < 2**15, "ndm_tables.h: tanh not monotone")
        self.table = table
        self.error: list[tuple[Q, Q]] = []
        self.node = [(Q(0), Q(0))] + [self.fraction(i) for i in range(1, STEPS + 1)]
        one, margin = 1 << 60, 1 << 10
        inner = []  # tanh d for d = f / 65536: d - d**3/3 <= tanh d <= d - d**3/3 + 2 d**5/15
        for f in range(1 << BITS):
            inner.append((f << 44) - (f**3 << 12) // 3)
        for i in range(STEPS):
            t, low, rise = int(self.node[i][0] * one), table[i], table[i + 1] - table[i]
            e = [
                ((low + ((rise * f + (1 << BITS >> 1)) >> BITS)) << 45)
                - (((t + u) << 60) // (one + (t * u >> 60)))
                for f, u in enumerate(inner)
            ]
            # 2 d**5/15 < 2**-42.9 for d < 1/256; tanh d from below makes e too large by that
            self.error.append((Q(min(e) - margin - (one >> 42), one), Q(max(e) + margin, one)))
        last = Q(table[-1], 2**15)
        self.error.append((last - 1, last - self.node[-1][0]))
        # In 2^-60, outward: a range holds hundreds of steps, and fractions compare slowly.
        self.scaled = [(a * one // 1, -(-b * one // 1)) for a, b in self.error]
        # Per slope: the maximum of tanh p - slope p, and where.
        nodes = [int(t[1] * 2**40) + 1 for t in self.node]
        # h^2 / 8 max |tanh''| < h^2 / 10, h = 1 / UNIT, in 2^-40
        bend = 2**40 // (10 * UNIT**2) + 1
        self.peak: list[tuple[int, int | None]] = [(1 << 24, None)]
        for a in range(1, 257):
            values = [t - (a * i * 2**32 // UNIT) for i, t in enumerate(nodes)]
            top = max(values)
            self.peak.append((-(-(top + bend) >> 16), values.index(top) << BITS))

    @staticmethod
    def fraction(i: int) -> tuple[Any, ...]:
        """tanh(i / UNIT) between two convergents of x/(1 + x^2/(3 + x^2/(5 + ...))), i > 0."""
        p0, q0, p1, q1, k = 1, 0, 0, 1, 0
        while k < 3 or abs(p0 * q1 - p1 * q0) << 90 >= q0 * q1:
            a, b = i * i if k else i, UNIT * (2 * k + 1)
            p0, p1, q0, q1, k = p1, b * p1 + a * p0, q1, b * q1 + a * q0, k + 1
        return tuple(sorted((Q(p0, q0), Q(p1, q1))))

    def __call__(self, p: int) -> int:
        m = min(abs(p), 1 << 19)
        i, f = m >> BITS, m & ((1 << BITS) - 1)
        rise = self.table[i + 1] - self.table[i] if f else 0
        v = self.table[i] + ((rise * f + (1 << BITS >> 1)) >> BITS)
        return -v if p < 0 else v

    @staticmethod
    def step(p: int) -> int:
        """The step of the table in which a Q16 number lies, from 0."""
        return min(abs(p) >> BITS, STEPS)

    def off(self, pre: tuple[Any, ...]) -> tuple[Any, ...]:
        """Table minus tanh over the integers of a Q16 interval."""
        found = []
        if pre[1] >= 0:
            found += self.scaled[self.step(max(pre[0], 0)) : self.step(pre[1]) + 1]
        if pre[0] < 0:
            part = self.scaled[self.step(max(-pre[1], 0)) : self.step(-pre[0]) + 1]
            found += [(-b, -a) for a, b in part]
        return Q(min(a for a, _ in found), 1 << 60), Q(max(b for _, b in found), 1 << 60)

    def slope(self, low: Q, high: Q) -> tuple[Any, ...]:
        """1 - tanh^2 over [low, high]."""
        near = Q(0) if low <= 0 <= high else min(abs(low), abs(high))
        far = -(-max(abs(low), abs(high)) * UNIT // 1)
        least = Q(0) if far > STEPS else 1 - self.node[far][1] ** 2
        return least, 1 - self.node[min(near * UNIT // 1, STEPS)][0] ** 2


class Clamp:
    """min(max(x, -1), 1) in reals, saturation of half the integer: the other activation."""

    def __call__(self, p: int) -> int:
        return max(-(2**15), min(2**15 - 1, p // 2 + p % 2))

    def off(self, pre: tuple[Any, ...]) -> tuple[Any, ...]:
        """Integer minus real over the integers of a Q16 interval: it repeats with every second
        one between the knees and stays the same beyond."""
        a, b = pre
        near = {p for at in (a, -65536, 65536) for p in range(max(a, at - 3), min(b, at + 3) + 1)}
        found = [Q(self(p), 2**15) - max(Q(-1), min(Q(1), Q(p, 2**16))) for p in near | {b}]
        return min(found), max(found)

    def slope(self, low: Q, high: Q) -> tuple[Any, ...]:
        """Of any chord between two points of [low, high]."""
        return Q(low >= -1 and high <= 1), Q(not (high <= -1 or low >= 1))

    def line(self, low: int, high: int) -> tuple[Any, ...]:
        """Slope in 1/256 and offset in 2^-24 of a line above it on [low, high], Q16."""

        def real(p: int) -> int:
            return max(-65536, min(65536, p))

        ends = [low, high, *([65536] if low < 65536 < high else [])]
        tries = [0]
        if max(-low, high) <= 16 << 16:
            for p in ends[1:]:
                tries.append(((real(p) - real(low)) << 8) // max(p - low, 1))
            tries += [256]
        best: tuple[int, int, int] | None = None
        for a in (max(0, min(256, a)) for a in tries):
            beta = max((real(p) << 8) - a * p for p in ends)
            if best is None or beta + a * ((low + high) >> 1) < best[0]:
                best = (beta + a * ((low + high) >> 1), a, beta)
        assert best
        return best[1:]


def dot(weights: list[Any], inputs: list[Any]) -> tuple[Any, ...]:
    """Range of weights . inputs for inputs in intervals."""
    pairs = [
        (w * a, w * b) if w >= 0 else (w * b, w * a)
        for w, (a, b) in zip(weights, inputs, strict=True)
    ]
    return sum(a for a, _ in pairs), sum(b for _, b in pairs)


class Relaxation:
    """Upper bounds of sign * output over sub-boxes: lines around activations, carried to the
    inputs.

    Exact integers: weights in 2^-15, biases in 2^-30, slopes of lines in 1/256, their offsets
    in 2^-24 rounded up, sums in 2^-TOTAL.
    """

    TOTAL = 128

    def __init__(self, layers: Layers, tanh: Tanh) -> None:
        self.tanh, self.clamp, self.layers = tanh, Clamp(), layers
        self.error = [(a * 2**24 // 1, -(-b * 2**24 // 1)) for a, b in tanh.error]
        self.weights: list[list[list[int]]] = []
        self.biases: list[list[int]] = []
        self.slack: list[int] = []
        table = max(Q(1, 2**15), *(max(-a, b) for a, b in tanh.error))
        errors = [Q(0)] * len(layers[0][0][0])
        for n, layer in enumerate(layers):
            q_in = 15 if n else 12
            bits = [s + 16 - q_in for _, _, s, _ in layer]
            require(all(0 <= k <= 15 for k in bits), f"layer {n}: scale of a row")
            self.weights.append(
                [[w << (15 - k) for w in x[0]] for x, k in zip(layer, bits, strict=True)]
            )
            self.biases.append([x[1] << (30 - k - q_in) for x, k in zip(layer, bits, strict=True)])
            off = []
            for x in self.weights[-1]:
                total = sum((abs(w) * e for w, e in zip(x, errors, strict=True)), Q(0))
                off.append(total / 2**15)
            errors = [e + Q(1, 2**17) + table for e in off]
            self.slack.append(math.ceil((max(off) + Q(1, 2**17)) * 2**16))

    def line(self, low: int, high: int) -> tuple[Any, ...]:
        """Slope and offset of a line above tanh on [low, high], Q16."""

        def above(p: int) -> int:
            e = self.error[self.tanh.step(p)]
            return (self.tanh(p) << 9) + (-e[0] if p >= 0 else e[1])

        def chord(a: int, b: int) -> int:
            return min(256, max(0, ((self.tanh(b) - self.tanh(a)) << 9) // max(b - a, 1)))

        def at(p: int) -> int:
            return min(256, max(0, 256 - (self.tanh(p) ** 2 >> 22)))

        middle, ends = (low + high) >> 1, (above(low), above(high))
        if max(-low, high) > 16 << 16:
            return 0, ends[1]
        tries = [at(low), at(high), at(middle), chord(low, high)]
        touch = tries[-1]
        for _ in range(4):
            place = self.tanh.peak[touch][1]
            place = high if place is None else min(max(place, low + 1), max(high, low + 1))
            touch = chord(low, place)
        best: tuple[int, int, int] | None = None
        for a in dict.fromkeys([*tries, touch]):
            beta = max(ends[0] - a * low, ends[1] - a * high)
            top, place = self.tanh.peak[a]
            if place is not None and place - (2 << BITS) <= high and low <= place + (2 << BITS):
                beta = max(beta, top)
            if best is None or beta + a * middle < best[0]:
                best = (beta + a * middle, a, beta)
        assert best
        return best[1], best[2]

    def upper(self, n: int, row: int, sign: int, relaxed: list[Any], box: Box) -> int:
        """sign * pre-activation of a row, from above, Q16, for real arithmetic."""
        coefs, scale = [sign * w for w in self.weights[n][row]], 15
        total = sign * self.biases[n][row] << (self.TOTAL - 30)
        for k in range(n - 1, -1, -1):
            chosen = [
                up if c > 0 else down for c, (up, down) in zip(coefs, relaxed[k], strict=True)
            ]
            total += sum(c * b for c, (_, b) in zip(coefs, chosen, strict=True)) << (
                self.TOTAL - scale - 24
            )
            d, scale = [c * a for c, (a, _) in zip(coefs, chosen, strict=True)], scale + 8
            total += sum(x * b for x, b in zip(d, self.biases[k], strict=True)) << (
                self.TOTAL - scale - 30
            )
            coefs = [
                sum(x * w for x, w in zip(d, column, strict=True))
                for column in zip(*self.weights[k], strict=False)
            ]
            scale += 15
        value = sum(c * (b if c > 0 else a) for c, (a, b) in zip(coefs, box, strict=True))
        return -(-(total + (value << (self.TOTAL - scale - 12))) >> (self.TOTAL - 16))

    def __call__(self, box: Box, output: int, sign: int, epsilon: int) -> int:
        """sign * output of the integer network, from above, Q16, the clamp left out."""
        relaxed: list[Any] = []
        inputs = box
        for n, layer in enumerate(self.layers):
            pres = []
            for ws, bias, s, _ in layer:
                low, high = dot(ws, inputs)
                round_up = 1 << (s - 1)
                pres.append(((low + bias + round_up) >> s, (high + bias + round_up) >> s))
            if n + 1 == len(self.layers):
                plain = int(pres[output][1] if sign > 0 else -pres[output][0])
                return min(plain, self.upper(n, output, sign, relaxed, box) + epsilon)
            acts = [self.clamp if clamped else self.tanh for *_, clamped in layer]
            inputs = [(act(a), act(b)) for act, (a, b) in zip(acts, pres, strict=True)]
            lines = []
            for r, (low, high) in enumerate(pres):
                low, high = low - self.slack[n], high + self.slack[n]
                if n:
                    high = min(high, self.upper(n, r, 1, relaxed, box))
                    low = max(low, -self.upper(n, r, -1, relaxed, box))
                line = self.clamp.line if layer[r][3] else self.line
                a, b = line(-high, -low)
                lines.append((line(low, high), (a, -b)))
            relaxed.append(lines)
        raise ValueError("no layers")

    def worst(self, tree: list[Any], box: Box, output: int, sign: int, epsilon: int) -> int:
        """Largest bound over the leaves of a tree of halvings, which must cover the box."""
        stack, found = [box], list[int]()
        for split in tree:
            require(stack, "tree goes on after its end")
            here = stack.pop()
            if split < 0:
                found.append(self(here, output, sign, epsilon))
                continue
            low, high = here[split]
            middle = (low + high) >> 1
            require(low < high, "tree halves a point")
            stack.append([*here[:split], (middle + 1, high), *here[split + 1 :]])
            stack.append([*here[:split], (low, middle), *here[split + 1 :]])
        require(not stack and found, "tree does not cover the box")
        return max(found)
