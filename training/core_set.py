# SPDX-License-Identifier: GPL-2.0-only
"""`ndm data core`: the flows of the lab's recordings with the most value for training per byte.

A flow is worth its share of the weight in both losses of the training. Recordings of one path
resemble each other, so each further flow of a path adds less. Each path, with ndm_tcp and with
others, counts as its worth times (chosen part / whole)^`SPREAD`; its first flow brings most of
this. Flows of held-out paths do not train the network, so they count less. Flows are taken whole,
since the network's memory depends on all earlier rounds. The next flow is always the one that adds
most per byte, until the bytes are spent.
"""

from __future__ import annotations

import argparse
import heapq
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ndm_tcp import files
from ndm_tcp.datasets.rounds.columns import begins, lean
from ndm_tcp.datasets.store import store
from ndm_tcp.errors import NdmError
from ndm_tcp.training import objective, splits
from ndm_tcp.training.config import TrainConfig

EXAMPLE = """example:
  ndm data core out/rounds/pool out/rounds/1 -o out/core --megabytes 11"""
SPREAD = 0.1
HELD_OUT = {"train": 1.0, "val": 0.12, "test": 0.1}
"""factor for a flow of a split"""
OTHERS = 3.0
"""factor for the flows of other algorithms: without their full queues a network
does not learn to recognise one"""
ROUND_BYTES = 14.9
"""of a round in a file of the smallest size: measured on the recordings of 2026-11-25"""
FLOW_BYTES = 120.0
"""of the values that are the same for all rounds of a flow"""


@dataclass(frozen=True)
class Flow:
    """A recorded flow and its worth."""

    flow_id: str
    recording: str
    path: str
    """the scenario"""
    split: str
    own: bool
    """sent by ndm_tcp"""
    rounds: int
    worth: float
    """share of the training's weight"""

    @property
    def size(self) -> float:
        """Bytes in a file, about."""
        return ROUND_BYTES * self.rounds + FLOW_BYTES


def _weighed(folder: Path, table: pa.Table, config: TrainConfig) -> list[tuple[Flow, float, int]]:
    """Of each flow also its weight in the loss of the gain, and its losses of known cause.

    Raises:
        NdmError: not one of the lab's paths.
    """
    data = objective.examples(table, config)
    edges = np.flatnonzero(begins(table))
    counts = np.diff(np.append(edges, table.num_rows))
    weight = np.add.reduceat(np.where(data.policy, data.weight, 0).astype(np.float64), edges)
    causes = np.add.reduceat((data.cause >= 0).astype(np.int64), edges)
    found = []
    names = table.select(["flow_id", "source", "cc"]).take(pa.array(edges)).to_pylist()
    for flow, count, w, c in zip(names, counts, weight, causes, strict=True):
        path = splits.scenario_of(flow["source"])
        if path is None:
            raise NdmError(
                f"{folder.name}: {flow['source']} is no run of the lab; leave the folder out"
            )
        own = flow["cc"] == objective.OWN
        one = Flow(flow["flow_id"], folder.name, path, splits.split_of(path), own, int(count), 0.0)
        found.append((one, float(w), int(c)))
    return found


def read(folders: Sequence[Path]) -> dict[Path, pa.Table]:
    """The rounds of every recording, by name; those of a core set are the ones that it chose from.

    Raises:
        NdmError: no dataset; or two recordings of one name.
    """
    found: dict[Path, pa.Table] = {}
    for folder in folders:
        dataset, begin = store.load(folder), 0
        whole = [{"name": folder.name, "rounds": dataset.rounds.num_rows}]
        for part in dataset.manifest.get("recordings") or whole:
            if any(other.name == part["name"] for other in found):
                raise NdmError(f"{part['name']}: two recordings of this name; rename one folder")
            found[folder / part["name"]] = dataset.rounds.slice(begin, part["rounds"])
            begin += part["rounds"]
    return dict(sorted(found.items(), key=lambda item: item[0].name))


def flows_of(recordings: Mapping[Path, pa.Table], config: TrainConfig) -> list[Flow]:
    """The flows of some recordings, by folder; one that is in two of them counts once.

    Raises:
        NdmError: see `_weighed`.
    """
    seen: dict[str, tuple[Flow, float, int]] = {}
    for folder, table in recordings.items():
        for flow, weight, causes in _weighed(folder, table, config):
            seen.setdefault(flow.flow_id, (flow, weight, causes))
    weights = max(sum(weight for _, weight, _ in seen.values()), 1e-9)
    losses = max(sum(causes for *_, causes in seen.values()), 1)
    found = []
    for flow, weight, causes in seen.values():
        worth = weight / weights + config.congestion_weight * causes / losses
        worth *= HELD_OUT[flow.split] * (1 if flow.own else OTHERS)
        found.append(replace(flow, worth=worth))
    return found


def choose(flows: Sequence[Flow], budget: float) -> list[Flow]:
    """Those that fit into so many bytes and are worth most, in the order in which they came.

    The choice is greedy, which for such sums of concave functions is close to the best. The gain
    of a flow only shrinks, so computing that of the queue's first flow again finds the next one.
    """
    total: dict[tuple[str, bool], float] = defaultdict(float)
    taken: dict[tuple[str, bool], float] = defaultdict(float)
    for flow in flows:
        total[flow.path, flow.own] += flow.worth

    def adds(flow: Flow) -> float:
        whole, part = total[flow.path, flow.own], taken[flow.path, flow.own]
        if whole <= 0:
            return 0.0
        before, after = (min(x / whole, 1.0) ** SPREAD for x in (part, part + flow.worth))
        return float(whole * (after - before) / flow.size)

    queue = [(-adds(flow), number) for number, flow in enumerate(flows)]
    heapq.heapify(queue)
    chosen, spent = [], 0.0
    while queue:
        _, number = heapq.heappop(queue)
        flow = flows[number]
        now = (-adds(flow), number)
        if queue and now > queue[0]:
            heapq.heappush(queue, now)
        elif spent + flow.size <= budget:
            spent += flow.size
            taken[flow.path, flow.own] += flow.worth
            chosen.append(number)
    return [flows[number] for number in sorted(chosen)]


def _rows(recordings: Mapping[Path, pa.Table], chosen: Sequence[Flow]) -> Iterator[pa.Table]:
    """The rounds of the chosen flows, recording by recording."""
    for folder, table in recordings.items():
        wanted = pa.array([f.flow_id for f in chosen if f.recording == folder.name], pa.string())
        flow_id = table["flow_id"].cast(pa.string())
        yield lean(table.filter(pc.is_in(flow_id, wanted)))


def write(folders: Sequence[Path], out: Path, budget: float) -> dict[str, Any]:
    """Choose, and write a dataset.

    Args:
        folders: datasets of recordings of the lab, or core sets of such, taken by name whatever
            their order; a flow that is in two is taken from the first.
        out: where it goes.
        budget: bytes, about.

    Returns:
        the manifest. Its `recordings` are in the order of the rows.

    Raises:
        NdmError: see `read` and `_weighed`.
    """
    tables = read(folders)
    chosen = choose(flows_of(tables, TrainConfig()), budget)
    if not chosen:
        raise NdmError(f"{out}: {budget:.0f} bytes hold no flow; raise --megabytes")
    recordings = []
    for name in (folder.name for folder in tables):
        ours = [flow.rounds for flow in chosen if flow.recording == name]
        recordings.append({"name": name, "flows": len(ours), "rounds": sum(ours)})
    manifest = {
        "chosen_by": f"ndm data core --megabytes {budget / 1e6:g}",
        "recordings": recordings,
        "sources": [],
        "failed": [],
        "repeated": [],
        "flows": len(chosen),
        "rounds": sum(flow.rounds for flow in chosen),
        "splits": dict(sorted(Counter(flow.split for flow in chosen).items())),
    }
    out.mkdir(parents=True, exist_ok=True)
    store.write(out, _rows(tables, chosen), manifest, smallest=True)
    return manifest


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `ndm data core`."""
    parser.add_argument("folder", type=Path, nargs="+", metavar="DIR", help="recordings' rounds")
    parser.add_argument(
        "-o", "--out", type=files.folder, required=True, help="the dataset's folder"
    )
    parser.add_argument("--megabytes", type=float, required=True, help="size of its rounds, about")


def main(args: argparse.Namespace) -> int:
    """Run `ndm data core`."""
    folders = [folder.resolve() for folder in args.folder]
    if args.out.resolve() in folders:
        raise NdmError(f"{args.out}: would be overwritten; name another folder with -o")
    manifest = write(folders, args.out, args.megabytes * 1e6)
    size = (args.out / store.ROUNDS).stat().st_size
    print(
        f"{args.out}: {manifest['rounds']} rounds of {manifest['flows']} whole flows, {size} bytes"
    )
    return 0
