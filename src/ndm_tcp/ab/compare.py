# SPDX-License-Identifier: GPL-2.0-only
"""Groups of flows beside one another: means, ratios with intervals, and what forbids to compare.

Two groups of one host are no experiment by themselves. The paths of both are compared first:
if their baseline RTTs or destinations differ, a ratio speaks of the paths.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ndm_tcp.ab.flows import Flow, prefix
from ndm_tcp.errors import NdmError
from ndm_tcp.intervals import Ratio, ratio, student, welch

FEW = 10
"""flows of a group: with fewer one odd flow decides"""
LEAST_MBPS = 1e-3
"""A flow that stood still counts as this; its logarithm would be none."""
RTT_TOLERANCE = 1.1
"""Baseline RTTs that differ by less are the same; a standing queue alone may raise one so."""
HOST_MS = 0.05
"""So are those that differ by less: a host that wakes late does that."""
SHUFFLES = 400
SIGNIFICANCE = 0.05
LEAST_APART = 0.1
"""A tenth of the flows elsewhere is not worth a warning."""
SEED = 1

KEYS: dict[str, Callable[[Flow], str]] = {
    "cc": lambda flow: flow.cc,
    "port": lambda flow: str(flow.ends.port),
    "peer-port": lambda flow: str(flow.ends.peer_port),
    "prefix": lambda flow: prefix(flow.ends.peer),
    "cgroup": lambda flow: flow.cgroup or "unknown",
}
"""What groups flows."""


@dataclass(frozen=True)
class Mean:
    """A measure over the flows of a group."""

    mean: float
    """geometric for goodput and RTT"""
    low: float
    """95 % interval; of a share 0 at least. With too few flows `high` is inf."""
    high: float
    median: float


@dataclass(frozen=True)
class Group:
    """The flows of one group."""

    name: str
    flows: int
    """that are compared"""
    left_out: dict[str, int]
    """reason to number of flows"""
    goodput_mbps: Mean | None
    """None: no flow is compared"""
    rtt_ms: Mean | None
    retransmission_rate: Mean | None
    base_rtt_ms: float | None
    """median"""


@dataclass(frozen=True)
class Pair:
    """A group beside the reference."""

    name: str
    reference: str
    goodput: Ratio
    rtt: Ratio
    retransmission_rate: tuple[float, float, float]
    """difference with its 95 % interval"""
    warnings: tuple[str, ...]
    """why the ratios may not speak of the algorithms"""


@dataclass(frozen=True)
class Comparison:
    """All groups and pairs."""

    by: str
    groups: tuple[Group, ...]
    pairs: tuple[Pair, ...]
    missed: int | None
    """connections that began and ended between two polls; None: not known"""
    warnings: tuple[str, ...]


def _logs(values: Sequence[float], least: float) -> list[float]:
    return [math.log(max(value, least)) for value in values]


def _geometric(values: Sequence[float], least: float) -> Mean:
    mean, low, high = map(math.exp, student(_logs(values, least)))
    return Mean(mean, low, high, float(np.median(values)))


def _share(values: Sequence[float]) -> Mean:
    """Neither end of the interval leaves what a share can be; one that is not known stays so."""
    mean, low, high = student(values)
    return Mean(
        mean, max(low, 0.0), high if math.isinf(high) else min(high, 1.0), float(np.median(values))
    )


def _rtts(flows: Sequence[Flow]) -> list[float]:
    return [flow.rtt_ms for flow in flows if flow.rtt_ms > 0]


def _group(name: str, flows: Sequence[Flow]) -> Group:
    kept = [flow for flow in flows if not flow.left_out]
    left_out = Counter(flow.left_out for flow in flows if flow.left_out)
    rates = [flow.retransmission_rate for flow in kept]
    bases = [flow.base_rtt_ms for flow in kept if flow.base_rtt_ms > 0]
    return Group(
        name,
        len(kept),
        dict(left_out.most_common()),
        _geometric([f.goodput_mbps for f in kept], LEAST_MBPS) if kept else None,
        _geometric(_rtts(kept), LEAST_MBPS) if _rtts(kept) else None,
        _share(rates) if kept else None,
        float(np.median(bases)) if bases else None,
    )


Ints = npt.NDArray[np.int64]


def _rtt_distance(values: npt.NDArray[np.float64]) -> Callable[[Ints], float]:
    """Largest difference of two distributions, beyond what is the same (Kolmogorov, Smirnov).

    Returns:
        A function of [flows] 1 for the first group, 0 for the second, in order of `values`.
    """
    order = np.argsort(values)
    same = values[order] + np.maximum((RTT_TOLERANCE - 1) * values[order], HOST_MS)
    reach = np.searchsorted(values[order], same, side="right") - 1

    def distance(is_first: Ints) -> float:
        shares = [np.cumsum(part[order]) / max(part.sum(), 1) for part in (is_first, 1 - is_first)]
        one, other = shares
        return float(max((one - other[reach]).max(), (other - one[reach]).max(), 0.0))

    return distance


def _place_distance(places: Ints) -> Callable[[Ints], float]:
    """Share of the flows that would have to go elsewhere for both groups to go to the same."""
    n = int(places.max()) + 1

    def distance(is_first: Ints) -> float:
        shares = [
            np.bincount(places, weights=part, minlength=n) / max(part.sum(), 1)
            for part in (is_first, 1 - is_first)
        ]
        return float(np.abs(shares[0] - shares[1]).sum() / 2)

    return distance


def _differ(distance: Callable[[Ints], float], first: int, second: int) -> float:
    """The distance of two groups where chance does not explain it, else 0.

    Groups without anything in common differ, however few flows they have.
    """
    is_first = np.repeat(np.array([1, 0], np.int64), [first, second])
    seen = distance(is_first)
    if seen < LEAST_APART:
        return 0.0
    if seen < 1:
        chance = np.random.default_rng(SEED)
        above = sum(distance(chance.permutation(is_first)) >= seen for _ in range(SHUFFLES))
        if (above + 1) / (SHUFFLES + 1) > SIGNIFICANCE:
            return 0.0
    return seen


def _left_out_differs(one: Group, other: Group) -> bool:
    """Is the difference of the shares that are left out significant?"""
    shares, variance = [], 0.0
    for group in (one, other):
        out = sum(group.left_out.values())
        share = (out + 1) / (out + group.flows + 2)  # never without a variance
        shares.append(share)
        variance += share * (1 - share) / (out + group.flows + 2)
    return abs(shares[0] - shares[1]) > max(1.96 * math.sqrt(variance), LEAST_APART)


def _warnings(
    one: Sequence[Flow], other: Sequence[Flow], groups: tuple[Group, Group], by: str
) -> list[str]:
    """Why a comparison may not speak of the algorithms."""
    found = [
        f"too few flows: {group.name} has {group.flows}, at least {FEW} are needed"
        for group in groups
        if group.flows < FEW
    ]
    pair = [*one, *other]
    known = [[f.base_rtt_ms for f in side if f.base_rtt_ms > 0] for side in (one, other)]
    if any(2 * len(bases) < len(side) for bases, side in zip(known, (one, other), strict=True)):
        found.append("the paths may differ: of most flows of a group the baseline RTT is not known")
    elif _differ(_rtt_distance(np.concatenate(known)), *map(len, known)):
        medians = " and ".join(f"{g.base_rtt_ms:.3g} ms" for g in groups)
        found.append(
            f"the paths differ: baseline RTTs, medians {medians}; compare flows of the same paths"
        )
    if by != "prefix":
        names = sorted({prefix(flow.ends.peer) for flow in pair})
        places = np.array([names.index(prefix(flow.ends.peer)) for flow in pair], np.int64)
        if share := _differ(_place_distance(places), len(one), len(other)):
            found.append(
                f"the paths differ: {100 * share:.0f} % of the flows go to networks that the "
                "other group reaches less; compare within one, with --peer"
            )
    overlap = min(max(f.end_s for f in side) for side in (one, other)) - max(
        min(f.start_s for f in side) for side in (one, other)
    )
    if overlap <= 0:
        found.append("the groups never ran at the same time: the load may have changed")
    if _left_out_differs(*groups):
        found.append("much more of one group is left out than of the other: see the reasons")
    return found


def _pair(one: Sequence[Flow], other: Sequence[Flow], groups: tuple[Group, Group], by: str) -> Pair:
    goodputs = [_logs([f.goodput_mbps for f in side], LEAST_MBPS) for side in (one, other)]
    rtts = [_logs(_rtts(side), LEAST_MBPS) for side in (one, other)]
    rates = [[f.retransmission_rate for f in side] for side in (one, other)]
    return Pair(
        groups[0].name,
        groups[1].name,
        ratio(*goodputs),
        ratio(*rtts) if all(rtts) else Ratio(math.nan, 0.0, math.inf),
        welch(*rates),
        tuple(_warnings(one, other, groups, by)),
    )


def _reference(groups: Sequence[Group], named: str | None) -> Group:
    if named is None:
        return max(groups, key=lambda group: group.flows)
    for group in groups:
        if group.name == named and group.flows:
            return group
    names = ", ".join(group.name for group in groups if group.flows) or "none"
    raise NdmError(f"--reference {named}: no such group with flows; there are: {names}")


def compare(
    flows: Sequence[Flow],
    by: str = "cc",
    only: Sequence[str] = (),
    reference: str | None = None,
    missed: int | None = None,
) -> Comparison:
    """Group flows and compare every group with the reference.

    Args:
        flows: all, those that are left out too.
        by: one of `KEYS`.
        only: names of the groups; empty: all.
        reference: name of the group beside which the others are; None: that of most flows.
        missed: connections between two polls.

    Raises:
        NdmError: no flow of a named group, or no such reference.
    """
    sides: dict[str, list[Flow]] = {}
    for flow in flows:
        sides.setdefault(KEYS[by](flow), []).append(flow)
    for name in only:
        if name not in sides:
            raise NdmError(f"--only {name}: no flow; groups are: {', '.join(sorted(sides))}")
    names = sorted(set(only or sides))
    groups = [_group(name, sides[name]) for name in names]
    kept = {n: [flow for flow in sides[n] if not flow.left_out] for n in names}
    warnings = []
    pairs: list[Pair] = []
    compared = [group for group in groups if group.flows]
    if len(compared) < 2:
        warnings.append(
            "fewer than two groups have flows that can be compared; watch for longer, or name what "
            "makes flows a group: --by"
        )
    if compared:
        base = _reference(groups, reference)
        pairs = [
            _pair(kept[group.name], kept[base.name], (group, base), by)
            for group in compared
            if group is not base
        ]
    if len(pairs) > 1:
        warnings.append(f"of {len(pairs)} intervals one in 20 misses by chance")
    if missed:
        warnings.append(f"{missed} connections began and ended between two polls: poll more often")
    return Comparison(by, tuple(groups), tuple(pairs), missed, tuple(warnings))
