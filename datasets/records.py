# SPDX-License-Identifier: GPL-2.0-only
"""What every reader delivers: one flow's per-ACK records, and how they were sampled."""

from __future__ import annotations

import enum
import hashlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ndm_tcp import contract

ACK_DTYPE = np.dtype(contract.ACK_DTYPE)
AckArray = npt.NDArray[Any]
"""Structured array of `ACK_DTYPE`, one element per ACK (or per poll)."""

INITIAL_SSTHRESH = 0x7FFFFFFF
"""The kernel's value before the first loss: slow start (TCP_INFINITE_SSTHRESH)."""


class Sampling(enum.StrEnum):
    """How often the sender's state was seen."""

    PER_ACK = "per_ack"
    """At every ACK: packet captures."""
    POLL = "poll"
    """Now and then: tcp_info and its relatives. No raw RTT samples, so the delay entropy
    and the queue floor are unavailable and read 0."""


class CwndSource(enum.StrEnum):
    """Where the congestion window comes from."""

    KERNEL = "kernel"
    """Read from the sender (tcp_probe, tcp_info)."""
    INFLIGHT = "inflight"
    """Estimated as the largest number of packets in flight of the last round trip."""


class LossCause(enum.IntEnum):
    """Why packets were lost, where the path was ours and told. The gravest has the last word."""

    UNKNOWN = 0
    REORDERED = 1
    """Not dropped at all: overtaken, and mistaken for lost."""
    RANDOM = 2
    """Dropped at random by the link."""
    QUEUE = 3
    """Dropped because the queue was full."""


@dataclass(frozen=True)
class FlowRecords:
    """One direction of one connection, as the sender saw it."""

    flow_id: str
    """16 hex digits, see `flow_id`; carries no address."""
    sampling: Sampling
    cwnd_source: CwndSource
    acks: AckArray
    """`ACK_DTYPE`, in order of `now_us`, which starts at 0."""
    format: str
    """The reader: pcap, ss, iperf3, tcp_probe, mlab_tcpinfo, ndt7."""
    cc_name: str | None = None
    """The sender's congestion control, where known (cubic, bbr, ...)."""
    path: str | None = None
    """A name for the network path, equal for all flows over it; returns are compared within."""
    mss: int | None = None
    """Payload bytes of a full segment."""
    loss_cause: npt.NDArray[np.uint8] | None = None
    """Per ACK, the `LossCause` of the packets it marked lost."""
    rwnd_limited: npt.NDArray[np.bool_] | None = None
    """Per ACK, true if the receiver's window held the sender back."""
    facts: dict[str, int | float | str] = field(default_factory=dict)
    """Counters of the reader (packets, retransmitted, ...), for reports."""


def flow_id(source_sha256: str, key: str) -> str:
    """A stable name without addresses: SHA-256 of the source's hash and the flow's key."""
    return hashlib.sha256(f"{source_sha256}:{key}".encode()).hexdigest()[:16]
