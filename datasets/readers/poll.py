# SPDX-License-Identifier: GPL-2.0-only
"""State of a sender seen now and then (tcp_info and its relatives) to per-poll records.

A poll has no raw RTT sample and merges many ACKs. The records are made so that the feature
code sees rounds of about one round trip, or of one poll where polls are rarer than that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from ndm_tcp.datasets.rounds.flow import (
    ACK_DTYPE,
    INITIAL_SSTHRESH,
    AckArray,
    CwndSource,
    FlowRecords,
    Sampling,
    host_pair,
)

Ints = npt.NDArray[np.int64]

Warn = Callable[[str], None]
"""Receives a warning about a log, in one line."""
SAME_TIME_TENTHS = 1
"""Warned of from this many tenths of the polls on."""

MISSING = -1
"""In a poll: the log does not give this value."""
NOT_COUNTED = "losses_not_counted"
"""fact of a flow whose log has no retransmissions over time"""

NO_MIN_RTT_US = 0xFFFFFFFF  # the kernel's minimum before the first sample
U32 = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Poll:
    """One look at a sender; `MISSING` where the log is silent."""

    time_us: int
    """any epoch"""
    cwnd: int
    """packets"""
    srtt_us: int = MISSING
    rttvar_us: int = MISSING
    min_rtt_us: int = MISSING
    ssthresh: int = MISSING
    """packets"""
    delivered: int = MISSING
    """packets delivered since the start, u32"""
    bytes_acked: int = MISSING
    """bytes acknowledged since the start; stands in for `delivered`"""
    retransmitted: int = MISSING
    """segments retransmitted since the start, u32"""
    inflight: int = MISSING
    """packets"""
    delivery_rate_bps: int = MISSING
    """the kernel's own, bit/s; for comparison only"""
    app_limited: int = MISSING
    """0 or 1"""
    ca_state: int = MISSING
    """0 Open, 1 Disorder, 2 CWR, 3 Recovery, 4 Loss"""
    rwnd_limited_us: int = MISSING
    """time limited by the receiver's window since the start, us"""


def quiet(_: str) -> None:
    """A `Warn` that ignores its message."""


def warn_of_times(flows: Sequence[FlowRecords], warn: Warn) -> None:
    """Warn if polls share their time: rates over them are wrong."""
    polls = sum(len(flow.acks) for flow in flows)
    same = sum(int((np.diff(flow.acks["now_us"].astype(np.int64)) == 0).sum()) for flow in flows)
    if same * 10 > polls * SAME_TIME_TENTHS:
        warn(
            f"{same} of {polls} polls have the time of the previous poll, so delivery rates are "
            "wrong; log times with a fraction, as `date +%s.%N` does"
        )


def whole(values: npt.NDArray[np.float64]) -> Ints:
    """The nearest whole numbers.

    Raises:
        ValueError: one has more than 63 bits, or is none.
    """
    found = values.round()
    if not (np.abs(found) < 2.0**63).all():
        raise ValueError("a number of more than 63 bits, or none")
    return found.astype(np.int64)


NAMES = tuple(field.name for field in fields(Poll))


@dataclass(frozen=True)
class PollColumns:
    """The polls of one flow as columns: int64 [polls], `MISSING` where invalid."""

    time_us: Ints
    cwnd: Ints
    srtt_us: Ints
    rttvar_us: Ints
    min_rtt_us: Ints
    ssthresh: Ints
    delivered: Ints
    bytes_acked: Ints
    retransmitted: Ints
    inflight: Ints
    delivery_rate_bps: Ints
    app_limited: Ints
    ca_state: Ints
    rwnd_limited_us: Ints

    @classmethod
    def of(cls, polls: list[Poll]) -> PollColumns:
        """Columns of polls in a list."""
        return cls(
            **{
                name: np.array([getattr(poll, name) for poll in polls], dtype=np.int64)
                for name in NAMES
            }
        )

    @classmethod
    def filled(cls, time_us: Ints, **columns: Ints) -> PollColumns:
        """Columns from those that exist; the rest is missing."""
        missing = np.full(len(time_us), MISSING, dtype=np.int64)
        named = {name: missing for name in NAMES} | {"time_us": time_us} | columns
        return cls(**{name: np.asarray(named[name], dtype=np.int64) for name in NAMES})

    def take(self, index: npt.NDArray[Any]) -> PollColumns:
        """The polls at an index array or mask."""
        return PollColumns(**{name: getattr(self, name)[index] for name in NAMES})


def steady(time_us: Ints) -> Ints:
    """Times of a log in its order, as a clock would show them that nobody set back.

    How much time passed across such a step is not known: the median of the others stands for it.

    Args:
        time_us: [polls] as logged.
    """
    step = np.diff(time_us)
    if (step >= 0).all():
        return time_us
    usual = int(np.median(step[step > 0])) if (step > 0).any() else 0
    return np.cumsum(np.concatenate([time_us[:1], np.where(step < 0, usual, step)]))


def _changed(polls: PollColumns) -> npt.NDArray[np.bool_]:
    """False where a poll repeats the one before in everything but its time."""
    values = np.stack([getattr(polls, name) for name in NAMES if name != "time_us"])
    changed = np.ones(values.shape[1], dtype=np.bool_)
    changed[1:] = (values[:, 1:] != values[:, :-1]).any(axis=0)
    return changed


def _increase(counter: Ints) -> Ints:
    """Growth of a u32 counter from poll to poll; 0 where it goes back or is missing."""
    step = np.diff(counter, prepend=counter[:1]) & U32
    step[step > U32 >> 1] = 0
    step[1:][(counter[1:] == MISSING) | (counter[:-1] == MISSING)] = 0
    return step


def _packets_delivered(polls: PollColumns, mss: int | None) -> Ints:
    if (polls.delivered != MISSING).all():
        return polls.delivered
    if mss and (polls.bytes_acked != MISSING).all():
        return polls.bytes_acked // mss
    return np.zeros(len(polls.time_us), dtype=np.int64)


def _min_rtt_us(polls: PollColumns, srtt_us: Ints) -> Ints:
    """The kernel's minimum; the lowest srtt so far if the log has none at all."""
    known = (polls.min_rtt_us > 0) & (polls.min_rtt_us < NO_MIN_RTT_US)
    if known.any():
        return np.where(known, polls.min_rtt_us, 0)
    lowest = np.minimum.accumulate(np.where(srtt_us > 0, srtt_us, np.int64(NO_MIN_RTT_US)))
    return np.where(lowest < NO_MIN_RTT_US, lowest, 0)


def _ssthresh(polls: PollColumns, lost: Ints) -> Ints:
    """The kernel's; if the log has none at all, slow start ends at the first loss."""
    if (polls.ssthresh != MISSING).any():
        return np.where(polls.ssthresh == MISSING, INITIAL_SSTHRESH, polls.ssthresh)
    return np.where(np.cumsum(lost) > 0, polls.cwnd, INITIAL_SSTHRESH)


def _or_zero(column: Ints) -> Ints:
    return np.where(column == MISSING, 0, column)


def records(polls: PollColumns, mss: int | None) -> AckArray:
    """Per-poll records.

    `acked` is the growth of the delivered packets, `lost` that of the retransmissions.
    `prior_delivered` is what was delivered at the newest poll at least one srtt earlier and
    `interval_us` the time since, so that their quotient is a rate over about a round trip;
    before there is such a poll the rate is invalid.

    Args:
        polls: at least one, in order of time, without repetitions.
        mss: payload bytes of a full segment, to convert `bytes_acked` if `delivered` is
            missing.

    Returns:
        `ACK_DTYPE` [polls].
    """
    n = len(polls.time_us)
    delivered = _packets_delivered(polls, mss) & U32
    lost = _increase(polls.retransmitted)
    srtt_us = _or_zero(polls.srtt_us)
    index = np.arange(n)
    prior = np.searchsorted(polls.time_us, polls.time_us - srtt_us, side="right") - 1
    rate_known = (prior >= 0) & (srtt_us > 0)
    prior = np.where(rate_known, prior, np.maximum(index - 1, 0))
    interval_us = polls.time_us - polls.time_us[prior]
    rate_known &= interval_us > 0

    acks = np.zeros(n, dtype=ACK_DTYPE)
    acks["now_us"] = polls.time_us - polls.time_us[0]
    acks["rtt_us"] = -1
    acks["acked"] = _increase(delivered)
    acks["lost"] = lost
    acks["inflight"] = np.clip(_or_zero(polls.inflight), 0, U32)
    acks["cwnd"] = polls.cwnd
    acks["ssthresh"] = np.clip(_ssthresh(polls, lost), 0, U32)
    acks["srtt_us"] = np.clip(srtt_us, 0, U32)
    acks["rttvar_us"] = np.clip(_or_zero(polls.rttvar_us), 0, U32)
    acks["min_rtt_us"] = np.clip(_min_rtt_us(polls, srtt_us), 0, U32)
    acks["delivered"] = delivered
    acks["prior_delivered"] = delivered[prior]
    acks["interval_us"] = np.where(rate_known, np.clip(interval_us, 0, 0x7FFFFFFF), -1)
    acks["app_limited"] = _or_zero(polls.app_limited)
    acks["ca_state"] = _or_zero(polls.ca_state)
    return acks


def _rate_agreement(polls: PollColumns, acks: AckArray, mss: int | None) -> float | None:
    """Median of this record's rate over the kernel's delivery_rate; None if not known."""
    packets = (acks["delivered"] - acks["prior_delivered"]).astype(np.float64)
    good = (acks["interval_us"] > 0) & (packets > 0) & (polls.delivery_rate_bps > 0)
    good &= acks["app_limited"] == 0
    if not mss or not good.any():
        return None
    rate_bps = packets[good] * mss * 8e6 / acks["interval_us"][good]
    return round(float(np.median(rate_bps / polls.delivery_rate_bps[good])), 3)


def tally(numbers: npt.NDArray[Any], names: Sequence[str]) -> Counter[str]:
    """How many polls name which algorithm.

    Args:
        numbers: [n] of the name in `names`; negative where a poll has none.
    """
    found, counts = np.unique(numbers[numbers >= 0], return_counts=True)
    return Counter({names[i]: int(n) for i, n in zip(found, counts, strict=True)})


def prevailing(said: Counter[str]) -> str | None:
    """The algorithm of most polls, of equals the first by name; None if no poll has one.

    Not that of the first poll: a program may choose once it has the socket.
    """
    return max(sorted(said), key=said.__getitem__, default=None)


def flow(
    polls: PollColumns,
    *,
    flow_id: str,
    format: str,
    cc_name: str | None = None,
    mss: int | None = None,
    facts: dict[str, int | float | str] | None = None,
    hosts: tuple[str, str] | None = None,
) -> FlowRecords | None:
    """The records of one flow from its polls, in any order.

    `facts` gains: polls, unchanged (polls that repeat the one before and were dropped),
    retransmitted (segments since the flow's start), where the log does not count these
    losses_not_counted, and, where the kernel's own delivery rate is known, rate_agreement
    (median of our rate over it).

    Returns:
        None if no poll has a congestion window.
    """
    facts = dict(facts or {})
    facts["polls"] = len(polls.time_us)
    polls = polls.take(np.argsort(polls.time_us, kind="stable"))
    polls = polls.take(polls.cwnd > 0)
    if not len(polls.time_us):
        return None
    changed = _changed(polls)
    facts["unchanged"] = int((~changed).sum())
    if (polls.retransmitted == MISSING).all():
        facts[NOT_COUNTED] = 1
    facts["retransmitted"] = max(int(polls.retransmitted.max()), 0)
    polls = polls.take(changed)
    acks = records(polls, mss)
    agreement = _rate_agreement(polls, acks, mss)
    if agreement is not None:
        facts["rate_agreement"] = agreement
    rwnd_limited = None
    if (polls.rwnd_limited_us != MISSING).any():
        spent_us = np.diff(_or_zero(polls.rwnd_limited_us), prepend=np.int64(0))
        spent_us[0] = 0
        passed_us = np.diff(polls.time_us, prepend=polls.time_us[0])
        rwnd_limited = spent_us * 2 > passed_us
    return FlowRecords(
        flow_id=flow_id,
        sampling=Sampling.POLL,
        cwnd_source=CwndSource.KERNEL,
        acks=acks,
        format=format,
        cc_name=cc_name,
        group=host_pair(*hosts) if hosts and all(hosts) else None,
        mss=mss,
        rwnd_limited=rwnd_limited,
        start_us=int(polls.time_us[0]),
        facts=facts,
    )
