# SPDX-License-Identifier: GPL-2.0-only
"""Golden vectors: inputs, every layer's integers, outputs."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ndm_tcp import contract as c
from ndm_tcp import fixedpoint
from ndm_tcp.fixedpoint import Layer

SEED = 20260101
RANDOM_VECTORS = 10_000
IN_KERNEL = 256
"""Vectors compiled into the module."""
IN_KERNEL_EDGES = 64
"""of which model-dependent; the rest are random ones and corners, half each"""
CORNER_BITS = min(c.N_DENSE, 15)
"""log2 of the corners of the box that are among them: a fraction, as all would take long."""
BLOCK = 1024
"""Vectors under one digest."""
POOL = 1 << 16
"""Random points among which rounding ties and table break points are looked for."""
PATH = 1 << 14
"""Steps on a line through the box."""


@dataclass(frozen=True)
class Vectors:
    """A set of golden vectors."""

    x: npt.NDArray[np.int16]
    """[n, dense], Q12"""
    pre: npt.NDArray[np.int64]
    """[n, sum of widths], Q16: every layer's pre-activations"""
    out: npt.NDArray[np.int64]
    """[n, 2], Q16"""

    def part(self, rows: slice) -> Vectors:
        """Some of them."""
        return Vectors(self.x[rows], self.pre[rows], self.out[rows])

    def digest(self) -> str:
        """SHA-256 over all integers, as little-endian s32."""
        h = hashlib.sha256()
        for array in (self.x, self.pre, self.out):
            h.update(np.ascontiguousarray(array, dtype="<i4").tobytes())
        return h.hexdigest()


def _random(lo: npt.NDArray[np.int64], hi: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """[RANDOM_VECTORS, dense] points of the box, from a counter (SplitMix64, Steele et al. 2014).

    A kernel computes the same in a few lines, so it need not carry these vectors.
    """
    count = np.arange(1, RANDOM_VECTORS * c.N_DENSE + 1, dtype=np.uint64)
    z = np.uint64(SEED) + count * np.uint64(0x9E3779B97F4A7C15)  # modulo 2**64, as in C
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    high = ((z ^ (z >> np.uint64(31))) >> np.uint64(32)).astype(np.int64).reshape(-1, c.N_DENSE)
    result: npt.NDArray[np.int64] = lo + (high * (hi - lo + 1) >> 32)
    return result


def digests(vectors: Vectors) -> list[int]:
    """One u64 per `BLOCK` vectors: FNV-1a over their integers, as 32-bit words.

    Every step maps the state one to one, so any single wrong integer changes the digest.
    """
    words = np.concatenate([vectors.x, vectors.pre, vectors.out], axis=1).astype(np.uint32)
    blocks = -(-len(words) // BLOCK)
    state = np.full(blocks, 0xCBF29CE484222325, dtype=np.uint64)
    for i in range(BLOCK):  # of all blocks at once; the last may be shorter
        rows = words[i::BLOCK]
        for column in rows.T:
            part = state[: len(rows)]
            part ^= column
            part *= np.uint64(0x100000001B3)  # modulo 2**64
    found: list[int] = state.tolist()
    return found


def _ends() -> npt.NDArray[np.bool_]:
    """[2^CORNER_BITS, dense]: which corners, True where an input is at its upper end.

    The first inputs, the ten of a round among them, in every combination; each of the others is
    the parity of three of those, so that any three inputs are in every combination too (a
    fractional factorial design of resolution IV: Box and Hunter, Technometrics 1961).
    """
    first = np.arange(1 << CORNER_BITS)[:, None] >> np.arange(CORNER_BITS)[::-1] & 1
    third = CORNER_BITS // 3
    rest = [
        first[:, [k, k + third, k + 2 * third]].sum(axis=1) & 1
        for k in range(c.N_DENSE - CORNER_BITS)
    ]
    ends: npt.NDArray[np.bool_] = np.column_stack([first, *rest]).astype(bool)
    return ends


def inputs() -> npt.NDArray[np.int16]:
    """[n, dense]: seeded random points of the box, corners, and one step inside each face.

    The same for every model.
    """
    lo = np.array([i.lo_q for i in c.DENSE], dtype=np.int64)
    hi = np.array([i.hi_q for i in c.DENSE], dtype=np.int64)
    random = _random(lo, hi)
    corners = np.where(_ends(), hi, lo)
    middle = (lo + hi) // 2
    faces = np.repeat(middle[None], 4 * c.N_DENSE, axis=0)
    for i in range(c.N_DENSE):
        faces[4 * i : 4 * i + 4, i] = (lo[i], lo[i] + 1, hi[i] - 1, hi[i])
    zero = np.zeros((1, c.N_DENSE), dtype=np.int64)
    return np.concatenate([random, corners, faces, zero]).astype(np.int16)


def compute(layers: list[Layer], x: npt.NDArray[np.int16]) -> Vectors:
    """Run the specification on inputs [n, dense]."""
    trace = fixedpoint.forward(layers, x.astype(np.int64))
    return Vectors(x, np.concatenate(trace.pre, axis=1), trace.outputs)


def edges(layers: list[Layer], witnesses: list[list[int]]) -> npt.NDArray[np.int16]:
    """[n, dense]: inputs at which this network's arithmetic is most delicate.

    For every row one rounding tie (the accumulator lies half way between two results) and one
    accumulator a unit below it, so that no bias is off by one unnoticed; in hidden layers,
    pre-activations one below, at and one above a break point of the tanh table, or the closest
    ones below, at and above each knee of a clamp; all as far as `POOL` random points hold them.
    Then one input close to every entry of the table that the witnesses of the certificate show
    to be in reach, and the witnesses.
    """
    lo = np.array([i.lo_q for i in c.DENSE], dtype=np.int64)
    hi = np.array([i.hi_q for i in c.DENSE], dtype=np.int64)
    pool = np.random.Generator(np.random.PCG64(SEED + 1)).integers(
        lo, hi, size=(POOL, c.N_DENSE), endpoint=True
    )
    trace = fixedpoint.forward(layers, pool)
    step = 1 << (c.Q_PRE + c.TANH_RANGE_LOG2 - c.TANH_STEPS_LOG2)
    chosen: list[int] = []
    for number, layer in enumerate(layers):
        rest = trace.accumulators[number] & (2 * layer.half - 1)
        cases = [rest == layer.half, rest == layer.half - 1]
        if number + 1 < len(layers):
            bent = slice(0, layer.n_out - layer.clamped)
            cases += [((trace.pre[number][:, bent] - by) & (step - 1)) == 0 for by in (-1, 0, 1)]
            cases += _knees(trace.pre[number][:, bent.stop :])
        for case in cases:
            chosen += np.where(case.any(axis=0), case.argmax(axis=0), -1).tolist()
    hit = [pool[at] for at in chosen if at >= 0]
    found = [*_knee_points(layers, witnesses), *_table_entries(layers, witnesses, step)]
    rows = np.array([*hit, *found, *witnesses], dtype=np.int16).reshape(-1, c.N_DENSE)
    unique: npt.NDArray[np.int16] = np.array(list(dict.fromkeys(map(tuple, rows.tolist()))))
    return unique.reshape(-1, c.N_DENSE).astype(np.int16)


def _knees(pre: npt.NDArray[np.int64]) -> list[npt.NDArray[np.bool_]]:
    """Which of [n, rows] pre-activations lie closest to -1 and 1, from below, at and from above."""
    cases = []
    for knee in (-1 << c.Q_PRE, 1 << c.Q_PRE):
        for side in (pre < knee, pre == knee, pre > knee):
            away = np.where(side, np.abs(pre - knee), np.iinfo(np.int64).max)
            cases.append(side & (away == away.min(axis=0)))
    return cases


def _knee_points(layers: list[Layer], witnesses: list[list[int]]) -> list[npt.NDArray[np.int64]]:
    """Inputs next to both knees of every clamped row, where the witnesses show them in reach.

    Random points seldom come near a knee that only extreme inputs reach; a straight line between
    the row's two extremes crosses it.
    """
    if not any(layer.clamped for layer in layers):
        return []
    ends = np.array(witnesses, dtype=np.int64).reshape(-1, c.N_DENSE)
    trace = fixedpoint.forward(layers, ends)
    t = np.arange(PATH + 1, dtype=np.int64)[:, None]
    found = []
    for number, layer in enumerate(layers[:-1]):
        for row in range(layer.n_out - layer.clamped, layer.n_out):
            pre = trace.pre[number][:, row]
            first, last = ends[pre.argmin()], ends[pre.argmax()]
            path = first + ((last - first) * t + PATH // 2) // PATH
            on = fixedpoint.forward(layers, path).pre[number][:, row : row + 1]
            found += [path[case.argmax()] for case in _knees(on) if case.any()]
    return found


def _table_entries(
    layers: list[Layer], witnesses: list[list[int]], step: int
) -> list[npt.NDArray[np.int64]]:
    """For each entry of the tanh table an input that comes close to it, if one is found.

    Per hidden layer, the tanh row that goes farthest is followed on a straight line from where it
    is least to where it is greatest.
    """
    corners = inputs()[RANDOM_VECTORS:].astype(np.int64)
    ends = np.concatenate([corners, np.array(witnesses, dtype=np.int64).reshape(-1, c.N_DENSE)])
    trace = fixedpoint.forward(layers, ends)
    found: dict[int, npt.NDArray[np.int64]] = {}
    for number, layer in enumerate(layers[:-1]):
        pre = trace.pre[number][:, : layer.n_out - layer.clamped]
        if not pre.shape[1]:
            continue
        row = int(np.abs(pre).max(axis=0).argmax())
        first, last = ends[pre[:, row].argmin()], ends[pre[:, row].argmax()]
        t = np.arange(PATH + 1, dtype=np.int64)[:, None]
        path = first + ((last - first) * t + PATH // 2) // PATH
        at = np.abs(fixedpoint.forward(layers, path).pre[number][:, row])
        entry = (at + step // 2) // step
        away = np.abs(at - entry * step)
        for index in np.unique(entry).tolist():
            near = np.flatnonzero(entry == index)
            found.setdefault(index, path[near[away[near].argmin()]])
    return list(found.values())


def for_model(layers: list[Layer], witnesses: list[list[int]]) -> npt.NDArray[np.int16]:
    """[n, dense]: `inputs()`, then `edges()`."""
    return np.concatenate([inputs(), edges(layers, witnesses)])


def for_kernel(vectors: Vectors, extra: Vectors) -> Vectors:
    """The subset compiled into the module, each kind evenly spread.

    Args:
        vectors: begin with those of `inputs()`.
        extra: those of `edges()`.
    """
    few = min(IN_KERNEL_EDGES, len(extra.x))
    random = (IN_KERNEL - few + 1) // 2
    corners = IN_KERNEL - few - random
    pick = np.concatenate(
        [np.arange(random), RANDOM_VECTORS + (np.arange(corners) << CORNER_BITS) // corners]
    )
    also = np.arange(few) * len(extra.x) // max(few, 1)
    return Vectors(
        np.concatenate([vectors.x[pick], extra.x[also]]),
        np.concatenate([vectors.pre[pick], extra.pre[also]]),
        np.concatenate([vectors.out[pick], extra.out[also]]),
    )
