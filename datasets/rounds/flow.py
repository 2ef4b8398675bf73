# SPDX-License-Identifier: GPL-2.0-only
"""The result of every reader: one flow's per-ACK records, and how they were sampled."""

from __future__ import annotations

import enum
import hashlib
import ipaddress
from collections.abc import Callable, Mapping, Sequence
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


RECOVERY = 3
"""tcp_ca_state from which the sender repairs losses"""


class LossCause(enum.IntEnum):
    """Why packets were lost, on paths that recorded it. The gravest cause wins."""

    UNKNOWN = 0
    REORDERED = 1
    """Not dropped at all: overtaken, and mistaken for lost."""
    RANDOM = 2
    """Dropped at random by the link."""
    QUEUE = 3
    """Dropped because the queue was full."""


@dataclass(frozen=True)
class PathTruth:
    """The recorded truth of a path: enough to compute the target window."""

    scenario: str
    """the path and its traffic, TOML of `lab/paths/scenario.py`"""
    under_test: str
    """the congestion control that `$cc` stands for in it"""
    number: int
    """of the flow in it, from 0"""
    start_us: int
    """the flow's first ACK, us since the run began"""


@dataclass(frozen=True, kw_only=True)
class Flow:
    """One direction of one connection, and how it was observed."""

    flow_id: str
    """16 hex digits, see `flow_id`; carries no address."""
    sampling: Sampling
    cwnd_source: CwndSource
    format: str
    """The reader: pcap, simulator, ss, iperf3, tcp_probe, mlab_tcpinfo, ndt7, flent."""
    cc_name: str | None = None
    """The sender's congestion control, where known (cubic, bbr, ...)."""
    path: str | None = None
    """A name for the network path, equal for all flows over it; returns are compared within."""
    group: str | None = None
    """Flows of one group go to one split: `host_pair`, or the path. Ends with the build."""
    fingerprint: str | None = None
    """Of a captured flow: equal for the same packets in another format. Ends with the build."""
    mss: int | None = None
    """Payload bytes of a full segment."""
    header_bytes: int | None = None
    """IP and TCP of a full segment, where the packets were seen."""
    truth: PathTruth | None = None
    """Its path, if this project made it."""
    facts: dict[str, int | float | str] = field(default_factory=dict)
    """Counters of the reader (packets, retransmitted, ...), for reports."""


@dataclass(frozen=True, kw_only=True)
class FlowRecords(Flow):
    """A flow as its sender saw it at every ACK (or poll)."""

    acks: AckArray
    """`ACK_DTYPE`, in order of `now_us`, which starts within 64 us of 0."""
    loss_cause: npt.NDArray[np.uint8] | None = None
    """Per ACK, the `LossCause` of the packets it marked lost."""
    rwnd_limited: npt.NDArray[np.bool_] | None = None
    """Per ACK, true if the receiver's window held the sender back."""
    captured_rtt_us: npt.NDArray[np.int32] | None = None
    """Per ACK, its RTT; the kernel's, in `acks`, counts milliseconds if a timestamp shows it."""
    start_us: int | None = None
    """when the clock of its capture or log is 0 in `acks`"""
    sender_port: int | None = None
    """tells the flows of one capture apart; never stored in a dataset"""


NO_LABEL, LABEL_ERROR = "no_label", "label_error_log2"
"""facts of a flow: why it has no path; the expected error of the target window, |log2|"""
SACKS_CUT = "sacks_cut"
"""fact of a capture's flows: the snaplen cut SACK blocks off, so lost packets are guessed"""
Label = Callable[[FlowRecords, Sequence[FlowRecords]], FlowRecords]
"""Gives a flow, beside all of its source, the path that its records show as `truth`, or the reason
why not as a fact."""


@dataclass(frozen=True, kw_only=True)
class FlowRounds(Flow):
    """A flow round by round."""

    rows: npt.NDArray[Any]
    """`compute.ROUND_DTYPE`"""
    n_acks: int
    """records that the rounds were made of"""


def host_pair(one: str | bytes, other: str | bytes) -> str:
    """A value equal for all flows between two hosts, in either direction and any source.

    A build distinguishes paths by it and deletes it: a hash of an address is no secret.

    Args:
        one: an address as text or bytes, or a host's name.
        other: the other end's.
    """
    ends = sorted(_host(end) for end in (one, other))
    return hashlib.sha256(b"path " + b" ".join(ends)).hexdigest()


def fingerprint(group: str, port: int, start_us: int, facts: Mapping[str, object]) -> str:
    """Equal for the same packets in another format, or with times in another unit.

    Args:
        group: of the flow.
        port: the sender's.
        start_us: of the capture's clock, at its first ACK.
        facts: counters of the reader.
    """
    counts = [facts.get(name) for name in ("packets", "segments", "retransmitted")]
    words = [group, port, round(start_us / 1e6, 2), *counts]
    return hashlib.sha256(" ".join(map(str, words)).encode()).hexdigest()


def _host(end: str | bytes) -> bytes:
    try:
        # An interface may follow the address, and IPv4 be written within IPv6.
        address = ipaddress.ip_address(end.partition("%")[0] if isinstance(end, str) else end)
    except ValueError:
        return str(end).encode()
    inner = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (inner or address).packed.hex().encode()


def flow_id(source_sha256: str, key: str) -> str:
    """A stable name without addresses: SHA-256 of the source's hash and the flow's key."""
    return hashlib.sha256(f"{source_sha256}:{key}".encode()).hexdigest()[:16]
