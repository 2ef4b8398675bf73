# SPDX-License-Identifier: GPL-2.0-only
"""`ndm path predict`: what other algorithms would have got on the captured paths."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path

import msgspec

from ndm_tcp import files
from ndm_tcp.errors import NdmError
from ndm_tcp.lab.guest import run as lab_run
from ndm_tcp.lab.guest import suite, uml_build, workers
from ndm_tcp.paths import difference, model, report
from ndm_tcp.paths.estimate_command import LEFT_OUT
from ndm_tcp.paths.predict import DRAWS, Entrant, predict
from ndm_tcp.paths.replay_command import replayed

EXAMPLE = """example:
  ndm path estimate capture.pcap -o out/paths
  ndm path predict out/paths                # replays first; then open out/paths/index.html
  ndm path predict out/paths --cc cubic,ndm_tcp --kmod out/demo/kmod

exit code 1: a model was left out, for one of its runs failed"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `ndm path predict`."""
    parser.add_argument("folder", type=Path, metavar="DIR", help="of ndm path estimate or import")
    parser.add_argument(
        "--cc",
        default="reno,cubic,bbr,ndm_tcp",
        help="algorithms, separated by commas; the last one is compared with the others over all "
        "paths",
    )
    parser.add_argument(
        "--captured-cc",
        help="the captures' algorithm (default: as captured; unknown: cubic or bbr, whose replay "
        "is closer)",
    )
    parser.add_argument(
        "--draws", type=int, default=DRAWS, help="runs of each, with values from their intervals"
    )
    workers.add_arguments(parser)
    workers.add_simulator(parser)
    lab_run.add_kmod(parser)
    parser.add_argument("--json", action="store_true", help="print prediction.json")


def main(args: argparse.Namespace) -> int:
    """Run `ndm path predict`."""
    where = workers.workers_of(args)
    if args.draws < 1:
        raise NdmError("--draws must be at least 1; name more")
    ccs = suite.algorithms(args.cc)
    brought = lab_run.module_names(args.kmod) if args.kmod else []
    for cc in ccs:
        if cc not in (*lab_run.IN_TREE, *lab_run.OUR_MODULES, *brought):
            raise NdmError(f"--cc {cc}: the lab's kernel has no such algorithm; see ndm lab board")
    imported = [m for m in model.load_all(args.folder) if m.seen is None]
    # Whether a model is good, the real stack says.
    found = replayed(args.folder, args.captured_cc, replace(where, simulated=False))
    for name, why in found.rejected.items():
        print(f"ndm: {name}: rejected: {why}", file=sys.stderr)
    for closest in found.replays:
        if but := report.caution(closest):
            print(f"ndm: {closest.model.name}: {but}", file=sys.stderr)
    models = [*(r.model for r in found.replays), *imported]
    if not models:
        page = report.write_page(args.folder, found, [], {})
        raise NdmError(
            f"{args.folder}: no model was accepted, so nothing can be predicted; "
            f"see {page}, and estimate other captures"
        )
    uml_build.build()
    entrants = {cc: Entrant(cc, args.kmod if cc in brought else None) for cc in ccs}
    runs = suite.folder_of(args.folder / report.RUNS / "predict", where)
    left_out: dict[str, str] = {}
    predicted = predict(models, entrants, runs, range(args.draws), where, left_out=left_out)
    for name, why in left_out.items():
        print(f"ndm: {name}: left out: {why}", file=sys.stderr)
    if not predicted:
        raise NdmError(f"{args.folder}: every model had a run that failed; run the command again")
    text = msgspec.json.format(msgspec.json.encode(predicted), indent=1).decode()
    files.write_text(args.folder / report.PREDICTIONS, text + "\n")
    place = "In the simulator: " if where.simulated else ""
    page = report.write_page(args.folder, found, imported, predicted, place, left_out)
    status = LEFT_OUT if left_out else 0
    if args.json:
        print(json.dumps(msgspec.to_builtins(predicted), indent=1))
        return status
    for one in (one for one in models if one.name in predicted):
        of_path = predicted[one.name]
        rows = report.prediction_rows(of_path)
        runs_of = report.runs_of(one, args.draws)
        print(f"{one.name}: {runs_of}\n{report.table(report.PREDICTION_HEAD, rows)}")
        print(f"{place}{report.sentence(of_path)} {report.bounds(one)}".strip() + "\n")
    whole, rows = report.over_paths(predicted, difference.numbers(models))
    if whole:
        print(f"{place}{whole}:\n{report.table(difference.HEAD, rows)}\n")
    print(f"page: {page}")
    return status
