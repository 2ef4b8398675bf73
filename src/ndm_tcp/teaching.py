# SPDX-License-Identifier: GPL-2.0-only
"""The chosen numbers of the target, in one table: value, reason, and where it was compared.

The lab computes the target window of a path (`lab/paths/truth.py`), training regresses the step
towards it (objective `target_step`). The numbers in between are choices. Each names the page of
`docs/decisions` that compared it with others, in the closed loop; docs/training.md shows the table.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Choice:
    """One number and its reason."""

    name: str
    value: float
    unit: str
    reason: str
    decision: str
    """page of docs/decisions, without its ending"""


CHOICES = (
    Choice(
        "EXPECTILE",
        0.65,
        "of the steps that one state can ask for; 0.5: their mean",
        "where inputs are ambiguous, a window too large shows in the next round, in its queue; one "
        "too small, on a jittery path or beside others, never shows",
        "2026-11-21-12-prefer-the-larger-window-in-ambiguous-states",
    ),
    Choice(
        "STEP_SHARE",
        0.6,
        "of the way to the target window in one round, log2",
        "the whole way would answer the noise of one round; never compared with others",
        "2026-11-21-06-learn-steps-towards-the-target-window",
    ),
    Choice(
        "POOL_WEIGHT",
        0.1,
        "weight of other algorithms' flows beside ndm_tcp's own",
        "they dwell in states, such as a full queue without rivals, that the network must know but "
        "does not stay in; with their full weight it learns to yield there, to CUBIC too",
        "2026-11-21-06-learn-steps-towards-the-target-window",
    ),
    Choice(
        "EXTRA_SHARE",
        0.1,
        "of the BDP above it, in the target window",
        "enough for the link never to idle, too little for a queue worth the name",
        "2026-11-21-06-learn-steps-towards-the-target-window",
    ),
    Choice(
        "EXTRA_SHARE_NOISE",
        0.3,
        "the same where jitter delays packets and others are lost",
        "with a tenth, heavy loss with jitter lost a seventh of the goodput; without loss a tenth "
        "is enough, and three cost a tenth of the RTT on paths like DSL",
        "2026-11-26-09-measure-the-window-that-jitter-needs",
    ),
    Choice(
        "LOSS_SHARE",
        4,
        "of the probability of loss, in the same share",
        "a constant window needs less, but under heavy loss with jitter networks scored "
        "-0.31, -0.02 and +0.08 with 0, 3 and 5, less the former networks' score",
        "2026-11-27-03-teach-the-windows-that-lone-flows-need",
    ),
    Choice(
        "LOSS_ROOT",
        0.5,
        "of the square root of the BDP, packets above that, where packets are lost",
        "the number of losses in a round trip varies by the root of their mean; with 1, and "
        "three packets, lone flows of 10 to 44 packets were taught 1.4 to 1.9 BDP where 1.1 "
        "to 1.25 are best",
        "2026-11-27-03-teach-the-windows-that-lone-flows-need",
    ),
    Choice(
        "JITTER_SHARE",
        2.5,
        "standard deviations of jitter that count as part of the RTT",
        "the best constant windows need 1.7; on the dumbbell with jitter networks get 0.967 "
        "to 0.977 of BBR's goodput with 2, and 0.973 to 0.981 with 2.5",
        "2026-11-27-03-teach-the-windows-that-lone-flows-need",
    ),
    Choice(
        "JITTER_SHARE_NOISE",
        3,
        "the same where packets are lost, too",
        "the best constant windows need 1.4, but with 1.5 networks score 0.63 less under "
        "heavy loss",
        "2026-11-27-03-teach-the-windows-that-lone-flows-need",
    ),
    Choice(
        "JITTER_SHARE_REORDER",
        1.5,
        "the same where packets may overtake one another",
        "the best constant windows need 0, but with 0.5 three networks get a fifth less goodput "
        "where a tenth of the packets is lost",
        "2026-11-27-06-learn-from-paths-with-overtaking-packets",
    ),
    Choice(
        "EXTRA_PACKETS",
        3,
        "packets of a flow above that",
        "a flow whose share of the path is a few packets needs more than a tenth of one",
        "2026-11-24-05-spare-no-share-for-lone-flows",
    ),
    Choice(
        "EXTRA_PACKETS_ALONE",
        0,
        "the same of one flow, on a routed path without loss beside jitter",
        "of a BDP of 20 packets three are a large part: they cost two to three milliseconds",
        "2026-11-24-05-spare-no-share-for-lone-flows",
    ),
)
_VALUES = {choice.name: choice.value for choice in CHOICES}


def value(name: str) -> float:
    """The chosen number of that name."""
    return _VALUES[name]


def table() -> str:
    """The choices as a table, for docs/training.md."""
    row = "| `{0.name}` | {0.value:g} | {0.unit} | {0.reason} | [{0.decision}]({1}) |"
    rows = [row.format(c, f"decisions/{c.decision}.md") for c in CHOICES]
    head = [
        "| name | value | of what | reason | compared in |",
        "|---|---|---|---|---|",
    ]
    return "\n".join([*head, *rows]) + "\n"
