# SPDX-License-Identifier: GPL-2.0-only
"""Values of training that no dataset holds: the dense layers' inputs, the target windows.

Both follow from the recording, so a change of the network's memory or of the lab's `truth`
costs a training run, never a dataset.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ndm_tcp import contract, core
from ndm_tcp.datasets.rounds.columns import INPUT_COLUMNS, begins
from ndm_tcp.errors import NdmError
from ndm_tcp.lab.paths import truth

OF_FLOW = ("source", "scenario", "under_test", "flow_number", "start_us")
"""columns with one value a flow"""


def dense(table: pa.Table) -> npt.NDArray[np.int16]:
    """[n, dense] Q12: the inputs, and the network's memory of the flow's earlier rounds.

    Args:
        table: rounds by `columns.SCHEMA`, whole flows: a mean depends on all rounds before.

    Raises:
        NdmError: an input is outside the contract's box.
    """
    x = np.empty((table.num_rows, contract.N_INPUTS), dtype=np.int16)
    for number, i in enumerate(contract.INPUTS):
        x[:, number] = table[i.name].to_numpy()
        outside = (x[:, number] < i.lo_q) | (x[:, number] > i.hi_q)
        if outside.any():
            row = int(outside.argmax())
            value = x[row, number] / (1 << contract.Q_INPUT)
            raise NdmError(
                f"dataset: round {row}, input {INPUT_COLUMNS[number]} = {value:g} lies "
                "outside the contract's range; build the dataset again"
            )
    return core.remember(x, begins(table), table["valid"].to_numpy())


def targets(table: pa.Table) -> npt.NDArray[np.float32]:
    """[n] the target window of every round, packets; 0: its path is not known.

    Args:
        table: rounds by `columns.SCHEMA`.

    Raises:
        NdmError: a scenario in it that this lab cannot read.
    """
    found = np.zeros(table.num_rows, dtype=np.float32)
    edges = np.flatnonzero(begins(table))
    flows: list[dict[str, Any]] = table.select(OF_FLOW).take(pa.array(edges)).to_pylist()
    t_us, srtt_us = table["t_us"].to_numpy(), table["srtt_us"].to_numpy()
    for flow, at, end in zip(flows, edges, [*edges[1:], table.num_rows], strict=True):
        if flow["scenario"] is None:
            continue
        try:
            told = truth.windows(flow["scenario"], flow["under_test"]).get(flow["flow_number"])
        except NdmError as error:
            raise NdmError(
                f"dataset: {flow['source']}: {error}; build the dataset without this source"
            ) from None
        if told is not None:
            rows = slice(at, end)
            found[rows] = told.packets(t_us[rows] + flow["start_us"], srtt_us[rows])
    return found
