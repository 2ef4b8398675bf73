# SPDX-License-Identifier: GPL-2.0-only
"""The claims about a network and its control law as rows of a table."""

from __future__ import annotations

import numpy as np

from ndm_tcp import contract as c
from ndm_tcp import fixedpoint
from ndm_tcp.export.proof import certificate, law, properties


def property_rows(proof: certificate.Proof) -> list[tuple[object, ...]]:
    """Name, claim, verdict, proved bound, worst seen, example of every property of the network.

    First what the arithmetic by itself sees to, then what branch and bound found.
    """
    one = 1 << c.Q_PRE
    clamped = [
        [max(o.lo_q, min(o.hi_q, found.value)) for found in pair]
        for o, pair in zip(c.OUTPUTS, proof.attained[-1], strict=True)
    ]
    low, high = fixedpoint.exp2(np.array(certificate.gain_range(proof))) / one
    slow, fast = fixedpoint.exp2(np.array(clamped[0])) / one
    least, most = (share / (2 * one) for share in certificate.loss_cut(proof))
    rows: list[tuple[object, ...]] = [
        (
            "output_in_range",
            "both outputs stay within the contract's ranges",
            "proved",
            ", ".join(f"{o.name} in [{o.lo:g}, {o.hi:g}]" for o in c.OUTPUTS),
            max(abs(value) / one for value in clamped[0]),
            "",
        ),
        (
            "bounded_step",
            "a round at most doubles or halves the window (and adds a packet)",
            "proved" if low >= 0.5 and high <= 2 else "refuted",
            f"times {low:.4f} to {high:.4f}",
            float(max(fast, 1 / slow)),
            "",
        ),
        (
            "bounded_cut",
            "a loss takes at most half of the window and adds nothing",
            "proved" if least >= 0 and most <= 0.5 else "refuted",
            f"{least:.4f} to {most:.4f} of it",
            certificate.cut_share(clamped[1][1]) / (2 * one),
            "",
        ),
    ]
    for p, v in zip(properties.PROPERTIES, proof.verdicts, strict=True):
        o, sign = c.OUTPUTS[p.output], "<=" if p.sign > 0 else ">="
        bound, seen = (max(o.lo_q, min(o.hi_q, q)) / one for q in (v.bound, v.attained))
        example = ", ".join(f"{x / (1 << c.Q_INPUT):g}" for x in v.witness)
        verdict = v.verdict
        if verdict in ("refuted", "unknown"):
            verdict += f" (contained by {' and '.join(p.contained_by)})"
        rows.append((p.name, p.claim, verdict, f"{o.name} {sign} {bound:.4f}", seen, example))
    return rows


def law_rows() -> list[tuple[str, str, str, str]]:
    """Name, claim, what was gone through and how many cases, of every claim about the law."""
    return [(x.name, x.statement, x.gone_through, f"{x.cases:,}") for x in law.CLAIMS]
