# SPDX-License-Identifier: GPL-2.0-only
"""Lone paths drawn over a wide range, and what a module gets there, simulated."""

from __future__ import annotations

import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ndm_tcp.lab.paths.scenario import Scenario, parse
from ndm_tcp.lab.paths.training_paths import log_uniform
from ndm_tcp.lab.sim.simulate import simulate

OTHERS = ("reno", "cubic", "bbr")


def shares(program: Path, paths: Sequence[Scenario]) -> dict[str, float]:
    """Each path's goodput with the module, over the best of the others."""

    def share(path: Scenario) -> float:
        mbps = [simulate(program, path, cc, 1)["total_mbps"] for cc in ("ndm_tcp", *OTHERS)]
        return float(mbps[0] / max(mbps[1:]))

    with ThreadPoolExecutor() as pool:
        return dict(zip((path.title for path in paths), pool.map(share, paths), strict=True))


def lone(
    name: str, seconds: int, mbps: float, rtt_us: float, queue: int, more: Sequence[str]
) -> Scenario:
    """A path with one flow; more: lines of its link."""
    lines = [f"rate_bps = {mbps * 1e6:.0f}", f"rtt_us = {rtt_us:.0f}"]
    lines += [f"queue_packets = {queue}", *more]
    title = "; ".join(lines).replace("\n", "; ")
    text = f'title = "{title}"\nseconds = {seconds}\ntopology = "path"\n[link]\n' + "\n".join(lines)
    return parse(text, name, f"{name}.toml")


def drawn(seed: int, count: int) -> list[Scenario]:
    """So many paths."""
    rng = random.Random(seed)
    return [_path(rng, number) for number in range(count)]


def held_back(seed: int, count: int) -> list[Scenario]:
    """So many paths of a wireless LAN: ACKs in groups up to 14 ms apart, at 0.6 to 3.2 ms."""
    rng, paths = random.Random(seed), []
    for number in range(count):
        mbps, rtt_us = log_uniform(rng, 20, 150), log_uniform(rng, 600, 3200)
        longest = round(log_uniform(rng, 2e3, 14e3))
        queue = max(20, round(log_uniform(rng, 0.5, 4) * mbps * (rtt_us + longest) / 12000))
        lines = [f"ack_hold_us = [{longest // 4}, {longest}]"]
        lines += _loss_and_jitter(rng, rtt_us, 0.005)
        paths.append(lone(f"held-{number}", 10, mbps, rtt_us, queue, lines))
    return paths


def lossy(seed: int, count: int) -> list[Scenario]:
    """So many fast paths that lose 3 to 12 % of the packets."""
    rng = random.Random(seed)
    return [_fast(rng, f"lossy-{number}", least_loss=0.03, jitter=False) for number in range(count)]


def jittery(seed: int, count: int) -> list[Scenario]:
    """So many fast paths that jitter, in order, and lose 1 to 12 % of the packets."""
    rng = random.Random(seed)
    return [
        _fast(rng, f"jittery-{number}", least_loss=0.01, jitter=True) for number in range(count)
    ]


def rerouted(seed: int, count: int) -> list[Scenario]:
    """So many paths whose RTT becomes 1.6 to 5 times as long after a few seconds."""
    rng, paths = random.Random(seed), []
    for number in range(count):
        mbps, rtt_us = log_uniform(rng, 3, 100), log_uniform(rng, 5e3, 100e3)
        queue = max(8, round(log_uniform(rng, 0.3, 4) * mbps * rtt_us / 12000))
        longer_us = rtt_us * log_uniform(rng, 1.6, 5)
        lines = [f"rtt_steps = [[{rng.uniform(3, 8):.1f}, {longer_us:.0f}]]"]
        if rng.random() < 0.3:
            lines.append(_jitter(rng, rtt_us, 0.1))
        if rng.random() < 0.3:
            lines.append(f"loss = {log_uniform(rng, 0.0005, 0.01):.4f}")
        paths.append(lone(f"rerouted-{number}", 25, mbps, rtt_us, queue, lines))
    return paths


def faster(seed: int, count: int) -> list[Scenario]:
    """So many paths whose rate becomes 1.5 to 5 times as high after four seconds."""
    rng, paths = random.Random(seed), []
    for number in range(count):
        mbps, rtt_us = log_uniform(rng, 4, 60), log_uniform(rng, 8e3, 120e3)
        queue = max(6, round(log_uniform(rng, 0.2, 4) * mbps * rtt_us / 12000))
        lines = [f"steps = [[4.0, {mbps * log_uniform(rng, 1.5, 5) * 1e6:.0f}]]"]
        lines += _loss_and_jitter(rng, rtt_us, 0.02)
        paths.append(lone(f"faster-{number}", 14, mbps, rtt_us, queue, lines))
    return paths


def _fast(rng: random.Random, name: str, *, least_loss: float, jitter: bool) -> Scenario:
    mbps, rtt_us = log_uniform(rng, 60, 320), log_uniform(rng, 8e3, 80e3)
    queue = max(8, round(log_uniform(rng, 0.4, 3) * mbps * rtt_us / 12000))
    lines = [f"loss = {log_uniform(rng, least_loss, 0.12):.4f}"]
    if jitter:
        lines.append(_jitter(rng, rtt_us, 0.5, 0.05))
    return lone(name, 6, mbps, rtt_us, queue, lines)


def _jitter(rng: random.Random, rtt_us: float, most: float, least: float = 0.01) -> str:
    """In order; between these parts of the RTT."""
    return f"jitter_us = {rtt_us * log_uniform(rng, least, most):.0f}\nreorder = false"


def _loss_and_jitter(rng: random.Random, rtt_us: float, most_loss: float) -> list[str]:
    """Each on half of the paths."""
    lines = []
    if rng.random() < 0.5:
        lines.append(f"loss = {log_uniform(rng, 0.0003, most_loss):.4f}")
    if rng.random() < 0.5:
        lines.append(_jitter(rng, rtt_us, 0.1))
    return lines


def _path(rng: random.Random, number: int) -> Scenario:
    """Anything that a lone flow may meet: jitter and loss on nearly half of the paths each."""
    mbps, rtt_us = log_uniform(rng, 1, 150), log_uniform(rng, 3e3, 250e3)
    queue = min(3000, max(8, round(log_uniform(rng, 0.2, 5) * mbps * rtt_us / 12000)))
    lines = []
    if rng.random() < 0.45:
        lines.append(_jitter(rng, rtt_us, 0.3))
    if rng.random() < 0.45:
        lines.append(f"loss = {log_uniform(rng, 0.0005, 0.05):.4f}")
    kind, longest = rng.random(), round(log_uniform(rng, 1e3, 15e3))
    if kind < 0.24:
        what = "slot_us" if kind < 0.12 else "ack_hold_us"
        lines.append(f"{what} = [{longest // 4}, {longest}]")
    elif kind < 0.3:
        lines.append(f"ack_loss = {log_uniform(rng, 0.005, 0.2):.3f}")
    seconds = max(10, min(30, round(rtt_us / 8e3)))
    return lone(f"drawn-{number}", seconds, mbps, rtt_us, queue, lines)
