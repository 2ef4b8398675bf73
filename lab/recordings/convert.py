# SPDX-License-Identifier: GPL-2.0-only
"""`ndm dataset convert`: an older dataset, with means and target windows, in the present format.

Derived columns go. The truth of a path comes instead: its scenario, which is that of the recorded
run's name, and when in the run the flow began. The old datasets do not record the latter, but the
rows where their target windows change bound it: the new ones are compared with them, row by row.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ndm_tcp import files
from ndm_tcp.datasets.rounds.columns import DETAIL, SCHEMA, begins
from ndm_tcp.datasets.store import store
from ndm_tcp.errors import NdmError
from ndm_tcp.lab.paths import scenario, truth

EXAMPLE = """example:
  ndm dataset convert old/pool old/1 -o new        # new/pool and new/1
  ndm dataset convert old/* -o new --lean                # smaller; what training reads"""
OLD = "ideal_cwnd"
RUN = re.compile(r"(?P<scenario>.+?)--(?P<cc>.+?)--\d+$")
TRUTH = ("scenario", "under_test", "flow_number", "start_us")
SCENARIOS = Path(__file__).resolve().parents[1] / "scenarios"
SAME = 5e-5
"""of a target window: those beside competing flows were rounded in the old datasets"""


@dataclass(frozen=True)
class Found:
    """Where a recorded flow stood in its run."""

    number: int
    start_us: int
    differ: int
    """rows with another target window than in the dataset"""


def _old(folder: Path) -> tuple[pa.Table, dict[str, Any]]:
    """An older dataset and its manifest.

    Raises:
        NdmError: none, a damaged one, or one of another contract.
    """
    read = store.read_whole(folder, store.BEFORE_MEMORY)
    table, manifest = read.table, read.manifest
    missing = set(SCHEMA.names) - set(TRUTH) - DETAIL - set(table.column_names)
    if missing or OLD not in table.column_names:
        name = sorted(missing)[0] if missing else OLD
        raise NdmError(f"{folder}: no column {name}; run: {store.REBUILD}")
    return table, manifest


@functools.cache
def _text(name: str) -> str | None:
    paths = sorted(SCENARIOS.glob(f"*/{name}.toml"))
    return paths[0].read_text(encoding="utf-8") if paths else None


def _starts(told: truth.Windows, t_us: Any, srtt_us: Any, old: Any) -> Iterator[int]:
    """When in the run a flow may have begun, us: first as planned, then so that the windows change
    at the rows where the old ones do."""
    yield int(told.from_us[0])
    rtt_us = np.where(told.rtt_us > 0, told.rtt_us, srtt_us[:, None])
    fits = np.isclose(old[:, None], told.packets_per_s * rtt_us / 1e6, rtol=SAME, atol=0)
    changes = np.flatnonzero((fits[1:] != fits[:-1]).any(axis=1)) + 1
    for boundary_us in told.from_us[1:]:
        for row in [0, *changes.tolist()]:  # 0: its handshake was late
            yield int(boundary_us - t_us[row])


def _nearest(told: truth.Windows, rows: dict[str, Any], number: int) -> Found:
    """When flow `number` of a scenario began, so that fewest of these rows differ."""
    columns = (rows["t_us"], rows["srtt_us"], rows[OLD])
    best: Found | None = None
    for start_us in dict.fromkeys(_starts(told, *columns)):
        now = told.packets(rows["t_us"] + start_us, rows["srtt_us"])
        differ = int((~np.isclose(now, rows[OLD], rtol=SAME, atol=0)).sum())
        if best is None or differ < best.differ:
            best = Found(number, start_us, differ)
        if not differ:
            break
    assert best is not None
    return best


def place(text: str, cc: str, flows: Sequence[tuple[str, dict[str, Any]]]) -> list[Found]:
    """Which flows of a scenario those of a run are: those of one algorithm may have changed places.

    Args:
        text: the scenario.
        cc: the algorithm under test.
        flows: of each its algorithm, and t_us, srtt_us and the old target windows of its rows.

    Raises:
        NdmError: the scenario has fewer flows of an algorithm.
    """
    parsed = scenario.parse(text, "recorded", "recorded", truth.TRACES)
    names = [cc if flow.cc == scenario.UNDER_TEST else flow.cc for flow in parsed.flows]
    found: dict[int, Found] = {}
    for name in dict.fromkeys(algorithm for algorithm, _ in flows):
        ours = [k for k, (algorithm, _) in enumerate(flows) if algorithm == name]
        numbers = [number for number, algorithm in enumerate(names) if algorithm == name]
        if len(numbers) < len(ours):
            raise NdmError(f"its scenario has {len(numbers)} flows of {name}, not {len(ours)}")
        told = truth.windows(text, cc)
        each = {(k, n): _nearest(told[n], flows[k][1], n) for k in ours for n in numbers}
        best = min(
            itertools.permutations(numbers, len(ours)),
            key=lambda order: sum(each[pair].differ for pair in zip(ours, order, strict=True)),
        )
        found |= {k: each[k, n] for k, n in zip(ours, best, strict=True)}
    return [found[k] for k in range(len(flows))]


def _of_source(source: str, flows: Sequence[tuple[str, dict[str, Any]]]) -> list[tuple[Any, ...]]:
    """Of each flow of a source `TRUTH`, and how many of its rows differ.

    Raises:
        NdmError: target windows, but no scenario that the lab has.
    """
    if not any(rows[OLD].any() for _, rows in flows):
        return [(None, None, None, None, 0)] * len(flows)
    run = RUN.fullmatch(source)
    if run is None:
        raise NdmError(f"{source}: no run of the lab; build the dataset from its sources")
    text = _text(run["scenario"])
    if text is None:
        raise NdmError(
            f"{source}: no scenario {run['scenario']} in {SCENARIOS}; build the "
            "dataset from its runs"
        )
    try:
        found = place(text, run["cc"], flows)
    except NdmError as error:
        raise NdmError(f"{source}: {error}; build the dataset from its runs") from None
    return [(text, run["cc"], f.number, f.start_us, f.differ) for f in found]


def truths(table: pa.Table) -> tuple[dict[str, pa.Array], int]:
    """The columns of `TRUTH`, and how many rows have another target window than the old one.

    Raises:
        NdmError: see `_of_source`.
    """
    edges = [*np.flatnonzero(begins(table)).tolist(), table.num_rows]
    columns = {n: table[n].to_numpy() for n in ("t_us", "srtt_us", OLD)}
    names = table.select(["source", "cc"]).take(pa.array(edges[:-1])).to_pylist()
    of_source: dict[str, list[int]] = {}
    for k, flow in enumerate(names):
        of_source.setdefault(flow["source"], []).append(k)
    values: list[tuple[Any, ...]] = [()] * len(names)
    for source, flows in of_source.items():
        rows = [{n: c[edges[k] : edges[k + 1]] for n, c in columns.items()} for k in flows]
        ours = [(str(names[k]["cc"]), r) for k, r in zip(flows, rows, strict=True)]
        for k, value in zip(flows, _of_source(source, ours), strict=True):
            values[k] = value
    *truth_of, differ = zip(*values, strict=True)
    index = np.repeat(np.arange(len(names), dtype=np.int32), np.diff(edges))
    made = {}
    for name, of_flow in zip(TRUTH, truth_of, strict=True):
        kind = SCHEMA.field(name).type
        distinct = list(dict.fromkeys(of_flow)) if pa.types.is_string(kind) else of_flow
        column = pa.array(distinct, kind)
        if distinct is of_flow:
            made[name] = column.take(pa.array(index))
            continue
        codes = np.array([distinct.index(v) for v in of_flow], dtype=np.int32)
        made[name] = pa.DictionaryArray.from_arrays(pa.array(codes[index]), column)
    return made, sum(differ)


def convert(folder: Path, out: Path, lean: bool) -> tuple[int, int]:
    """Write a dataset anew.

    Args:
        folder: an older dataset.
        out: where it goes.
        lean: leave out the numbers that no training reads.

    Returns:
        how many rounds it has, and how many of them another target window than before.

    Raises:
        NdmError: see `_old` and `truths`.
    """
    table, manifest = _old(folder)
    try:
        made, differ = truths(table)
    except NdmError as error:
        raise NdmError(f"{folder}: {error}") from None
    columns = {name: table[name] for name in table.column_names} | made
    fields = [f for f in SCHEMA if f.name in columns and not (lean and f.name in DETAIL)]
    plain: list[Any] = [columns[f.name].cast(f.type) for f in fields]
    new = pa.Table.from_arrays(plain, schema=pa.schema(fields))
    out.mkdir(parents=True, exist_ok=True)
    store.write(out, [new], manifest)
    return int(new.num_rows), differ


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `ndm dataset convert`."""
    parser.add_argument("folder", type=Path, nargs="+", metavar="DIR", help="older datasets")
    parser.add_argument(
        "-o", "--out", type=files.folder, required=True, help="folder for them, by name"
    )
    parser.add_argument(
        "--lean", action="store_true", help=f"leave out {', '.join(sorted(DETAIL))}"
    )


def main(args: argparse.Namespace) -> int:
    """Run `ndm dataset convert`."""
    folders = [f for f in args.folder if f.is_dir() or not f.is_file()]  # a README beside them
    if not folders:
        raise NdmError(f"{args.folder[0]}: a file, not a dataset; name folders of datasets")
    names = Counter(folder.resolve().name for folder in folders)
    if twice := [name for name, times in names.items() if times > 1]:
        raise NdmError(f"{twice[0]}: the name of two datasets; convert them one by one")
    for folder in folders:
        out = args.out / folder.resolve().name
        if out.resolve() == folder.resolve():
            raise NdmError(f"{folder}: would be overwritten; name another folder with -o")
        rounds, differ = convert(folder, out, args.lean)
        print(f"{out}: {rounds} rounds, {differ} of them with another target window than before")
    return 0
