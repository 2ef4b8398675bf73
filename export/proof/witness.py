# SPDX-License-Identifier: GPL-2.0-only
"""Inputs that drive a chosen integer of the network as far as coordinate ascent finds.

Integers throughout, ties broken by order: the same result on every machine.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ndm_tcp import fixedpoint
from ndm_tcp.export.integers import golden
from ndm_tcp.export.proof.enclosure import Interval
from ndm_tcp.fixedpoint import IntArray, Layer

STARTS = 8
SWEEPS = 8
STEPS = (1, 8, 64, 512)


@dataclass(frozen=True)
class Target:
    """Which integer to drive, and where."""

    layer: int
    row: int
    sign: int
    """1: as high as possible; -1: as low"""
    box: tuple[Interval, ...]
    """the part of the input box to stay in, Q12"""


@dataclass(frozen=True)
class Found:
    """Result of the search."""

    value: int
    """the accumulator in a hidden layer's unit, or the pre-activation of the last layer"""
    x: list[int]
    """[dense], Q12"""


def _values(layers: list[Layer], targets: list[Target], x: IntArray) -> IntArray:
    """[targets, n] signed values of each target on its own inputs [targets, n, dense]."""
    result = np.empty(x.shape[:2], dtype=np.int64)
    for number, layer in enumerate(layers):
        own = [i for i, target in enumerate(targets) if target.layer == number]
        if not own:
            continue
        rows = [targets[i].row for i in own]
        h = x[own]
        for below in layers[:number]:
            pre = fixedpoint.round_shift(
                fixedpoint.accumulate(below, h), below.shift.astype(np.int64)
            )
            h = fixedpoint.activate(below, pre)
        value = np.einsum("tni,ti->tn", h, layer.weight[rows].astype(np.int64))
        value += layer.bias[rows, None]
        if number + 1 == len(layers):
            value = fixedpoint.round_shift(value, layer.shift[rows, None].astype(np.int64))
        result[own] = value * np.array([[targets[i].sign] for i in own])
    return result


def drive(layers: list[Layer], targets: list[Target]) -> list[Found]:
    """Coordinate ascent from the best golden vectors, for every target at once."""
    fixed = golden.inputs().astype(np.int64)
    lo = np.array([[low for low, _ in target.box] for target in targets], dtype=np.int64)
    hi = np.array([[high for _, high in target.box] for target in targets], dtype=np.int64)
    free = [
        (low == lo[0]).all() and (high == hi[0]).all() for low, high in zip(lo, hi, strict=True)
    ]
    starts = []
    shared = fixedpoint.forward(layers, np.clip(fixed, lo[0], hi[0]))
    for i, target in enumerate(targets):
        inside = np.clip(fixed, lo[i], hi[i])
        trace = shared if free[i] else fixedpoint.forward(layers, inside)
        value = trace.accumulators[target.layer][:, target.row] * target.sign
        # The best of each of as many groups: the best of all are neighbours in one basin.
        groups = [np.arange(k, len(value), STARTS) for k in range(STARTS)]
        starts.append(inside[[group[value[group].argmax()] for group in groups]])
    repeated = [target for target in targets for _ in range(STARTS)]
    x = np.concatenate(starts)
    lo, hi = np.repeat(lo, STARTS, axis=0), np.repeat(hi, STARTS, axis=0)
    best = _values(layers, repeated, x[:, None])[:, 0]
    for _ in range(SWEEPS):
        before = best.copy()
        for column in range(x.shape[1]):
            here = x[:, column]
            steps = [here + s * step for step in STEPS for s in (1, -1)]
            options = np.stack([lo[:, column], hi[:, column], *steps], axis=1)
            options = np.clip(options, lo[:, column, None], hi[:, column, None])
            tried = np.repeat(x[:, None], options.shape[1], axis=1)
            tried[:, :, column] = options
            value = _values(layers, repeated, tried)
            pick = value.argmax(axis=1)
            top = value[np.arange(len(value)), pick]
            better = top > best
            x[better, column] = options[better, pick[better]]
            best = np.maximum(best, top)
        if (best == before).all():
            break
    found = []
    for i, target in enumerate(targets):
        at = i * STARTS + int(best[i * STARTS : (i + 1) * STARTS].argmax())
        found.append(Found(int(best[at]) * target.sign, [int(v) for v in x[at]]))
    return found
