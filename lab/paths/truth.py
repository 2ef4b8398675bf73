# SPDX-License-Identifier: GPL-2.0-only
"""The target window of a flow, from the lab's knowledge of the path and its traffic.

The target window of a lone flow is the bottleneck's bandwidth-delay product (BDP) and a tenth more:
enough for the link never to idle, too little for a queue worth the name. Other paths differ:

- among flows that yield to a queue as this one does: the flow's share of that, and three packets,
- packets delayed by jitter: two and a half standard deviations of the delay count as part of the
  RTT, less where packets may overtake one another,
- random loss: four times its probability more, and half of the square root of the BDP, since the
  number of losses in a round trip varies,
- both, in order or not: three tenths instead of one, four times the probability, three standard
  deviations, and three packets instead of the root. A constant window needs less, but a network
  that is taught less loses the path (`teaching`). The probability of a burst is not counted,
- the loopback device, where jitter reorders packets of 64 KB: three standard deviations and three
  packets; three tenths where packets are lost,
- beside flows that fill the queue until it overflows, where such a window would starve: the flow's
  share of the link times the RTT that the competing flows cause, unless each
  flow has its own queue,
- a discipline that drops to keep the queue short: no more than the queue that it lets stand,
- a path whose best constant window was measured (`Link.window_bdp`): that window,
- ACKs or data held back: the longest pause counts as part of the RTT. The sender has to send until
  the pause ends, or the link idles. A thin path of the ACKs is not considered.

Hosts with offloads send up to a BDP as one packet, which the link serves while its ACK waits.

Datasets hold a path's scenario, not these windows: `windows` computes them where they are read, so
that a change of this file touches no recording.
"""

from __future__ import annotations

import functools
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ndm_tcp.lab.paths.scenario import UNDER_TEST, Link, Scenario, parse
from ndm_tcp.teaching import value

YIELDING = frozenset({"ndm_tcp", "vegas", "nv", "fixed_cwnd"})
"""algorithms that do not fill a queue until it overflows; all others are rival algorithms"""
IP_PACKET_BYTES = 1500
LOOPBACK_PACKET_BYTES = 65_536  # the MTU of the loopback device
# Chosen, with reasons, in `teaching`.
EXTRA_SHARE = value("EXTRA_SHARE")
EXTRA_SHARE_NOISE = value("EXTRA_SHARE_NOISE")
LOSS_SHARE = value("LOSS_SHARE")
LOSS_ROOT = value("LOSS_ROOT")
JITTER_SHARE = value("JITTER_SHARE")
JITTER_SHARE_NOISE = value("JITTER_SHARE_NOISE")
JITTER_SHARE_REORDER = value("JITTER_SHARE_REORDER")
EXTRA_PACKETS = value("EXTRA_PACKETS")
EXTRA_PACKETS_ALONE = value("EXTRA_PACKETS_ALONE")
QUEUE_SHARE = 0.75
"""of the queue that there is"""
OWN_QUEUE = frozenset({"fq", "fq_codel", "cake"})
"""disciplines with a queue for each flow, which no competing flow fills"""
CODEL = frozenset({"fq_codel", "cake"})
CODEL_TARGET_S = 0.005
"""standing queue that both allow, by default"""
OFFLOAD_PACKETS = 45
"""in a GSO packet of 64 KB"""
OFFLOAD_SHARE = 1.0
"""of the bandwidth-delay product. Where the RTT is short, one GSO packet may hold a whole window:
TCP enlarges it there (tcp_tso_rtt_log), whatever the pacing rate is"""
RECEIVE_WINDOW_PACKETS = 128.0
"""more than Linux's default buffers hold of a loopback's packets: where no rate limits a flow, a
window is only ever too small"""
TRACES = Path(__file__).resolve().parents[1] / "scenarios" / "variable"
"""the link traces that a scenario may name"""
Floats = npt.NDArray[np.float64]
US = {"us": 1.0, "ms": 1e3, "s": 1e6}
BITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}


@dataclass(frozen=True)
class Ideal:
    """From a time on, the window that a flow should have."""

    flow: int
    """its number in the scenario, from 0"""
    at_s: float
    """s since the start of the run"""
    packets_per_s: float
    rtt_us: float
    """the window is packets_per_s times this; 0: times the RTT that competing flows cause"""


@dataclass(frozen=True)
class _Path:
    rates_bps: tuple[tuple[float, float], ...]
    """(from s on, bit/s); 0: nothing limits the rate"""
    rtts_us: tuple[tuple[float, float], ...]
    """(from s on, us)"""
    jitter_us: float
    packet_bytes: int
    queue_packets: float
    extra_share: float
    """of the bandwidth-delay product"""
    jitter_share: float
    """standard deviations of jitter that count as part of the RTT"""
    spare_alone: float
    """packets above that, of a lone flow"""
    loss_root: float = 0.0
    """packets above that, of the square root of the BDP"""
    own_queue: bool = False
    """of each flow"""
    hold_us: float = 0.0
    """longest time for which ACKs are held back. It is no delay that a queue can replace: with the
    mean time instead, a constant window leaves a link idle for a sixth of the time"""
    offloads: bool = False
    window_bdp: float = 0.0
    """of a lone flow; 0: computed"""


def bdp_packets(link: Link) -> float:
    """Bandwidth-delay product of a path's first rate, packets as the lab's hosts send them."""
    return link.rate_bps * link.rtt_us / 8e6 / IP_PACKET_BYTES


def _number(pattern: str, text: str, units: dict[str, float]) -> float:
    found = re.search(pattern + r" ?([0-9.]+)(" + "|".join(units) + ")", text)
    return float(found[1]) * units[found[2]] if found else 0.0


def _path(scenario: Scenario) -> _Path:
    if scenario.link:
        link = scenario.link
        rates = ((0.0, float(link.rate_bps)), *((t, float(r)) for t, r in link.steps))
        queue = link.queue_packets or 1e9
        if link.qdisc in CODEL:
            target = CODEL_TARGET_S * link.rate_bps / 8 / IP_PACKET_BYTES
            queue = max(target, EXTRA_PACKETS / QUEUE_SHARE)
        lossy = bool(link.loss or link.burst)
        noisy = lossy and bool(link.jitter_us)
        extra = (EXTRA_SHARE_NOISE if noisy else EXTRA_SHARE) + LOSS_SHARE * link.loss
        ordered = JITTER_SHARE_REORDER if link.reorder else JITTER_SHARE
        rtts = ((0.0, float(link.rtt_us)), *((t, float(us)) for t, us in link.rtt_steps))
        return _Path(
            *(rates, rtts, link.jitter_us, IP_PACKET_BYTES, queue, extra),
            jitter_share=JITTER_SHARE_NOISE if noisy else ordered,
            spare_alone=EXTRA_PACKETS if noisy else EXTRA_PACKETS_ALONE,
            loss_root=LOSS_ROOT if lossy and not noisy else 0.0,
            own_queue=link.qdisc in OWN_QUEUE,
            hold_us=link.ack_hold_us[1] + link.slot_us[1],
            offloads=link.offloads,
            window_bdp=link.window_bdp,
        )
    assert scenario.lo is not None
    # Data and ACKs both cross the loopback device: every delay counts twice.
    delay = _number("delay", scenario.lo.netem, US)
    jitter = _number(r"delay [0-9.]+[a-z]+", scenario.lo.netem, US)
    rate = _number("rate", scenario.lo.tbf, BITS)
    extra = EXTRA_SHARE_NOISE if "loss" in scenario.lo.netem else EXTRA_SHARE
    rtts_us = ((0.0, 2 * delay),)
    return _Path(
        *(((0.0, rate),), rtts_us, 2 * jitter, LOOPBACK_PACKET_BYTES, 1e9, extra),
        jitter_share=JITTER_SHARE_NOISE,
        spare_alone=EXTRA_PACKETS,
    )


def ideals(scenario: Scenario, cc: str) -> list[Ideal]:
    """The target windows of all flows of a run, by flow and time.

    Args:
        scenario: the run. The connections of a web page have no target window.
        cc: the algorithm under test.
    """
    path, flows = _path(scenario), scenario.flows
    spare = path.spare_alone if len(flows) == 1 else EXTRA_PACKETS
    names = [cc if flow.cc == UNDER_TEST else flow.cc for flow in flows]
    times = {t for t, _ in (*path.rates_bps, *path.rtts_us)}
    times |= {flow.start_s for flow in flows} | {flow.end_s() for flow in flows}
    found = []
    for number, flow in enumerate(flows):
        for at_s in sorted(times):
            if not flow.start_s <= at_s < flow.end_s():
                continue
            here = [i for i, f in enumerate(flows) if f.start_s <= at_s < f.end_s()]
            rate_bps = [r for t, r in path.rates_bps if t <= at_s][-1]
            path_rtt_us = [us for t, us in path.rtts_us if t <= at_s][-1]
            others = [names[i] for i in here if i != number]
            rivals = not path.own_queue and any(name not in YIELDING for name in others)
            rtt_us = path_rtt_us + flow.extra_rtt_us + path.jitter_share * path.jitter_us
            rtt_us += scenario.host.read_wait_us  # no queue, but as good as one for the sender
            if not rate_bps:
                pps = RECEIVE_WINDOW_PACKETS / len(here) / rtt_us * 1e6
                found.append(Ideal(number, at_s, pps, rtt_us))
                continue
            pps = rate_bps / 8 / path.packet_bytes / len(here)
            if path.window_bdp and len(here) == 1:
                measured_us = path.window_bdp * (path_rtt_us + flow.extra_rtt_us)
                found.append(Ideal(number, at_s, pps, measured_us))
                continue
            queue_us = QUEUE_SHARE * path.queue_packets / len(here) / pps * 1e6
            packets = spare + path.loss_root * math.sqrt(pps * (rtt_us + path.hold_us) / 1e6)
            if path.offloads:
                served_us = min(OFFLOAD_SHARE * rtt_us, OFFLOAD_PACKETS / pps * 1e6)
                packets += max(0.0, served_us - path.hold_us) * pps / 1e6  # in a pause it is, too
            rtt_us += path.hold_us
            rtt_us += min(path.extra_share * rtt_us + packets / pps * 1e6, queue_us)
            found.append(Ideal(number, at_s, pps, 0.0 if rivals else rtt_us))
    return found


def target_bdp(scenario: Scenario) -> float:
    """The target window of a path with one flow, one rate and one RTT, BDPs."""
    assert scenario.link is not None and len(scenario.flows) == 1
    ideal = ideals(scenario, UNDER_TEST)[0]
    return ideal.packets_per_s * ideal.rtt_us / 1e6 / max(bdp_packets(scenario.link), 1e-9)


@dataclass(frozen=True)
class Windows:
    """The windows that a flow should have, piecewise in time."""

    from_us: npt.NDArray[np.int64]
    """[k] us since the start of the run, in order"""
    packets_per_s: npt.NDArray[np.float64]
    """[k] the window is this times"""
    rtt_us: npt.NDArray[np.float64]
    """[k] this; 0: times the smoothed RTT, which competing flows cause"""

    def packets(self, t_us: npt.NDArray[np.int64], srtt_us: npt.NDArray[Any]) -> Floats:
        """[n] the window at these times since the start of the run; 0 before the first."""
        index = np.searchsorted(self.from_us, t_us, side="right") - 1
        at = index.clip(0)
        rtt_us = np.where(self.rtt_us[at] > 0, self.rtt_us[at], srtt_us)
        return np.where(index < 0, 0.0, self.packets_per_s[at] * rtt_us / 1e6)


@functools.lru_cache(maxsize=4096)
def windows(text: str, cc: str) -> dict[int, Windows]:
    """`ideals` of a recorded scenario: number of the flow to its windows.

    Args:
        text: the scenario as it was recorded.
        cc: the algorithm under test.

    Raises:
        NdmError: no scenario, or one whose trace the lab does not have.
    """
    of_flow: dict[int, list[Ideal]] = {}
    for ideal in ideals(_parsed(text), cc):
        of_flow.setdefault(ideal.flow, []).append(ideal)
    return {
        number: Windows(
            np.array([round(i.at_s * 1e6) for i in told], dtype=np.int64),
            # The resolution of a measured rate or RTT, so that the last bit does not matter.
            np.array([round(i.packets_per_s, 3) for i in told]),
            np.array([float(round(i.rtt_us)) for i in told]),
        )
        for number, told in of_flow.items()
    }


@functools.lru_cache(maxsize=1024)
def _parsed(text: str) -> Scenario:
    return parse(text, "recorded", "the scenario of a recorded run", TRACES)
