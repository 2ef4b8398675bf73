# SPDX-License-Identifier: GPL-2.0-only
"""A sender-side capture to the records or the rounds of its flows.

The senders are replayed in C (native/sender.h). The readable twin of that code, in Python, is
in tests/reference, and a test holds both equal, ACK by ACK.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ndm_tcp import files
from ndm_tcp.datasets.readers import pcap
from ndm_tcp.datasets.readers.pcap import CapturedFlow, CaptureReport
from ndm_tcp.datasets.readers.tcp_probe import ProbeColumns
from ndm_tcp.datasets.rounds.compute import rounds_of
from ndm_tcp.datasets.rounds.flow import (
    NO_LABEL,
    SACKS_CUT,
    CwndSource,
    FlowRecords,
    FlowRounds,
    Label,
    PathTruth,
    Sampling,
    fingerprint,
    flow_id,
    host_pair,
)

MIN_SEGMENTS = 64
"""A flow with fewer data segments has too few rounds to learn from."""
MIN_ROWS = 8

PACED = ("bbr", "bbr2", "bbr3")
"""Algorithms that steer by pacing: their cwnd is only a cap, so what is in flight is taken
as the window even where the kernel's is known."""

LABELLED_BYTES = 1 << 30
TOO_LARGE = (
    "the capture is larger than 1 GiB; to label its flows, cut it: editcap -c 10000000 IN OUT"
)
REPLAYED, OTHER_SHARD = 0, 7
REASONS = {
    1: "no ACK direction captured: no RTT",
    2: f"fewer than {MIN_SEGMENTS} data segments",
    3: "captured near the receiver: the sender's RTT is not visible; capture where data are sent",
    4: "time stamps go back by more than a second",
    5: "the capture lost more than 5 % of the sender's packets",
    6: "too many segments in flight",
    8: "two capture points are merged in one file; take the sender's capture alone",
    9: "a copy of another connection under another address (NAT) or VLAN tag",
    10: "packets not in time order, too far apart to sort; run: reordercap IN OUT",
    11: "captured behind the queue that drops its packets: neither its losses nor its RTT are "
    "visible; capture where data are sent, before any shaper",
    12: "only ACKs captured: no data; capture without a filter on size or flags",
    13: "captured midway: the part of the RTT between sender and capture is not visible; capture "
    "where data are sent",
    14: "ACKs come before their data: the clocks of the two directions differ by more than the RTT"
    "; capture both on one interface, or correct one before the merge: editcap -t SECONDS IN OUT",
    15: "the data are in IP fragments, which are not read; capture before packets are fragmented: "
    "where data are sent, or on a tunnel's own interface",
}
"""enum ndm_flow_status in words"""
AS_USUAL = (REASONS[2], REASONS[9])
"""Nothing is lost with these, if another flow of the capture is used."""
BEHIND_QUEUE = (
    "the capture misses most of the RTT that the kernel measured: packets wait in a shaper on the "
    "sender's own interface; shape on another host or in another network namespace"
)
HIDDEN_RTT_US = 1000
"""The capture may miss this much of the kernel's RTT, or half of it: interrupts, small queues."""
LEAST_TRACED = 0.95
"""of the ACKs: with fewer events of tcp_probe the kernel's windows are of other ACKs"""
NOT_TRACED = "acks_not_traced"
PROBE_EARLY_S = 1.5e-6
"""by how much tcp_probe may seem to fire before the ACK was captured"""


@dataclass(frozen=True)
class Run:
    """A run of the lab, whose flows have neighbouring ports."""

    scenario: str
    under_test: str
    first_port: int
    """the sender's, of flow 0"""
    flows: int
    start_us: int
    """when it began, capture clock"""

    def of(self, port: int, first_us: int) -> PathTruth | None:
        """Of the flow from a port with its first ACK then; None: of a web page, or not the lab's"""
        number = port - self.first_port
        if not 0 <= number < self.flows:
            return None
        return PathTruth(self.scenario, self.under_test, number, first_us - self.start_us)


@dataclass(frozen=True)
class Truth:
    """Facts that the capturing machine recorded beside the capture."""

    cc_name: str | None = None
    """of every flow that `cc_by_ports` does not name"""
    cc_by_ports: dict[tuple[int, int | None], str] = field(default_factory=dict)
    """(sender's port, receiver's port, None: any) to congestion control"""

    path: str | None = None
    probes: dict[tuple[int, int], ProbeColumns] = field(default_factory=dict)
    """(sender's port, receiver's port) to the kernel's own cwnd and ssthresh"""
    probe_offset_s: float = 0.0
    """capture clock - tcp_probe clock"""
    srtt_us: dict[tuple[int, int] | None, float] = field(default_factory=dict)
    """(sender's port, receiver's port) to the kernel's median srtt; None: of any other flow"""
    drops: dict[int, list[tuple[int, int]]] | None = None
    """32-bit sequence number to [(capture clock in us, LossCause)]"""
    run: Run | None = None

    def cc_of(self, ports: tuple[int, int]) -> str | None:
        """Of the flow from the first of these ports to the second; None: not known."""
        names = self.cc_by_ports
        return names.get(ports, names.get((ports[0], None), self.cc_name))


def _traced(
    found: CapturedFlow, truth: Truth, cc_name: str | None
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.bool_]] | None:
    """[n] number of the kernel's own record for each ACK, and whether there is one.

    tcp_probe fires when the ACK is received, just after the capture point saw it, and before the
    ACK changes the window; but its text cuts the time down to a microsecond. An event that comes
    a round trip later is of another ACK.

    Returns:
        None: the flow has no trace, or its algorithm steers by pacing.
    """
    probe = truth.probes.get((found.sender_port, found.receiver_port))
    if probe is None or cc_name in PACED:
        return None
    acks = found.rows["ack"]
    at_s = (acks["now_us"].astype(np.float64) + found.first_us) / 1e6 - truth.probe_offset_s
    index = np.searchsorted(probe.t_s, at_s - PROBE_EARLY_S, side="left")
    there = index < len(probe.t_s)
    index = index.clip(0, len(probe.t_s) - 1)
    return index, there & (probe.t_s[index] - at_s <= acks["srtt_us"] / 1e6)


def _misses_rtt(found: CapturedFlow, truth: Truth) -> bool:
    """True if the packets were captured behind a queue that the kernel's RTT includes."""
    ports = (found.sender_port, found.receiver_port)
    kernel_us = truth.srtt_us.get(ports, truth.srtt_us.get(None, 0.0))
    ours_us = float(np.median(found.rows["ack"]["srtt_us"]))
    return kernel_us > 2 * ours_us and kernel_us - ours_us > HIDDEN_RTT_US


def _flows(
    path: Path,
    report: CaptureReport,
    keep_rows: bool,
    drops: dict[int, list[tuple[int, int]]] | None,
    shard: tuple[int, int],
) -> Iterator[CapturedFlow]:
    with pcap.engine(keep_rows, MIN_SEGMENTS, MIN_ROWS) as engine:
        if drops is not None:
            engine.drops(drops)
        engine.one_pass(path, report)
        engine.second_pass(path, report, shard)
        cut = {SACKS_CUT: 1} if report.cut_options else {}
        for flow in engine.flows():
            yield replace(flow, facts=flow.facts | cut)


def _observed(found: CapturedFlow, digest: str, path: str | None = None) -> dict[str, Any]:
    """What records and rounds of a flow have alike; path: its name, where it has one."""
    group = path or host_pair(*found.hosts)
    return {
        "flow_id": flow_id(digest, str(found.number)),
        "sampling": Sampling.PER_ACK,
        "format": "pcap",
        "path": path,
        "group": group,
        "fingerprint": fingerprint(group, found.sender_port, found.first_us, found.facts),
        "mss": found.mss,
        "facts": dict(found.facts),
    }


def _records(
    found: CapturedFlow, digest: str, truth: Truth, cc_name: str | None, by_kernel: bool
) -> FlowRecords:
    """A replayed flow; `by_kernel`: whether the kernel's own windows will be written into it."""
    return FlowRecords(
        **_observed(found, digest, truth.path),
        cwnd_source=CwndSource.KERNEL if by_kernel else CwndSource.INFLIGHT,
        acks=found.rows["ack"].copy(),
        cc_name=cc_name,
        header_bytes=found.header_bytes,
        loss_cause=found.rows["cause"].copy(),
        rwnd_limited=found.rows["rwnd_limited"].astype(np.bool_),
        captured_rtt_us=found.rows["rtt_us"].copy(),
        truth=truth.run.of(found.sender_port, found.first_us) if truth.run else None,
        start_us=found.first_us,
        sender_port=found.sender_port,
    )


def read(
    path: Path, truth: Truth | None = None, report: CaptureReport | None = None
) -> tuple[list[FlowRecords], Counter[str]]:
    """The flows of a capture, ACK by ACK as their senders saw them; all held in memory.

    Args:
        path: a pcap or pcapng file.
        truth: the records beside the capture, if any.
        report: filled with packet counts, and where the file is cut short.

    Returns:
        the flows, and how many connections were left out, by reason.

    Raises:
        NdmError: see `pcap.Engine.one_pass`.
    """
    truth = truth or Truth()
    digest = files.sha256(path)
    flows, skipped = [], Counter[str]()
    for found in _flows(path, report or CaptureReport(), True, truth.drops, (0, 1)):
        if found.status != REPLAYED:
            skipped[REASONS[found.status]] += 1
            continue
        if _misses_rtt(found, truth):
            skipped[BEHIND_QUEUE] += 1
            continue
        cc_name = truth.cc_of((found.sender_port, found.receiver_port))
        traced = _traced(found, truth, cc_name)
        whole = traced is not None and traced[1].mean() >= LEAST_TRACED
        records = _records(found, digest, truth, cc_name, whole)
        if traced is not None and whole:
            probe = truth.probes[found.sender_port, found.receiver_port]
            records.acks["cwnd"] = probe.cwnd[traced[0]]
            records.acks["ssthresh"] = probe.ssthresh[traced[0]]
        elif traced is not None:
            records.facts[NOT_TRACED] = int((~traced[1]).sum())
        flows.append(records)
    return flows, skipped


def read_rounds(
    path: Path,
    digest: str,
    report: CaptureReport | None = None,
    shard: tuple[int, int] = (0, 1),
    label: Label | None = None,
) -> tuple[list[tuple[int, FlowRounds]], Counter[str]]:
    """The rounds of a capture's flows, in memory that does not grow with its packets.

    To label a flow takes all ACKs of all flows, so a capture of more than `LABELLED_BYTES` is not
    labelled, and a smaller one not read by several processes (`sources.can_be_shared`).

    Args:
        path: a pcap or pcapng file.
        digest: SHA-256 of the file.
        report: filled with packet counts, and where the file is cut short.
        shard: (k, n): only the flows whose number is k modulo n.
        label: gives a flow its path.

    Returns:
        number and rounds of each flow, and how many of this shard's connections were left
        out, by reason.

    Raises:
        NdmError: see `pcap.Engine.one_pass`.
    """
    flows, skipped = [], Counter[str]()
    records: dict[int, FlowRecords] = {}
    large = path.stat().st_size > LABELLED_BYTES
    keep_rows = label is not None and not large
    for found in _flows(path, report or CaptureReport(), keep_rows, None, shard):
        if found.status == REPLAYED and label is not None and not large:
            records[found.number] = _records(found, digest, Truth(), None, False)
        elif found.status == REPLAYED:
            rounds = FlowRounds(
                **_observed(found, digest),
                cwnd_source=CwndSource.INFLIGHT,
                rows=found.rounds,
                n_acks=found.n_rows,
            )
            if label is not None:
                rounds.facts[NO_LABEL] = TOO_LARGE
            flows.append((found.number, rounds))
        elif found.status != OTHER_SHARD:
            skipped[REASONS[found.status]] += 1
    if label is not None:
        beside = list(records.values())
        flows += [(n, rounds_of(label(flow, beside))) for n, flow in records.items()]
    return flows, skipped
