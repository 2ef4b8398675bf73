# SPDX-License-Identifier: GPL-2.0-only
"""Proofs about the window for any network: the claims about the control law.

Between the network's outputs and the window stands `ndm_law` of `kmod/ndm_control.h`.
`tests/law.c` goes through it exhaustively. The certificate carries these claims beside those about
the network, with the SHA-256 of the header that they hold for; a test compares names and numbers of
cases with the output of the program.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ndm_tcp.errors import NdmError

KMOD = Path(__file__).resolve().parents[2] / "kmod"
HEADERS = ("ndm_control.h", "ndm_infer.h")
"""The law, and the arithmetic that it uses; tables and ranges are generated, and certified."""
PROGRAM = "tests/law.c"
COMMAND = f"gcc -O2 -I. {PROGRAM} -o law && ./law"


@dataclass(frozen=True)
class Claim:
    """One statement about the window of the next round, for any outputs of a network."""

    name: str
    statement: str
    gone_through: str
    """ranges that the program enumerates; every value of each with every value of the others"""
    cases: int


WINDOWS = "every window of 20 bits"
ROUNDS = f"{WINDOWS}, every phase of the probe"
CLAIMS = (
    Claim(
        "gain_never_falls",
        "a larger cwnd_gain never makes the window smaller; -1 halves it, 1 doubles it",
        "every cwnd_gain",
        131072,
    ),
    Claim(
        "at_most_double",
        "a round at most doubles the window and adds a packet",
        f"{ROUNDS}, every combination of the law's flags, the highest gain",
        268435456,
    ),
    Claim(
        "at_least_half",
        "a round leaves at least half of the window, unless it was a flood or a ceiling holds",
        f"{ROUNDS}, every combination of the law's flags, the lowest gain",
        268435456,
    ),
    Claim(
        "flood_falls_to_what_arrived",
        "after a flood the window is at most window x (1 - loss_rate): what arrived of it. A flood "
        "is a round that lost a fifth or more and at least eight packets, while srtt was above "
        "twice the lowest RTT and RTTs did not scatter",
        f"{WINDOWS}, every loss_rate from 1/5 to 1",
        3437232128,
    ),
    Claim(
        "only_scatter_excuses_a_flood",
        "nothing but RTTs that scatter (or fewer than eight lost packets) keeps such a round from "
        "counting as a flood, whatever the network's verdict on its losses is",
        "every loss_rate, every rtt_variation, every combination of the law's flags, "
        "7 and 8 lost packets",
        2148270144,
    ),
    Claim(
        "one_packet_after_a_mark",
        "in the round after an ECN mark or a local drop the window grows by at most one packet",
        f"{ROUNDS}, every combination of the other flags, the highest gain",
        134217728,
    ),
    Claim(
        "unused_window_does_not_grow",
        "a window that the flow does not fill does not grow",
        f"{ROUNDS}, every combination of the other flags, the highest gain",
        134217728,
    ),
    Claim(
        "ceiling_holds",
        "the window is never above a ceiling in force",
        f"{ROUNDS}, every combination of the law's flags, a ceiling of a third of the window",
        268435456,
    ),
    Claim(
        "loss_takes_at_most_half",
        "a loss takes at most half of the window and adds nothing",
        f"every congestion output; {WINDOWS} at its two ends",
        3145728,
    ),
)


def digests(kmod: Path = KMOD) -> dict[str, str]:
    """SHA-256 of the headers that hold the law, by name."""
    return {name: hashlib.sha256((kmod / name).read_bytes()).hexdigest() for name in HEADERS}


def to_json() -> dict[str, Any]:
    """The part of the certificate that speaks of the law."""
    return {
        "headers": digests(),
        "program": PROGRAM,
        "command": COMMAND,
        "claims": [{**asdict(claim), "verdict": "proved"} for claim in CLAIMS],
    }


def require(kmod: Path) -> None:
    """Refuse a module whose control law is another one than that of the claims.

    Raises:
        NdmError: naming the header that differs.
    """
    for name, digest in digests().items():
        path = kmod / name
        found = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
        if found != digest:
            raise NdmError(
                f"{path}: not the control law of the certificate (a change of it belongs into "
                f"{KMOD}, then: make generated); run: cp {KMOD / name} {path}"
            )
