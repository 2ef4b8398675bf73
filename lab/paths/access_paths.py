# SPDX-License-Identifier: GPL-2.0-only
"""Paths that people have: writes lab/scenarios/access, training-access and validation-access.

Boards show `access`, a development suite; changes between two trainings are measured on
`validation-access`. Families beside those of `training_paths`: links and ACKs that come in bursts,
thin ACK paths, policers, routes that change, cellular rates, local networks, slow links, queues
that mark, flows that join others, packets that overtake others, short paths whose ACKs come in
groups, and fast ones that lose many packets or jitter. Regenerate with
`ndm lab scenarios access`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ndm_tcp.lab.paths.training_paths import (
    EVALUATION_MBPS,
    EVALUATION_RTT_MS,
    PACKET_BITS,
    Range,
    is_near,
    log_uniform,
    write,
)

FOLDER = Path(__file__).resolve().parents[1] / "scenarios"
HEAD = "# SPDX-License-Identifier: CC0-1.0\n# Written by: ndm lab scenarios access\n"
SUITES = {
    "access": ("access", 20261140, 1),
    "training-access": ("taccess", 20261145, 4),
    "validation-access": ("vaccess", 20261146, 1),
}
"""folder to prefix of its files, seed, and how often each family is drawn"""
MBPS = (8.0, 40.0)
RTT_MS = (12.0, 90.0)
QUEUE_BDP = (0.6, 3.0)
SECONDS = 12
SLOT_US = (1_500.0, 12_000.0)
"""longest time between two groups; the shortest is a quarter of it"""
ACK_PAUSE_US = (5_000.0, 30_000.0)
ASYMMETRIES = ((20.0, 35.0), (35.0, 55.0), (60.0, 80.0))
"""rate of the data over that of the ACKs; an ACK for two packets needs a link of 1 : 58"""
ACK_QUEUE_PACKETS = (20.0, 120.0)
BUCKET_PACKETS = (15.0, 250.0)
REROUTE = (1.3, 2.2)
"""longer over shorter RTT"""
ORBIT_RTT_MS = (28.0, 60.0)
ORBIT_STEP_MS = 14.0
ORBIT_EVERY_S = 3.0
"""a fifth of the 15 s between handovers, so that a short run has some"""
CELL_MBPS = (1.5, 30.0)
CELL_EVERY_S = 0.25
CELL_WALK = 0.25
"""standard deviation of the logarithm from one rate to the next"""
SLOW_MBPS = (0.3, 1.0)
SLOW_QUEUE_PACKETS = (15.0, 60.0)
LAN_MBPS = (500.0, 10_000.0)
LAN_RTT_US = (50.0, 5_000.0)
LAN_QUEUE_MS = (0.8, 5.0)
LAN_READ_WAIT_US = 100
LOSS = (0.001, 0.02)
ACK_LOSS = (0.01, 0.08)
OVERTAKING_MBPS = (2.0, 100.0)
OVERTAKING_RTT_MS = (8.0, 160.0)
OVERTAKING_QUEUE_BDP = (0.5, 12.0)
OVERTAKING_JITTER = (0.03, 0.3)
"""standard deviation over RTT; such delays are what `netem delay 50ms 10ms` gives"""
NEAR_MBPS = (20.0, 150.0)
NEAR_RTT_MS = (0.6, 6.0)
NEAR_PAUSE_US = (2_000.0, 14_000.0)
NEAR_QUEUE = (0.5, 4.0)
"""of what the link sends in an RTT and the longest pause"""
NEAR_LOSS = (0.0003, 0.005)
NEAR_JITTER = (0.01, 0.1)
FAST_MBPS = (60.0, 300.0)
FAST_RTT_MS = (8.0, 80.0)
FAST_SECONDS, FAST_REPEAT = 6, 6
"""Such short runs differ by their losses: five of BBR on one path had an error of 16 % of its mean.
The board repeats them. They cost little."""
HEAVY_LOSS = (0.03, 0.12)
FAST_JITTER = (0.03, 0.3)
"""standard deviation over RTT, in order"""
FAST_LOSS = (0.001, 0.08)
SHARED_MBPS = (8.0, 24.0)
SHARED_QUEUE_BDP = (1.0, 4.0)


@dataclass(frozen=True)
class _Path:
    """A drawn path; the rest of its scenario is text."""

    mbps: float
    rtt_ms: float
    queue: int
    """packets; 0: the discipline sizes it"""
    link: list[str] = field(default_factory=list)
    """more lines of its link"""
    title: str = ""
    seconds: int = SECONDS
    rest: str = ""
    """other tables"""

    def toml(self, heading: str, repeat: int = 1) -> str:
        queue = f"a queue of {self.queue} packets, " if self.queue > 1 else ""
        title = f"{heading}, {self.mbps:g} Mbit/s, {self.rtt_ms:g} ms, {queue}{self.title}"
        lines = [f"rate_bps = {self.mbps * 1e6:.0f}", f"rtt_us = {self.rtt_ms * 1e3:.0f}"]
        lines += [f"queue_packets = {self.queue}"] if self.queue else []
        return (
            f'{HEAD}title = "{title.rstrip(", ")}"\nseconds = {self.seconds}\n'
            + (f"repeat = {repeat}\n" if repeat > 1 else "")
            + 'topology = "path"\n\n[link]\n'
            + "\n".join([*lines, *self.link])
            + f"\n{self.rest}"
        )


def _draw(
    rng: random.Random, mbps: Range = MBPS, rtt_ms: Range = RTT_MS, queue_bdp: Range = QUEUE_BDP
) -> tuple[float, float, int]:
    """Rate, RTT and queue."""
    rate, rtt = round(log_uniform(rng, *mbps), 2), round(log_uniform(rng, *rtt_ms), 1)
    bdp = rate * 1e3 * rtt / PACKET_BITS
    return rate, rtt, max(8, round(bdp * log_uniform(rng, *queue_bdp)))


def _slots(rng: random.Random) -> _Path:
    longest = round(log_uniform(rng, *SLOT_US))
    line = f"slot_us = [{longest // 4}, {longest}]"
    title = f"data in groups {longest // 4} to {longest} us apart"
    return _Path(*_draw(rng), [line], title)


def _ack_groups(longest: int) -> tuple[str, str]:
    """The line and the title of ACKs that are held back for so many us at most."""
    line = f"ack_hold_us = [{longest // 4}, {longest}]"
    return line, f"ACKs in groups {longest // 4} to {longest} us apart"


def _ack_bursts(rng: random.Random) -> _Path:
    line, title = _ack_groups(round(log_uniform(rng, *ACK_PAUSE_US)))
    return _Path(*_draw(rng), [line], title)


def _thin_acks(low: float, high: float) -> Callable[[random.Random], _Path]:
    def draw(rng: random.Random) -> _Path:
        mbps, rtt_ms, queue = _draw(rng, (20.0, 60.0))
        thin, packets = mbps / rng.uniform(low, high), round(log_uniform(rng, *ACK_QUEUE_PACKETS))
        lines = [f"ack_rate_bps = {thin * 1e6:.0f}", f"ack_queue_packets = {packets}"]
        title = f"ACKs at {thin:.2f} Mbit/s with a queue of {packets}"
        return _Path(mbps, rtt_ms, queue, lines, title)

    return draw


def _policer(rng: random.Random) -> _Path:
    mbps, rtt_ms, _ = _draw(rng)
    bucket = round(log_uniform(rng, *BUCKET_PACKETS))
    return _Path(mbps, rtt_ms, 1, [f"bucket_packets = {bucket}"], f"a bucket of {bucket} packets")


def _reroute(rng: random.Random) -> _Path:
    mbps, rtt_ms, queue = _draw(rng)
    at_s, factor = rng.uniform(4, 7), log_uniform(rng, *REROUTE)
    factor = factor if rng.random() < 0.5 else 1 / factor
    line = f"rtt_steps = [[{at_s:.1f}, {rtt_ms * factor * 1e3:.0f}]]"
    return _Path(mbps, rtt_ms, queue, [line], f"from {at_s:.1f} s on {rtt_ms * factor:.0f} ms")


def _low_orbit(rng: random.Random) -> _Path:
    mbps, rtt_ms, queue = _draw(rng, (15.0, 45.0), ORBIT_RTT_MS)
    rtts, rates = [], []
    for number in range(1, int(SECONDS / ORBIT_EVERY_S) + 1):
        at_s = number * ORBIT_EVERY_S
        now_ms = max(20.0, rtt_ms + rng.uniform(-ORBIT_STEP_MS, ORBIT_STEP_MS))
        rtts.append(f"[{at_s:.1f}, {now_ms * 1e3:.0f}]")
        rates.append(f"[{at_s:.1f}, {mbps * rng.uniform(0.6, 1.3) * 1e6:.0f}]")
    lines = [f"rtt_steps = [{', '.join(rtts)}]", f"steps = [{', '.join(rates)}]"]
    seconds = SECONDS + int(ORBIT_EVERY_S)
    title = f"another RTT and rate every {ORBIT_EVERY_S:g} s"
    return _Path(mbps, rtt_ms, queue, lines, title, seconds)


def _cellular(rng: random.Random) -> _Path:
    mbps, rtt_ms, queue = _draw(rng, (4.0, 20.0), (40.0, 90.0), (2.0, 6.0))
    now, steps = mbps, []
    for number in range(1, int(SECONDS / CELL_EVERY_S)):
        now = min(max(now * math.exp(rng.gauss(0, CELL_WALK)), CELL_MBPS[0]), CELL_MBPS[1])
        steps.append(f"[{number * CELL_EVERY_S:.2f}, {round(now * 1e6, -3):.0f}]")
    line = f"steps = [{', '.join(steps)}]"
    return _Path(mbps, rtt_ms, queue, [line], f"another rate every {CELL_EVERY_S:g} s")


def _lan(rng: random.Random) -> _Path:
    mbps = float(round(log_uniform(rng, *LAN_MBPS)))
    rtt_us = round(log_uniform(rng, *LAN_RTT_US))
    queue = max(8, round(log_uniform(rng, *LAN_QUEUE_MS) * mbps / 12))
    host = f"\n[host]\nread_wait_us = {LAN_READ_WAIT_US}\n"
    return _Path(mbps, rtt_us / 1e3, queue, ["offloads = true"], "offloads", 1, host)


def _slow(rng: random.Random) -> _Path:
    mbps, rtt_ms, _ = _draw(rng, SLOW_MBPS, (30.0, 150.0))
    queue = round(log_uniform(rng, *SLOW_QUEUE_PACKETS))
    return _Path(mbps, rtt_ms, queue, [], "", 2 * SECONDS)


def _marking(qdisc: str) -> Callable[[random.Random], _Path]:
    def draw(rng: random.Random) -> _Path:
        mbps, rtt_ms, _ = _draw(rng)
        queue = 0 if qdisc == "cake" else 1024
        line = f'qdisc = "{qdisc}"'
        title = f"{qdisc} with ECN"
        return _Path(mbps, rtt_ms, queue, [line], title, rest="\n[host]\necn = true\n")

    return draw


def flow(sender: int, start_s: float, seconds: int, cc: str = "$cc") -> str:
    """The lines of a flow in a scenario file; cc: its algorithm, `$cc` the one under test."""
    return (
        f'\n[[flows]]\ncc = "{cc}"\nsender = {sender}\nstart_s = {start_s:.1f}\n'
        f"seconds = {seconds}\n"
    )


def _three_cubics(rng: random.Random) -> _Path:
    drawn = _draw(rng, SHARED_MBPS, (12.0, 60.0), SHARED_QUEUE_BDP)
    flows = "".join(flow(n, n * rng.uniform(0.1, 0.6), 22, "cubic") for n in range(3))
    flows += flow(3, rng.uniform(2, 4), 20)
    return _Path(*drawn, [], "joins three CUBICs", 24, flows)


def _late_cubic(rng: random.Random) -> _Path:
    drawn = _draw(rng, SHARED_MBPS, (12.0, 60.0), SHARED_QUEUE_BDP)
    flows = "".join(flow(n, n * rng.uniform(0.1, 0.6), 26) for n in range(4))
    flows += flow(4, rng.uniform(5, 7), 20, "cubic")
    return _Path(*drawn, [], "four flows, and a late CUBIC: 1 - share is what it gets", 28, flows)


def _staggered(rng: random.Random) -> _Path:
    drawn = _draw(rng, SHARED_MBPS, (12.0, 60.0), SHARED_QUEUE_BDP)
    starts = [0.0, *(n * 4 + rng.uniform(-1, 1) for n in (1, 2, 3))]
    flows = "".join(flow(n, at_s, int(27 - at_s)) for n, at_s in enumerate(starts))
    return _Path(*drawn, [], "four flows, one after the other", 27, flows)


def _loss_both_ways(rng: random.Random) -> _Path:
    loss, ack_loss = log_uniform(rng, *LOSS), log_uniform(rng, *ACK_LOSS)
    lines = [f"loss = {loss:.4f}", f"ack_loss = {ack_loss:.4f}"]
    title = f"{100 * loss:.2f} % of the data lost and {100 * ack_loss:.1f} % of the ACKs"
    return _Path(*_draw(rng), lines, title)


def _overtaking(rng: random.Random) -> _Path:
    mbps, rtt_ms, queue = _draw(rng, OVERTAKING_MBPS, OVERTAKING_RTT_MS, OVERTAKING_QUEUE_BDP)
    jitter_us = round(rtt_ms * 1e3 * rng.uniform(*OVERTAKING_JITTER), -2)
    lines = [f"jitter_us = {jitter_us:.0f}", "reorder = true"]
    title = f"packets overtake others, by {jitter_us / 1e3:g} ms"
    return _Path(mbps, rtt_ms, queue, lines, title)


def _near_ack_bursts(rng: random.Random) -> _Path:
    """A wireless LAN: most pauses are longer than the RTT."""
    mbps, rtt_ms, _ = _draw(rng, NEAR_MBPS, NEAR_RTT_MS)
    longest = round(log_uniform(rng, *NEAR_PAUSE_US))
    sent = mbps * (rtt_ms * 1e3 + longest) / PACKET_BITS
    queue = max(20, round(sent * log_uniform(rng, *NEAR_QUEUE)))
    line, title = _ack_groups(longest)
    lines = [line]
    if rng.random() < 0.5:
        loss = log_uniform(rng, *NEAR_LOSS)
        lines.append(f"loss = {loss:.4f}")
        title += f", {100 * loss:.2f} % lost"
    if rng.random() < 0.5:
        jitter_us = rtt_ms * 1e3 * log_uniform(rng, *NEAR_JITTER)
        lines += [f"jitter_us = {jitter_us:.0f}", "reorder = false"]
        title += f", jitter of {jitter_us:.0f} us"
    return _Path(mbps, rtt_ms, queue, lines, title)


def _fast_heavy_loss(rng: random.Random) -> _Path:
    loss = log_uniform(rng, *HEAVY_LOSS)
    drawn = _draw(rng, FAST_MBPS, FAST_RTT_MS)
    title = f"{100 * loss:.1f} % lost"
    return _Path(*drawn, [f"loss = {loss:.4f}"], title, FAST_SECONDS)


def _fast_jitter(rng: random.Random) -> _Path:
    """Packets wait behind a late one; the more are in flight, the steadier the RTTs."""
    mbps, rtt_ms, queue = _draw(rng, FAST_MBPS, FAST_RTT_MS)
    jitter_us = rtt_ms * 1e3 * log_uniform(rng, *FAST_JITTER)
    lines = [f"jitter_us = {jitter_us:.0f}", "reorder = false"]
    title = f"jitter of {jitter_us / 1e3:.1f} ms"
    if rng.random() < 0.75:
        loss = log_uniform(rng, *FAST_LOSS)
        lines.append(f"loss = {loss:.4f}")
        title += f", {100 * loss:.2f} % lost"
    return _Path(mbps, rtt_ms, queue, lines, title, FAST_SECONDS)


FAMILIES: dict[str, list[Callable[[random.Random], _Path]]] = {
    "slots": [_slots] * 3,
    "ack-bursts": [_ack_bursts] * 2,
    "thin-acks": [_thin_acks(*range_) for range_ in ASYMMETRIES],
    "policer": [_policer] * 3,
    "reroute": [_reroute] * 3,
    "low-orbit": [_low_orbit] * 2,
    "cellular": [_cellular] * 4,
    "lan": [_lan] * 3,
    "slow": [_slow] * 3,
    "fq-codel-ecn": [_marking("fq_codel")] * 2,
    "cake-ecn": [_marking("cake")] * 2,
    "three-cubics": [_three_cubics] * 2,
    "late-cubic": [_late_cubic] * 2,
    "staggered": [_staggered] * 2,
    "loss-both-ways": [_loss_both_ways] * 3,
    "overtaking": [_overtaking] * 6,
    "near-ack-bursts": [_near_ack_bursts] * 4,
    "fast-heavy-loss": [_fast_heavy_loss] * 3,
    "fast-jitter": [_fast_jitter] * 4,
}
"""name to how each of its paths is drawn"""
NOT_TRAINED = ("fast-jitter",)
"""families without paths to train on: their recordings added too little (docs/decisions)"""


def _drawn(suite: str, shown: set[tuple[float, float]]) -> dict[str, tuple[_Path, str]]:
    """File name to path and family; none near a point that a board shows.

    Each family has draws of its own: a new one moves no other.
    """
    prefix, seed, times = SUITES[suite]
    made: dict[str, tuple[_Path, str]] = {}
    for family, draws in FAMILIES.items():
        if suite == "training-access" and family in NOT_TRAINED:
            continue
        rng = random.Random(f"{seed} {family}")
        for draw in draws * times:
            path = draw(rng)
            while any(is_near((path.mbps, path.rtt_ms), point) for point in shown):
                path = draw(rng)
            made[f"{prefix}-{len(made):0{2 if times == 1 else 3}}-{family}.toml"] = path, family
    return made


def scenarios(suite: str) -> dict[str, str]:
    """File name to TOML; of one of `SUITES`."""
    shown: set[tuple[float, float]] = set()
    if suite != "access":
        shown = {(mbps, rtt_ms) for mbps in EVALUATION_MBPS for rtt_ms in EVALUATION_RTT_MS}
        shown |= {(path.mbps, path.rtt_ms) for path, _ in _drawn("access", set()).values()}

    def text(path: _Path, family: str) -> str:
        short = suite == "access" and path.seconds == FAST_SECONDS
        return path.toml(f"{suite.capitalize()}: {family}", FAST_REPEAT if short else 1)

    return {name: text(*drawn) for name, drawn in _drawn(suite, shown).items()}


def main() -> None:
    """Write the files of every suite anew."""
    for suite in SUITES:
        write(FOLDER / suite, scenarios(suite))
