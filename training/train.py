#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Train the network on a dataset: `ndm train`, or `python training/train.py`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from ndm_tcp import cluster, contract, files
from ndm_tcp.errors import NdmError
from ndm_tcp.training.config import AUTO, OBJECTIVES, RANDOM, TrainConfig

EXAMPLE = """example:
  ndm dataset build datasets/traces -o out/data
  ndm train --data out/data -o out/run
  ndm train --data out/data -o out/blind --mask 7,8     # without the delay inputs
  ndm train --data out/data -o out/many --seeds 8       # out/many/seed-1 ... seed-8, side by side
  ndm train --data out/data -o out/mean --teachers out/many  # one network that learns their mean
  ndm train --data out/mine --objective awbc -o out/mine.run --init shipped --freeze congestion"""


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(",") if part)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: expected numbers like 8,8") from None


def _parts(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(",") if part)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: expected parts like 0.4,0.6") from None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `ndm train`."""
    default = TrainConfig()
    parser.add_argument(
        "--data", type=Path, nargs="+", required=True, help="dataset folders, put together"
    )
    parser.add_argument(
        "-o",
        "--out",
        type=files.folder,
        required=True,
        help="run folder; an interrupted run goes on there",
    )
    parser.add_argument(
        "--objective",
        choices=OBJECTIVES,
        default=default.objective,
        help="what to regress: the sender's step (bc, awbc) or the step towards the path's target",
    )
    parser.add_argument(
        "--hidden",
        type=_numbers,
        metavar="UNITS",
        help="units of each hidden layer, separated by commas (default: as the start has; of "
        f"random weights {','.join(map(str, default.hidden))})",
    )
    parser.add_argument(
        "--mask",
        type=_numbers,
        default=default.mask,
        metavar="INPUTS",
        help="numbers of inputs held at 0, separated by commas (default: none)",
    )
    parser.add_argument(
        "--sampling",
        choices=("per_ack", "poll"),
        default=default.sampling,
        help="rounds to train on: those of ACKs or those of polled tcp_info",
    )
    parser.add_argument("--epochs", type=int, default=default.epochs, help="passes over the rounds")
    parser.add_argument(
        "--batch",
        type=int,
        default=default.batch,
        help="rounds per step (default: 4096, fewer of a small dataset)",
    )
    parser.add_argument(
        "--lr", type=float, default=default.lr, help="highest learning rate of the cycle"
    )
    parser.add_argument("--weight-decay", type=float, default=default.weight_decay, help="of AdamW")
    _add_objective(parser, default)


def _add_objective(parser: argparse.ArgumentParser, default: TrainConfig) -> None:
    """The settings of a training: objective, start, epochs."""
    parser.add_argument(
        "--pool-weight",
        type=float,
        default=default.pool_weight,
        help="weight of other algorithms' flows, for the objective target_step",
    )
    parser.add_argument(
        "--expectile",
        type=float,
        default=default.expectile,
        help="0.5: the mean step; above: the larger window where inputs are ambiguous; for the "
        "objective target_step",
    )
    parser.add_argument(
        "--init",
        default=default.init,
        metavar="START",
        help="weights to start from: random, shipped, a run or an ndm_model.json (default: random; "
        "shipped if the data have no labels for an output)",
    )
    parser.add_argument(
        "--freeze",
        action="append",
        default=[],
        choices=[o.name for o in contract.OUTPUTS],
        help="keep this output as it is at the start, and the hidden layers with it (default: "
        "outputs without labels)",
    )
    parser.add_argument(
        "--shares",
        type=_parts,
        default=default.shares,
        metavar="PARTS",
        help="part of the weight of each --data folder in the loss of cwnd_gain, separated by "
        "commas, such as 0.4,0.6 (default: as their flows weigh); the loss of congestion ignores "
        "them",
    )
    parser.add_argument(
        "--teachers",
        nargs="+",
        type=Path,
        default=[],
        metavar="RUN",
        help="learn the mean outputs of these networks, runs or populations, in place of the "
        "targets of the data",
    )
    parser.add_argument(
        "--beta", type=float, default=default.beta, help="advantage temperature, for awbc"
    )
    parser.add_argument(
        "--gamma", type=float, default=default.gamma, help="discount per round, for awbc"
    )
    _add_run(parser, default)


def _add_run(parser: argparse.ArgumentParser, default: TrainConfig) -> None:
    """Which networks, and what is told of them."""
    parser.add_argument(
        "--seed", type=int, default=default.seed, help="of weights and order of rounds"
    )
    parser.add_argument(
        "--seeds",
        type=int,
        metavar="N",
        help="train N networks side by side, from --seed on, into OUT/seed-1 and so on",
    )
    cluster.add_engine(parser, "where the N networks are trained")
    parser.add_argument(
        "--tensorboard",
        action="store_true",
        help="metrics for TensorBoard too, in OUT/tensorboard (needs the package)",
    )
    parser.add_argument("--json", action="store_true", help="print the metrics as JSON")


def summary(results: dict[str, Any]) -> str:
    """A few lines for a person."""
    lines = [f"{results['parameters']} parameters"]
    if results.get("start", RANDOM) != RANDOM:
        frozen = ", ".join(results["frozen"]) or "nothing"
        lines[0] += f", started from {results['start']}; frozen: {frozen}"
    if results.get("epoch") == 0:
        lines.append("no epoch had a lower loss: these are the weights of the start")
    for split in ("train", "val", "test"):
        part = results[split]
        if part["gain_mae"] is None:
            lines.append(f"{split:5}  no rounds to measure")
            continue
        auc, overflow, random = (
            part[key] for key in ("congestion_auc", "congestion_losses", "noise_losses")
        )
        known = f"{overflow} overflow losses, {random} random"
        lines.append(
            f"{split:5}  {part['rounds']:6} rounds  gain MAE {part['gain_mae']:.4f} "
            f"(constant window {part['hold_mae']:.4f})  congestion AUC "
            + (f"{auc:.3f}" if auc is not None else "unknown")
            + f" ({known if overflow or random else 'no loss of known cause'})"
        )
    return "\n".join(lines)


def main(args: argparse.Namespace) -> int:
    """Run `ndm train`."""
    from ndm_tcp.training import population, start
    from ndm_tcp.training.loop import Trainer, deterministic, require_tensorboard

    deterministic()
    if args.hidden is not None and args.init not in (AUTO, RANDOM):
        start.load(args.init).require_hidden(args.hidden)
    config = TrainConfig(
        hidden=TrainConfig.hidden if args.hidden is None else args.hidden,
        objective=args.objective,
        beta=args.beta,
        gamma=args.gamma,
        epochs=args.epochs,
        batch=args.batch,
        lr=args.lr,
        weight_decay=args.weight_decay,
        pool_weight=args.pool_weight,
        expectile=args.expectile,
        mask=args.mask,
        sampling=args.sampling,
        seed=args.seed,
        init=args.init,
        freeze=tuple(args.freeze),
        shares=args.shares,
        teachers=population.every(args.teachers),
    )
    if args.tensorboard:
        require_tensorboard()
    if args.seeds is not None:
        if args.seeds < 1:
            raise NdmError("--seeds must be at least 1")
        found = population.train(
            args.data, args.out, config, args.seeds, args.json, args.tensorboard, args.engine
        )
        print(json.dumps(found, indent=2) if args.json else population.summary(found))
        return 0
    if args.engine != cluster.LOCAL:
        raise NdmError(f"--engine {args.engine} trains several networks; name how many by --seeds")
    results = Trainer(args.data, args.out, config).run(quiet=args.json, board=args.tensorboard)
    print(json.dumps(results, indent=2) if args.json else summary(results))
    return 0


if __name__ == "__main__":
    from ndm_tcp.cli import run_command

    sys.exit(run_command(["train", *sys.argv[1:]]))
