# SPDX-License-Identifier: GPL-2.0-only
"""Does the shipped network do what an operator expects, for every input? Branch and bound.

The control law bounds the window for any outputs of the network; `law` has its
claims. A property here is a claim about the network alone. It names the claims about the law
that bound the window where the network breaks it.

A property claims that an output stays on one side of a limit over a part of the box. The worst
sub-box (`relaxation.Bounder`) is halved until the property is decided or the number of
sub-boxes, not the time, runs out: the result is the same on every machine. The tree of splits
is the proof, which a checker can walk.
"""

from __future__ import annotations

import functools
import heapq
from dataclasses import dataclass, field

import numpy as np

from ndm_tcp import contract as c
from ndm_tcp import fixedpoint
from ndm_tcp.export.checker import bounds
from ndm_tcp.export.proof import enclosure
from ndm_tcp.export.proof.relaxation import Bounder
from ndm_tcp.fixedpoint import IntArray, Layer

BOXES = 1024
"""Sub-boxes per property, at most."""
BATCH = 16
"""Sub-boxes halved at a time."""
MARGIN = 64
"""Q16 units added to every bound, so that a checker that rounds elsewhere arrives below it."""


Ranges = dict[str, tuple[float, float]]
"""Inputs held, by name: lowest and highest value, both multiples of 1/4096."""


@dataclass(frozen=True)
class Property:
    """sign * output <= sign * limit wherever the inputs lie in these ranges."""

    name: str
    claim: str
    output: int
    sign: int
    """1: the output is at most the limit; -1: at least"""
    limit: int | None
    """Q16; None: no claim, only the tightest bound found"""
    held: Ranges = field(default_factory=dict)
    contained_by: tuple[str, ...] = ()
    """claims of `law.CLAIMS` that bound the window where the network breaks this one"""

    def box(self) -> list[enclosure.Interval]:
        """Its part of the box, Q12."""
        one = 1 << c.Q_INPUT
        ranges = [self.held.get(i.name, (i.lo, i.hi)) for i in c.DENSE]
        return [(round(low * one), round(high * one)) for low, high in ranges]


# Implied by the definitions: a round with a loss has plasticity 1, and a mean has come at least
# 1/16 of the way to this round's input.
# Not in slow start, as after any loss but a timeout, when the window is one packet and has to grow.
LOSSY: Ranges = {"plasticity": (1, 1), "plasticity_mean": (1 / 16, 1), "slow_start": (0, 0)}
# Nothing was lost for long; a mean that falls comes to rest at 2/4096, not at zero.
LOSSLESS: Ranges = {
    "loss_rate": (0, 0), "plasticity": (0, 0),
    "loss_rate_mean": (0, 1 / 64), "plasticity_mean": (0, 1 / 64),
}  # fmt: skip
# Now, and for many rounds.
STEADY: Ranges = {
    "rtt_variation": (0, 1 / 8), "rtt_gradient": (-1 / 16, 1 / 16),
    "rtt_variation_mean": (0, 1 / 8), "rtt_gradient_mean": (-1 / 16, 1 / 16),
    "loss_rate_mean": (0, 1 / 16),
}  # fmt: skip
# The RTT is twice the baseline, the window two BDPs, the path delivers at its highest rate.
OWN_QUEUE: Ranges = {
    "rtt_ratio": (7 / 16, 9 / 16), "bdp_ratio": (7 / 16, 9 / 16), "delivery_ratio": (7 / 8, 1),
    "rtt_ratio_mean": (7 / 16, 9 / 16), "bdp_ratio_mean": (7 / 16, 9 / 16),
    "delivery_ratio_mean": (7 / 8, 1), "queue_floor": (3 / 4, 1), "queue_floor_mean": (3 / 4, 1),
    "loss_rate": (0, 1 / 16), **LOSSY, **STEADY,
}  # fmt: skip
# The RTT is about the baseline, the window at most 4/5 of the BDP.
IDLE: Ranges = {
    "rtt_ratio": (7 / 8, 1), "bdp_ratio": (5 / 4, 2), "delivery_ratio": (1 / 2, 1),
    "rtt_ratio_mean": (7 / 8, 1), "bdp_ratio_mean": (5 / 4, 2), "delivery_ratio_mean": (1 / 2, 1),
    "queue_floor": (0, 1 / 8), "queue_floor_mean": (0, 1 / 8), "slow_start": (0, 0), **STEADY,
}  # fmt: skip

GAIN, CONGESTION = range(c.N_OUTPUTS)
PROPERTIES = (
    Property("gain_at_most", "the largest cwnd_gain", GAIN, 1, None),
    Property("gain_at_least", "the smallest cwnd_gain", GAIN, -1, None),
    Property(
        "no_growth_behind_its_own_queue",
        "the window does not grow behind its own steady queue of one BDP, with losses up to 1/16",
        GAIN,
        1,
        0,
        OWN_QUEUE,
        ("at_most_double", "flood_falls_to_what_arrived"),
    ),
    Property(
        "no_shrinking_below_the_bdp",
        "the window does not shrink on a steady path without queue or loss while it is at most "
        "4/5 of the BDP",
        GAIN,
        -1,
        0,
        {**IDLE, **LOSSLESS},
        ("at_least_half",),
    ),
    Property(
        "bursts_behind_its_own_queue_are_overflow",
        "bursts of loss (entropy up to 1/4) behind a steady queue of its own are overflow loss",
        CONGESTION,
        -1,
        0,
        {**OWN_QUEUE, "entropy": (0, 1 / 4)},
        ("flood_falls_to_what_arrived", "only_scatter_excuses_a_flood"),
    ),
    Property(
        "scattered_loss_on_an_idle_path_is_random",
        "scattered loss (entropy from 1/2) up to 1/16 on a steady path without queue is random",
        CONGESTION,
        1,
        0,
        {**IDLE, **LOSSY, "loss_rate": (0, 1 / 16), "entropy": (1 / 2, 1)},
        ("loss_takes_at_most_half",),
    ),
)


@dataclass(frozen=True)
class Verdict:
    """Result of branch and bound."""

    verdict: str
    """proved, refuted, unknown, or bounded where there is no limit"""
    bound: int
    """Q16: proved for every input: sign * output <= sign * bound, before the clamp"""
    attained: int
    """Q16: the worst output seen"""
    witness: list[int]
    """[dense], Q12: an input that attains it; the counter-example of a refuted property"""
    tree: list[int]
    """splits in depth-first order: the number (from 0) of the input halved, -1 at a leaf"""


def decide(
    layers: list[Layer],
    prop: Property,
    seen: tuple[int, list[int]],
    boxes: int | None = None,
) -> Verdict:
    """Branch and bound.

    Args:
        layers: the network.
        prop: the property to decide.
        seen: the worst output found by search [Q16] and the input [dense] that gives it.
        boxes: sub-boxes to bound, at most; None: `BOXES`.
    """
    bounder, boxes = Bounder(layers, prop.output, prop.sign), boxes or BOXES
    best, witness = prop.sign * seen[0], seen[1]
    limit = None if prop.limit is None else prop.sign * prop.limit
    o = c.OUTPUTS[prop.output]
    end = o.hi_q if prop.sign > 0 else -o.lo_q
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
        # Without a limit, an output seen beyond its clamp leaves nothing to find out.
        if best >= end if limit is None else (best > limit or worst <= limit):
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
    worst = max(worst, _checked(layers, prop, tree, bounder.epsilon))
    if verdict == "proved" and limit is not None and worst > limit:
        verdict = "unknown"
    return Verdict(verdict, prop.sign * worst, prop.sign * best, witness, tree)


def _checked(layers: list[Layer], prop: Property, tree: list[int], epsilon: int) -> int:
    """The bound at which the checker arrives over the same tree of splits, Q16.

    It is as sound. Of two lines that are nearly equal the checker may take the other, which moves
    a bound by more than `MARGIN`.
    """
    rows: bounds.Layers = [
        [
            (w.tolist(), int(b), int(s), r >= layer.n_out - layer.clamped)
            for r, (w, b, s) in enumerate(zip(layer.weight, layer.bias, layer.shift, strict=True))
        ]
        for layer in layers
    ]
    relaxation = bounds.Relaxation(rows, _checkers_tanh())
    return relaxation.worst(tree, prop.box(), prop.output, prop.sign, epsilon)


@functools.cache
def _checkers_tanh() -> bounds.Tanh:
    return bounds.Tanh(list(fixedpoint.tanh_table()))


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
