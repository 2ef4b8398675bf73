# SPDX-License-Identifier: GPL-2.0-only
"""A recording of the simulator: the ACKs of all flows as their senders saw them.

`acks.bin.zst` has what lab/sim/record.c writes, behind `KIND`; `scenario.toml` and `result.json` of
the run lie beside it. The inputs of the rounds of ndm_tcp are the module's own, bit for bit.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import numpy.typing as npt
import orjson

from ndm_tcp import contract, files
from ndm_tcp.datasets.readers import streams
from ndm_tcp.datasets.readers.capture import MIN_ROWS, PACED
from ndm_tcp.datasets.rounds.flow import (
    CwndSource,
    FlowRecords,
    LossCause,
    PathTruth,
    Sampling,
    flow_id,
)
from ndm_tcp.errors import NdmError

STEM = "acks.bin"
RECORDING = f"{STEM}.zst"
RECORD = np.dtype(
    [
        *(("flow", "<u4"), ("cause", "u1"), ("rwnd_limited", "u1"), ("unused", "<u2")),
        ("ack", contract.ACK_DTYPE),
    ]
)
"""struct sim_record"""
KIND = files.digest(str(RECORD.descr).encode()).encode()
"""at the beginning of a file; another one is of other records"""
SEGMENT_BYTES, HEADER_BYTES = 1448, 52
MOST_BYTES = 1 << 30
"""of the ACKs of a run"""
LATEST_US = 1 << 52
UNIT_US = 64
"""The features count pauses in units of the clock, so its phase is kept."""
CLOCK_US = 1_000_000
"""of a sender when the run begins"""


def _acks(path: Path, flows: int) -> npt.NDArray[np.void]:
    with streams.open_bytes(path) as stream:
        data = streams.read_whole(path, stream, MOST_BYTES)
    if not data.startswith(KIND):
        raise NdmError(f"{path}: not of this version; record the run again")
    data = data[len(KIND) :]
    if not data or len(data) % RECORD.itemsize:
        raise NdmError(f"{path}: not whole records of ACKs; record the run again")
    found = np.frombuffer(data, RECORD)
    if found["flow"].max() >= flows or found["cause"].max() > max(LossCause):
        raise NdmError(f"{path}: not of the run in result.json; record the run again")
    now_us = found["ack"]["now_us"]
    if (now_us[1:] < now_us[:-1]).any() or now_us[-1] > LATEST_US:
        raise NdmError(f"{path}: its times go back or are too large; record the run again")
    return found


def read(path: Path) -> tuple[list[FlowRecords], Counter[str]]:
    """The flows of a run.

    Args:
        path: the file of the ACKs.

    Returns:
        the flows, and how many were left out, by reason.

    Raises:
        NdmError: a file of the run is damaged or not there.
    """
    try:
        scenario = (path.parent / "scenario.toml").read_text(encoding="utf-8")
        result = orjson.loads((path.parent / "result.json").read_bytes())
        ccs, under_test = [str(flow["cc"]) for flow in result["flows"]], str(result["cc"])
        name = str(result["scenario"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        why = files.why(error) if isinstance(error, OSError) else f"damaged: {error}"
        raise NdmError(
            f"{path.parent}: scenario.toml and result.json: {why}; record the run again"
        ) from None
    records, digest = _acks(path, len(ccs)), files.sha256(path)
    flows, skipped = [], Counter[str]()
    for number, cc in enumerate(ccs):
        mine = records[records["flow"] == number]
        if len(mine) < MIN_ROWS:
            skipped[f"fewer than {MIN_ROWS} ACKs"] += 1
            continue
        acks = mine["ack"].copy()
        start_us = int(acks["now_us"][0]) // UNIT_US * UNIT_US
        acks["now_us"] -= start_us
        flows.append(
            FlowRecords(
                flow_id=flow_id(digest, str(number)),
                sampling=Sampling.PER_ACK,
                cwnd_source=CwndSource.INFLIGHT if cc in PACED else CwndSource.KERNEL,
                acks=acks,
                format="simulator",
                cc_name=cc,
                path=name,
                group=name,
                mss=SEGMENT_BYTES,
                header_bytes=HEADER_BYTES,
                loss_cause=mine["cause"].copy(),
                rwnd_limited=mine["rwnd_limited"].astype(np.bool_),
                truth=PathTruth(scenario, under_test, number, start_us - CLOCK_US),
            )
        )
    return flows, skipped
