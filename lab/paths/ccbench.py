# SPDX-License-Identifier: GPL-2.0-only
"""A reduced ccBench: writes the scenarios of its Set I and Set II into lab/scenarios/ccbench.

ccBench (Sage, SIGCOMM 2023) has 660 environments of a single flow and 125 in which a flow
joins CUBIC. This is a grid of the same shape with fewer points, so that every algorithm of
the kernel can run it in minutes; runs are scored as a whole, not in four segments.
Regenerate with `ndm lab scenarios ccbench`.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path

from ndm_tcp import files

FOLDER = Path(__file__).resolve().parents[1] / "scenarios" / "ccbench"
PACKET_BITS = 1500 * 8
SET_1_MBPS = (12, 48)
SET_1_RTT_MS = (20, 80)
SET_1_QUEUE_BDP = (0.5, 2, 8)
SET_1_SECONDS = 24
STEP_S = 7
STEP_FACTORS = (0.5, 2)
STEP_MBPS = 24
STEP_QUEUE_BDP = (2,)
SET_2_MBPS = (12, 24)
SET_2_RTT_MS = (20, 80)
SET_2_QUEUE_BDP = (1, 4)
SET_2_SECONDS = 60
JOIN_S = 5

HEAD = "# SPDX-License-Identifier: CC0-1.0\n# Written by: python -m ndm_tcp.lab.paths.ccbench\n"


def queue_packets(mbps: int, rtt_ms: int, bdp: float) -> int:
    """A queue of so many bandwidth-delay products, at least four packets."""
    return max(4, round(bdp * mbps * 1000 * rtt_ms / PACKET_BITS))


def _link(mbps: int, rtt_ms: int, bdp: float) -> str:
    return (
        f"[link]\nrate_bps = {mbps * 1_000_000}\nrtt_us = {rtt_ms * 1000}\n"
        f"queue_packets = {queue_packets(mbps, rtt_ms, bdp)}\n"
    )


def scenarios() -> dict[str, str]:
    """File name to TOML."""
    made = {}
    for mbps, rtt_ms, bdp in product(SET_1_MBPS, SET_1_RTT_MS, SET_1_QUEUE_BDP):
        title = f"Set I: alone on {mbps} Mbit/s, {rtt_ms} ms, a queue of {bdp:g} BDP"
        made[f"set1-{mbps}mbit-{rtt_ms}ms-{bdp:g}bdp"] = (
            f'title = "{title}"\nseconds = {SET_1_SECONDS}\ntopology = "path"\n\n'
            + _link(mbps, rtt_ms, bdp)
        )
    for factor, rtt_ms, bdp in product(STEP_FACTORS, SET_1_RTT_MS, STEP_QUEUE_BDP):
        rate = round(STEP_MBPS * factor)
        title = (
            f"Set I: alone, {STEP_MBPS} Mbit/s and from {STEP_S} s on {rate}, {rtt_ms} ms, "
            f"a queue of {bdp:g} BDP"
        )
        made[f"set1-{STEP_MBPS}to{rate}mbit-{rtt_ms}ms-{bdp:g}bdp"] = (
            f'title = "{title}"\nseconds = {SET_1_SECONDS}\ntopology = "path"\n\n'
            + _link(STEP_MBPS, rtt_ms, bdp)
            + f"steps = [[{STEP_S}.0, {rate * 1_000_000}]]\n"
        )
    for mbps, rtt_ms, bdp in product(SET_2_MBPS, SET_2_RTT_MS, SET_2_QUEUE_BDP):
        title = f"Set II: joins CUBIC on {mbps} Mbit/s, {rtt_ms} ms, a queue of {bdp:g} BDP"
        made[f"set2-{mbps}mbit-{rtt_ms}ms-{bdp:g}bdp"] = (
            f'title = "{title}"\nseconds = {SET_2_SECONDS}\ntopology = "path"\n\n'
            + _link(mbps, rtt_ms, bdp)
            + '\n[[flows]]\ncc = "cubic"\n'
            + f'\n[[flows]]\ncc = "$cc"\nsender = 1\nstart_s = {JOIN_S}\n'
            + f"seconds = {SET_2_SECONDS - JOIN_S}\n"
        )
    return {f"{name}.toml": HEAD + text for name, text in made.items()}


def main() -> None:
    """Write every file anew."""
    for name, text in scenarios().items():
        files.write_text(FOLDER / name, text)
