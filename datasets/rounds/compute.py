# SPDX-License-Identifier: GPL-2.0-only
"""Per-ACK records to rounds: the kernel's features, and the raw numbers of each round."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt

from ndm_tcp import contract
from ndm_tcp.core import ffi, lib
from ndm_tcp.datasets.rounds.flow import ACK_DTYPE, Flow, FlowRecords, FlowRounds
from ndm_tcp.errors import NdmError

ROUND_DTYPE = np.dtype(
    [
        ("t_us", "<i8"),
        ("duration_us", "<i8"),
        ("x", "<i2", (contract.N_INPUTS,)),
        *((name, "<u4") for name in ("cwnd", "ssthresh", "srtt_us", "rttvar_us", "min_rtt_us")),
        *((name, "<u4") for name in ("inflight", "delivered", "lost", "rate_packets")),
        ("rate_interval_us", "<i4"),
        *((name, "u1") for name in ("valid", "ca_state", "app_limited", "rwnd_limited")),
        ("loss_cause", "u1"),
    ],
    align=True,
)
"""`struct ndm_round_row` of native/rounds.h"""
if ffi.sizeof("struct ndm_round_row") != ROUND_DTYPE.itemsize:  # pragma: no cover
    raise NdmError("ndm_tcp._core: struct ndm_round_row has another size here; run: make setup")


def _bytes(values: npt.NDArray[Any] | None, n: int) -> npt.NDArray[np.uint8]:
    return np.zeros(n, np.uint8) if values is None else np.ascontiguousarray(values, np.uint8)


def rounds_of(flow: FlowRecords) -> FlowRounds:
    """The rounds of a flow's records, by the kernel's feature code."""
    acks = np.ascontiguousarray(flow.acks, ACK_DTYPE)
    n = len(acks)
    cause, limited = _bytes(flow.loss_cause, n), _bytes(flow.rwnd_limited, n)
    rows = np.zeros(n, ROUND_DTYPE)
    found = lib.ndm_rounds_of(
        ffi.cast("struct ndm_ack *", acks.ctypes.data),
        n,
        ffi.cast("uint8_t *", cause.ctypes.data),
        ffi.cast("uint8_t *", limited.ctypes.data),
        ffi.cast("struct ndm_round_row *", rows.ctypes.data),
    )
    same = {field.name: getattr(flow, field.name) for field in fields(Flow)}
    return FlowRounds(**same, rows=rows[:found].copy(), n_acks=n)
