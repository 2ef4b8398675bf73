# SPDX-License-Identifier: GPL-2.0-only
"""A flow as polls saw it: goodput, RTT, retransmission rate, and whether they may be compared.

All counters are differences between the first and the last poll that saw the flow, so what it
did before and after does not count.
"""

from __future__ import annotations

import contextlib
import ipaddress
from dataclasses import dataclass
from typing import NamedTuple

MOST_LIMITED = 0.5
"""A flow whose hosts limited it for this share of the time shows nothing of its algorithm."""
PREFIX_BITS = {4: 24, 6: 48}
"""of a destination: addresses that share them are one place"""

U32 = 0xFFFFFFFF
"""The kernel's counters of segments begin again after it."""

ONCE = "seen by one poll only"
SHORT = "too short"
SWITCHED = "changed its algorithm"
IDLE = "idle: nothing in flight"
APP_LIMITED = "application-limited"
RECEIVER_LIMITED = "receiver-limited"
SENDBUF_LIMITED = "limited by its send buffer"
LOOPBACK = "to this host itself"


class Ends(NamedTuple):
    """Where a flow begins and ends."""

    address: str
    port: int
    peer: str
    peer_port: int


class Poll(NamedTuple):
    """One look at a sender; counters since its start."""

    time_s: float
    cc: str
    acked_bytes: int
    sent: int
    """segments with data, retransmitted ones too"""
    retransmitted: int
    """segments"""
    rtt_us: int
    """smoothed; 0: none yet"""
    min_rtt_us: int
    """0: none yet"""
    inflight: int
    """segments"""
    app_limited: bool
    """the newest delivery rate sample"""
    busy_us: int | None
    """with data in flight; None: not known"""
    rwnd_limited_us: int
    sndbuf_limited_us: int


class Watched:
    """The polls of one flow, in order of time; of constant size."""

    def __init__(self, poll: Poll) -> None:
        self.first = self.last = poll
        self.polls = self.app_limited = self.rtts = self.rtt_us = 0
        self.min_rtt_us = 0
        self.inflight_s = 0.0
        self.switched = False
        self.add(poll)

    def add(self, poll: Poll) -> None:
        """The next poll."""
        if poll.inflight > 0 or poll.acked_bytes > self.last.acked_bytes:
            self.inflight_s += poll.time_s - self.last.time_s
        self.polls += 1
        self.app_limited += poll.app_limited
        self.switched |= poll.cc != self.last.cc
        if poll.rtt_us > 0:
            self.rtts += 1
            self.rtt_us += poll.rtt_us
        if poll.min_rtt_us > 0:
            self.min_rtt_us = min(self.min_rtt_us or poll.min_rtt_us, poll.min_rtt_us)
        self.last = poll

    @property
    def busy_us(self) -> float:
        """Time with data in flight; without the kernel's counter, as the polls show it."""
        if self.first.busy_us is None or self.last.busy_us is None:
            return 1e6 * self.inflight_s
        return self.last.busy_us - self.first.busy_us


@dataclass(frozen=True)
class Flow:
    """What was measured of a flow."""

    ends: Ends
    cc: str
    """of its last poll"""
    cgroup: str
    start_s: float
    """first poll"""
    end_s: float
    """last poll"""
    goodput_mbps: float
    """acknowledged payload by the time with data in flight"""
    rtt_ms: float
    """mean of the smoothed RTT over the polls; 0: none"""
    base_rtt_ms: float
    """the kernel's lowest; 0: none"""
    retransmission_rate: float
    """retransmitted by sent segments"""
    left_out: str
    """why the comparison leaves it out; empty: it does not"""


def plain(address: str) -> str:
    """An address without brackets and interface, IPv4 in its own form."""
    text = address.partition("%")[0].strip("[]")
    with contextlib.suppress(ValueError):
        made = ipaddress.ip_address(text)
        return str(getattr(made, "ipv4_mapped", None) or made)
    return text


def prefix(address: str) -> str:
    """The network of an address: /24 or /48; a name as it is."""
    try:
        made = ipaddress.ip_address(address)
    except ValueError:
        return address
    return str(ipaddress.ip_network(f"{made}/{PREFIX_BITS[made.version]}", strict=False))


def _is_here(ends: Ends) -> bool:
    if ends.peer == ends.address:
        return True
    try:
        return ipaddress.ip_address(ends.peer).is_loopback
    except ValueError:
        return False


def _why_not(ends: Ends, seen: Watched, least_s: float) -> str:
    first, last, busy_us = seen.first, seen.last, seen.busy_us
    spent_us = 1e6 * (last.time_s - first.time_s)
    if _is_here(ends):
        return LOOPBACK
    if seen.polls == 1:
        return ONCE
    if seen.switched:
        return SWITCHED
    if spent_us < 1e6 * least_s:
        return SHORT
    if busy_us < MOST_LIMITED * spent_us:
        return IDLE
    if last.rwnd_limited_us - first.rwnd_limited_us >= MOST_LIMITED * busy_us:
        return RECEIVER_LIMITED
    if last.sndbuf_limited_us - first.sndbuf_limited_us >= MOST_LIMITED * busy_us:
        return SENDBUF_LIMITED
    if seen.app_limited >= MOST_LIMITED * seen.polls:
        return APP_LIMITED
    return ""


def measure(ends: Ends, seen: Watched, least_s: float, cgroup: str = "") -> Flow:
    """One flow.

    Args:
        ends: its addresses and ports.
        seen: its polls.
        least_s: flows that were watched for less are left out.
        cgroup: of its socket; empty: not known.
    """
    first, last, busy_us = seen.first, seen.last, seen.busy_us
    acked, sent = last.acked_bytes - first.acked_bytes, (last.sent - first.sent) & U32
    retransmitted = (last.retransmitted - first.retransmitted) & U32
    return Flow(
        ends=ends,
        cc=last.cc,
        cgroup=cgroup,
        start_s=first.time_s,
        end_s=last.time_s,
        goodput_mbps=8 * acked / busy_us if busy_us > 0 else 0.0,
        rtt_ms=seen.rtt_us / seen.rtts / 1e3 if seen.rtts else 0.0,
        base_rtt_ms=seen.min_rtt_us / 1e3,
        retransmission_rate=retransmitted / sent if sent > 0 else 0.0,
        left_out=_why_not(ends, seen, least_s),
    )
