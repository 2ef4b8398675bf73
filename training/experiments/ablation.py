# SPDX-License-Identifier: GPL-2.0-only
"""The worth of the network's parts, on paths that it never saw.

`python -m ndm_tcp.training.experiments.ablation --data DIR... -o OUT` trains every variant with
several seeds on three quarters of the training paths, all in one batch, and measures them on the
others:
`OUT/offline.json`. `--untrained RUN` writes a run whose weights are random instead.

A dataset is split by flow, but the same path is in many flows. Here whole paths are held out, all
recordings of them, and for some variants a whole kind of path or another algorithm's flows.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow.compute as pc
import torch
from torch import Tensor
from torch.nn import functional
from tqdm import tqdm

from ndm_tcp import contract, files
from ndm_tcp.datasets.store import store
from ndm_tcp.errors import NdmError
from ndm_tcp.training import checkpoint as ckpt
from ndm_tcp.training.config import RESULTS, TrainConfig
from ndm_tcp.training.evaluate import calibration
from ndm_tcp.training.experiments.draws import Draws, Floats, interval, weighted_auc
from ndm_tcp.training.loop import cause_weight, gain_loss, schedule
from ndm_tcp.training.model import Policy
from ndm_tcp.training.objective import Examples, examples
from ndm_tcp.training.prepared import batch_of

Bools = npt.NDArray[np.bool_]
OFFLINE = "offline.json"
FULL = "full"
AT_ONCE = 12
"""networks in a batch; more of them leave the processor's cache and take longer each"""
GROUPS = {
    "jitter, reordering": (
        *("jitter", "jitter-loss", "heavy-jitter-loss", "slow-jitter-loss", "reorder"),
        *("more-heavy-jitter-loss", "more-jitter", "slow-jitter", "lone-jitter"),
        "slow-lone-jitter",
        *("lo-jitter", "lo-rate", "lo-shaped", "lo-scatter"),
        *("overtaking", "fast-jitter"),
    ),
    "random loss": (
        *("loss", "heavy-loss", "more-heavy-loss", "fast-heavy-loss", "burst"),
        *("far-loss", "more-far-loss", "fast-loss", "loss-both-ways"),
    ),
    "clean, steps": ("clean", "step", "fast", "lone", "slow", "reroute", "low-orbit"),
    "rivals": (
        *("cubic", "late-cubic", "reno", "bbr"),
        *("long-cubic", "long-reno", "long-bbr", "shallow-cubic", "three-cubics"),
    ),
    "equals": ("equals", "long-equals", "staggered"),
    "short queues": (
        *("shallow", "shallow-loss", "shallow-jitter", "shallow-equals", "fast-shallow"),
        "policer",
    ),
    "early drops": (
        *("fq-codel", "cake", "fq-codel-cubic", "cake-cubic"),
        *("fq-codel-ecn", "cake-ecn"),
    ),
    "bursts": ("slots", "cellular", "ack-bursts", "near-ack-bursts", "thin-acks"),
    "local networks": ("lan",),
}
"""kinds of training paths that need the same behaviour"""
PATH = re.compile(r"(?P<suite>train|valid|[tv]access|tlan|reno|cubic|bbr)-\d+-(?P<kind>.+)")
"""the shipped captures are named by their algorithm"""


def kind_of(path: str) -> str:
    """The kind of a path from its name, that of a recording before `--`; "": of no such path."""
    found = PATH.fullmatch(path)
    if not found:
        return ""
    return "lan" if found["suite"] == "tlan" else found["kind"]


@dataclass(frozen=True)
class Variant:
    """One row of the table."""

    name: str
    mask: tuple[int, ...] = ()
    hidden: tuple[int, ...] = TrainConfig.hidden
    trained: bool = True
    group: str = ""
    """of paths that training does not see"""
    cc: str = ""
    """the algorithm whose flows training does not see"""
    rounds: int = 1
    """whose inputs it sees at once: the possible worth of a memory"""


VARIANTS = (
    Variant(FULL),
    Variant("without 7, 8", mask=(7, 8)),
    Variant("without 4", mask=(4,)),
    Variant("without 10", mask=(10,)),
    Variant("without 4, 7, 8, 10", mask=(4, 7, 8, 10)),
    Variant(
        f"without {contract.MEANS[0].index} to {contract.MEANS[-1].index}",
        mask=tuple(i.index for i in contract.MEANS),
    ),
    Variant("16-16", hidden=(16, 16)),
    Variant("64-64", hidden=(64, 64)),
    Variant("eight rounds at once", rounds=8),
    Variant("untrained", trained=False),
    *(Variant(f"never saw {group}", group=group) for group in GROUPS),
    *(Variant(f"never saw {cc}'s flows", cc=cc) for cc in ("reno", "cubic", "bbr")),
)


@dataclass(frozen=True)
class Rounds:
    """Examples, and where each comes from."""

    data: Examples
    """split by path"""
    path: npt.NDArray[np.str_]
    """[n] the scenario"""
    group: npt.NDArray[np.str_]
    """[n] key of `GROUPS`"""


def split_paths(paths: Sequence[str]) -> dict[str, str]:
    """Scenario to train, val or test: of every kind each eighth to val, each fourth to test."""
    names = {1: "test", 3: "val", 5: "test"}
    result: dict[str, str] = {}
    kinds: dict[str, list[str]] = {}
    for path in sorted(set(paths)):
        kinds.setdefault(kind_of(path), []).append(path)
    for members in kinds.values():
        result |= {path: names.get(i % 8, "train") for i, path in enumerate(members)}
    return result


def load(folders: Sequence[Path], config: TrainConfig) -> Rounds:
    """Recordings of training paths, split by path.

    Raises:
        NdmError: a source that is no recording of a scenario, or of an unknown kind.
    """
    table = store.load_all(folders).rounds
    table = table.filter(pc.equal(table["sampling"], config.sampling))
    data = examples(table, config)
    source = table["source"].to_numpy(zero_copy_only=False).astype(str)
    known = {kind: group for group, kinds in GROUPS.items() for kind in kinds}
    names, inverse = np.unique(source, return_inverse=True)
    paths, groups = [], []
    for name in names:
        path = name.partition("--")[0]
        if kind_of(path) not in known:
            raise NdmError(
                f"{folders[0]}: {name} is no recording of a training path; give datasets that "
                "ndm lab record training and ndm dataset build made"
            )
        paths.append(path)
        groups.append(known[kind_of(path)])
    splits = split_paths(paths)
    split = np.array([splits[p] for p in paths])[inverse]
    return Rounds(replace(data, split=split), np.array(paths)[inverse], np.array(groups)[inverse])


def with_rounds(rounds: Rounds, count: int) -> Rounds:
    """Of every row the inputs of its round and of those before, [n, dense x count], newest first.

    Before a flow's first round that one is repeated.
    """
    data = rounds.data
    row = np.arange(len(data.x))
    first = np.maximum.accumulate(np.where(data.flows.begins(), row, 0))
    x = np.concatenate([data.x[np.maximum(row - k, first)] for k in range(count)], axis=1)
    return replace(rounds, data=replace(data, x=x))


# --- many networks of one shape at once ----------------------------------------------------


@dataclass(frozen=True)
class _Rows:
    """Rows of one split for M networks; which of them a network may see differs."""

    x: Tensor  # [n, dense x rounds]
    action: Tensor  # [n]
    weight: Tensor  # [M, n], 0: no decision, or not to be seen
    cause: Tensor  # [M, n], 1, 0 or -1


def _rows(data: Examples, split: str, visible: Sequence[Bools]) -> _Rows:
    rows = (data.split == split) & (data.policy | (data.cause >= 0))
    weights, causes = [], []
    for seen in visible:
        weight = np.where(data.policy[rows] & seen[rows], data.weight[rows], np.float32(0))
        weights.append(weight / max(float(weight[weight > 0].mean()), 1e-6))
        causes.append(np.where(seen[rows], data.cause[rows], -1).astype(np.float32))
    return _Rows(
        torch.from_numpy(data.x[rows]),
        torch.from_numpy(data.action[rows]),
        torch.from_numpy(np.stack(weights)),
        torch.from_numpy(np.stack(causes)),
    )


def _forward(parameters: Sequence[Tensor], keep: Tensor, x: Tensor) -> Tensor:
    """[M, n, inputs] or [n, inputs] to [M, n, 2] outputs before the clamp."""
    h = x * keep[:, None, :]
    for i in range(0, len(parameters), 2):
        h = torch.baddbmm(parameters[i + 1][:, None, :], h, parameters[i].transpose(1, 2))
        if i + 2 < len(parameters):
            h = torch.tanh(h)
    return h


def _losses(
    out: Tensor, action: Tensor, weight: Tensor, cause: Tensor, balance: Tensor, config: TrainConfig
) -> Tensor:
    """[M] what `loop` calls the loss, of outputs [M, n, 2]."""
    gain = gain_loss(out[..., 0], action.expand_as(weight), config)
    gain = (gain * weight).sum(1) / weight.count_nonzero(dim=1).clamp(min=1)
    share = cause_weight(cause, balance)
    logit = functional.binary_cross_entropy_with_logits(
        out[..., 1], cause.clamp(min=0), weight=share, reduction="none"
    ).sum(1) / (cause >= 0).sum(1).clamp(min=1)
    return gain + config.congestion_weight * logit


def train_many(
    data: Examples, configs: Sequence[TrainConfig], visible: Sequence[Bools], quiet: bool = False
) -> list[Policy]:
    """The training of `loop.Trainer`, for many networks of one shape in one batch.

    Args:
        data: the examples.
        configs: one per network; they may differ in mask and seed.
        visible: per network [n], the rows that it may see.

    Returns:
        per network the weights of its lowest validation loss.
    """
    config = configs[0]
    train, val = _rows(data, "train", visible), _rows(data, "val", visible)
    shares = torch.stack([(train.cause == k).sum(1).float() for k in (0, 1)], dim=1)
    balance = shares.sum(1, keepdim=True) / (2 * shares.clamp(min=1))
    balance = balance * (shares > 0).all(1, keepdim=True)
    policies = []
    for one in configs:
        torch.manual_seed(one.seed)
        policies.append(Policy(one.hidden, one.mask, data.x.shape[1] // contract.N_DENSE))
    lists = [list(policy.parameters()) for policy in policies]
    parameters = [
        torch.stack([p.detach() for p in same]).requires_grad_()
        for same in zip(*lists, strict=True)
    ]
    keep = torch.stack([policy.keep for policy in policies])
    optimizer = torch.optim.AdamW(parameters, lr=config.lr, weight_decay=config.weight_decay)
    best = [p.detach().clone() for p in parameters]
    best_loss = torch.full((len(configs),), math.inf)
    n, which = len(train.x), torch.arange(len(configs))[:, None]
    batch = batch_of(config, n)
    learning_rate = schedule(optimizer, config, -(-n // batch))
    for epoch in tqdm(range(config.epochs), unit="epoch", disable=quiet, mininterval=5):
        seeds = [c.seed * 1_000_003 + epoch for c in configs]
        order = torch.stack(
            [torch.randperm(n, generator=torch.Generator().manual_seed(s)) for s in seeds]
        )
        for number, index in enumerate(torch.split(order, batch, dim=1)):
            if number or epoch:
                learning_rate.step()
            out = _forward(parameters, keep, train.x[index])
            weight, cause = train.weight[which, index], train.cause[which, index]
            loss = _losses(out, train.action[index], weight, cause, balance, config)
            optimizer.zero_grad()
            loss.sum().backward()  # type: ignore[no-untyped-call]
            with torch.no_grad():
                grads = [p.grad for p in parameters if p.grad is not None]
                norm = torch.stack([g.flatten(1).square().sum(1) for g in grads]).sum(0).sqrt()
                factor = (1 / (norm + 1e-6)).clamp(max=1)
                for g in grads:
                    g.mul_(factor.view(-1, *[1] * (g.dim() - 1)))
            optimizer.step()
        with torch.no_grad():
            out = _forward(parameters, keep, val.x)
            loss = _losses(out, val.action, val.weight, val.cause, balance, config)
            better = loss < best_loss
            best_loss = torch.where(better, loss, best_loss)
            for kept, p in zip(best, parameters, strict=True):
                kept[better] = p.detach()[better]
    for number, policy in enumerate(policies):
        with torch.no_grad():
            for own, kept in zip(policy.parameters(), best, strict=True):
                own.copy_(kept[number])
        policy.eval()
    return policies


# --- what they are worth -------------------------------------------------------------------


def measure(rounds: Rounds, policies: Sequence[Policy], rows: Bools) -> dict[str, Floats]:
    """Per resample, of one variant: R2 and MAE of the gain, AUC and Brier score of congestion.

    Args:
        rounds: with the labels.
        policies: one per seed.
        rows: [n] the held-out ones.
    """
    data = rounds.data
    decided, known = rows & data.policy, rows & (data.cause >= 0)
    names = np.unique(rounds.path[rows])
    draws = Draws.make(len(names), len(policies))
    at = np.searchsorted(names, rounds.path)

    def by_path(mask: Bools, values: npt.NDArray[Any]) -> Floats:
        return np.bincount(at[mask], weights=values, minlength=len(names)).astype(np.float64)

    action, weight = data.action[decided].astype(np.float64), data.weight[decided]
    w, wa, waa = (by_path(decided, weight * action**k) for k in range(3))
    sums = [draws.paths @ part for part in (w, wa, waa)]
    spread = sums[2] - sums[1] ** 2 / sums[0]
    counts = draws.paths @ by_path(decided, np.ones(len(action)))
    label, places = data.cause[known], draws.paths[:, at[known]]
    both = 0 < int((label == 1).sum()) < len(label)
    columns: dict[str, list[Floats]] = {"r2": [], "mae": [], "auc": [], "brier": []}
    for policy in policies:
        with torch.no_grad():
            gain = policy.act(torch.from_numpy(data.x[decided])).numpy()[:, 0].astype(np.float64)
            logit = policy.raw(torch.from_numpy(data.x[known])).numpy()[:, 1].astype(np.float64)
        error = gain - action
        columns["r2"].append(1 - draws.paths @ by_path(decided, weight * error**2) / spread)
        columns["mae"].append(draws.paths @ by_path(decided, np.abs(error)) / counts)
        nothing = np.full(len(draws.paths), np.nan)
        columns["auc"].append(weighted_auc(logit, label, places) if both else nothing)
        wrong = (1 / (1 + np.exp(-logit)) - label) ** 2
        columns["brier"].append(places @ wrong / np.maximum(places.sum(1), 1))
    return {
        name: np.asarray((np.stack(parts, axis=1) * draws.seeds).sum(1))
        for name, parts in columns.items()
    }


def visible_rows(rounds: Rounds, variant: Variant) -> Bools:
    """[n] the rows that a variant may learn from."""
    hidden = (rounds.group == variant.group) | (rounds.data.cc == variant.cc)
    return np.asarray(~hidden, dtype=np.bool_)


def variants(rounds: Rounds) -> list[Variant]:
    """Those of `VARIANTS` that differ from the full network on these recordings."""
    return [v for v in VARIANTS if not v.group or v.group in rounds.group]


def train_variants(
    rounds: Rounds, config: TrainConfig, seeds: int, quiet: bool = False
) -> dict[str, list[Policy]]:
    """Name of a variant to its networks, one per seed."""
    found: dict[str, list[Policy]] = {}
    there = variants(rounds)
    for shape, count in dict.fromkeys((v.hidden, v.rounds) for v in there):
        data = with_rounds(rounds, count).data
        jobs = [
            (v, replace(config, mask=v.mask, hidden=v.hidden, seed=seed))
            for v in there
            if (v.hidden, v.rounds) == (shape, count) and v.trained
            for seed in range(1, seeds + 1)
        ]
        if not quiet:
            what = f"{len(jobs)} networks {'-'.join(map(str, shape))}, {count} rounds at once"
            print(what, file=sys.stderr)
        for first in range(0, len(jobs), AT_ONCE):
            part = jobs[first : first + AT_ONCE]
            seen = [visible_rows(rounds, v) for v, _ in part]
            policies = train_many(data, [c for _, c in part], seen, quiet)
            for (variant, _), policy in zip(part, policies, strict=True):
                found.setdefault(variant.name, []).append(policy)
    for variant in there:
        if not variant.trained:
            found[variant.name] = [untrained(replace(config, seed=s)) for s in range(1, seeds + 1)]
    return found


def untrained(config: TrainConfig) -> Policy:
    """Random weights, the same for the same seed."""
    torch.manual_seed(config.seed)
    return Policy(config.hidden, config.mask).eval()


def compare(rounds: Rounds, networks: dict[str, list[Policy]]) -> dict[str, Any]:
    """Every variant beside the full network: estimates with 95 % intervals, and differences.

    Variants that never saw something are measured on just that, on test paths, beside the full
    network on the same; the others on all test paths, and on those of each group.
    """
    data, result = rounds.data, {}
    there = variants(rounds)
    test = data.split == "test"
    everything = {"all": test}
    everything |= {g: test & (rounds.group == g) for g in GROUPS if g in rounds.group}
    full_on: dict[str, dict[str, Floats]] = {}
    shown = {count: with_rounds(rounds, count) for count in {v.rounds for v in there}}
    for variant in there:
        sets = everything
        if variant.group:
            sets = {variant.group: everything[variant.group]}
        elif variant.cc:
            sets = {f"{variant.cc}'s flows": test & (data.cc == variant.cc)}
        parts = {}
        for name, rows in sets.items():
            if name not in full_on:
                full_on[name] = measure(rounds, networks[FULL], rows)
            full = full_on[name]
            own = full
            if variant.name != FULL:
                own = measure(shown[variant.rounds], networks[variant.name], rows)
            parts[name] = {m: interval(v) for m, v in own.items()} | {
                f"{m}_difference": interval(v - full[m]) for m, v in own.items()
            }
        result[variant.name] = parts
    return result


def reliability(rounds: Rounds, policies: Sequence[Policy]) -> list[list[float]]:
    """Mean probability, share of overflow losses, count, per bin; all seeds, test paths."""
    known = (rounds.data.split == "test") & (rounds.data.cause >= 0)
    with torch.no_grad():
        x = torch.from_numpy(rounds.data.x[known])
        logits = np.concatenate([policy.act(x).numpy()[:, 1] for policy in policies])
    _, rows = calibration(logits, np.tile(rounds.data.cause[known], len(policies)))
    return [[float(value) for value in row] for row in rows]


def save(run: Path, policy: Policy, config: TrainConfig, dataset: str) -> None:
    """A run folder that `ndm export` reads."""
    run.mkdir(parents=True, exist_ok=True)
    ckpt.save(run / ckpt.MODEL, ckpt.Checkpoint(policy.state_dict(), config, dataset, 0))
    # So that the export of random weights is no accident.
    files.write_text(run / RESULTS, orjson.dumps({"untrained": True}).decode() + "\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description="what the parts of the network are worth")
    parser.add_argument("--data", type=Path, nargs="+", help="recordings of training paths")
    parser.add_argument("-o", "--out", type=Path, help="folder of the results")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=TrainConfig().epochs)
    parser.add_argument("--untrained", type=Path, metavar="RUN", help="write a run, train nothing")
    parser.add_argument("--seed", type=int, default=1, help="of --untrained")
    args = parser.parse_args(arguments)
    torch.set_num_threads(1)
    if args.untrained:
        config = TrainConfig(seed=args.seed)
        save(args.untrained, untrained(config), config, "none: random weights")
        return 0
    if not args.data or not args.out:
        parser.error("--data and -o are required")
    # R² measures the information in the inputs. Its best guess is the mean, so no expectile.
    config = TrainConfig(epochs=args.epochs, expectile=0.5)
    rounds = load(args.data, config)
    networks = train_variants(rounds, config, args.seeds)
    split = rounds.data.split
    facts = {
        "seeds": args.seeds,
        "epochs": args.epochs,
        "weight_decay": config.weight_decay,
        "expectile": config.expectile,
        "data": [folder.name for folder in args.data],
        "rounds": len(split),
        "paths": {s: len(np.unique(rounds.path[split == s])) for s in ("train", "val", "test")},
        "parameters": {n: sum(p.numel() for p in ps[0].parameters()) for n, ps in networks.items()},
        "variants": compare(rounds, networks),
        "reliability": {n: reliability(rounds, networks[n]) for n in (FULL, "without 7, 8")},
    }
    files.write_text(
        args.out / OFFLINE, orjson.dumps(facts, option=orjson.OPT_INDENT_2).decode() + "\n"
    )
    print(f"wrote {args.out / OFFLINE}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except NdmError as error:
        sys.exit(f"ablation: {error}")
