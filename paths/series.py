# SPDX-License-Identifier: GPL-2.0-only
"""A flow over time in a few hundred points: the captured one and its replay, on the same axes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import orjson

from ndm_tcp import files
from ndm_tcp.datasets.readers import streams
from ndm_tcp.datasets.rounds.flow import FlowRecords
from ndm_tcp.errors import NdmError

BINS = 150
LEAST_BIN_S = 0.05
SUFFIX = ".flow.json"
"""of a captured flow's series, beside the model"""


@dataclass(frozen=True)
class Series:
    """[n] each."""

    at_s: tuple[float, ...]
    """middle of each bin, s since the flow's first ACK"""
    mbps: tuple[float, ...]
    """payload that was acknowledged in the bin, Mbit/s"""
    rtt_ms: tuple[float | None, ...]
    """mean of the smoothed RTT in the bin; null: no ACK in it"""
    lost: tuple[float, ...]
    """packets marked lost, or retransmitted, in the bin, per second"""


def _binned(
    t_s: np.ndarray, acked_bits: np.ndarray, srtt_ms: np.ndarray, lost: np.ndarray
) -> Series:
    """Of running totals [n] of acknowledged bits and lost packets, and the RTT at each time."""
    end_s = float(t_s[-1]) if len(t_s) else 0.0
    n = int(np.clip(end_s / LEAST_BIN_S, 2, BINS))
    edges = np.linspace(0, max(end_s, 1e-3), n + 1)
    width = edges[1] - edges[0]
    mbps = np.diff(np.interp(edges, t_s, acked_bits)) / width / 1e6
    lost_per_s = np.diff(np.interp(edges, t_s, lost)) / width
    at = np.clip(np.searchsorted(edges, t_s, side="right") - 1, 0, n - 1)
    seen = srtt_ms > 0
    count = np.bincount(at[seen], minlength=n)
    total = np.bincount(at[seen], weights=srtt_ms[seen], minlength=n)
    rtt = [round(float(a / b), 3) if b else None for a, b in zip(total, count, strict=True)]
    return Series(
        tuple(np.round(edges[:-1] + width / 2, 3).tolist()),
        tuple(np.round(mbps, 4).tolist()),
        tuple(rtt),
        tuple(np.round(lost_per_s, 3).tolist()),
    )


def of_records(flow: FlowRecords) -> Series:
    """Of a captured flow."""
    acks = flow.acks
    mss = flow.mss or 1448
    bits = acks["delivered"].astype(np.float64) * mss * 8
    lost = np.cumsum(acks["lost"].astype(np.float64))
    return _binned(acks["now_us"] / 1e6, bits, acks["srtt_us"] / 1e3, lost)


def of_run(folder: Path) -> Series:
    """Of the flow under test of a run of the lab.

    Raises:
        NdmError: no run there.
    """
    try:
        result = orjson.loads((folder / "result.json").read_bytes())
        port = next(flow["port"] for flow in result["flows"] if flow["tested"])
        with streams.open_bytes(folder / "tcp_info.jsonl.zst") as stream:
            rows = [orjson.loads(line) for line in stream if line.strip()]
    except (OSError, ValueError, KeyError, StopIteration):
        raise NdmError(f"{folder}: no run of the lab here; run: ndm path replay") from None
    rows = [row for row in rows if row["sport"] == port and row["bytes_acked"]]
    if not rows:
        raise NdmError(
            f"{folder}: nothing was acknowledged in this run; remove the folder and run again"
        )
    names = ("t_ns", "delivered", "snd_mss", "srtt_us", "total_retrans")
    column = {name: np.array([row[name] for row in rows], np.float64) for name in names}
    t_s = (column["t_ns"] - column["t_ns"][0]) / 1e9
    bits = column["delivered"] * column["snd_mss"] * 8  # bytes_acked stands still behind a hole
    return _binned(t_s, bits, column["srtt_us"] / 1e3, column["total_retrans"])


def write(series: Series, path: Path) -> None:
    """Write a series, whole or not at all."""
    files.write_text(path, msgspec.json.encode(series).decode() + "\n")


def read(path: Path) -> Series | None:
    """A series; None if there is none or it is damaged: a page is drawn without it."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Series)
    except (OSError, msgspec.DecodeError):
        return None
