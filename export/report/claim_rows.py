# SPDX-License-Identifier: GPL-2.0-only
"""The claims about a network and its control law as rows of a table."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ndm_tcp import contract as c
from ndm_tcp import core, fixedpoint
from ndm_tcp.export.proof import certificate, law, properties


@dataclass(frozen=True)
class ClaimRow:
    """A claim about the network by itself, and how it fares."""

    name: str
    claim: str
    verdict: str
    proved: str
    """bound for every input"""
    seen: float
    """worst output seen"""
    contained_by: str = ""
    """claims about the control law that bound the window if this one is broken"""
    example: tuple[float, ...] = ()
    """[dense] the input of the worst output"""

    def told(self) -> tuple[object, ...]:
        """A row of the tables, without the example."""
        return (self.name, self.claim, self.verdict, self.proved, self.seen, self.contained_by)


def _by_arithmetic(proof: certificate.Proof) -> list[ClaimRow]:
    """Claims that clamps and tables guarantee for any weights."""
    one = 1 << c.Q_PRE
    clamped = [
        [max(o.lo_q, min(o.hi_q, found.value)) for found in pair]
        for o, pair in zip(c.OUTPUTS, proof.attained[-1], strict=True)
    ]
    low, high = scales(certificate.gain_range(proof))
    slow, fast = scales((clamped[0][0], clamped[0][1]))
    least, most = (share / (2 * one) for share in certificate.loss_cut(proof))
    return [
        ClaimRow(
            "output_in_range",
            "both outputs stay within the contract's ranges",
            "proved",
            ", ".join(f"{o.name} in [{o.lo:g}, {o.hi:g}]" for o in c.OUTPUTS),
            max(abs(value) / one for value in clamped[0]),
        ),
        ClaimRow(
            "bounded_step",
            "a round at most doubles or halves the window (and adds a packet)",
            "proved" if low >= 0.5 and high <= 2 else "refuted",
            f"times {low:.4f} to {high:.4f}",
            fast if fast * slow >= 1 else slow,
        ),
        ClaimRow(
            "bounded_cut",
            "a loss takes at most half of the window and adds nothing",
            "proved" if least >= 0 and most <= 0.5 else "refuted",
            f"{least:.4f} to {most:.4f} of it",
            certificate.cut_share(clamped[1][1]) / (2 * one),
        ),
    ]


def scales(gains: tuple[int, int]) -> tuple[float, float]:
    """By what a round scales the window at least and at most: the gain, Q16, with the probe."""
    low, high = min(core.probed_gains(gains[0])), max(core.probed_gains(gains[1]))
    slow, fast = (float(x) / (1 << c.Q_PRE) for x in fixedpoint.exp2(np.array([low, high])))
    return slow, fast


def property_rows(proof: certificate.Proof) -> list[ClaimRow]:
    """Every claim about the network: those of the arithmetic, then those of branch and bound."""
    one = 1 << c.Q_PRE
    rows = _by_arithmetic(proof)
    for p, v in zip(properties.PROPERTIES, proof.verdicts, strict=True):
        o, sign = c.OUTPUTS[p.output], "<=" if p.sign > 0 else ">="
        bound, seen = (max(o.lo_q, min(o.hi_q, q)) / one for q in (v.bound, v.attained))
        contained = ", ".join(p.contained_by) if v.verdict in ("refuted", "unknown") else ""
        example = tuple(x / (1 << c.Q_INPUT) for x in v.witness)
        proved = f"{o.name} {sign} {bound:.4f}"
        rows.append(ClaimRow(p.name, p.claim, v.verdict, proved, seen, contained, example))
    return rows


def law_rows() -> list[tuple[str, str, str, str]]:
    """Name, claim, range checked and number of cases of every claim about the law."""
    return [(x.name, x.statement, x.gone_through, f"{x.cases:,}") for x in law.CLAIMS]
