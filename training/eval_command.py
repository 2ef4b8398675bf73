# SPDX-License-Identifier: GPL-2.0-only
"""`ndm eval`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

EXAMPLE = """example:
  ndm eval out/run --data out/data
  ndm eval out/run --data out/other --json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `ndm eval`."""
    parser.add_argument("run", metavar="RUN", type=Path, help="folder of a training run")
    parser.add_argument("--data", type=Path, required=True, help="dataset folder")
    parser.add_argument("--json", action="store_true", help="everything, per flow too")


def main(args: argparse.Namespace) -> int:
    """Run `ndm eval`."""
    from ndm_tcp.datasets.store import store
    from ndm_tcp.errors import NdmError
    from ndm_tcp.training.checkpoint import load_policy
    from ndm_tcp.training.evaluate import evaluate
    from ndm_tcp.training.objective import examples, of_sampling
    from ndm_tcp.training.train import summary

    policy, checkpoint = load_policy(args.run)
    dataset = store.load(args.data)
    if dataset.sha256 != checkpoint.dataset_sha256:
        print(
            "ndm: another dataset than the run's: what is held out here may have trained it",
            file=sys.stderr,
        )
    sampling = checkpoint.config.sampling
    if not of_sampling(dataset.rounds, sampling).num_rows:
        raise NdmError(
            f"{args.data}: no {sampling} rounds, of which {args.run} learned; name another dataset"
        )
    data = examples(dataset.rounds, checkpoint.config)
    results = {
        "parameters": sum(p.numel() for p in policy.parameters()),
        "masked_rounds": data.masked,
        **evaluate(policy, data),
    }
    if args.json:
        print(json.dumps(results, indent=2))
        return 0
    print(summary(results))
    for split in ("val", "test"):
        for cc, part in results[split]["by_cc"].items():
            print(
                f"  {split:5} {cc:8} {part['rounds']:5} rounds  gain MAE {part['gain_mae']:.4f} "
                f"(holding still {part['hold_mae']:.4f})"
            )
    return 0
