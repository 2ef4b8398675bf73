# SPDX-License-Identifier: GPL-2.0-only
"""`ndm lab record`: record a suite for training."""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from ndm_tcp.lab.guest import explore, suite, uml_build, workers

EXAMPLE = """example:
  ndm lab record training --cc reno,cubic,vegas,bbr --seeds 1 -o out/recordings
  ndm lab record training --cc ndm_tcp --explore -o out/explored
  ndm lab record training --cc bbr --engine ray -o out/recordings   # on a Ray cluster
  ndm lab record training --cc ndm_tcp --simulate -o out/simulated  # in a hundredth of the time
  ndm dataset build out/recordings -o out/data"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `ndm lab record`."""
    suite.add_arguments(parser, None, 1)
    workers.add_simulator(parser)
    parser.add_argument("--light", action="store_true", help="results only, nothing to train on")
    parser.add_argument(
        "--explore", action="store_true", help="ndm_tcp makes excursions; see lab/guest/explore.py"
    )


def main(args: argparse.Namespace) -> int:
    """Run `ndm lab record`; exit code 1 if a run failed."""
    where = workers.workers_of(args)
    with tempfile.TemporaryDirectory() as folder:
        if args.explore:
            args.kmod = explore.sources(args.kmod or uml_build.KMOD, Path(folder) / "kmod")
        _, _, outcomes = suite.run_all(args, args.out, args.light, tagged=where.simulated)
    out = suite.folder_of(args.out, where)
    failed = [o for o in outcomes if o.result is None]
    if args.json:
        runs = [{"run": o.job.folder.name, "error": o.error or None} for o in outcomes]
        print(json.dumps({"folder": str(out), "runs": runs}, indent=2))
        return 1 if failed else 0
    print(f"{out}: {len(outcomes) - len(failed)} of {len(outcomes)} runs recorded")
    for outcome in failed:
        print(f"  failed: {outcome.job.folder.name}: {outcome.error}")
    return 1 if failed else 0
