# SPDX-License-Identifier: GPL-2.0-only
"""`ndm lab record`: record a suite for training."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from ndm_tcp.errors import NdmError
from ndm_tcp.lab import suite

EXAMPLE = """example:
  ndm lab record training --cc reno,cubic,vegas,bbr --seeds 1 -o out/recordings
  ndm dataset build out/recordings -o out/data"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `ndm lab record`."""
    parser.add_argument("suite", help="scenario file, folder, or a name below lab/scenarios")
    parser.add_argument(
        "--cc", required=True, help="algorithms, comma separated; all: the kernel's"
    )
    parser.add_argument("--seeds", type=int, default=1, help="runs of each, seeds 1, 2, ...")
    parser.add_argument("-o", "--out", type=Path, required=True, help="folder; resumes")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="guests at a time")
    parser.add_argument("--kmod", type=Path, help="sources of another ndm_tcp, as make demo leaves")
    parser.add_argument("--light", action="store_true", help="results only, nothing to train on")


def main(args: argparse.Namespace) -> int:
    """Run `ndm lab record`; exit code 1 if a run failed."""
    scenarios = suite.load_suite(args.suite)
    ccs = suite.algorithms(args.cc)
    if args.seeds < 1 or args.jobs < 1:
        raise NdmError("--seeds and --jobs must be at least 1")
    jobs = suite.jobs_of(scenarios, ccs, args.seeds, args.out)
    outcomes = list(suite.execute(jobs, args.jobs, args.light, False, args.kmod))
    failed = [o for o in outcomes if o.result is None]
    print(f"{args.out}: {len(outcomes) - len(failed)} of {len(outcomes)} runs recorded")
    for outcome in failed:
        print(f"  failed: {outcome.job.folder.name}: {outcome.error}")
    return 1 if failed else 0
