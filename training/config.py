# SPDX-License-Identifier: GPL-2.0-only
"""The settings of a training run; saved with the run."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from typing import Any

from ndm_tcp import contract
from ndm_tcp.errors import NdmError
from ndm_tcp.teaching import value

RESULTS = "metrics.json"
"""in a run's folder: what it measured"""
TARGET_STEP = "target_step"
OBJECTIVES = ("bc", "awbc", TARGET_STEP)
ONE_CYCLE, COSINE = "one-cycle", "cosine"
POLL_MASK = (4, 10)
"""Inputs that polls cannot have, nor their means: a poll has no raw RTT sample, so the entropy
lacks its delay part, and there is no queue floor."""
MOST_RATE = 10.0
"""far above any rate at which AdamW learns"""
AUTO, RANDOM, SHIPPED = "auto", "random", "shipped"
"""starts; auto: random weights, or the shipped network's if an output has no labels"""


@dataclass(frozen=True)
class TrainConfig:
    """Hyper-parameters; the same data and the same config give the same bytes."""

    hidden: tuple[int, ...] = (8, 8)
    """widths of the tanh layers"""
    objective: str = TARGET_STEP
    """bc: clone every action alike; awbc: weigh it by exp(advantage / beta); target_step: the step
    towards the target window, which the lab knows (older runs call it ideal)"""
    beta: float = 1.0
    """temperature of the advantage, in standard deviations of the path's returns"""
    gamma: float = 0.9
    """discount per round of the return-to-go"""
    epochs: int = 30
    batch: int = 0
    """rounds per step; 0: by the number of rounds (`prepared.batch_of`)"""
    lr: float = 2e-2
    """the highest; see `loop.schedule`"""
    schedule: str = ONE_CYCLE
    """of the learning rate; cosine: of older runs, which can be read and not carried on"""
    weight_decay: float = 0.1
    pool_weight: float = value("POOL_WEIGHT")
    """weight of other algorithms' flows beside ndm_tcp's own, if the objective is target_step"""
    expectile: float = value("EXPECTILE")
    """of the steps that fit one state, if the objective is target_step: 0.5 is their mean;
    above, the network prefers the larger window where its inputs are ambiguous (`teaching`)"""
    shares: tuple[float, ...] = ()
    """part of the steps' weight that each dataset has, in the order of the folders; none: as its
    flows weigh. Fine-tuning on a few captures keeps what it knew only if it sees the rest, too.
    The congestion logit's loss ignores them"""
    held_out_shares: tuple[float, ...] = ()
    """the same for held-out rounds, whose loss chooses the epoch; none: as `shares`"""
    offsets: tuple[float, ...] = ()
    """log2, added to the target steps of each dataset, kept ones too; none: nothing"""
    kept: tuple[int, ...] = ()
    """numbers, from 0, of the datasets whose targets are the outputs of the network to start from:
    fine-tuning then changes these outputs as little as the other datasets allow"""
    congestion_weight: float = 0.1
    """weight of the congestion logit's cross-entropy beside the gain's Huber loss"""
    mask: tuple[int, ...] = ()
    """1-based inputs held at zero, and with them their means; of poll rounds `POLL_MASK` always"""
    sampling: str = "per_ack"
    """which rounds to train on"""
    split_by: str = "path"
    """path: no path is in two splits (`splits`); flow: as in the dataset, which holds out whole
    flows; runs without this setting were split so"""
    seed: int = 1
    init: str = AUTO
    """the weights to start from: auto, random, shipped, or a path; of a run, its actual start"""
    teachers: tuple[str, ...] = ()
    """run folders of networks whose mean outputs are the target, in place of the data's; of a run,
    their digests"""
    freeze: tuple[str, ...] = ()
    """outputs that stay as they are in the network to start from, for every input. Hidden layers
    serve both outputs, so they stay too: of the other output, the last layer's row is learned"""

    def __post_init__(self) -> None:
        """Raises NdmError on a value no run can have."""
        if self.objective not in OBJECTIVES:
            raise NdmError(f"objective {self.objective!r}: expected one of {OBJECTIVES}")
        if self.sampling not in ("per_ack", "poll"):
            raise NdmError(f"sampling {self.sampling!r}: expected per_ack or poll")
        if self.split_by not in ("path", "flow"):
            raise NdmError(f"split_by {self.split_by!r}: expected path or flow")
        if not 1 <= len(self.hidden) < contract.MAX_LAYERS:
            raise NdmError(f"hidden {self.hidden}: expected 1 to {contract.MAX_LAYERS - 1} layers")
        if not all(1 <= width <= contract.MAX_WIDTH for width in self.hidden):
            raise NdmError(f"hidden {self.hidden}: widths must be 1 to {contract.MAX_WIDTH}")
        if not all(1 <= index <= contract.N_DENSE for index in self.mask):
            raise NdmError(
                f"mask {self.mask}: inputs are numbered 1 to {contract.N_DENSE}; name those"
            )
        if self.sampling == "poll":
            # Left at random weights, or at a start's, these inputs would act in the kernel, which
            # has them, in a way that no round taught.
            object.__setattr__(self, "mask", tuple(sorted({*self.mask, *POLL_MASK})))
        names = tuple(o.name for o in contract.OUTPUTS)
        if unknown := [name for name in self.freeze if name not in names]:
            raise NdmError(f"freeze {unknown[0]!r}: expected {' or '.join(names)}")
        if len(set(self.freeze)) == len(names):
            raise NdmError(
                "freeze: with every output frozen nothing is left to learn; freeze fewer"
            )
        for shares in (self.shares, self.held_out_shares):
            # As they must be, not as they must not: nan is neither.
            if shares and not (min(shares) >= 0 and abs(sum(shares) - 1) <= 1e-6):
                raise NdmError(f"shares {shares}: expected parts, none below 0, that sum up to 1")
        if self.kept and self.init in (AUTO, RANDOM):
            raise NdmError(
                "kept: random weights have nothing to keep; name a network to start from"
            )
        if not 0 < self.expectile < 1:
            raise NdmError(f"expectile {self.expectile}: expected a number between 0 and 1")
        if not 0 < self.lr <= MOST_RATE:
            raise NdmError(f"lr {self.lr}: expected a number above 0, up to {MOST_RATE:g}")
        for name in ("weight_decay", "pool_weight", "congestion_weight"):
            if not 0 <= getattr(self, name) < math.inf:
                raise NdmError(f"{name} {getattr(self, name)}: expected 0 or more")
        if not 0 <= self.seed < 1 << 63:
            raise NdmError(f"seed {self.seed}: expected a whole number from 0, below 2^63")
        if not 0 < self.beta < math.inf:
            raise NdmError(f"beta {self.beta}: expected a number above 0")
        if self.epochs < 1 or self.batch < 0 or not 0 <= self.gamma < 1:
            raise NdmError("epochs must be >= 1, batch >= 0, gamma in [0, 1)")

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> TrainConfig:
        """The inverse of `to_dict`; unknown keys raise NdmError.

        Runs without `split_by` were split by flow, and runs without `schedule` used a cosine.
        """
        known = {f.name for f in fields(cls)}
        if unknown := set(data) - known:
            raise NdmError(f"config: unknown keys {sorted(unknown)}; update this checkout")
        values: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in data.items()
        }
        if values.get("objective") == "ideal":
            values["objective"] = TARGET_STEP
        return cls(**{"split_by": "flow", "schedule": COSINE, **values})
