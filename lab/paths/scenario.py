# SPDX-License-Identifier: GPL-2.0-only
"""Scenarios of the lab: which flows cross which path, as TOML.

    seconds = 20                  # duration of a flow without its own `seconds`
    topology = "path"             # or "lo"; required
    repeat = 1                    # runs of a board or a recording for each requested seed

    [link]                        # topology path
    rate_bps = 10_000_000         # bottleneck, IP headers included
    rtt_us = 40_000               # propagation there and back; half of it in each direction
    queue_packets = 60            # of the bottleneck
    bucket_packets = 1            # that pass at once after a pause; with a queue of 1: a policer
    qdisc = "droptail"            # or fq, fq_codel, cake (which sizes its queue itself)
    loss = 0.005                  # probability that a data packet is lost behind the bottleneck
    ack_loss = 0.0                # the same for the other direction
    ack_hold_us = [1_000, 6_000]  # ACKs leave in groups, so far apart: a busy host or Wi-Fi
    slot_us = [1_000, 4_000]      # the same for data packets: Wi-Fi, DOCSIS
    ack_rate_bps = 500_000        # of the other direction, IP headers included: a thin ACK path
    ack_queue_packets = 50        # before it
    burst = { start = 0.002, end = 0.3, loss = 0.7 }   # Gilbert-Elliott, per packet
    jitter_us = 5_000             # of the data direction
    jitter_distribution = "normal"                     # or uniform, pareto
    reorder = false               # may packets overtake one another?
    steps = [[5.0, 5_000_000]]    # (s since the start of the run, bit/s from then on)
    rtt_steps = [[4.0, 60_000]]   # (s since the start of the run, rtt_us from then on): a reroute
    trace = "cell.trace"          # instead of rate_bps and steps: a mahimahi trace beside the file
    shaper = "router"             # or "sender": the bottleneck is the sending host's own device
    offloads = false              # hosts send GSO packets of up to 64 KB, as real ones do
    window_bdp = 1.4              # a lone flow's target window, measured; without: computed

    [lo]                          # topology lo: tc's own words for the loopback device
    netem = "delay 20ms 5ms distribution normal loss 0.5%"
    tbf = "rate 50mbit burst 5000kbit latency 50ms"    # as netem's child

    [[flows]]                     # none: one flow of the algorithm under test
    cc = "$cc"                    # the algorithm under test, or a kernel's name
    start_s = 0.0
    seconds = 20                  # rounded up, iperf3 counts in seconds
    sender = 0                    # number of the sending host; senders share the router
    extra_rtt_us = 0              # more propagation for this sender, on the way of the ACKs
    count = 1                     # so many flows like this

    [web]                         # a page instead of, or beside, flows
    objects = 72                  # 1: a file
    bytes = 2_902_000             # all objects together
    connections = 1               # fetched one after the other on each
    start_s = 0.0
    sender = 0
    cc = "$cc"

    [host]
    buffer_bytes = 6_291_456      # upper limit of TCP's buffers at both ends
    read_wait_us = 3_000          # the receiving program lets data gather so long before it reads
    ecn = false                   # both ends request ECN: fq_codel and cake mark, not drop

    [[published]]                 # figures to show beside; other keys are free
    cc = "reno"
    mbps = 13.5

Jitter that keeps the order, and an RTT that falls, delay a packet until the one before it has left.
With `reorder`, jitter is netem's own, independent from packet to packet.

In a run each flow but the first begins up to an RTT after its `start_s`, by the seed: see `begun`.
"""

from __future__ import annotations

import dataclasses
import math
import random
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ndm_tcp.errors import NdmError
from ndm_tcp.lab.paths import levels, mahimahi
from ndm_tcp.lab.paths.reading import fits, one_of, published, shown, steps, table, within

UNDER_TEST = "$cc"
TOPOLOGIES = ("lo", "path")
SHAPERS = ("router", "sender")
QDISCS = ("droptail", "fq", "fq_codel", "cake")
DISTRIBUTIONS = ("normal", "uniform", "pareto")
MAX_SENDERS = 64
MAX_FLOWS = 256
MAX_RTT_US = 10_000_000
MAX_SECONDS = 86_400
"""of iperf3"""
SEND_BYTES, RECEIVE_BYTES = 4_194_304, 6_291_456
"""upper limits of TCP's buffers where a scenario sets none: Linux's own"""
MIN_RATE_BPS = 10_000
MAX_RATE_BPS = 100_000_000_000
FRAME_BITS = 8 * 1514
SLOW_END_S = 2
"""a full queue that lasts longer at a link's last rate is emptied faster; see `_drained`"""
REPEAT = re.compile(r"^repeat\s*=.*\n", re.MULTILINE)
STARTUP_RTTS = 6
"""the random delay of a flow's begin, `begun`, and in which iperf3 has made its connections"""
CC_NAME = re.compile(r"[A-Za-z0-9_.-]{1,15}")
TC_WORDS = re.compile(r"[A-Za-z0-9.% _-]+")


@dataclass(frozen=True)
class Burst:
    """Gilbert-Elliott loss."""

    start: float
    """probability per packet of entering the bad state"""
    end: float
    """probability per packet of leaving it"""
    loss: float
    """probability of loss in the bad state"""


@dataclass(frozen=True)
class Link:
    """The path from the senders' router to the receiver."""

    rtt_us: int
    """propagation there and back, us; half of it in each direction"""
    rate_bps: int = 0
    """bottleneck, bit/s, IP headers included; with a trace, its first rate"""
    queue_packets: int = 0
    """the bottleneck's queue, packets"""
    bucket_packets: int = 1
    """depth of the bottleneck's token bucket, packets: what a policer lets pass after a pause"""
    qdisc: str = "droptail"
    loss: float = 0.0
    """probability that a packet of the data direction is lost behind the bottleneck"""
    ack_loss: float = 0.0
    """the same for the other direction"""
    burst: Burst | None = None
    jitter_us: int = 0
    """of the data direction, us: standard deviation, or half of the range if uniform"""
    jitter_distribution: str = "normal"
    reorder: bool = False
    """whether jitter may change the order"""
    steps: tuple[tuple[float, int], ...] = ()
    """(s since the start of the run, bit/s from then on)"""
    trace: str = ""
    """name of a file of delivery opportunities, which gives `rate_bps` and `steps`"""
    ack_hold_us: tuple[int, int] = (0, 0)
    """shortest and longest time between two groups of ACKs, us; ACKs wait for the next group"""
    slot_us: tuple[int, int] = (0, 0)
    """the same for packets of the data direction, behind the bottleneck"""
    ack_rate_bps: int = 0
    """of the other direction, bit/s, IP headers included; 0: no limit"""
    ack_queue_packets: int = 0
    """the queue before that rate, packets"""
    rtt_steps: tuple[tuple[float, int], ...] = ()
    """(s since the start of the run, us of `rtt_us` from then on)"""
    shaper: str = "router"
    """host of the bottleneck: a shaper on the sender drops locally, and TCP learns of it at once"""
    offloads: bool = False
    """whether hosts hand over GSO packets; the bottleneck cuts them into segments"""
    window_bdp: float = 0.0
    """the target window of a lone flow, in bandwidth-delay products, where runs on the path have
    shown it; 0: `truth` computes one"""


@dataclass(frozen=True)
class Loopback:
    """Treatment of packets by the loopback device, in tc's words."""

    netem: str
    tbf: str = ""
    """its child; none if empty"""


@dataclass(frozen=True)
class Flow:
    """Flows with the same properties."""

    cc: str = UNDER_TEST
    start_s: float = 0.0
    """s since the start of the run"""
    seconds: float = 0.0
    """how long it sends; 0: as long as the scenario's `seconds`"""
    sender: int = 0
    extra_rtt_us: int = 0
    """more propagation for this sender, us"""
    count: int = 1

    def end_s(self) -> float:
        """When it ends, s since the start of the run."""
        return self.start_s + self.seconds


@dataclass(frozen=True)
class Web:
    """A page that the receiver fetches from a sender."""

    objects: int
    bytes: int
    """payload of all objects together"""
    connections: int = 1
    start_s: float = 0.0
    """s since the start of the run"""
    sender: int = 0
    cc: str = UNDER_TEST


@dataclass(frozen=True)
class Host:
    """Both ends."""

    buffer_bytes: int = 0
    """upper limit of TCP's buffers; 0: Linux's own, 4 MiB to send and 6 MiB to receive"""
    read_wait_us: int = 3000
    """time for which the receiving program lets data gather before it reads, us"""
    ecn: bool = False
    """whether both ends negotiate ECN (RFC 3168)"""


@dataclass(frozen=True)
class Scenario:
    """The content of a run, without the algorithm and the seed."""

    name: str
    seconds: float
    topology: str
    link: Link | None = None
    lo: Loopback | None = None
    flows: tuple[Flow, ...] = ()
    """each with count 1"""
    web: Web | None = None
    host: Host = Host()
    published: tuple[dict[str, Any], ...] = ()
    title: str = ""
    repeat: int = 1
    """runs for each requested seed of a suite"""
    text: str = dataclasses.field(default="", repr=False, compare=False)
    """the file"""

    def content(self) -> bytes:
        """What a run depends on beside algorithms and seed: file but for repeat, trace's rates."""
        link = self.link
        rates = f"{link.rate_bps} {link.steps}" if link and link.trace else ""
        return f"{REPEAT.sub('', self.text)}{rates}".encode()

    def draws(self) -> bool:
        """Is anything random? netem on loopback, web pages and the begin of a second flow count."""
        link = self.link
        if link is None or self.web or len(self.flows) > 1:
            return True
        chances = (link.loss, link.ack_loss, link.burst, link.jitter_us)
        return any((*chances, link.ack_hold_us[1], link.slot_us[1]))

    def begun(self, seed: int) -> Scenario:
        """The scenario of one run: all but the first flow begin up to an RTT of the link later.

        Which of two flows loses when their queue is full follows from milliseconds. Without this
        draw all seeds of a path without loss and jitter are one and the same such accident.
        """
        if self.link is None:
            return self
        draw = random.Random(f"{self.name} {seed}")
        rtt_s = self.link.rtt_us / 1e6
        later_s = [draw.random() * rtt_s if number else 0.0 for number in range(len(self.flows))]
        flows = [
            dataclasses.replace(flow, start_s=round(flow.start_s + more, 6))
            for flow, more in zip(self.flows, later_s, strict=True)
        ]
        web = self.web
        if web and flows:
            web = dataclasses.replace(web, start_s=round(web.start_s + draw.random() * rtt_s, 6))
        return dataclasses.replace(self, flows=tuple(flows), web=web)

    def algorithms(self, cc: str) -> list[str]:
        """The algorithms of a run that tests `cc`, each once."""
        names = [flow.cc for flow in self.flows] + ([self.web.cc] if self.web else [])
        return list(dict.fromkeys(cc if name == UNDER_TEST else name for name in names))

    def senders(self) -> int:
        """How many hosts send."""
        used = [flow.sender for flow in self.flows] + ([self.web.sender] if self.web else [])
        return max(used) + 1

    def end_s(self) -> float:
        """When the last flow ends, s since the start; at least `seconds`."""
        return max([self.seconds, *(flow.end_s() for flow in self.flows)])


# --- strict reading ------------------------------------------------------------------------
def _steps(value: Any, where: str) -> tuple[tuple[float, int], ...]:
    return steps(value, where, (MIN_RATE_BPS, MAX_RATE_BPS), "bit/s")


def _rtt_steps(value: Any, where: str) -> tuple[tuple[float, int], ...]:
    return steps(value, where, (0, MAX_RTT_US), "us")


def _hold(value: Any, where: str) -> tuple[int, int]:
    if not isinstance(value, list) or len(value) != 2:
        raise NdmError(f"{where}: expected [shortest, longest] in us, got {shown(value)}")
    low, high = (fits(item, int, where) for item in value)
    within(where, high, 1, MAX_RTT_US, "us")
    within(where, low, 0, high, "us")
    return low, high


READERS = {
    "steps": _steps,
    "rtt_steps": _rtt_steps,
    "ack_hold_us": _hold,
    "slot_us": _hold,
}
"""of keys whose values are lists"""


def _check_link(link: Link, where: str) -> None:
    within(f"{where}.rate_bps", link.rate_bps, MIN_RATE_BPS, MAX_RATE_BPS, "bit/s")
    within(f"{where}.rtt_us", link.rtt_us, 0, MAX_RTT_US, "us")
    within(f"{where}.jitter_us", link.jitter_us, 0, MAX_RTT_US, "us")
    one_of(f"{where}.qdisc", link.qdisc, QDISCS)
    one_of(f"{where}.shaper", link.shaper, SHAPERS)
    one_of(f"{where}.jitter_distribution", link.jitter_distribution, DISTRIBUTIONS)
    if link.qdisc == "cake" and link.queue_packets:
        raise NdmError(f"{where}.queue_packets: cake sizes its queue itself; leave it out")
    if link.qdisc != "cake":
        within(f"{where}.queue_packets", link.queue_packets, 1, 1_000_000, "packets")
    within(f"{where}.bucket_packets", link.bucket_packets, 1, 100_000, "packets")
    if link.qdisc == "cake" and link.bucket_packets > 1:
        raise NdmError(f"{where}.bucket_packets: cake has no bucket; leave it out")
    if link.ack_rate_bps or link.ack_queue_packets:
        within(f"{where}.ack_rate_bps", link.ack_rate_bps, MIN_RATE_BPS, MAX_RATE_BPS, "bit/s")
        within(f"{where}.ack_queue_packets", link.ack_queue_packets, 1, 1_000_000, "packets")
    within(f"{where}.window_bdp", link.window_bdp, 0, 100, "bandwidth-delay products")
    chances = {"loss": link.loss, "ack_loss": link.ack_loss}
    if link.burst:
        chances |= {f"burst.{k}": v for k, v in dataclasses.asdict(link.burst).items()}
    for name, chance in chances.items():
        within(f"{where}.{name}", chance, 0, 1, "(a probability)")


def _check_cc(where: str, name: str) -> None:
    if name != UNDER_TEST and not CC_NAME.fullmatch(name):
        raise NdmError(
            f"{where}: {name!r} is not the name of an algorithm; write one, such as cubic"
        )


def _check(scenario: Scenario, where: str) -> None:
    within(f"{where}: repeat", scenario.repeat, 1, 1_000, "runs")
    if not re.fullmatch(r"[A-Za-z0-9._-]+", scenario.name):
        raise NdmError(f"{where}: name: it becomes a folder; use letters, digits, . _ -")
    one_of(f"{where}: topology", scenario.topology, TOPOLOGIES)
    wanted, other = ("lo", "link") if scenario.topology == "lo" else ("link", "lo")
    if getattr(scenario, wanted) is None:
        raise NdmError(f"{where}: {wanted}: missing; topology {scenario.topology!r} needs it")
    if getattr(scenario, other) is not None:
        raise NdmError(f"{where}: {other}: topology {scenario.topology!r} has none; leave it out")
    if scenario.link:
        _check_link(scenario.link, f"{where}: link")
    if scenario.lo:
        for name, words in (("netem", scenario.lo.netem), ("tbf", scenario.lo.tbf)):
            if words and not TC_WORDS.fullmatch(words):
                raise NdmError(
                    f"{where}: lo.{name}: only tc's words, numbers and units; leave out others"
                )
    if scenario.host.buffer_bytes:
        within(f"{where}: host.buffer_bytes", scenario.host.buffer_bytes, 16_384, 1 << 30, "bytes")
    within(f"{where}: host.read_wait_us", scenario.host.read_wait_us, 1, 999_999, "us")
    if scenario.link and scenario.link.shaper == "sender" and scenario.senders() > 1:
        raise NdmError(
            f"{where}: link.shaper: a shaper on the sender is for one sender; "
            "leave it out, or the other senders"
        )
    within(f"{where}: flows", len(scenario.flows), 0, MAX_FLOWS, "flows")
    extra: dict[int, int] = {}
    for number, flow in enumerate(scenario.flows):
        here = f"{where}: flows[{number}]"
        _check_cc(f"{here}.cc", flow.cc)
        within(f"{here}.sender", flow.sender, 0, MAX_SENDERS - 1, "")
        within(f"{here}.extra_rtt_us", flow.extra_rtt_us, 0, MAX_RTT_US, "us")
        if scenario.topology == "lo" and (flow.sender or flow.extra_rtt_us):
            raise NdmError(
                f"{here}: the loopback device has one sender and one RTT; leave both out"
            )
        if extra.setdefault(flow.sender, flow.extra_rtt_us) != flow.extra_rtt_us:
            raise NdmError(
                f"{here}.extra_rtt_us: sender {flow.sender} already has another; "
                "write the same for all its flows"
            )
    if scenario.web:
        web, here = scenario.web, f"{where}: web"
        _check_cc(f"{here}.cc", web.cc)
        within(f"{here}.objects", web.objects, 1, 10_000, "objects")
        within(f"{here}.bytes", web.bytes, web.objects, 1 << 40, "bytes")
        within(f"{here}.connections", web.connections, 1, min(web.objects, 256), "connections")
        within(f"{here}.start_s", web.start_s, 0, 100_000, "s")
        within(f"{here}.sender", web.sender, 0, MAX_SENDERS - 1, "")
        if scenario.topology == "lo" and web.sender:
            raise NdmError(f"{here}.sender: the loopback device has one sender; leave it out")


def _follow_trace(link: Link, folder: Path | None, seconds: float, where: str) -> Link:
    """The link with the rates of its trace."""
    if link.rate_bps or link.steps:
        raise NdmError(f"{where}.trace: gives the rates; leave out rate_bps and steps")
    if folder is None or Path(link.trace).name != link.trace:
        raise NdmError(f"{where}.trace: name a file in the folder of the scenario")
    (_, rate_bps), *steps = mahimahi.rates(mahimahi.read(folder / link.trace), seconds)
    return dataclasses.replace(link, rate_bps=rate_bps, steps=tuple(steps))


def _drained(scenario: Scenario) -> Scenario:
    """The scenario, whose queue a link that ends slow empties at its mean rate after the end.

    A run lasts until every byte has arrived, and goodput counts the time to the last one: behind
    an outage that is minutes. Flows still send then, and would gain by any higher rate.
    """
    link = scenario.link
    if link is None or not link.steps:
        return scenario
    rates_bps = [(0.0, link.rate_bps), *link.steps]
    last_bps, mean_bps = rates_bps[-1][1], round(levels.mean(rates_bps, scenario.end_s()))
    if link.queue_packets * FRAME_BITS <= SLOW_END_S * last_bps or last_bps >= mean_bps:
        return scenario
    rtts_us = [link.rtt_us, *(us for _, us in link.rtt_steps)]
    rtt_us = max(rtts_us) + max((flow.extra_rtt_us for flow in scenario.flows), default=0)
    rtt_s = rtt_us / 1e6 + link.queue_packets * FRAME_BITS / mean_bps
    step = (max(scenario.end_s() + STARTUP_RTTS * rtt_s, link.steps[-1][0]), mean_bps)
    return dataclasses.replace(scenario, link=dataclasses.replace(link, steps=(*link.steps, step)))


def parse(text: str, name: str, where: str, folder: Path | None = None) -> Scenario:
    """A scenario from TOML.

    Args:
        text: the file.
        name: of the scenario, if the file gives none.
        where: the file's name, for messages.
        folder: where the file lies, and the trace that it may name.

    Raises:
        NdmError: not TOML; an unknown or missing key; a value of the wrong kind or size.
    """
    try:
        values = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # as of a number of 5,000 digits
        raise NdmError(f"{where}: not valid TOML ({error}); correct it") from None
    lists: dict[str, list[dict[str, Any]]] = {}
    for key in ("flows", "published"):
        lists[key] = values.pop(key, [])
        if not isinstance(lists[key], list) or not all(isinstance(v, dict) for v in lists[key]):
            raise NdmError(f"{where}: {key}: write [[{key}]]")
    if "text" in values:
        raise NdmError(f"{where}: text: unknown key; leave it out")
    published(lists["published"], where)
    scenario: Scenario = table({"name": name} | values, Scenario, f"{where}: scenario", READERS)
    # Before a trace is repeated as long.
    within(f"{where}: seconds", scenario.seconds, 0.1, MAX_SECONDS, "s")
    flows: list[Flow] = []
    if not lists["flows"] and scenario.web is None:
        lists["flows"] = [{}]
    for number, written in enumerate(lists["flows"]):
        here = f"{where}: flows[{number}]"
        flow: Flow = table(written, Flow, here)
        within(f"{here}.count", flow.count, 1, MAX_FLOWS, "flows")
        within(f"{here}.start_s", flow.start_s, 0, 100_000, "s")
        within(f"{here}.seconds", flow.seconds, 0, MAX_SECONDS, "s")
        seconds = float(math.ceil(flow.seconds or scenario.seconds))
        flow = dataclasses.replace(flow, seconds=seconds)
        flows += [dataclasses.replace(flow, count=1)] * flow.count
    scenario = dataclasses.replace(
        scenario, flows=tuple(flows), published=tuple(lists["published"]), text=text
    )
    if scenario.link and scenario.link.trace:
        link = _follow_trace(scenario.link, folder, scenario.end_s(), f"{where}: link")
        scenario = dataclasses.replace(scenario, link=link)
    _check(scenario, where)
    return _drained(scenario)


def find(path: Path) -> Path:
    """A file, or one that ships: by its name in the checkout, or below lab/scenarios.

    So that the same words work where there is no checkout, in an installed wheel.
    """
    lab = Path(__file__).resolve().parents[1]
    places = (path, lab / "scenarios" / path, lab.parent / path)
    return next((place for place in places if place.is_file()), path)


def load(path: Path) -> Scenario:
    """The scenario of a file.

    Raises:
        NdmError: see `parse`; or no such file.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise NdmError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise NdmError(f"{path}: not text; name a scenario (TOML)") from None
    return parse(text, path.stem, str(path), path.parent)
