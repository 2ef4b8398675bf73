# SPDX-License-Identifier: GPL-2.0-only
"""Per-ACK records to rounds: the kernel's features, and the raw numbers of each round."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ndm_tcp import contract, core
from ndm_tcp.datasets.records import FlowRecords, LossCause

INPUT_COLUMNS = [i.name for i in contract.INPUTS]

COLUMNS: list[tuple[str, pa.DataType, str]] = [
    ("flow_id", pa.string(), "16 hex digits, no address in it"),
    ("source", pa.string(), "name of the file or folder"),
    ("format", pa.string(), "the reader"),
    ("sampling", pa.string(), "per_ack or poll; a poll has no entropy and no queue floor"),
    ("cwnd_source", pa.string(), "kernel, or inflight (estimated)"),
    ("cc", pa.string(), "congestion control of the sender, null if unknown"),
    ("path", pa.string(), "equal for flows over the same path, null if unknown"),
    ("split", pa.string(), "train, val or test; by flow"),
    ("round", pa.int32(), "number of the round in its flow"),
    ("t_us", pa.int64(), "end of the round, us since the flow's first ACK"),
    ("duration_us", pa.int64(), "us since the round before ended"),
    *((i.name, pa.int16(), f"input {i.index}, Q12: {i.meaning}") for i in contract.INPUTS),
    ("valid", pa.bool_(), "the inputs are good; false: all zero"),
    ("cwnd", pa.uint32(), "packets, at the end of the round"),
    ("ssthresh", pa.uint32(), "packets"),
    ("srtt_us", pa.uint32(), "us"),
    ("rttvar_us", pa.uint32(), "us"),
    ("min_rtt_us", pa.uint32(), "us"),
    ("inflight", pa.uint32(), "packets"),
    ("delivered", pa.uint32(), "packets delivered in the round"),
    ("lost", pa.uint32(), "packets marked lost in the round"),
    ("rate_packets", pa.uint32(), "packets of the rate sample that ends the round"),
    ("rate_interval_us", pa.int32(), "us of that sample; -1: invalid"),
    ("ca_state", pa.uint8(), "highest tcp_ca_state of the round"),
    ("app_limited", pa.bool_(), "the sender had nothing to send"),
    ("rwnd_limited", pa.bool_(), "the receiver's window held the sender back"),
    ("loss_cause", pa.uint8(), "LossCause of the round's losses; 0: unknown"),
    ("mss", pa.uint32(), "payload bytes of a full segment, null if unknown"),
]

SCHEMA = pa.schema(
    [pa.field(name, kind, metadata={"meaning": text}) for name, kind, text in COLUMNS]
)


def table(flow: FlowRecords, source: str, split: str) -> pa.Table:
    """One flow's rounds, by `SCHEMA`.

    Args:
        flow: the per-ACK (or per-poll) records of one flow.
        source: name of the file or folder it came from.
        split: train, val or test.
    """
    acks = flow.acks
    rounds = core.replay(acks)
    n = len(rounds.x)
    last = rounds.ack_index
    first = np.concatenate([[0], last[:-1] + 1]) if n else last
    # The feature code notes `delivered` at a round's end; the first round starts at ACK 0.
    before = np.concatenate([acks["delivered"][:1], acks["delivered"][last[:-1]]]) if n else last
    t_us = acks["now_us"][last].astype(np.int64)
    cause = flow.loss_cause if flow.loss_cause is not None else np.zeros(len(acks), np.uint8)
    cause = np.where(acks["lost"] > 0, cause, np.uint8(LossCause.UNKNOWN))
    limited = flow.rwnd_limited if flow.rwnd_limited is not None else np.zeros(len(acks), bool)

    def most(values: np.ndarray) -> np.ndarray:
        return np.maximum.reduceat(values, first) if n else values[:0]

    columns: dict[str, object] = {
        "flow_id": [flow.flow_id] * n,
        "source": [source] * n,
        "format": [flow.format] * n,
        "sampling": [flow.sampling.value] * n,
        "cwnd_source": [flow.cwnd_source.value] * n,
        "cc": [flow.cc_name] * n,
        "path": [flow.path] * n,
        "split": [split] * n,
        "round": np.arange(n, dtype=np.int32),
        "t_us": t_us,
        "duration_us": np.diff(t_us, prepend=np.int64(0)),
        "valid": rounds.valid,
        "delivered": (acks["delivered"][last] - before).astype(np.uint32),
        "lost": np.add.reduceat(acks["lost"], first) if n else acks["lost"][:0],
        "rate_packets": (acks["delivered"] - acks["prior_delivered"])[last],
        "rate_interval_us": acks["interval_us"][last],
        "ca_state": most(acks["ca_state"]).astype(np.uint8),
        "app_limited": acks["app_limited"][last] > 0,
        "rwnd_limited": most(limited).astype(bool),
        "loss_cause": most(cause).astype(np.uint8),
        "mss": [flow.mss] * n,
    }
    for number, name in enumerate(INPUT_COLUMNS):
        columns[name] = rounds.x[:, number]
    for name in ("cwnd", "ssthresh", "srtt_us", "rttvar_us", "min_rtt_us", "inflight"):
        columns[name] = acks[name][last]
    arrays = [pa.array(columns[field.name], type=field.type) for field in SCHEMA]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)
