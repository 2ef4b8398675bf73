# SPDX-License-Identifier: GPL-2.0-only
"""Paths to train on, drawn from ranges: writes lab/scenarios/training and validation.

Changes between two trainings are measured on the validation paths, drawn the same way.
`validation-wide` has more of the two states that are most alike, a lone flow and one beside CUBIC,
`validation-short` short transfers, `validation-aqm` queues that drop before they are full,
`validation-equals` flows of one algorithm, `validation-pairs` two of them, `validation-shallow`
queues of less than a BDP, `validation-pages` web pages, `validation-jitter` jitter,
`validation-fast` fast paths that lose packets at random, and `validation-near` short paths that
jitter, as Wi-Fi does.
The published experiments and ccBench are for evaluation, so no path may resemble theirs: rates
and delays within ten percent of an evaluation point are drawn again, on routed paths and on the
loopback device alike; but delays of shaped loopback paths are divided by three afterwards, and four
of them come close again (docs/decisions). Regenerate with
`ndm lab scenarios training`.
"""

from __future__ import annotations

import math
import random
import sys
from dataclasses import dataclass
from pathlib import Path

from ndm_tcp import files

FOLDER = Path(__file__).resolve().parents[1] / "scenarios"
RATE_MBPS = (3.0, 60.0)
FAST_MBPS = (120.0, 300.0)
SLOW_MBPS = (3.0, 20.0)
RTT_MS = (8, 180)
NEAR_MBPS = (15.0, 200.0)
NEAR_RTT_MS = (2, 8)
BDP_PACKETS = (8, 800)
PAIR_BDP_PACKETS = (80, 800)
"""below, the packet that a flow adds each round makes two alike"""
QUEUE_BDP = (0.4, 10.0)
RIVAL_QUEUE_BDP = (0.8, 5.0)
SHALLOW_QUEUE_BDP = (0.03, 0.8)
LOSS = (0.002, 0.06)
HEAVY_LOSS = (0.03, 0.12)
FAR_LOSS = (0.003, 0.02)
FAR_RTT_MS = (100, 180)
SLOW_RTT_MS = (50, 180)
FAR_BUFFER_BYTES = 67_108_864
LO_DELAY_MS = (10, 160)
LO_JITTER = (0.2, 2.5)
LO_SCATTER = (1.2, 2.5)
"""of the delay"""
LO_MBPS = (10, 100)
FILE_BYTES = (30_000, 5_000_000)
PAGE_BYTES = (300_000, 5_000_000)
PAGE_OBJECTS = (10, 100)
SECONDS = 10
RIVAL_SECONDS = 20
FAST_SECONDS = 5
LONE_SECONDS = 30
LONG_SECONDS = 45
"""until the algorithms and not the first seconds determine the share of the link"""
EVALUATION_MBPS = (10, 12, 24, 48, 50, 1000, 2350)
EVALUATION_RTT_MS = (20, 40, 70, 80, 104, 120, 140, 220)
EVALUATION_LO_DELAY_MS = (20, 50, 100)
KINDS = {
    "clean": 10,
    "loss": 9,
    "burst": 3,
    "jitter": 5,
    "jitter-loss": 4,
    "reorder": 5,
    "lo-jitter": 8,
    "lo-rate": 5,
    "step": 7,
    "fast": 3,
    "cubic": 20,
    "reno": 5,
    "bbr": 4,
    "equals": 8,
    "heavy-loss": 5,
    "heavy-jitter-loss": 5,
    "far-loss": 5,
    "lo-scatter": 4,
    "slow-jitter-loss": 12,
    "late-cubic": 10,
    "lo-shaped": 12,
    "more-heavy-jitter-loss": 10,
    "more-heavy-loss": 4,
    "long-cubic": 28,
    "long-reno": 4,
    "long-bbr": 4,
    "long-equals": 6,
    "lone": 8,
    "fq-codel": 8,
    "cake": 8,
    "fq-codel-cubic": 3,
    "cake-cubic": 3,
    "more-jitter": 10,
    "slow-jitter": 10,
    "shallow": 14,
    "shallow-loss": 4,
    "shallow-jitter": 3,
    "shallow-cubic": 6,
    "shallow-equals": 8,
    "fast-shallow": 5,
    "fast-loss": 10,
    "more-far-loss": 6,
    "lone-jitter": 8,
    "slow-lone-jitter": 16,
}
"""how many of each to train on"""
VALIDATION_KINDS = {
    "clean": 4,
    "loss": 4,
    "burst": 1,
    "jitter": 2,
    "jitter-loss": 2,
    "reorder": 2,
    "lo-jitter": 4,
    "lo-rate": 2,
    "step": 3,
    "fast": 1,
    "cubic": 6,
    "reno": 1,
    "bbr": 1,
    "equals": 5,
    "heavy-jitter-loss": 3,
    "slow-jitter-loss": 4,
    "late-cubic": 4,
    "lo-shaped": 5,
    "far-loss": 3,
}
WIDE_KINDS = {
    "lone": 16,
    "long-cubic": 12,
    "late-cubic": 4,
    "long-equals": 6,
    "fast-heavy-loss": 2,
}
SHORT_KINDS = {
    "file": 6,
    "file-loss": 4,
    "page": 3,
    "page-loss": 2,
    "fast-file": 6,
    "fast-file-loss": 4,
    "fast-page": 3,
    "fast-page-loss": 2,
}
AQM_KINDS = {
    "fq-codel": 5,
    "cake": 5,
    "fq-codel-cubic": 2,
    "cake-cubic": 2,
}
EQUALS_KINDS = {
    "long-equals": 14,
}
PAIRS_KINDS = {
    "long-two-equals": 12,
}
SHALLOW_KINDS = {
    "shallow": 8,
    "shallow-loss": 3,
    "shallow-jitter": 2,
    "shallow-cubic": 4,
    "shallow-equals": 3,
    "fast-shallow": 2,
}
PAGES_KINDS = {
    "page": 8,
    "shallow-page": 10,
    "fast-page": 4,
    "page-loss": 8,
}
JITTER_KINDS = {
    "jitter": 6,
    "slow-jitter": 6,
    "jitter-loss": 3,
    "heavy-jitter-loss": 3,
}
FAST_KINDS = {
    "fast": 2,
    "fast-loss": 8,
    "far-loss": 4,
    "fast-heavy-loss": 2,
}
NEAR_KINDS = {
    "near-jitter": 12,
    "near-jitter-loss": 12,
}
SUITES = {
    "training": (20261121, KINDS),
    "validation": (20261122, VALIDATION_KINDS),
    "validation-wide": (20261123, WIDE_KINDS),
    "validation-short": (20261124, SHORT_KINDS),
    "validation-aqm": (20261125, AQM_KINDS),
    "validation-equals": (20261130, EQUALS_KINDS),
    "validation-shallow": (20261131, SHALLOW_KINDS),
    "validation-pages": (20261132, PAGES_KINDS),
    "validation-jitter": (20261133, JITTER_KINDS),
    "validation-fast": (20261134, FAST_KINDS),
    "validation-pairs": (20261135, PAIRS_KINDS),
    "validation-near": (20261137, NEAR_KINDS),
}
"""folder to seed and paths"""
RIVALS = (
    *("cubic", "reno", "bbr", "late-cubic", "long-cubic", "long-reno", "long-bbr"),
    *("fq-codel-cubic", "cake-cubic", "shallow-cubic"),
)
FQ_CODEL_PACKETS = 1024
PACKET_BITS = 1500 * 8
HEAD = "# SPDX-License-Identifier: CC0-1.0\n# Written by: python -m ndm_tcp.lab.training_paths\n"
Range = tuple[float, float]


def log_uniform(rng: random.Random, low: float, high: float) -> float:
    """A number whose logarithm is uniform between those of low and high."""
    return low * math.exp(rng.random() * math.log(high / low))


def _away(rng: random.Random, low: float, high: float, points: tuple[int, ...]) -> float:
    """Log-uniform, but not within ten percent of a point."""
    while True:
        value = log_uniform(rng, low, high)
        if all(abs(value / point - 1) > 0.1 for point in points):
            return value


def is_near(mine: tuple[float, float], theirs: tuple[float, float]) -> bool:
    """Are two paths, (rate, RTT) in the same units, within ten percent in both?"""
    return all(abs(a / b - 1) <= 0.1 for a, b in zip(mine, theirs, strict=True))


@dataclass(frozen=True)
class _Link:
    mbps: float
    rtt_ms: float
    queue_bdp: float
    qdisc: str = "droptail"

    @property
    def bdp(self) -> float:
        return self.mbps * 1000 * self.rtt_ms / PACKET_BITS

    @property
    def queue_packets(self) -> int:
        return max(6, round(self.queue_bdp * self.bdp))

    def toml(self) -> str:
        lines = (
            f"[link]\nrate_bps = {round(self.mbps * 1e6, -4):.0f}\n"
            f"rtt_us = {round(self.rtt_ms * 1e3, -2):.0f}\n"
        )
        if self.qdisc == "droptail":
            return f"{lines}queue_packets = {self.queue_packets}\n"
        lines += f'qdisc = "{self.qdisc}"\n'
        return lines if self.qdisc == "cake" else f"{lines}queue_packets = {FQ_CODEL_PACKETS}\n"

    def __str__(self) -> str:
        bdp = self.queue_packets / self.bdp
        digits = 2 if bdp < 0.4 else 1
        queue = f"a queue of {bdp:.{digits}f} BDP" if self.qdisc == "droptail" else self.qdisc
        return f"{self.mbps:.1f} Mbit/s, {self.rtt_ms:.0f} ms, {queue}"


def _link(rng: random.Random, kind: str) -> _Link:
    fast, far = kind.startswith("fast"), kind.endswith("far-loss")
    slow, near = kind.startswith("slow"), kind.startswith("near")
    mbps = FAST_MBPS if fast or far else SLOW_MBPS if slow else NEAR_MBPS if near else RATE_MBPS
    rtt_ms = FAR_RTT_MS if far else SLOW_RTT_MS if slow else NEAR_RTT_MS if near else RTT_MS
    qdisc = kind.removesuffix("-cubic").replace("-", "_") if kind in AQM_KINDS else "droptail"
    queue = RIVAL_QUEUE_BDP if kind in RIVALS else QUEUE_BDP
    if "shallow" in kind:
        queue = SHALLOW_QUEUE_BDP
    bdp = (1500, 5000) if far else (300, 2500) if fast else BDP_PACKETS
    if "two" in kind:
        bdp = PAIR_BDP_PACKETS
    while True:
        link = _Link(
            _away(rng, *mbps, EVALUATION_MBPS),
            _away(rng, *rtt_ms, EVALUATION_RTT_MS),
            log_uniform(rng, *queue),
            qdisc,
        )
        if bdp[0] <= link.bdp <= bdp[1]:
            return link


def _loopback(rng: random.Random, kind: str) -> tuple[str, str]:
    delay_ms = _away(rng, *LO_DELAY_MS, EVALUATION_LO_DELAY_MS)
    share = log_uniform(rng, *(LO_SCATTER if kind == "lo-scatter" else LO_JITTER))
    shaped = kind in ("lo-rate", "lo-shaped")
    if shaped:
        delay_ms, share = delay_ms / 3, share / 4
    netem = f"delay {delay_ms:.1f}ms {delay_ms * share:.1f}ms distribution normal"
    if rng.random() < 0.5:
        netem += f" loss {100 * log_uniform(rng, 0.001, 0.01):.2f}%"
    lines = f'[lo]\nnetem = "{netem}"\n'
    title = f"on the loopback device, {netem}"
    if shaped:
        mbps = _away(rng, *LO_MBPS, EVALUATION_MBPS)
        latency_ms = log_uniform(rng, 20, 200)
        lines += (
            f'tbf = "rate {mbps:.1f}mbit burst {mbps * 100:.0f}kbit latency {latency_ms:.0f}ms"\n'
        )
        title += f", {mbps:.1f} Mbit/s"
    return title, lines


def _impairment(rng: random.Random, kind: str, link: _Link) -> str:
    lines = ""
    if "loss" in kind or kind == "fast":
        chances = HEAVY_LOSS if "heavy" in kind else FAR_LOSS if "far" in kind else LOSS
        lines += f"loss = {log_uniform(rng, *chances):.4f}\n"
    if "jitter" in kind or kind == "reorder":
        jitter_us = round(link.rtt_ms * 1e3 * rng.uniform(0.04, 0.25), -2)
        lines += f"jitter_us = {jitter_us:.0f}\nreorder = {str(kind == 'reorder').lower()}\n"
    if kind == "burst":
        start, loss = log_uniform(rng, 0.0005, 0.005), rng.uniform(0.3, 0.8)
        lines += f"burst = {{ start = {start:.4f}, end = 0.3, loss = {loss:.2f} }}\n"
    if kind == "step":
        at_s, factor = rng.uniform(3, 6), rng.choice([0.3, 0.45, 0.6, 1.7, 2.5])
        lines += f"steps = [[{at_s:.1f}, {round(link.mbps * factor * 1e6, -4):.0f}]]\n"
    return lines


def _flows(rng: random.Random, kind: str) -> tuple[int, str]:
    """How long it runs, s; and its flows, if it is not one of the tested algorithm alone."""
    seconds = LONG_SECONDS if kind.startswith("long") else RIVAL_SECONDS
    if kind in RIVALS:
        late = kind.startswith("late")
        join_s = rng.uniform(4, 8) if late else rng.uniform(1, 4)
        rival = kind.split("-")[-1]
        first, second = (rival, "$cc") if late or rng.random() < 0.7 else ("$cc", rival)
        return seconds, (
            f'\n[[flows]]\ncc = "{first}"\n\n[[flows]]\ncc = "{second}"\nsender = 1\n'
            f"start_s = {join_s:.1f}\nseconds = {seconds - math.ceil(join_s)}\n"
        )
    if kind.endswith("equals"):
        flows = "\n[[flows]]\n"
        counts = [2, 2, 3, 4] if kind == "equals" else [2, 4, 6, 8]
        count = 2 if "two" in kind else rng.choice(counts)
        for number in range(1, count):
            start_s = number * rng.uniform(0.5, 2.5)
            flows += f"\n[[flows]]\nsender = {number}\nstart_s = {start_s:.1f}\n"
            flows += f"seconds = {seconds - math.ceil(start_s)}\n"
        return seconds, flows
    if "lone" in kind:
        return LONE_SECONDS, ""
    if "file" in kind or "page" in kind:
        objects = log_uniform(rng, *PAGE_OBJECTS) if "page" in kind else 1
        size = log_uniform(rng, *(PAGE_BYTES if "page" in kind else FILE_BYTES))
        return SECONDS, f"\n[web]\nobjects = {objects:.0f}\nbytes = {size:.0f}\n"
    return FAST_SECONDS if kind.startswith("fast") or kind.endswith("far-loss") else SECONDS, ""


def scenarios(suite: str) -> dict[str, str]:
    """File name to TOML; of one of `SUITES`."""
    return drawn(suite, suite[:5], *SUITES[suite])


def drawn(suite: str, prefix: str, seed: int | str, counts: dict[str, int]) -> dict[str, str]:
    """File name to TOML.

    Args:
        suite: its name, for the titles.
        prefix: of the files' names.
        seed: of the draws.
        counts: how many paths of each kind.
    """
    rng = random.Random(seed)
    made = {}
    kinds = [kind for kind, count in counts.items() for _ in range(count)]
    for number, kind in enumerate(kinds):
        seconds, flows = _flows(rng, kind)
        if kind.startswith("lo-"):
            title, body = _loopback(rng, kind)
            topology = "lo"
        else:
            link = _link(rng, kind)
            title, topology = str(link), "path"
            body = link.toml() + _impairment(rng, kind, link)
            if kind.endswith("far-loss"):
                body += f"\n[host]\nbuffer_bytes = {FAR_BUFFER_BYTES}\n"
        made[f"{prefix}-{number:02}-{kind}.toml"] = (
            f'{HEAD}title = "{suite.capitalize()}: {kind}, {title}"\nseconds = {seconds}\n'
            f'topology = "{topology}"\n\n{body}{flows}'
        )
    return made


def main() -> None:
    """Write the files of every suite anew."""
    for suite in SUITES:
        write(FOLDER / suite, scenarios(suite))


def write(folder: Path, made: dict[str, str]) -> None:
    """Write a suite's files; says which others lie there."""
    folder.mkdir(exist_ok=True)
    for name, text in made.items():
        files.write_text(folder / name, text)
    for path in sorted(folder.glob("*.toml")):
        if path.name not in made:
            print(f"ndm: {path}: not drawn; delete it, or give it a folder", file=sys.stderr)
