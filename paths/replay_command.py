# SPDX-License-Identifier: GPL-2.0-only
"""`ndm path replay`: the captured algorithm on every model of a folder."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ndm_tcp.lab.guest import uml_build, workers
from ndm_tcp.lab.guest.workers import Workers
from ndm_tcp.paths import model, report
from ndm_tcp.paths.replay import replay

EXAMPLE = """example:
  ndm path estimate capture.pcap -o out/paths
  ndm path replay out/paths                 # then open out/paths/index.html
  ndm path replay out/paths --cc bbr        # if the lab lacks the captured algorithm

exit code 1: no model was accepted"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `ndm path replay`."""
    parser.add_argument("folder", type=Path, metavar="DIR", help="of ndm path estimate")
    parser.add_argument(
        "--cc",
        help="the algorithm (default: the captured one; unknown: cubic or bbr, whose replay is "
        "closer)",
    )
    workers.add_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print replay.json")


def replayed(
    folder: Path, cc: str | None, where: Workers, models: Sequence[model.PathModel] = ()
) -> report.Replays:
    """Replay models, and write replay.json.

    Args:
        folder: of the models, and of the result.
        cc: the algorithm; None: the captured one.
        where: guests run.
        models: of the folder, to replay; none: every one.

    Raises:
        NdmError: no model there, or the lab cannot be built.
    """
    models = models or model.load_all(folder)
    uml_build.build()
    found = report.Replays.of(replay(models, folder / report.RUNS / "replay", cc, where))
    report.write_replays(found, folder)
    return found


def main(args: argparse.Namespace) -> int:
    """Run `ndm path replay`."""
    found = replayed(args.folder, args.cc, workers.workers_of(args))
    page = report.write_page(args.folder, found, [], {})
    if args.json:
        print(json.dumps(msgspec.to_builtins(found), indent=1))
    else:
        print(report.table(report.HEAD, report.replay_rows(found)))
        print(f"page: {page}")
    return 0 if found.replays else 1
