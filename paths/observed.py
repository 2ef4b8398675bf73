# SPDX-License-Identifier: GPL-2.0-only
"""What the sender of one flow saw, as arrays: made once, used by every estimate of its path."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ndm_tcp.datasets.rounds.flow import RECOVERY, AckArray, FlowRecords, Sampling
from ndm_tcp.errors import NdmError
from ndm_tcp.paths.model import HEADER_BYTES, Seen

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

MIN_SAMPLES = 100
"""ACKs with an RTT: below, percentiles of the queue mean little"""
MIN_PACKETS = 200
"""a slow start and some round trips behind it"""
MIN_SECONDS = 1.0
MIN_POLLS = 8
"""half of `rates.MIN_WINDOWS` windows of a log"""
FASTEST_PPS = 4e7
"""packets/s: a link of 400 Gbit/s passes that many"""
COARSE_US, COARSE = 10, 0.25
"""step of a capture's clock from which on it is no clock of us; and of the time of a packet"""
EVEN = 0.9
"""of the gaps between ACKs: so many alike are a flow that is paced, not rounded times"""
APP_LIMITED_SHARE = 0.9
"""of the ACKs or of the time: from here on the application, not the path, sets the rate"""
WINDOW_S = 0.06
"""shortest window"""
WINDOW_PACKETS = 25
"""packets in a window: a rate to about a packet in 25"""
WINDOW_RTTS = 2.0
"""A flight that leaves in a burst comes back within an RTT; two even it out."""
SCALED_BYTES = 49_152
"""of a receive buffer at scale 0: between 32 and 64 KiB, so that scale 7 gives Linux's 6 MiB"""
MOST_SCALE = 14
"""RFC 7323, 2.3"""
GRID_S, MOST_LOOKS = 0.01, 1_000_000
"""the lab's own interval between two looks at a socket; so many are enough of long flows"""
LONGEST_GAP_S = 86_400.0
"""between two ACKs or polls: clocks are set forward by years, no transfer rests for a day"""


class TooShortError(NdmError):
    """A flow too short to show a path."""


@dataclass(frozen=True)
class Observed:
    """One flow, [n] ACKs, of which [k] carried an RTT sample. Times in s since the first ACK."""

    t: Floats
    """[n] of each ACK"""
    delivered: Ints
    """[n] packets until then, of a log from its first poll on"""
    lost: Ints
    """[n] packets that this ACK marked lost"""
    used: Ints
    """[k] packets that the link sent on until then, those lost behind it included"""
    at: Floats
    """[k] of the ACKs with an RTT"""
    rtt: Floats
    """[k] s"""
    sent: Floats
    """[k] when the newest packet that the ACK acknowledges left"""
    acked: Ints
    """[k] packets newly acknowledged"""
    inflight: Floats
    """[k] packets, after the ACK"""
    flight: Floats
    """[k] packets in flight just after that newest packet left, itself included"""
    calm: Bools
    """[k] nothing lost, and not in recovery: `flight` is then exact"""
    mss: int
    """payload bytes of a full segment"""
    header_bytes: int
    """of its IP and TCP"""
    seconds: float
    app_limited: float
    """part of the ACKs, or of the time if that is more, in which the application had no data"""
    facts: dict[str, Any]

    @property
    def packets(self) -> int:
        """Delivered in all."""
        return int(self.delivered[-1])

    @property
    def wire_bits(self) -> int:
        """Of a full segment, IP header included."""
        return (self.mss + self.header_bytes) * 8

    @property
    def buffer_bytes(self) -> int:
        """Of the receiver: Linux chooses the least scale that has room for it; 0: not known.

        Without a scale the option may be what a capture cut off. No less than what was in flight
        needs: Linux offers half of a buffer.
        """
        scale = min(int(self.facts.get("window_scale", 0)), MOST_SCALE)
        flown = round(float(self.flight.max(initial=0))) * self.mss
        return max(SCALED_BYTES << scale, 2 * flown) if scale > 0 else 0

    @functools.cached_property
    def min_rtt(self) -> float:
        """Lowest RTT, s."""
        return float(self.rtt.min())

    @functools.cached_property
    def window_s(self) -> float:
        """The shortest time in which packets show a rate, s."""
        return max(
            WINDOW_RTTS * self.min_rtt, WINDOW_PACKETS * self.seconds / self.packets, WINDOW_S
        )

    @functools.cached_property
    def rough_rate(self) -> float:
        """Packets per s that were seen in the fastest tenth of the time."""
        starts = np.arange(self.t[0], self.t[-1] - self.window_s, self.window_s / 4)
        i, j = stretches(self, starts, self.window_s)
        if not len(i):
            return self.packets / self.seconds
        return float(np.percentile(rates_of(self, i, j), 90))


def stretches(o: Observed, starts: Floats, width: float) -> tuple[Ints, Ints]:
    """First and last ACK of stretches of time that are at least half of `width` s long."""
    i = np.searchsorted(o.t, starts)
    j = np.minimum(np.searchsorted(o.t, starts + width), len(o.t) - 1)
    ok = o.t[j] - o.t[i] > width / 2
    return i[ok], j[ok]


def rates_of(o: Observed, i: Ints, j: Ints) -> Floats:
    """Packets per s between ACKs i and j."""
    found: Floats = (o.delivered[j] - o.delivered[i]) / (o.t[j] - o.t[i])
    return found


def observe(flow: FlowRecords) -> Observed:
    """The arrays of a flow.

    Raises:
        NdmError: the flow shows too little of its path; says what would help.
    """
    acks = flow.acks
    t = acks["now_us"].astype(np.float64) / 1e6
    polled = flow.sampling == Sampling.POLL
    rtt_us = _rtts_us(flow)
    has = rtt_us > 0
    _require_steady_clock(t, polled)
    _require_enough(flow, int(has.sum()), t, polled)
    limited = _app_limited(acks, float(t[-1]), polled)
    acked, inflight = acks["acked"].astype(np.int64), acks["inflight"].astype(np.float64)
    lost, delivered = acks["lost"].astype(np.int64), _delivered(acks, polled)
    at, rtt = t[has], rtt_us[has] / 1e6
    most = max(int(delivered[-1]), int(acked.sum()), int(lost.sum()))
    _require_possible(most, float(t[-1]), float(rtt.min()))
    sent = at - rtt
    at_sending = np.searchsorted(t, sent, side="right").clip(0, len(t) - 1)
    found = Observed(
        t=t,
        delivered=delivered,
        lost=lost,
        used=(np.cumsum(acked) + np.cumsum(lost))[has],
        at=at,
        rtt=rtt,
        sent=sent,
        acked=acked[has],
        inflight=inflight[has],
        flight=(inflight + acked)[at_sending],
        calm=(lost[has] == 0) & (acks["ca_state"][has] < RECOVERY),
        mss=int(flow.mss or 0),
        header_bytes=flow.header_bytes or HEADER_BYTES,
        seconds=float(t[-1]),
        app_limited=limited,
        facts=dict(flow.facts),
    )
    if not polled:
        _require_fine_clock(acks["now_us"].astype(np.int64), 1e6 / found.rough_rate)
    return found


def _require_fine_clock(now_us: Ints, packet_us: float) -> None:
    """Rounded times look like a faster link, rivals, jitter and losses."""
    gaps = np.diff(now_us)
    tick_us = int(np.gcd.reduce(gaps))
    alike = np.unique(gaps, return_counts=True)[1].max() / len(gaps)
    if COARSE_US <= tick_us > COARSE * packet_us and alike < EVEN:
        raise NdmError(
            f"the clock of the capture has steps of {tick_us} us, too coarse for packets "
            f"{packet_us:.0f} us apart; capture elsewhere"
        )


def _require_steady_clock(t: Floats, polled: bool) -> None:
    gaps = np.diff(t)
    if len(gaps) and gaps.max() > LONGEST_GAP_S:
        days, at = gaps.max() / 86_400, t[int(gaps.argmax())]
        between = "polls" if polled else "ACKs"
        raise NdmError(
            f"{days:.1f} days between two {between}, {at:.1f} s after the first one: the clock was "
            "set, or the flow rested; cut it there"
        )


def _delivered(acks: AckArray, polled: bool) -> Ints:
    """[n] packets until then; of a log since its first poll, before which the flow may be old."""
    found: Ints = np.cumsum(acks["acked"], dtype=np.int64) if polled else acks["delivered"]
    return found.astype(np.int64)


def _rtts_us(flow: FlowRecords) -> npt.NDArray[Any]:
    if flow.sampling == Sampling.POLL:
        return flow.acks["srtt_us"]  # a poll has no sample of its own
    return flow.acks["rtt_us"] if flow.captured_rtt_us is None else flow.captured_rtt_us


def _require_enough(flow: FlowRecords, samples: int, t: Floats, polled: bool) -> None:
    packets = int(_delivered(flow.acks, polled)[-1]) if len(t) else 0
    if polled and not flow.acks["delivered"].any():
        raise NdmError(
            "no packet was delivered, or the log does not count them; poll with an ss that shows "
            "bytes_acked"
        )
    seconds = float(t[-1]) if len(t) else 0.0
    if packets < MIN_PACKETS or seconds < MIN_SECONDS:
        digits = 1 if seconds >= MIN_SECONDS else 3
        raise TooShortError(
            f"too short: {packets} packets in {seconds:.{digits}f} s; needed are {MIN_PACKETS} "
            f"packets and {MIN_SECONDS:g} s: record a longer transfer"
        )
    least = MIN_POLLS if polled else MIN_SAMPLES
    if samples < least:
        remedy = "poll every 100 ms" if polled else "record a longer transfer, with all of its ACKs"
        if int((_rtts_us(flow) == 0).sum()) > samples:
            remedy = "most are 0, for the clock of the capture is too coarse; capture elsewhere"
        raise NdmError(f"{samples} RTT samples of {packets} packets; needed are {least}: {remedy}")
    if not flow.mss:
        raise NdmError("no full segment seen: the size of a packet is unknown; record a bulk flow")


def _app_limited(acks: AckArray, seconds: float, polled: bool) -> float:
    """The greater part of the ACKs and of the time without data of the application.

    Raises:
        NdmError: of nearly all.
    """
    limited = float(np.mean(acks["app_limited"]))
    silent = 0.0 if polled else silent_s(acks)
    why = ""
    if limited > APP_LIMITED_SHARE:
        why = f"application-limited at {limited:.0%} of its ACKs"
    elif silent > APP_LIMITED_SHARE * seconds:
        why = f"nothing in flight for {silent:.1f} of {seconds:.1f} s"
    if why:
        raise NdmError(
            f"{why}: the sender never filled the path; record a bulk transfer, such as iperf3"
        )
    return max(limited, silent / seconds)


def silent_s(acks: AckArray) -> float:
    """For how long a sender had nothing in flight, s; acks: per ACK, `ACK_DTYPE` [n]."""
    if len(acks) < 2:
        return 0.0
    empty = acks["inflight"][:-1] == 0
    gap_us = np.diff(acks["now_us"].astype(np.int64)) - acks["srtt_us"][:-1].astype(np.int64)
    return float(gap_us[empty].clip(0).sum() / 1e6)


def _require_possible(packets: int, seconds: float, shortest_s: float) -> None:
    """Damaged times or counters would take memory without a bound, or leave nothing to measure."""
    if shortest_s >= seconds:
        raise NdmError(
            f"the shortest RTT, {shortest_s:.1f} s, is no shorter than the flow, {seconds:.1f} s: "
            "no round trip lies in it; record a longer transfer, or with another clock"
        )
    if packets > FASTEST_PPS * seconds:
        raise NdmError(
            f"{packets} packets in {seconds:.1f} s: no link is as fast, so its counters "
            "are damaged; record it again"
        )


def seen(flow: FlowRecords, observed: Observed) -> Seen:
    """Goodput, smoothed RTT and retransmission rate as the lab reports them for a run."""
    lasts = max(observed.seconds, GRID_S)
    grid = np.arange(0.0, lasts, max(GRID_S, lasts / MOST_LOOKS))
    at = np.searchsorted(observed.t, grid, side="right") - 1
    srtt_ms = flow.acks["srtt_us"][at.clip(0)] / 1e3
    srtt_ms = srtt_ms[srtt_ms > 0]
    sent = int(flow.facts.get("segments", 0)) or observed.packets
    again = int(flow.facts.get("retransmitted", 0))
    if flow.sampling == Sampling.POLL:  # that fact is of the whole flow
        again = int(observed.lost.sum())
    return Seen(
        goodput_mbps=observed.packets * observed.mss * 8 / max(observed.seconds, 1e-9) / 1e6,
        rtt_mean_ms=float(srtt_ms.mean()) if len(srtt_ms) else 0.0,
        rtt_p95_ms=float(np.percentile(srtt_ms, 95)) if len(srtt_ms) else 0.0,
        retransmission_rate=again / max(sent, 1),
    )
