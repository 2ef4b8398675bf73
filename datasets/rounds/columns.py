# SPDX-License-Identifier: GPL-2.0-only
"""Rounds as a table: the columns of a dataset, and the values computed from them at load."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ndm_tcp import contract
from ndm_tcp.datasets.rounds.flow import FlowRounds

INPUT_COLUMNS = [i.name for i in contract.INPUTS]

COLUMNS: list[tuple[str, pa.DataType, str]] = [
    ("flow_id", pa.string(), "16 hex digits, no address in it"),
    ("source", pa.string(), "name of the file or folder"),
    ("format", pa.string(), "the reader"),
    ("sampling", pa.string(), "per_ack or poll; a poll has no entropy and no queue floor"),
    ("cwnd_source", pa.string(), "kernel, or inflight (estimated)"),
    ("cc", pa.string(), "congestion control of the sender, null if unknown"),
    ("path", pa.string(), "equal for flows over the same path, null if unknown"),
    ("split", pa.string(), "train, val or test; by path"),
    ("t_us", pa.int64(), "end of the round, us since the flow's first ACK"),
    *((i.name, pa.int16(), f"input {i.index}, Q12: {i.meaning}") for i in contract.INPUTS),
    ("valid", pa.bool_(), "the inputs are good; false: all zero"),
    ("cwnd", pa.uint32(), "window at the end of the round, packets; in recovery, the one aimed at"),
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
    ("scenario", pa.string(), "the path and its traffic, TOML of the lab; null: not the lab's"),
    ("under_test", pa.string(), "the congestion control that $cc in it is, null likewise"),
    ("flow_number", pa.int16(), "of the flow in the scenario, null likewise"),
    ("start_us", pa.int64(), "the flow's first ACK, us since the run began, null likewise"),
]
"""Measurements and records. All that follows from them, the network's memory and target windows
too, is computed when it is read: a change of those touches no file."""
DETAIL = frozenset({"ssthresh", "rttvar_us", "inflight", "rate_packets", "rate_interval_us"})
"""Raw numbers that no training reads; a dataset may lack them."""
DERIVED = (
    pa.field("round", pa.int32(), metadata={"meaning": "number of the round in its flow"}),
    pa.field("duration_us", pa.int64(), metadata={"meaning": "us since the round before ended"}),
)
"""Columns that `store.load` adds."""

SCHEMA = pa.schema(
    [pa.field(name, kind, metadata={"meaning": text}) for name, kind, text in COLUMNS]
)


@dataclass(frozen=True)
class Named:
    """A column of few texts: a number a round, since as text two million rounds take 130 MB."""

    number: npt.NDArray[np.int32]
    """[n] into names; -1: null"""
    names: npt.NDArray[np.str_]

    @classmethod
    def of(cls, column: pa.ChunkedArray) -> Named:
        """Of a column of text, dictionary-encoded or not."""
        if not pa.types.is_dictionary(column.type):
            column = column.dictionary_encode()
        whole = column.unify_dictionaries().combine_chunks()
        if isinstance(whole, pa.ChunkedArray):  # of no or of several chunks, by version
            whole = whole.chunk(0) if whole.num_chunks else pa.array([], column.type)
        number = pc.fill_null(whole.indices, -1).to_numpy(zero_copy_only=False)
        names = np.array(whole.dictionary.to_pylist(), dtype=str)
        return cls(number.astype(np.int32), names)

    def text(self, null: str = "unknown") -> npt.NDArray[np.str_]:
        """[n] the texts themselves."""
        return np.append(self.names, null)[self.number]

    def at(self, rows: npt.NDArray[np.intp], null: str = "") -> npt.NDArray[np.str_]:
        """The texts of some rows."""
        return np.append(self.names, null)[self.number[rows]]

    def begins(self) -> npt.NDArray[np.bool_]:
        """[n] where another text than in the row before is, as in the first."""
        number = self.number
        return np.append(np.ones(min(len(number), 1), dtype=bool), number[1:] != number[:-1])


def begins(table: pa.Table) -> npt.NDArray[np.bool_]:
    """[n] the first round of every flow, whose rounds lie together and in order."""
    return Named.of(table["flow_id"]).begins()


def with_derived(table: pa.Table) -> pa.Table:
    """The same rounds with `DERIVED`."""
    first = begins(table)
    t_us = table["t_us"].to_numpy()
    at = np.arange(table.num_rows)
    number = at - np.maximum.accumulate(np.where(first, at, 0))
    duration_us = t_us - np.where(first, 0, np.roll(t_us, 1))
    for field, values in zip(DERIVED, (number, duration_us), strict=True):
        table = table.append_column(field, pa.array(values, field.type))
    return table


def lean(table: pa.Table) -> pa.Table:
    """Rounds as they are stored, without the raw numbers that no training reads."""
    fields = [field for field in SCHEMA if field.name not in DETAIL]
    columns = [table[field.name].cast(field.type) for field in fields]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def table(flow: FlowRounds, source: str, split: str) -> pa.Table:
    """One flow's rounds, by `SCHEMA`.

    Args:
        flow: the rounds of one flow.
        source: name of the file or folder it came from.
        split: train, val or test.
    """
    rows, n, truth = flow.rows, len(flow.rows), flow.truth
    same = {
        "flow_id": flow.flow_id,
        "source": source,
        "format": flow.format,
        "sampling": flow.sampling.value,
        "cwnd_source": flow.cwnd_source.value,
        "cc": flow.cc_name,
        "path": flow.path,
        "split": split,
        "mss": flow.mss,
        "scenario": truth.scenario if truth else None,
        "under_test": truth.under_test if truth else None,
        "flow_number": truth.number if truth else None,
        "start_us": truth.start_us if truth else None,
    }
    inputs = {name: number for number, name in enumerate(INPUT_COLUMNS)}

    def column(field: pa.Field) -> pa.Array:
        if field.name in same:
            return pa.repeat(pa.scalar(same[field.name], field.type), n)
        if field.name in inputs:
            return pa.array(rows["x"][:, inputs[field.name]])
        values = np.ascontiguousarray(rows[field.name])
        return pa.array(values.astype(bool) if pa.types.is_boolean(field.type) else values)

    return pa.Table.from_arrays([column(field) for field in SCHEMA], schema=SCHEMA)
