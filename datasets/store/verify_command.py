# SPDX-License-Identifier: GPL-2.0-only
"""`ndm data verify`: the files of the lab's rounds against rounds.lock."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from ndm_tcp.datasets.store import rounds_lock

EXAMPLE = """example:
  ndm data verify                           # datasets/lab-rounds, and what is in out/rounds
  ndm data verify --recorded ~/rounds"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `ndm data verify`."""
    parser.add_argument(
        "--lock", type=Path, default=rounds_lock.LOCK, help="lock file (default: the checkout's)"
    )
    parser.add_argument(
        "--recorded",
        type=Path,
        default=rounds_lock.HERE,
        metavar="DIR",
        help="folder of recordings that were made again",
    )
    parser.add_argument("--json", action="store_true", help="print the result for every file")


def main(args: argparse.Namespace) -> int:
    """Run `ndm data verify`; exit code 1 if a committed file is missing, or any file differs."""
    found = rounds_lock.check(rounds_lock.read(args.lock), args.lock.parent, args.recorded)
    bad = any(one.bad for one in found)
    if args.json:
        rows = [{"path": str(one.path), "found": one.said, "bad": one.bad} for one in found]
        print(json.dumps(rows, indent=2))
        return 1 if bad else 0
    for one in found:
        if one.needed or one.said != rounds_lock.MISSING:
            print(f"{one.path}: {one.said}")
    absent = sum(not one.needed and one.said == rounds_lock.MISSING for one in found)
    if absent:
        print(f"{absent} recordings are not in {args.recorded}; ndm data record makes them again")
    return 1 if bad else 0
