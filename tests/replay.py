# SPDX-License-Identifier: GPL-2.0-only
"""A trace's rounds through the integers of Python's extension: the same bits as in the kernel."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ndm_tcp import core
from ndm_tcp.datasets import round_trace
from ndm_tcp.export import generated, model_c


def inputs(table: pa.Table) -> npt.NDArray[np.int16]:
    """[rounds, 15], Q12."""
    columns = [table[name].to_numpy() for name in round_trace.INPUTS]
    return np.ascontiguousarray(np.stack(columns, axis=1).astype(np.int16))


def assert_replays(table: pa.Table) -> int:
    """Both outputs of every valid round are the shipped network's; how many rounds those are."""
    layers = model_c.from_json(generated.GENERATED / "ndm_model.json").layers
    valid = table["valid"].to_numpy(zero_copy_only=False)
    out, _ = core.infer(layers, inputs(table)[valid])
    assert (out[:, 0] == table["cwnd_gain"].to_numpy()[valid]).all()
    assert (out[:, 1] == table["congestion"].to_numpy()[valid]).all()
    assert not inputs(table)[~valid].any()
    return int(valid.sum())
