# SPDX-License-Identifier: GPL-2.0-only
"""From rounds to examples: actions, rewards, returns, masks and loss causes.

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
from ndm_tcp.datasets.rounds.columns import INPUT_COLUMNS, Named
from ndm_tcp.datasets.rounds.flow import LossCause
from ndm_tcp.datasets.store.store import PART
from ndm_tcp.errors import NdmError
from ndm_tcp.teaching import value
from ndm_tcp.training import derived, splits
from ndm_tcp.training.config import TARGET_STEP, TrainConfig

Floats = npt.NDArray[np.float64]
LOSS_PENALTY = 5.0
DELAY_SLACK = 1.25
STEP_SHARE = value("STEP_SHARE")
"""part of the way to the target window that one round should go, in log2"""
STEP_RANGE = (-0.6, 0.8)
"""log2; the inputs of a round do not justify a larger step"""
OWN = "ndm_tcp"
READ = (
    *("flow_id", "source", "cc", "path", "split", "sampling", "slow_start", "valid", "cwnd"),
    *("lost", "ca_state", "app_limited", "rwnd_limited", "loss_cause"),
)
"""columns of the rounds, beside the inputs"""
READ_FOR_TARGETS = ("t_us", "srtt_us", *derived.OF_FLOW)
"""and those for the target window"""
READ_TO_CLONE = ("duration_us", "delivered", "srtt_us", "min_rtt_us")
"""and those of rewards, which only cloning looks at"""
LOSS_STATE = 4  # TCP_CA_Loss
RECOVERY_STATE = 2  # CWR, Recovery and Loss: the kernel's mechanics, no policy
NO_TRUTH = "no truth"
"""in `Examples.masked`: rounds whose target window is unknown"""


@dataclass(frozen=True)
class Examples:
    """One row a round, flows together and in order."""

    x: npt.NDArray[np.float32]
    """[n, dense] inputs and their means, real numbers"""
    action: npt.NDArray[np.float32]
    """[n] log2 cwnd ratio to the next round, clipped to [-1, 1]"""
    return_to_go: npt.NDArray[np.float32] | None
    """[n] discounted mean reward of the rounds after, standardised within the path; None if the
    objective does not look at it"""
    policy: npt.NDArray[np.bool_]
    """[n] rounds whose action is a decision worth learning"""
    acts: npt.NDArray[np.bool_]
    """[n] the same rounds, and those that are none only because of `NO_TRUTH`"""
    weight: npt.NDArray[np.float32]
    """[n] of the round beside others"""
    cause: npt.NDArray[np.int8]
    """[n] 1: overflow loss, 0: random loss, -1: nothing lost, or cause unknown"""
    lost: npt.NDArray[np.bool_]
    """[n] rounds with valid inputs that lost packets"""
    split: npt.NDArray[np.str_]
    part: npt.NDArray[np.int16]
    """[n] number of the dataset that each round comes from"""
    flows: Named
    ccs: Named
    masked: dict[str, int]
    """rounds left out of the policy, by the first reason that applies"""

    @property
    def flow(self) -> npt.NDArray[np.str_]:
        """[n] the name of each round's flow."""
        return self.flows.text()

    @property
    def cc(self) -> npt.NDArray[np.str_]:
        """[n] the algorithm of each round's sender."""
        return self.ccs.text()


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


def target_steps(columns: dict[str, Any]) -> Floats:
    """[n] log2 steps towards the target window, which the path's maker knows; 0 if unknown."""
    target = columns["target_cwnd"].astype(np.float64)
    cwnd = np.maximum(columns["cwnd"].astype(np.float64), 1.0)
    step = STEP_SHARE * np.log2(np.where(target > 0, target, cwnd) / cwnd)
    return np.asarray(np.clip(step, *STEP_RANGE), dtype=np.float64)


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
    """Reasons why the target window is unknown."""
    return {NO_TRUTH: data["target_cwnd"] <= 0, "timeout": data["ca_state"] >= LOSS_STATE}


def _reasons(data: dict[str, Any], of_objective: dict[str, Any]) -> dict[str, Any]:
    """All reasons why a round teaches no gain, the first that counts first."""
    return {
        "no valid inputs": ~data["valid"],
        "slow start": data["slow_start"] > 0,
        **of_objective,
        "application limited": data["app_limited"],
        "receiver limited": data["rwnd_limited"],
    }


def _split(
    texts: dict[str, Named], edges: npt.NDArray[np.intp], config: TrainConfig, beside_lab: bool
) -> npt.NDArray[np.str_]:
    """[n] the split of every round; a flow begins at each of the edges."""
    if config.split_by == "flow":
        return texts["split"].text()
    names = ("flow_id", "source", "path", "split")
    of_flow = splits.by_path(*(texts[name].at(edges) for name in names), beside_lab=beside_lab)
    return np.repeat(of_flow, np.diff(np.append(edges, len(texts["split"].number))))


def of_sampling(table: pa.Table, sampling: str) -> pa.Table:
    """The rounds of a kind of sampling."""
    mine = pc.equal(table["sampling"].cast(pa.string()), sampling)
    return table if pc.all(mine).as_py() else table.filter(mine)


def _sampled(table: pa.Table, config: TrainConfig) -> pa.Table:
    """The rounds of the config's kind of sampling.

    Raises:
        NdmError: there are none; names the options that take those there are.
    """
    found = of_sampling(table, config.sampling)
    if found.num_rows:
        return found
    if not table.num_rows:
        raise NdmError("dataset: no rounds in it; build it from other sources")
    (other,) = pc.unique(table["sampling"].cast(pa.string())).to_pylist()
    words = f"--sampling {other}"
    blind = table["scenario"].null_count == table.num_rows and not config.teachers
    if config.objective == TARGET_STEP and blind:
        words += " --objective awbc"
    raise NdmError(
        f"dataset: no {config.sampling} rounds in it, but {table.num_rows} {other} rounds; "
        f"ndm train takes them with {words}"
    )


def needed(config: TrainConfig) -> list[str]:
    """The columns that `examples` reads."""
    more = READ_FOR_TARGETS if config.objective == TARGET_STEP else READ_TO_CLONE
    return list(dict.fromkeys([*INPUT_COLUMNS, *READ, "scenario", *more]))


def _returns(
    data: dict[str, Any],
    path: Named,
    policy: npt.NDArray[np.bool_],
    groups: list[slice],
    gamma: float,
) -> npt.NDArray[np.float32]:
    """[n] see `Examples.return_to_go`."""
    to_go = np.zeros(len(policy))
    bucket = np.empty(len(policy), dtype=object)
    named = path.at(np.array([rows.start for rows in groups], dtype=np.intp))
    for rows, name in zip(groups, named, strict=True):
        columns = {key: data[key][rows] for key in READ_TO_CLONE}
        columns["lost"] = data["lost"][rows]
        to_go[rows] = returns_to_go(rewards(columns), gamma)
        bucket[rows] = str(name) or _path_bucket(columns)
    return _standardised(to_go, bucket, policy).astype(np.float32)


def shared_out(
    weight: Floats,
    policy: npt.NDArray[np.bool_],
    split: npt.NDArray[np.str_],
    part: npt.NDArray[np.int16],
    config: TrainConfig,
) -> Floats:
    """[n] the weights, such that in each split every dataset has its share of their sum, if any.

    Raises:
        NdmError: a dataset with a share that teaches nothing.
    """
    if not config.shares:
        return weight
    made = weight.copy()
    for name in np.unique(split):
        shares = config.shares if name == "train" else config.held_out_shares or config.shares
        here = policy & (split == name)
        for number, share in enumerate(shares):
            rows = here & (part == number)
            total = weight[rows].sum()
            if name == "train" and share and not total:
                raise NdmError(f"--shares: no round of dataset {number + 1} teaches; leave it out")
            made[rows] *= share / max(total, 1e-12)
    return made


def _moved(action: Floats, part: npt.NDArray[np.int16], config: TrainConfig) -> Floats:
    """[n] the actions and the offset of each one's dataset, if there are any."""
    if not config.offsets:
        return action
    moved = action + np.asarray(config.offsets)[part]
    return np.asarray(np.clip(moved, *STEP_RANGE), dtype=np.float64)


def _causes(data: dict[str, Any], lost: npt.NDArray[np.bool_]) -> npt.NDArray[np.int8]:
    """[n] see `Examples.cause`; lost: [n]."""
    cause = np.full(len(lost), -1, dtype=np.int8)
    cause[lost & (data["loss_cause"] == LossCause.QUEUE)] = 1
    noise = (data["loss_cause"] == LossCause.RANDOM) | (data["loss_cause"] == LossCause.REORDERED)
    cause[lost & noise] = 0
    return cause


def examples(table: pa.Table, config: TrainConfig, beside_lab: bool = False) -> Examples:
    """Everything the trainer needs from a dataset.

    Args:
        table: rounds by `columns.SCHEMA`, at least the columns that `needed` names.
        config: discount, kind of sampling, objective and weight of other algorithms' flows.
        beside_lab: see `splits.by_path`.

    Raises:
        NdmError: no round of that kind, or an input is outside the contract's box.
    """
    table = _sampled(table, config)
    texts = {name: Named.of(table[name]) for name in ("flow_id", "source", "cc", "path", "split")}
    taught = config.objective == TARGET_STEP
    plain = (*READ, *(() if taught else READ_TO_CLONE))
    data = {n: table[n].to_numpy() for n in plain if n not in (*texts, "sampling")}
    edges = np.flatnonzero(texts["flow_id"].begins())
    n = table.num_rows
    ends = np.append(edges[1:], n)
    groups = [slice(int(a), int(b)) for a, b in zip(edges, ends, strict=True)]
    if taught:
        data["target_cwnd"] = derived.targets(table)
    last = np.zeros(n, dtype=bool)
    last[ends - 1] = True
    if taught:
        action = target_steps(data)
        # A short RTT makes many rounds; they are not that much more to learn from.
        length = ends - edges
        own = texts["cc"].at(edges) == OWN
        weight = np.repeat(np.where(own, 1, config.pool_weight) / np.sqrt(length), length)
    else:
        action = np.where(last, 0.0, actions(data))
        weight = np.ones(n)
    policy, acts = np.ones(n, dtype=bool), np.ones(n, dtype=bool)
    masked = Counter[str]()
    for reason, rows in _reasons(data, _taught(data) if taught else _cloned(data, last)).items():
        masked[reason] = int((policy & rows).sum())
        policy &= ~rows
        acts &= ~rows | (reason == NO_TRUTH)
    split = _split(texts, edges, config, beside_lab)
    part = np.zeros(n, dtype=np.int16)
    if PART.name in table.column_names:  # else of one dataset, which need not be one of the run's
        part = table[PART.name].to_numpy()
        weight = shared_out(weight, acts if config.teachers else policy, split, part, config)
        action = _moved(action, part, config)
    lost = data["valid"] & (data["lost"] > 0)
    x = derived.dense(table).astype(np.float32)
    x *= np.float32(1 / (1 << contract.Q_INPUT))
    return Examples(
        x=x,
        action=action.astype(np.float32),
        return_to_go=None
        if taught
        else _returns(data, texts["path"], policy, groups, config.gamma),
        policy=policy,
        acts=acts,
        weight=weight.astype(np.float32),
        cause=_causes(data, lost),
        lost=lost,
        split=split,
        part=part,
        flows=texts["flow_id"],
        ccs=texts["cc"],
        masked=dict(masked),
    )
