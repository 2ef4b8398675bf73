# SPDX-License-Identifier: GPL-2.0-only
"""What the replay of a sender keeps of a packet and of a rate sample."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass

from ndm_tcp.datasets.rounds.flow import LossCause

from .estimators import RttEstimator

OPEN, DISORDER, CWR, RECOVERY, LOSS = range(5)
DUPTHRESH = 3
LEFT_SLOW_START = 2  # packets; the window is estimated, so only "above it" can be told
REO_PERSIST = 16  # recoveries, TCP_RACK_RECOVERY_THRESH
HELD_ACKS = 16  # in a row: a window that grows may lag behind slow start for some of them
MAX_WINDOW = 1 << 30  # bytes, RFC 7323 (2.3)
MIN_RTO_US = 200_000  # TCP_RTO_MIN
MIN_RTT_WINDOW_US = 300_000_000  # sysctl tcp_min_rtt_wlen


@dataclass
class _RateSample:
    """Of one ACK: the newest packet it delivered, and the state when that was sent."""

    prior_delivered: int = 0
    prior_us: int = 0
    end: int = -1
    """sequence number behind the packet; -1: none delivered"""
    send_us: int = 0
    app_limited: bool = False


class _Packet:
    """A segment in flight."""

    __slots__ = (
        "app_limited",
        "delivered",
        "delivered_us",
        "end",
        "first_tx_us",
        "fits",
        "lost",
        "place",
        "rate_taken",
        "resent",
        "resent_out",
        "sacked",
        "sent_us",
        "seq",
        "unfit",
    )

    def __init__(self, seq: int, end: int, place: int) -> None:
        self.seq = seq
        self.end = end
        self.place = place  # in the captured packet
        self.fits = self.unfit = False
        self.sacked = self.lost = self.resent = self.resent_out = self.rate_taken = False
        self.sent_us = self.first_tx_us = self.delivered_us = self.delivered = 0
        self.app_limited = False


class _Stamps:
    """TSvals and when they were first sent; the oldest of 4096 is forgotten."""

    def __init__(self) -> None:
        self.sent: dict[int, int] = {}
        self.first = self.first_us = self.began_us = 0

    def note(self, value: int, now_us: int) -> None:
        if value in self.sent:
            return
        if not self.sent:
            self.first, self.first_us, self.began_us = value, now_us, now_us
        self.began_us = min(self.began_us, now_us - 1000 * self._ticks(value))
        self.sent[value] = now_us
        if len(self.sent) > 4096:
            self.sent.pop(next(iter(self.sent)))

    def _ticks(self, value: int) -> int:
        return _unwrap(value, self.first) - self.first

    def rtts_us(self, now_us: int, echo: int) -> tuple[int, int]:
        """In whole milliseconds, if these are the units, and as captured; -1: not known."""
        if echo not in self.sent:
            return -1, -1
        captured = now_us - self.sent[echo]
        ticks = (now_us - self.began_us) // 1000 - self._ticks(echo)
        rtt = 1000 * max(ticks, 1)
        steady = self.first_us - self.began_us < 1000 and abs(rtt - captured) < 1000
        return rtt if steady else captured, captured


class _Edges:
    """Where segments of the wire end inside packets that hold several: at our cuts, or not."""

    def __init__(self, mss: int) -> None:
        self.mss = mss
        self.fitting = 0
        self.unfit = Counter[int]()
        """bytes from the beginning of the packet"""

    def note(self, packets: list[_Packet], starts: list[int], head: int, edge: int) -> None:
        """A segment of the wire ends here; each of ours counts once."""
        at = max(bisect_left(starts, edge, head), head)
        more = at < len(packets) and packets[at].place > 0
        if at < len(packets) and packets[at].seq == edge:
            self.fitting += more and not packets[at].fits
            packets[at].fits = True
        elif at > head and packets[at - 1].end > edge and (packets[at - 1].place or more):
            within = packets[at - 1]
            if not within.unfit:
                self.unfit[edge - within.seq + within.place * self.mss] += 1
            within.unfit = True

    def smaller_mss(self) -> int | None:
        """The largest size that nearly all of them are multiples of, if they are many."""
        count = self.unfit.total()
        if count < 4 or count * 2 < self.fitting:
            return None
        commonest = self.unfit.most_common(1)[0][0]
        for parts in range(1, commonest // 256 + 1):
            size, rest = divmod(commonest, parts)
            multiples = sum(n for offset, n in self.unfit.items() if offset % size == 0)
            if size < self.mss and not rest and multiples * 16 >= count * 15:
                return size
        return None


def cause_of(causes: dict[int, list[tuple[int, int]]] | None, packet: _Packet) -> int:
    """Why a packet was lost, if the path told."""
    if causes is None:
        return LossCause.UNKNOWN
    drops = causes.get(packet.seq & 0xFFFFFFFF, ())
    since = [cause for at_us, cause in drops if at_us >= packet.sent_us - 1000]
    return since[0] if since else LossCause.REORDERED


def is_rto(quiet_us: int, rtt: RttEstimator) -> bool:
    """Is a timer a likely reason to send again after a silence?"""
    rto = rtt.srtt_us + max(4 * rtt.rttvar_us, MIN_RTO_US)
    return rtt.srtt_us > 0 and quiet_us * 8 >= rto * 7


def overtaken(before: int, later: list[_Packet], seq: int, end: int, soon_us: float) -> bool:
    """Is it seen for the first time, in a hole that the later packets left after `soon_us`?"""
    return bool(later) and (
        before <= seq and end <= later[0].seq and not later[0].resent and later[0].sent_us > soon_us
    )


def _unwrap(value: int, near: int) -> int:
    """The 64-bit number closest to `near` that ends in these 32 bits."""
    return near + ((value - near + 0x80000000) & 0xFFFFFFFF) - 0x80000000


def _is_dsack(una: int, ack: int, blocks: tuple[tuple[int, int], ...]) -> bool:
    """RFC 2883: the first block begins with acknowledged data, or lies in the second."""
    left, right = (_unwrap(edge, una) for edge in blocks[0])
    if not 0 < right - left <= MAX_WINDOW:
        return False
    if left < ack:
        return True
    if len(blocks) < 2:
        return False
    outer_left, outer_right = (_unwrap(edge, una) for edge in blocks[1])
    return outer_left <= left and right <= outer_right
