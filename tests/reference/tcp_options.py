# SPDX-License-Identifier: GPL-2.0-only
"""The TCP options a replay of the sender needs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Options:
    """The TCP options a replay needs."""

    mss: int | None = None
    wscale: int | None = None
    ts: tuple[int, int] | None = None
    """TSval, TSecr"""
    sack: tuple[tuple[int, int], ...] = ()
    """32-bit edges"""


def parse_options(raw: bytes) -> Options:
    """Read TCP options; stops silently where they are cut off."""
    found = Options()
    i = 0
    while i < len(raw):
        kind = raw[i]
        if kind == 0:
            break
        if kind == 1:
            i += 1
            continue
        if i + 1 >= len(raw):
            break
        size = raw[i + 1]
        body = raw[i + 2 : i + size]
        if size < 2 or (len(body) < size - 2 and kind != 5):
            break
        if kind == 2 and size == 4:
            found.mss = int.from_bytes(body, "big")
        elif kind == 3 and size == 3:
            found.wscale = min(body[0], 14)
        elif kind == 8 and size == 10:
            found.ts = (int.from_bytes(body[:4], "big"), int.from_bytes(body[4:], "big"))
        elif kind == 5:
            # A short snaplen cuts the last block; the first one is the news.
            edges = [int.from_bytes(body[k : k + 4], "big") for k in range(0, len(body) - 3, 4)]
            found.sack = tuple(zip(edges[::2], edges[1::2], strict=False))
        i += size
    return found
