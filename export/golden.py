# SPDX-License-Identifier: GPL-2.0-only
"""Golden vectors: inputs, every layer's integers, outputs."""

from __future__ import annotations

import hashlib
import itertools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ndm_tcp import contract as c
from ndm_tcp import fixedpoint
from ndm_tcp.fixedpoint import Layer

SEED = 20260101
RANDOM_VECTORS = 10_000
IN_KERNEL = 256
"""Vectors compiled into the module: random ones and corners by turns."""


@dataclass(frozen=True)
class Vectors:
    """A set of golden vectors."""

    x: npt.NDArray[np.int16]
    """[n, 10], Q12"""
    pre: npt.NDArray[np.int64]
    """[n, sum of widths], Q16: every layer's pre-activations"""
    out: npt.NDArray[np.int64]
    """[n, 2], Q16"""

    def digest(self) -> str:
        """SHA-256 over all integers, as little-endian s32."""
        h = hashlib.sha256()
        for array in (self.x, self.pre, self.out):
            h.update(np.ascontiguousarray(array, dtype="<i4").tobytes())
        return h.hexdigest()


def inputs() -> npt.NDArray[np.int16]:
    """[n, 10]: seeded random points of the box, its 1,024 corners, and one step inside each face.

    The same for every model.
    """
    lo = np.array([i.lo_q for i in c.INPUTS], dtype=np.int64)
    hi = np.array([i.hi_q for i in c.INPUTS], dtype=np.int64)
    random = np.random.Generator(np.random.PCG64(SEED)).integers(
        lo, hi, size=(RANDOM_VECTORS, c.N_INPUTS), endpoint=True
    )
    corners = np.array(list(itertools.product(*zip(lo, hi, strict=True))), dtype=np.int64)
    middle = (lo + hi) // 2
    faces = np.repeat(middle[None], 4 * c.N_INPUTS, axis=0)
    for i in range(c.N_INPUTS):
        faces[4 * i : 4 * i + 4, i] = (lo[i], lo[i] + 1, hi[i] - 1, hi[i])
    zero = np.zeros((1, c.N_INPUTS), dtype=np.int64)
    return np.concatenate([random, corners, faces, zero]).astype(np.int16)


def compute(layers: list[Layer], x: npt.NDArray[np.int16]) -> Vectors:
    """Run the specification on inputs [n, 10]."""
    trace = fixedpoint.forward(layers, x.astype(np.int64))
    return Vectors(x, np.concatenate(trace.pre, axis=1), trace.outputs)


def for_kernel(vectors: Vectors) -> Vectors:
    """The subset compiled into the module: half random points, half corners, evenly spread."""
    half = IN_KERNEL // 2
    pick = np.concatenate(
        [
            np.arange(half),
            RANDOM_VECTORS + np.arange(half) * ((1 << c.N_INPUTS) // half),
        ]
    )
    return Vectors(vectors.x[pick], vectors.pre[pick], vectors.out[pick])
