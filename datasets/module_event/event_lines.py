# SPDX-License-Identifier: GPL-2.0-only
"""The module's own event, ndm_tcp:ndm_tcp_round: the network's inputs and outputs per round.

Lines of `trace` or `trace_pipe`, of `trace-cmd report` and of `perf script`; other lines are
passed over. The integers are the kernel's, so the outputs can be computed again from them.
"""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa

from ndm_tcp import contract
from ndm_tcp.datasets.readers import streams
from ndm_tcp.errors import NdmError

EVENT = re.compile(r"(\d+)\.(\d{6,9}): +(?:ndm_tcp:)?ndm_tcp_round: +(.*)")
"""`perf script` pads names to the longest."""
FIELD = re.compile(r"(\w+)=(\S+)")
WHY = ("network", "blind", "slow_start", "goes_on", "recovery", "watchdog", "drain")
INPUTS = [i.name for i in contract.DENSE]
SCHEMA = pa.schema(
    [
        ("t_us", pa.int64()),  # the trace's clock
        ("sport", pa.uint16()),
        ("dport", pa.uint16()),
        ("valid", pa.bool_()),  # false: inputs and outputs are all zero
        *((name, pa.int16()) for name in INPUTS),  # Q12
        ("cwnd_gain", pa.int32()),  # Q16
        ("congestion", pa.int32()),  # Q16
        ("phase", pa.uint8()),  # of the probe, if the network decided
        ("ca_state", pa.uint8()),
        ("cwnd", pa.uint32()),  # packets, when the round ended
        ("target", pa.uint32()),  # packets, for the next round
        ("ssthresh", pa.uint32()),
        ("why", pa.string()),  # who decided: one of WHY
        ("peer", pa.string()),  # address and port of the receiver
    ]
)


def _row(seconds: str, fraction: str, body: str) -> dict[str, object]:
    values: dict[str, str] = dict(FIELD.findall(body))
    x = [int(word) for word in values["x"].split(",")]
    if values["why"] not in WHY:
        raise ValueError(values["why"])
    row: dict[str, object] = {
        "t_us": int(seconds) * 1_000_000 + int(fraction[:6]),
        "valid": bool(int(values["valid"])),
        "cwnd_gain": int(values["gain"]),
        "ca_state": int(values["state"]),
        "peer": values.get("dest", ""),
        "why": values["why"],
    }
    row |= dict(zip(INPUTS, x, strict=True))
    for name in ("sport", "dport", "congestion", "phase", "cwnd", "target", "ssthresh"):
        row[name] = int(values[name])
    return row


def flows(table: pa.Table) -> list[tuple[int, int, str]]:
    """Each flow's ports and peer: a server's flows have its port in common."""
    names = ("sport", "dport", "peer")
    return sorted(set(zip(*(table[name].to_pylist() for name in names), strict=True)))


def read(path: Path) -> pa.Table:
    """The rounds in a trace, in its order, by `SCHEMA`.

    Raises:
        NdmError: no such event, or one that is not whole.
    """
    rows = []
    with streams.open_text(path) as stream:
        for number, line in enumerate(stream, start=1):
            event = EVENT.search(line)
            if event is None:
                continue
            try:
                rows.append(_row(event[1], event[2], event[3]))
            except (KeyError, ValueError):
                raise NdmError(
                    f"{path}:{number}: not a whole ndm_tcp_round event of {len(INPUTS)} inputs; "
                    "cut the file before it, or read it with the ndm of its module"
                ) from None
    if not rows:
        raise NdmError(
            f"{path}: no ndm_tcp_round event; load the module, then write 1 to "
            "/sys/kernel/tracing/events/ndm_tcp/ndm_tcp_round/enable; of its BPF form, run while "
            "flows use it: ndm bpf events"
        )
    try:
        return pa.Table.from_pylist(rows, schema=SCHEMA)
    except (pa.ArrowInvalid, OverflowError):
        raise NdmError(
            f"{path}: a number of an ndm_tcp_round event is out of range; record the trace again"
        ) from None
