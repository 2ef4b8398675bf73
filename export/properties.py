# SPDX-License-Identifier: GPL-2.0-only
"""Does the shipped network do what an operator expects, for every input? Branch and bound.

A property says that an output stays on one side of a limit over a part of the box. The worst
sub-box (`relaxation.Bounder`) is halved until the property is decided or the number of
sub-boxes, not the time, runs out: the result is the same on every machine. The tree of splits
is the proof, which a checker can walk.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

import numpy as np

from ndm_tcp import contract as c
from ndm_tcp import fixedpoint
from ndm_tcp.export import enclosure
from ndm_tcp.export.relaxation import Bounder
from ndm_tcp.fixedpoint import IntArray, Layer

BOXES = 512
"""Sub-boxes per property, at most."""
BATCH = 16
"""Sub-boxes halved at a time."""
MARGIN = 64
"""Q16 units added to every bound, so that a checker that rounds elsewhere arrives below it."""


@dataclass(frozen=True)
class Property:
    """sign * output <= sign * limit wherever the fixed inputs have these values."""

    name: str
    claim: str
    output: int
    sign: int
    """1: the output is at most the limit; -1: at least"""
    limit: int | None
    """Q16; None: no claim, only the tightest bound found"""
    fixed: dict[str, float] = field(default_factory=dict)

    def box(self) -> list[enclosure.Interval]:
        """The inputs it speaks of, Q12."""
        ranges = []
        for i in c.INPUTS:
            value = round(self.fixed[i.name] * (1 << c.Q_INPUT)) if i.name in self.fixed else None
            ranges.append((i.lo_q, i.hi_q) if value is None else (value, value))
        return ranges


FULL_QUEUE = {"rtt_ratio": 0.0, "loss_rate": 1.0}
PROPERTIES = (
    Property("gain_at_most", "the largest cwnd_gain", 0, 1, None),
    Property("gain_at_least", "the smallest cwnd_gain", 0, -1, None),
    Property(
        "no_growth_in_collapse",
        "the window does not grow when everything is lost and the RTT is at its maximum",
        0,
        1,
        0,
        FULL_QUEUE,
    ),
    Property(
        "no_growth_in_collapse_while_rtt_doubles",
        "nor when the RTT has also at least doubled within the round",
        0,
        1,
        0,
        {**FULL_QUEUE, "rtt_gradient": 1.0},
    ),
    Property(
        "no_shrinking_on_an_idle_path",
        "the window does not shrink without loss at the lowest RTT and with no standing queue",
        0,
        -1,
        0,
        {"rtt_ratio": 1.0, "loss_rate": 0.0, "queue_floor": 0.0},
    ),
    Property(
        "collapse_is_congestion",
        "loss of everything at the largest RTT counts as congestion rather than noise",
        1,
        -1,
        0,
        FULL_QUEUE,
    ),
    Property(
        "collapse_with_full_pipe_is_congestion",
        "the same when the path carries next to nothing of the window (bdp_ratio 0)",
        1,
        -1,
        0,
        {**FULL_QUEUE, "bdp_ratio": 0.0},
    ),
)


@dataclass(frozen=True)
class Verdict:
    """What branch and bound found."""

    verdict: str
    """proved, refuted, unknown, or bounded where there is no limit"""
    bound: int
    """Q16: proved for every input: sign * output <= sign * bound, before the clamp"""
    attained: int
    """Q16: the worst output seen"""
    witness: list[int]
    """[10], Q12: an input that attains it; the counter-example of a refuted property"""
    tree: list[int]
    """splits in depth-first order: the number (from 0) of the input halved, -1 at a leaf"""


def decide(
    layers: list[Layer],
    prop: Property,
    seen: tuple[int, list[int]],
    boxes: int = BOXES,
) -> Verdict:
    """Branch and bound.

    Args:
        layers: the network.
        prop: what to decide.
        seen: the worst output found by search [Q16] and the input [10] that gives it.
        boxes: sub-boxes to bound, at most.
    """
    bounder = Bounder(layers, prop.output, prop.sign)
    best, witness = prop.sign * seen[0], seen[1]
    limit = None if prop.limit is None else prop.sign * prop.limit
    ranges = np.array(prop.box(), dtype=np.int64)
    los, his = ranges[None, :, 0], ranges[None, :, 1]
    nodes: list[tuple[int, IntArray, IntArray]] = []  # split, lo, hi
    children: dict[int, int] = {}  # to the first of two
    leaves: list[tuple[int, int]] = []  # a heap of (-bound, node)
    whole: list[tuple[int, int]] = []  # single points, which nothing can halve
    while True:
        bound, corner, split = bounder(los, his)
        outputs = fixedpoint.forward(layers, corner).pre[-1][:, prop.output] * prop.sign
        at = int(outputs.argmax())
        if int(outputs[at]) > best:
            best, witness = int(outputs[at]), [int(v) for v in corner[at]]
        for i in range(len(los)):
            heapq.heappush(leaves, (-int(bound[i]), len(nodes)))
            nodes.append((int(split[i]), los[i], his[i]))
        worst = max(-value for value, _ in leaves + whole) + MARGIN
        if limit is not None and (best > limit or worst <= limit):
            break
        new_los: list[IntArray] = []
        new_his: list[IntArray] = []
        while leaves and len(new_los) < 2 * BATCH and len(nodes) + len(new_los) + 2 <= boxes:
            value, number = heapq.heappop(leaves)
            index, lo, hi = nodes[number]
            if lo[index] == hi[index]:
                whole.append((value, number))
                continue
            middle = (lo[index] + hi[index]) >> 1
            left, right = hi.copy(), lo.copy()
            left[index], right[index] = middle, middle + 1
            children[number] = len(nodes) + len(new_los)
            new_los += [lo, right]
            new_his += [left, hi]
        if not new_los:
            break
        los, his = np.stack(new_los), np.stack(new_his)
    if limit is None:
        verdict = "bounded"
    else:
        verdict = "refuted" if best > limit else "proved" if worst <= limit else "unknown"
    tree = [-1] if verdict == "refuted" else _depth_first(nodes, children)
    if verdict == "refuted":
        first, _, _ = bounder(ranges[None, :, 0], ranges[None, :, 1])
        worst = int(first[0]) + MARGIN
    return Verdict(verdict, prop.sign * worst, prop.sign * best, witness, tree)


def _depth_first(
    nodes: list[tuple[int, IntArray, IntArray]], children: dict[int, int]
) -> list[int]:
    tree, stack = [], [0]
    while stack:
        number = stack.pop()
        if number in children:
            tree.append(nodes[number][0])
            stack += [children[number] + 1, children[number]]
        else:
            tree.append(-1)
    return tree
