# SPDX-License-Identifier: GPL-2.0-only
"""Paths to train on, drawn from ranges: writes lab/scenarios/training.

The published experiments and ccBench are for evaluation, so no path may resemble theirs:
loopback is left out, rates and delays within ten percent of an evaluation point are drawn
again. Regenerate with `python -m ndm_tcp.lab.training_paths`.
"""

from __future__ import annotations

import math
import random
from pathlib import Path

from ndm_tcp import files

FOLDER = Path(__file__).resolve().parent / "scenarios" / "training"
SEED = 20261121
RATE_MBPS = (3.0, 9.0)
RTT_MS = (15, 130)
QUEUE_BDP = (0.5, 4.0)
LOSS = (0.003, 0.02)
SECONDS = 10
EVALUATION_MBPS = (10, 12, 24, 48, 50)
EVALUATION_RTT_MS = (20, 40, 80, 104, 140)
KINDS = (
    *("clean", "clean", "clean", "loss", "loss", "loss"),
    *("reorder", "reorder", "jitter", "burst", "step", "compete"),
)
PACKET_BITS = 1500 * 8
HEAD = "# SPDX-License-Identifier: CC0-1.0\n# Written by: python -m ndm_tcp.lab.training_paths\n"


def _away(rng: random.Random, low: float, high: float, points: tuple[int, ...]) -> float:
    """Log-uniform, but not within ten percent of a point."""
    while True:
        value = low * math.exp(rng.random() * math.log(high / low))
        if all(abs(value / point - 1) > 0.1 for point in points):
            return value


def scenarios() -> dict[str, str]:
    """File name to TOML."""
    rng = random.Random(SEED)
    made = {}
    for number, kind in enumerate(KINDS):
        mbps = _away(rng, *RATE_MBPS, EVALUATION_MBPS)
        rtt_ms = _away(rng, *RTT_MS, EVALUATION_RTT_MS)
        bdp = QUEUE_BDP[0] * (QUEUE_BDP[1] / QUEUE_BDP[0]) ** rng.random()
        queue = max(8, round(bdp * mbps * 1000 * rtt_ms / PACKET_BITS))
        lines = [
            f"rate_bps = {round(mbps * 1e6, -4):.0f}",
            f"rtt_us = {round(rtt_ms * 1e3, -2):.0f}",
        ]
        lines.append(f"queue_packets = {queue}")
        if kind == "loss":
            lines.append(f"loss = {LOSS[0] * (LOSS[1] / LOSS[0]) ** rng.random():.4f}")
        if kind in ("reorder", "jitter"):
            lines.append(f"jitter_us = {round(rtt_ms * 1e3 * rng.uniform(0.05, 0.25), -2):.0f}")
            lines.append(f"reorder = {'true' if kind == 'reorder' else 'false'}")
        if kind == "burst":
            lines.append("burst = { start = 0.002, end = 0.3, loss = 0.6 }")
        if kind == "step":
            at_s, rate = rng.uniform(3, 6), mbps * rng.choice([0.5, 1.8])
            lines.append(f"steps = [[{at_s:.1f}, {round(rate * 1e6, -4):.0f}]]")
        flows = ""
        if kind == "compete":
            flows = (
                '\n[[flows]]\ncc = "cubic"\n\n[[flows]]\nsender = 1\nstart_s = 1.5\nseconds = 8.5\n'
            )
        title = f"Training: {kind}, {mbps:.1f} Mbit/s, {rtt_ms:.0f} ms, a queue of {bdp:.1f} BDP"
        made[f"train-{number:02}-{kind}.toml"] = (
            f'{HEAD}title = "{title}"\nseconds = {SECONDS}\ntopology = "path"\n\n[link]\n'
            + "\n".join(lines)
            + f"\n{flows}"
        )
    return made


if __name__ == "__main__":
    for name, text in scenarios().items():
        files.write_text(FOLDER / name, text)
