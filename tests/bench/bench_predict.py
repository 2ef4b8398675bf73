# SPDX-License-Identifier: GPL-2.0-only
"""How far predictions are from what algorithms get on the true paths.

    ndm lab record SUITE --cc cubic,bbr --seeds 2 -o out/true
    python -m tests.bench.bench_predict out/true -o out/predicted

Of each recorded run the packets alone are given to the estimate. Its path model then predicts every
algorithm that was recorded on the same path.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import shutil
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ndm_tcp.adapt.experiments import families
from ndm_tcp.lab.guest import uml_build, workers
from ndm_tcp.lab.guest.workers import Workers
from ndm_tcp.lab.paths.scenario import load
from ndm_tcp.paths.model import Kind, PathModel, Seen
from ndm_tcp.paths.predict import DRAWS, Entrant, Prediction, predict
from ndm_tcp.paths.replay import Replay, seen

APART = 1.03
"""two algorithms with closer goodput have no order"""
CHANCE = 2.0
"""standard errors of a difference that chance makes"""


@dataclass(frozen=True)
class TruePath:
    """A true path: its runs by algorithm, and its group in the table."""

    runs: Mapping[str, tuple[Seen, ...]]
    group: str
    port: int
    """of the flow under test: the capture shows the others, too"""

    def goodput(self, cc: str) -> float:
        return float(np.mean([one.goodput_mbps for one in self.runs[cc]]))

    def rtt(self, cc: str) -> float:
        return float(np.mean([one.rtt_mean_ms for one in self.runs[cc]]))


LONE, JITTER, RIVALS = "lone", "jitter", "beside rivals"
LOSSY, EARLY = "random loss", "own queue"


def group(run: Path, result: Mapping[str, Any]) -> str:
    """Of a true path, from its folder and `result.json`."""
    if len(result["flows"]) > 1:
        return RIVALS
    link = load(run / "scenario.toml").link
    if not link:
        return LONE
    if link.jitter_us:
        return JITTER
    if link.qdisc != "droptail":
        return EARLY
    return LOSSY if link.loss or link.burst else LONE


def true_paths(folders: Iterable[Path], copies: Path) -> tuple[dict[str, TruePath], dict[str, str]]:
    """The paths by name, and the captured algorithm by the name of a copy of its packets."""
    runs: dict[str, dict[str, list[Seen]]] = defaultdict(lambda: defaultdict(list))
    kinds, ccs = {}, {}
    copies.mkdir(parents=True, exist_ok=True)
    for capture in sorted({p for folder in folders for p in folder.rglob("sender.pcap*")}):
        result = json.loads((capture.parent / "result.json").read_text())
        name, cc = result["scenario"], result["cc"]
        tested = [flow["port"] for flow in result["flows"] if flow["tested"]]
        if len(tested) > 1:  # equal flows: with the algorithm their rivals change
            continue
        if not runs[name][cc]:
            copy = copies / f"{name}-{cc}{''.join(capture.suffixes)}"
            shutil.copy(capture, copy)
            ccs[copy.name] = cc
        runs[name][cc].append(seen(result))
        kinds[name] = group(capture.parent, result), tested[0]
    made = {
        name: TruePath({cc: tuple(all_) for cc, all_ in of.items()}, *kinds[name])
        for name, of in runs.items()
    }
    return made, ccs


def standard_error(runs: Iterable[Seen]) -> float:
    """Of the logarithm of their mean goodput; 0 for one run, or alike ones."""
    got = np.array([one.goodput_mbps for one in runs])
    return float(np.std(got, ddof=1) / math.sqrt(len(got)) / got.mean()) if len(got) > 1 else 0.0


@dataclass
class Errors:
    """Of predicted over true values, natural logarithms; and pairs of algorithms."""

    goodput: list[float]
    rtt: list[float]
    chance: int = 0
    """goodputs that are as far off as their draws and runs make them"""
    pairs: int = 0
    right: int = 0

    def add(self, path: TruePath, cc: str, found: Mapping[str, Prediction]) -> None:
        """The predictions of a model that the capture of `cc` gave."""
        for other in set(path.runs) - {cc}:
            got = found[other]
            self.goodput.append(math.log(got.goodput_mbps.mean / path.goodput(other)))
            self.rtt.append(math.log(got.rtt_mean_ms.mean / path.rtt(other)))
            noise = math.hypot(standard_error(got.draws), standard_error(path.runs[other]))
            self.chance += abs(self.goodput[-1]) < CHANCE * noise
        for a, b in itertools.combinations(sorted(path.runs), 2):
            apart = math.log(path.goodput(a) / path.goodput(b))
            if abs(apart) > math.log(APART):
                self.pairs += 1
                self.right += (
                    apart * math.log(found[a].goodput_mbps.mean / found[b].goodput_mbps.mean) > 0
                )

    def row(self, group: str) -> str:
        """Of the table."""
        cells = []
        for values in (self.goodput, self.rtt):
            off = 100 * np.expm1(np.abs(values))
            cells.append(f"{np.median(off):.1f} / {np.percentile(off, 90):.1f}")
        cells.insert(1, f"{self.chance} of {len(self.goodput)}")
        cells.append(f"{self.right} of {self.pairs}")
        return f"| {group} | {len(self.goodput)} | {' | '.join(cells)} |"


def known(model: PathModel) -> str:
    """What the capture has shown of the path, in words."""
    if any(level.rate_bps.kind is not Kind.MEASURED for level in model.levels):
        return "lower bound of the rate"
    if model.queue_packets.kind is not Kind.MEASURED:
        return "lower bound of the queue"
    return "rate and queue measured"


def accepted(copies: Path, ccs: dict[str, str], out: Path, where: Workers) -> list[PathModel]:
    """Models whose replay is close; says what became of the others."""
    found, refused = families.replayed(sorted(copies / name for name in ccs), ccs, out, where)
    good = [one.model for one in found.values() if isinstance(one, Replay) and one.accepted]
    print(
        f"{len(ccs)} captures: {len(refused)} refused; {len(found) - len(good)} of {len(found)} "
        "flows not replayed well"
    )
    return good


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0] if __doc__ else "")
    parser.add_argument("folders", nargs="+", type=Path, help="recorded runs")
    parser.add_argument("-o", "--out", type=Path, required=True, help="resumes")
    parser.add_argument("--draws", type=int, default=DRAWS, help="of each model")
    workers.add_arguments(parser)
    workers.add_simulator(parser)
    args = parser.parse_args()
    where = workers.workers_of(args)
    uml_build.build()
    paths, ccs = true_paths(args.folders, args.out / "captures")
    models = accepted(args.out / "captures", ccs, args.out, where)
    entrants = {cc: Entrant(cc) for cc in sorted(set(ccs.values()))}
    found = predict(models, entrants, args.out / "runs", range(args.draws), where)
    errors: dict[str, Errors] = {}
    for one in models:
        cc = ccs[one.source]
        path = paths[one.source.partition(f"-{cc}.pcap")[0]]
        if not one.name.endswith(f"-{path.port}"):
            continue
        row = f"{path.group}, {known(one)}"
        errors.setdefault(row, Errors([], [])).add(path, cc, found[one.name])
    print("median / 90th percentile of the error, %; pairs whose goodput differs by over 3 %\n")
    print("| paths | predictions | goodput | by chance | mean RTT | pairs in the right order |")
    print("|---|---|---|---|---|---|")
    for name, of in sorted(errors.items()):
        print(of.row(name))


if __name__ == "__main__":
    main()
