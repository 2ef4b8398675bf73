# SPDX-License-Identifier: GPL-2.0-only
"""Rounds to what is learned: actions, rewards, returns, masks and loss causes.

Action: log2 of the ratio of consecutive windows (Sage, SIGCOMM 2023). Reward: (throughput -
5 x loss) / highest throughput seen x min(1, 1.25 x min_rtt / srtt) (Orca, SIGCOMM 2020),
which needs nothing that a log does not hold.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ndm_tcp import contract
from ndm_tcp.datasets import rounds
from ndm_tcp.datasets.records import LossCause
from ndm_tcp.errors import NdmError
from ndm_tcp.training import derived, splits
from ndm_tcp.training.config import TrainConfig

Floats = npt.NDArray[np.float64]
LOSS_PENALTY = 5.0
DELAY_SLACK = 1.25
IDEAL_SLOPE = 0.6
"""part of the way to the right window that one round should go, in log2"""
IDEAL_RANGE = (-0.6, 0.8)
"""log2; what a round shows does not tell more"""
OWN = "ndm_tcp"
READ = (
    *("flow_id", "source", "cc", "path", "split", "duration_us", "slow_start", "valid", "cwnd"),
    *("srtt_us", "min_rtt_us", "delivered", "lost", "ca_state", "app_limited", "rwnd_limited"),
    "loss_cause",
)
"""columns of the rounds"""
LOSS_STATE = 4  # TCP_CA_Loss
RECOVERY_STATE = 2  # CWR, Recovery and Loss: the kernel's mechanics, no policy


@dataclass(frozen=True)
class Examples:
    """One row a round, flows together and in order."""

    x: npt.NDArray[np.float32]
    """[n, dense] inputs and their means, real numbers"""
    action: npt.NDArray[np.float32]
    """[n] log2 cwnd ratio to the next round, clipped to [-1, 1]"""
    reward: npt.NDArray[np.float32]
    """[n] of the round itself"""
    return_to_go: npt.NDArray[np.float32]
    """[n] discounted mean reward of the rounds after, standardised within the path"""
    policy: npt.NDArray[np.bool_]
    """[n] rounds whose action is a decision worth learning"""
    weight: npt.NDArray[np.float32]
    """[n] of the round beside others, before any advantage"""
    cause: npt.NDArray[np.int8]
    """[n] 1: lost to congestion, 0: lost to noise, -1: nothing lost, or cause unknown"""
    split: npt.NDArray[np.str_]
    flow: npt.NDArray[np.str_]
    cc: npt.NDArray[np.str_]
    masked: dict[str, int]
    """rounds left out of the policy, by the first reason that applies"""


def begins(flow: npt.NDArray[np.str_]) -> npt.NDArray[np.bool_]:
    """[n] the first row of every flow, whose rows lie together."""
    return np.append(True, flow[1:] != flow[:-1])


def rewards(columns: dict[str, Any]) -> Floats:
    """[n] rewards of one flow's rounds; 0 where a round took no time."""
    duration = np.maximum(columns["duration_us"].astype(np.float64), 1.0)
    throughput = columns["delivered"] / duration
    loss = columns["lost"] / duration
    highest = np.maximum(np.maximum.accumulate(throughput), 1e-12)
    srtt = np.maximum(columns["srtt_us"].astype(np.float64), 1.0)
    delay = np.minimum(1.0, DELAY_SLACK * columns["min_rtt_us"] / srtt)
    reward = (throughput - LOSS_PENALTY * loss) / highest * delay
    return np.where(columns["duration_us"] > 0, reward, 0.0)


def returns_to_go(reward: Floats, gamma: float) -> Floats:
    """[n] discounted mean of the rewards after each round; the last round has none, 0.

    A mean, not a sum: near a flow's end fewer rounds remain, which is no fault of the action.
    """
    total = np.zeros(len(reward))
    weight = np.zeros(len(reward))
    for t in range(len(reward) - 2, -1, -1):
        total[t] = reward[t + 1] + gamma * total[t + 1]
        weight[t] = 1.0 + gamma * weight[t + 1]
    return total / np.maximum(weight, 1.0)


def actions(columns: dict[str, Any]) -> Floats:
    """[n] log2 of the next round's window over this one's, clipped; the last is 0."""
    cwnd = np.maximum(columns["cwnd"].astype(np.float64), 1.0)
    ratio = np.log2(cwnd[1:] / cwnd[:-1])
    limit = contract.OUTPUTS[0].hi
    return np.append(np.clip(ratio, -limit, limit), 0.0)


def ideal_actions(columns: dict[str, Any]) -> Floats:
    """[n] log2 steps towards the window that the path's maker says is right; 0 if unknown."""
    ideal = columns["target_cwnd"].astype(np.float64)
    cwnd = np.maximum(columns["cwnd"].astype(np.float64), 1.0)
    step = IDEAL_SLOPE * np.log2(np.where(ideal > 0, ideal, cwnd) / cwnd)
    return np.asarray(np.clip(step, *IDEAL_RANGE), dtype=np.float64)


def _standardised(values: Floats, groups: npt.NDArray[Any], mask: npt.NDArray[np.bool_]) -> Floats:
    """Zero mean and unit deviation within each group, measured on the masked rows."""
    out = np.zeros_like(values)
    for group in np.unique(groups):
        rows = groups == group
        base = values[rows & mask]
        if len(base) > 1:
            out[rows] = (values[rows] - base.mean()) / max(base.std(), 1e-3)
    return out


def _path_bucket(columns: dict[str, Any]) -> str:
    """A stand-in for the path's name: its floor RTT and top rate in half octaves."""
    valid = columns["min_rtt_us"] > 0
    if not valid.any():
        return "unknown"
    rate = columns["delivered"] / np.maximum(columns["duration_us"], 1)
    floor, top = columns["min_rtt_us"][valid].min(), max(rate[valid].max(), 1e-9)
    return f"{round(2 * np.log2(floor))}/{round(2 * np.log2(top))}"


def _cloned(data: dict[str, Any], last: npt.NDArray[np.bool_]) -> dict[str, Any]:
    """Reasons why a round's action is no decision of its controller."""
    recovery = data["ca_state"] >= RECOVERY_STATE
    # A step into recovery is the kernel's cut, not the controller's choice for the round.
    into = np.append(recovery[1:], False) & ~last
    return {"end of flow": last, "recovery": recovery | into}


def _taught(data: dict[str, Any]) -> dict[str, Any]:
    """Reasons why nobody can say what would have been right."""
    return {"no truth": data["target_cwnd"] <= 0, "timeout": data["ca_state"] >= LOSS_STATE}


def _split(
    data: dict[str, Any], flow: npt.NDArray[np.str_], edges: npt.NDArray[np.intp]
) -> npt.NDArray[np.str_]:
    """[n] the split by path; a flow begins at each of the edges."""
    path = np.array([name or "" for name in data["path"][edges]], dtype=str)
    source, split = (data[name][edges].astype(str) for name in ("source", "split"))
    of_flow = splits.by_path(flow[edges], source, path, split)
    return np.repeat(of_flow, np.diff(np.append(edges, len(flow))))


def _sampled(table: pa.Table, config: TrainConfig) -> pa.Table:
    """The rounds of the config's kind of sampling.

    Raises:
        NdmError: there are none; names the options that take those there are.
    """
    found = table.filter(pc.equal(table["sampling"], config.sampling))
    if found.num_rows:
        return found
    if not table.num_rows:
        raise NdmError("dataset: no rounds in it; build it from other sources")
    (other,) = pc.unique(table["sampling"]).to_pylist()
    words = f"--sampling {other}"
    if config.objective == "ideal" and table["scenario"].null_count == table.num_rows:
        words += " --objective awbc"
    raise NdmError(
        f"dataset: no {config.sampling} rounds in it, but {table.num_rows} {other} rounds; "
        f"ndm train takes them with {words}"
    )


def examples(table: pa.Table, config: TrainConfig) -> Examples:
    """Everything the trainer needs from a dataset.

    Args:
        table: rounds by `rounds.SCHEMA`.
        config: discount, kind of sampling, objective and weight of other algorithms' flows.

    Raises:
        NdmError: no round of that kind, or an input is outside the contract's box.
    """
    table = _sampled(table, config)
    data = {name: rounds.values(table, name) for name in READ}
    data["target_cwnd"] = derived.targets(table)
    flow = data["flow_id"].astype(str)
    edges = np.flatnonzero(begins(flow))
    groups = np.split(np.arange(len(flow)), edges[1:])
    n = len(flow)
    taught = config.objective == "ideal"
    weight = np.ones(n)
    action, reward, to_go = np.zeros(n), np.zeros(n), np.zeros(n)
    path = np.empty(n, dtype=object)
    last = np.zeros(n, dtype=bool)
    for rows in groups:
        columns = {name: values[rows] for name, values in data.items()}
        action[rows] = ideal_actions(columns) if taught else actions(columns)
        reward[rows] = rewards(columns)
        to_go[rows] = returns_to_go(reward[rows], config.gamma)
        path[rows] = columns["path"][0] or _path_bucket(columns)
        last[rows[-1]] = True
        # A short RTT makes many rounds; they are not that much more to learn from.
        if taught:
            weight[rows] = 1 / np.sqrt(len(rows))
            if columns["cc"][0] != OWN:
                weight[rows] *= config.pool_weight
    reasons = {
        "no valid inputs": ~data["valid"],
        "slow start": data["slow_start"] > 0,
        **(_taught(data) if taught else _cloned(data, last)),
        "application limited": data["app_limited"],
        "receiver limited": data["rwnd_limited"],
    }
    policy = np.ones(n, dtype=bool)
    masked = Counter[str]()
    for reason, rows in reasons.items():
        masked[reason] = int((policy & rows).sum())
        policy &= ~rows
    cause = np.full(n, -1, dtype=np.int8)
    hit = data["valid"] & (data["lost"] > 0)
    cause[hit & (data["loss_cause"] == LossCause.QUEUE)] = 1
    noise = (data["loss_cause"] == LossCause.RANDOM) | (data["loss_cause"] == LossCause.REORDERED)
    cause[hit & noise] = 0
    x = derived.dense(table).astype(np.float32) / np.float32(1 << contract.Q_INPUT)
    return Examples(
        x=x,
        action=action.astype(np.float32),
        reward=reward.astype(np.float32),
        return_to_go=_standardised(to_go, path, policy).astype(np.float32),
        policy=policy,
        weight=weight.astype(np.float32),
        cause=cause,
        split=_split(data, flow, edges) if config.split_by == "path" else data["split"].astype(str),
        flow=flow,
        cc=np.array([name or "unknown" for name in data["cc"]]),
        masked=dict(masked),
    )
