# SPDX-License-Identifier: GPL-2.0-only
"""Captures and logs to a dataset of rounds, split by flow."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

import pyarrow as pa
import pyarrow.parquet as pq
from tqdm import tqdm

from ndm_tcp.datasets import card, remote, sources, store, workers
from ndm_tcp.datasets.parts import Task
from ndm_tcp.errors import NdmError

HELD_OUT = 5
"""One flow in five is held out for validation, one for testing; the rest trains."""
SHARED_BYTES = 256 << 20
"""A plain capture from this size on is shared by all processes, flow by flow."""
PATIENCE_S = 2.0
"""for the processes of a killed build to die"""


def assign_splits(flow_ids: list[str]) -> dict[str, str]:
    """Flow to train, val or test: by rank of a hash, so that it does not depend on order.

    Whole flows only: rounds of one flow resemble each other, and a split by row would leak.
    """
    ranked = sorted(flow_ids, key=lambda flow: hashlib.sha256(flow.encode()).digest())
    names = {0: "val", 1: "test"}
    if len(ranked) < 3:
        return dict.fromkeys(ranked, "train")
    return {flow: names.get(i % HELD_OUT, "train") for i, flow in enumerate(ranked)}


def _discover(names: list[str]) -> list[str]:
    """Paths and URLs of all sources, sorted."""
    paths = [Path(name) for name in names if not remote.is_url(name)]
    found = [str(path) for path in sources.discover(paths)] if paths else []
    for name in names:
        if remote.is_url(name):
            found += remote.find(name)
    return found


def _tasks(found: list[str], folder: str, jobs: int) -> list[Task]:
    tasks = []
    for source in found:
        path = Path(source)
        large = not remote.is_url(source) and path.is_file()
        shares = jobs if large and sources.can_be_shared(path, SHARED_BYTES) else 1
        tasks += [Task(source, folder, shard, shares) for shard in range(shares)]
    return tasks


def _locked(lock: TextIO) -> bool:
    """Is the lock ours now? Processes of a killed build hold it until they have died, too."""
    end = time.monotonic() + PATIENCE_S
    while True:
        with suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        if time.monotonic() > end:
            return False
        time.sleep(0.05)


@contextmanager
def _parts_folder(out: Path, parts_url: str | None) -> Iterator[str]:
    """Where the parts go; ours alone, and gone when the build ends but not when it is killed."""
    folder = out.parent / f".{out.name}.parts"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        if not _locked(lock):
            raise NdmError(f"{out}: another build writes here; wait for it")
        for name in (store.ROUNDS, store.MANIFEST, *card.FILES):
            for rest in out.glob(f".{name}.*"):  # of a build that was killed
                rest.unlink()
        try:
            yield parts_url or str(folder)
        except KeyboardInterrupt:
            raise  # what is done stays for the next run
        except BaseException:
            shutil.rmtree(folder)
            raise
        if parts_url:
            remote.remove(parts_url)
        shutil.rmtree(folder)


def _cost(source: str) -> int:
    """Bytes that will be read: captures take two passes."""
    if remote.is_url(source):
        return 0
    path = Path(source)
    inside = [path] if path.is_file() else [p for p in path.iterdir() if p.is_file()]
    return sum(p.stat().st_size * (2 if ".pcap" in p.name else 1) for p in inside)


def _make_parts(
    tasks: list[Task], engine: str, jobs: int, keep_going: bool, quiet: bool
) -> tuple[list[dict[str, Any] | None], list[dict[str, str]]]:
    """Facts of every task in order, None where its source could not be read; and the failures."""
    facts: list[dict[str, Any] | None] = [None] * len(tasks)
    failed: dict[str, str] = {}
    with tqdm(
        total=sum(_cost(task.source) for task in tasks),
        unit="B",
        unit_scale=True,
        desc="reading",
        mininterval=0.5,
        disable=quiet or not sys.stderr.isatty(),
    ) as bar:
        done = workers.run(tasks, engine, jobs, bar.update)
        for count, (number, outcome) in enumerate(done, start=1):
            bar.set_postfix_str(f"{count}/{len(tasks)}", refresh=False)
            if isinstance(outcome, dict):
                facts[number] = outcome
                continue
            if not keep_going:
                done.close()  # type: ignore[attr-defined]
                raise outcome
            failed[tasks[number].source] = str(outcome)
        bar.total = bar.n
    for error in failed.values():
        print(f"ndm: left out: {error}", file=sys.stderr)
    names = [{"name": Path(source).name, "error": failed[source]} for source in sorted(failed)]
    return facts, names


def _merge_shards(tasks: list[Task], facts: list[dict[str, Any] | None]) -> list[dict[str, Any]]:
    """One entry per source; `order` lists (part, number of the flow in it) flow by flow."""
    merged: dict[str, dict[str, Any]] = {}
    unread = {task.source for task, found in zip(tasks, facts, strict=True) if found is None}
    for task, found in zip(tasks, facts, strict=True):
        if found is None or task.source in unread:
            continue
        one = dict(found)
        numbers, part = one.pop("numbers"), one.pop("part")
        flows = [
            (number, part, place, flow)
            for place, (number, flow) in enumerate(zip(numbers, one["flows"], strict=True))
        ]
        whole = merged.setdefault(task.source, {**one, "flows": [], "skipped": Counter()})
        whole["flows"] += flows
        whole["skipped"].update(one["skipped"])
    for whole in merged.values():
        whole["flows"].sort(key=lambda entry: entry[0])
        whole["order"] = [(part, place) for _, part, place, _ in whole["flows"]]
        whole["flows"] = [flow for *_, flow in whole["flows"]]
        whole["skipped"] = dict(sorted(whole["skipped"].items()))
    return list(merged.values())


def _distinct(found: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    """The sources without those that repeat another one's bytes, and these."""
    first: dict[str, dict[str, Any]] = {}
    repeated = []
    for source in found:
        other = first.setdefault(source["sha256"], source)
        if other is not source:
            repeated.append({"name": source["name"], "same_as": other["name"]})
            said = f"{source['name']}: same bytes as {other['name']}; used once"
            print(f"ndm: {said}", file=sys.stderr)
    return list(first.values()), repeated


def _rounds(found: list[dict[str, Any]], folder: str, splits: dict[str, str]) -> Iterator[pa.Table]:
    """The rows of all parts, source by source and flow by flow, with their split."""
    for source in found:
        with remote.writable(folder) as here:
            tables: dict[str, pa.Table] = {}
            starts: dict[str, list[int]] = {}
            counts = [flow["rounds"] for flow in source["flows"]]
            for (part, _), rows in zip(source["order"], counts, strict=True):
                if part not in tables:
                    remote.fetch(folder, part, here / part)
                    tables[part] = pq.read_table(here / part).replace_schema_metadata(None)
                    starts[part] = [0]
                starts[part].append(starts[part][-1] + rows)
            for (part, place), flow in zip(source["order"], source["flows"], strict=True):
                table = tables[part].slice(starts[part][place], flow["rounds"])
                if not table.num_rows:
                    continue
                at = table.schema.get_field_index("split")
                split = pa.repeat(pa.scalar(splits[flow["flow_id"]]), table.num_rows)
                yield table.set_column(at, table.schema.field("split"), split)


def build(
    paths: list[Path] | list[str],
    out: Path,
    jobs: int = 1,
    keep_going: bool = False,
    quiet: bool = False,
    engine: str = "local",
    parts_url: str | None = None,
) -> dict[str, Any]:
    """Build a dataset; the same sources give the same bytes for any engine and number of jobs.

    Killed at any point and run again, it goes on with the parts that are whole. A capture that
    is cut short gives its whole packets, and the manifest says where it ends.

    Args:
        paths: captures, logs, run folders, or folders of them; or fsspec URLs of files.
        out: the dataset's folder; replaced only once everything was read.
        jobs: processes over sources, and over the flows of large captures.
        keep_going: leave out unreadable sources.
        quiet: no progress bar.
        engine: local, or ray for the Ray cluster that is running.
        parts_url: where the parts go; None for a folder beside `out`. All machines must reach it.

    Returns:
        the manifest.

    Raises:
        NdmError: a source cannot be read (unless `keep_going`), or no flow was found.
    """
    found = _discover([str(path) for path in paths])
    with _parts_folder(out, parts_url) as folder:
        tasks = _tasks(found, folder, jobs)
        facts, failed = _make_parts(tasks, engine, jobs, keep_going, quiet)
        good, repeated = _distinct(_merge_shards(tasks, facts))
        flows = [flow["flow_id"] for s in good for flow in s["flows"] if flow["rounds"]]
        if not flows:
            reasons = Counter[str]()
            for source in good:
                reasons.update(source["skipped"])
            why = "; ".join(f"{count} x {reason}" for reason, count in reasons.items())
            raise NdmError(f"{paths[0]}: no usable flow ({why or 'no TCP data in it'})")
        splits = assign_splits(flows)
        manifest = {
            "sources": [{k: v for k, v in s.items() if k != "order"} for s in good],
            "failed": failed,
            "repeated": repeated,
            "flows": len(flows),
            "rounds": sum(flow["rounds"] for s in good for flow in s["flows"]),
            "splits": dict(sorted(Counter(splits.values()).items())),
        }
        store.write(out, _rounds(good, folder, splits), manifest)
        card.write(out)
    return manifest
