# SPDX-License-Identifier: GPL-2.0-only
"""Per-ACK records to rounds, in Python: the raw numbers of each round; its inputs are the C's."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ndm_tcp import core
from ndm_tcp.datasets.rounds.columns import INPUT_COLUMNS, SCHEMA
from ndm_tcp.datasets.rounds.flow import FlowRecords, LossCause


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
        "t_us": t_us,
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
        "scenario": [flow.truth and flow.truth.scenario] * n,
        "under_test": [flow.truth and flow.truth.under_test] * n,
        "flow_number": [flow.truth and flow.truth.number] * n,
        "start_us": [flow.truth and flow.truth.start_us] * n,
    }
    for number, name in enumerate(INPUT_COLUMNS):
        columns[name] = rounds.x[:, number]
    columns["cwnd"] = core.window(*(acks[name][last] for name in ("ca_state", "cwnd", "ssthresh")))
    for name in ("ssthresh", "srtt_us", "rttvar_us", "min_rtt_us", "inflight"):
        columns[name] = acks[name][last]
    arrays = [pa.array(columns[field.name], type=field.type) for field in SCHEMA]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)
