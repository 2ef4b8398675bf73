# SPDX-License-Identifier: GPL-2.0-only
"""Paths of a local network: writes lab/scenarios/lan and training-lan.

Rates from 100 Mbit/s to 10 Gbit/s and RTTs from 50 us to 5 ms, with offloads on. A calm path only
queues. On the others ACKs come in groups, as behind a busy host, Wi-Fi or an interrupt that waits:
such a pause is many times the propagation delay, and the queue holds less than arrives in it. A
third kind has its shaper on the sending host, where TCP learns of drops at once.

`lan` is a development suite: the module's rules were tried on it. `training-lan` is drawn from
ranges, not within ten percent of a path of `lan`. Regenerate both with
`ndm lab scenarios lan`.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

from ndm_tcp.lab.paths.training_paths import is_near, log_uniform, write

FOLDER = Path(__file__).resolve().parents[1] / "scenarios"
HEAD = "# SPDX-License-Identifier: CC0-1.0\n# Written by: python -m ndm_tcp.lab.lan_paths\n"
READ_WAIT_US = 100
"""of the receiving program; 3 ms, as elsewhere in the lab, would fill its socket's buffer"""
PACKETS = 300_000
"""about so many cross a path in a run: the lab's time goes by packets"""
TRAINING_SEED = 20261136
TRAINING_PATHS = 24
RATE_MBPS = (100.0, 3000.0)
RTT_US = (50.0, 5000.0)
HOLD_US = (200.0, 8000.0)
QUEUE_MS = (0.8, 8.0)
SHORT_PATHS = 12
"""more of them, calm and so short that hosts take as long as the path. There the RTT with a full
link and no queue is several times min RTT"""
SHORT_RATE_MBPS = (300.0, 8000.0)
SHORT_RTT_US = (40.0, 250.0)
SHORT_S = 1
"""so short an RTT makes ten thousand rounds of a second"""


@dataclass(frozen=True)
class LanPath:
    """One path."""

    mbps: int
    rtt_us: int
    queue_packets: int
    hold_us: tuple[int, int] = (0, 0)
    """time between two groups of ACKs, us; (0, 0): each comes when it comes"""
    shaper: str = "router"
    longest_s: int = 5

    def name(self) -> str:
        rate = f"{self.mbps // 1000}gbit" if self.mbps % 1000 == 0 else f"{self.mbps}mbit"
        pauses = f"hold-{self.hold_us[1]}us" if self.hold_us[1] else "calm"
        sender = "-shaped-sender" if self.shaper == "sender" else ""
        return f"{rate}-{self.rtt_us}us-{pauses}{sender}"

    def seconds(self) -> int:
        return max(1, min(self.longest_s, round(PACKETS * 12e-3 / self.mbps)))

    def toml(self) -> str:
        queue_ms = self.queue_packets * 12 / self.mbps
        title = f"Local network: {self.mbps} Mbit/s, {self.rtt_us} us, a queue of {queue_ms:.1f} ms"
        lines = f"rate_bps = {self.mbps}_000_000\nrtt_us = {self.rtt_us}\n"
        lines += f"queue_packets = {self.queue_packets}\noffloads = true\n"
        if self.hold_us[1]:
            title += ", ACKs in groups {} to {} us apart".format(*self.hold_us)
            lines += f"ack_hold_us = [{self.hold_us[0]}, {self.hold_us[1]}]\n"
        if self.shaper == "sender":
            title += ", the shaper on the sending host"
            lines += 'shaper = "sender"\n'
        return (
            f'{HEAD}title = "{title}"\nseconds = {self.seconds()}\ntopology = "path"\n\n'
            f"[link]\n{lines}\n[host]\nread_wait_us = {READ_WAIT_US}\n"
        )


LAN = (
    LanPath(100, 100, 40),
    LanPath(100, 100, 40, (1000, 6000)),
    LanPath(100, 100, 40, (0, 0), "sender"),
    LanPath(100, 100, 40, (1000, 6000), "sender"),
    LanPath(100, 3000, 40, (1000, 6000)),
    LanPath(300, 200, 67),
    LanPath(300, 200, 67, (500, 4000)),
    LanPath(300, 200, 67, (0, 0), "sender"),
    LanPath(1000, 100, 166),
    LanPath(1000, 100, 166, (500, 4000)),
    LanPath(1000, 100, 166, (50, 500)),
    LanPath(1000, 100, 166, (0, 0), "sender"),
    LanPath(1000, 1000, 166, (500, 4000)),
    LanPath(1000, 5000, 400),
    LanPath(1000, 5000, 400, (500, 4000)),
    LanPath(2500, 50, 400, (50, 1000)),
    LanPath(10000, 50, 1000),
    LanPath(10000, 50, 1000, (50, 500)),
)


def training() -> list[LanPath]:
    """Paths to train on, a quarter with the shaper on the sender.

    Half of the first `TRAINING_PATHS` have pauses; the `SHORT_PATHS` after them are calm.
    """
    rng = random.Random(TRAINING_SEED)
    drawn: list[LanPath] = []
    while len(drawn) < TRAINING_PATHS + SHORT_PATHS:
        short = len(drawn) >= TRAINING_PATHS
        mbps = round(log_uniform(rng, *(SHORT_RATE_MBPS if short else RATE_MBPS)))
        queue = max(8, round(log_uniform(rng, *QUEUE_MS) * mbps / 12))
        longest = round(log_uniform(rng, *HOLD_US))
        hold = (longest // 6, longest) if rng.random() < 0.5 and not short else (0, 0)
        shaper = "sender" if rng.random() < 0.25 else "router"
        rtt_us = round(log_uniform(rng, *(SHORT_RTT_US if short else RTT_US)))
        path = LanPath(mbps, rtt_us, queue, hold, shaper, SHORT_S if short else 5)
        if not any(is_near((mbps, rtt_us), (other.mbps, other.rtt_us)) for other in LAN):
            drawn.append(path)
    return drawn


def scenarios() -> dict[str, dict[str, str]]:
    """Suite to file name to TOML."""
    return {
        "lan": {f"lan-{path.name()}.toml": path.toml() for path in LAN},
        "training-lan": {
            f"tlan-{number:02}-{path.name()}.toml": path.toml()
            for number, path in enumerate(training())
        },
    }


def main() -> None:
    """Write the files of every suite anew."""
    for suite, made in scenarios().items():
        write(FOLDER / suite, made)
