# SPDX-License-Identifier: GPL-2.0-only
"""A trace's rounds once more: the integers, by Python's extension, and the rule of ceilings."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ndm_tcp import core
from ndm_tcp.datasets.module_event import event_lines
from ndm_tcp.export.integers import generated, model_c
from ndm_tcp.fixedpoint import Layer

STEADY, SHORT, EMPTIES = 4096 // 16, 4096 // 2, 4096 // 4
ROUNDS, SETTLES, SHRINKS = 31, 2, 8
"""for how long a ceiling holds; with losses that are still those of the larger window; below a
window without losses"""


STANDS, SCATTERS, OFTEN, SURE = 4096 * 4 // 5, 4096 // 8, 4096 // 128, 2 << 16
"""beside rivals: of rtt_ratio, rtt_variation and loss_rate_mean, and the logit of an overflow"""


def inputs(table: pa.Table) -> npt.NDArray[np.int16]:
    """[rounds, dense], Q12."""
    columns = [table[name].to_numpy() for name in event_lines.INPUTS]
    return np.ascontiguousarray(np.stack(columns, axis=1).astype(np.int16))


def assert_replays(table: pa.Table, layers: list[Layer] | None = None) -> int:
    """Both outputs of every valid round are a network's, else the shipped one's; how many."""
    layers = layers or model_c.from_json(generated.GENERATED / "ndm_model.json").layers
    valid = table["valid"].to_numpy(zero_copy_only=False)
    out, _ = core.infer(layers, inputs(table)[valid])
    assert (out[:, 0] == table["cwnd_gain"].to_numpy()[valid]).all()
    assert (out[:, 1] == table["congestion"].to_numpy()[valid]).all()
    assert not inputs(table)[~valid].any()
    return int(valid.sum())


def overflowed(row: dict[str, Any]) -> bool:
    steady = row["rtt_variation"] < STEADY and row["rtt_ratio"] > SHORT
    own = steady and row["queue_floor"] < EMPTIES
    return bool(row["congestion"] >= 0 and own and row["loss_rate"] > 2 * row["loss_rate_mean"])


def ceilings(rows: list[dict[str, Any]]) -> tuple[list[int | None], list[int]]:
    """kmod/ndm_ceiling.h once more: the ceiling of each round that the network decides, if any.

    Only for a flow that fills its window in every round, and where no packets overtake others;
    the rounds do not show either.

    Args:
        rows: one flow's, in order.

    Returns:
        packets, by row, and how many rounds each ceiling held.
    """
    found: list[int | None] = []
    held, left = [0], 0
    for row in rows:
        if row["why"] != "network":
            found.append(None)
            continue
        loss, usual = row["loss_rate"], row["loss_rate_mean"]
        if 0 < left <= ROUNDS - SETTLES and loss > usual:
            left = 0
        elif overflowed(row):
            left = ROUNDS
            held.append(0)
        else:
            left = max(left - 1, 0)
        held[-1] += left > 0
        ceiling = row["cwnd"] * row["bdp_ratio"] // max(row["rtt_ratio"], 1)
        if not loss and left <= ROUNDS - SHRINKS:
            ceiling = max(ceiling, row["cwnd"])
        found.append(ceiling if left else None)
    return found, held[1:]


def beside_rivals(row: dict[str, Any], target: int) -> int:
    """kmod/ndm_rivals.h once more: the target of a round that fills its window, packets.

    For paths of more than 16 ms whose packets keep their order; the rounds show neither.

    Args:
        row: the round.
        target: without those rules, packets.
    """
    if row["queue_floor"] < EMPTIES:
        return target
    cwnd = int(row["cwnd"])
    stands = row["rtt_ratio"] <= STANDS and row["rtt_variation"] < SCATTERS
    often = stands and row["loss_rate_mean"] >= OFTEN
    target -= target > 4 and row["phase"] % 2 and often
    if not often:
        return target
    if row["loss_rate"] and row["congestion"] >= SURE:
        return min(target, cwnd - (cwnd + 3) // 4)
    return min(target, cwnd + max(cwnd // 8, 1))
