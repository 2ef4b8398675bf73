# SPDX-License-Identifier: GPL-2.0-only
"""Captures and logs to a dataset of rounds, split by flow."""

from __future__ import annotations

import hashlib
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from tqdm import tqdm

from ndm_tcp.datasets import rounds, sources, store
from ndm_tcp.errors import NdmError

HELD_OUT = 5
"""One flow in five is held out for validation, one for testing; the rest trains."""


@dataclass(frozen=True)
class SourceTable:
    """One source's rounds, and what its line in the manifest says."""

    table: pa.Table
    facts: dict[str, Any]


def assign_splits(flow_ids: list[str]) -> dict[str, str]:
    """Flow to train, val or test: by rank of a hash, so that it does not depend on order.

    Whole flows only: rounds of one flow resemble each other, and a split by row would leak.
    """
    ranked = sorted(flow_ids, key=lambda flow: hashlib.sha256(flow.encode()).digest())
    names = {0: "val", 1: "test"}
    if len(ranked) < 3:
        return dict.fromkeys(ranked, "train")
    return {flow: names.get(i % HELD_OUT, "train") for i, flow in enumerate(ranked)}


def read_source(path: Path, keep_going: bool = False) -> SourceTable:
    """Rounds of one source; `split` is still empty.

    Raises:
        NdmError: see `sources.read`.
    """
    result = sources.read(path, keep_going)
    tables = [rounds.table(flow, result.name, "") for flow in result.flows]
    facts: dict[str, Any] = {
        "name": result.name,
        "sha256": result.sha256,
        "flows": [
            {
                "flow_id": flow.flow_id,
                "format": flow.format,
                "sampling": flow.sampling.value,
                "cwnd_source": flow.cwnd_source.value,
                "cc": flow.cc_name,
                "acks": len(flow.acks),
                "rounds": table.num_rows,
                **flow.facts,
            }
            for flow, table in zip(result.flows, tables, strict=True)
        ],
        "skipped": dict(sorted(result.skipped.items())),
        "truncated_at": result.truncated_at,
    }
    return SourceTable(pa.concat_tables([rounds.SCHEMA.empty_table(), *tables]), facts)


def build(
    paths: list[Path], out: Path, jobs: int = 1, keep_going: bool = False, quiet: bool = False
) -> dict[str, Any]:
    """Build a dataset; the same sources give the same bytes for any number of jobs.

    Args:
        paths: captures, logs, run folders, or folders of them.
        out: the dataset's folder; replaced only once everything was read.
        jobs: processes over sources.
        keep_going: use what is whole in truncated captures, leave out unreadable sources.
        quiet: no progress bar.

    Returns:
        the manifest.

    Raises:
        NdmError: a source cannot be read (unless `keep_going`), or no flow was found.
    """
    found = sources.discover(paths)
    done: list[SourceTable] = []
    failed: list[dict[str, str]] = []
    with ProcessPoolExecutor(max_workers=jobs) as pool:
        futures = [pool.submit(partial(read_source, path, keep_going)) for path in found]
        bar = tqdm(
            zip(found, futures, strict=True),
            total=len(found),
            unit="source",
            desc="reading",
            disable=quiet or not sys.stderr.isatty(),
        )
        for path, future in bar:
            try:
                done.append(future.result())
            except NdmError as error:
                if not keep_going:
                    for other in futures:
                        other.cancel()
                    raise
                failed.append({"name": path.name, "error": str(error)})
                print(f"ndm: left out: {error}", file=sys.stderr)
    table = pa.concat_tables([rounds.SCHEMA.empty_table(), *(d.table for d in done)])
    if not table.num_rows:
        reasons = Counter[str]()
        for d in done:
            reasons.update(d.facts["skipped"])
        why = "; ".join(f"{count} x {reason}" for reason, count in reasons.items())
        raise NdmError(f"{paths[0]}: no usable flow ({why or 'no TCP data in it'})")
    flows = [flow["flow_id"] for d in done for flow in d.facts["flows"] if flow["rounds"]]
    splits = assign_splits(flows)
    split = pa.array([splits[flow] for flow in table["flow_id"].to_pylist()], pa.string())
    position = table.schema.get_field_index("split")
    table = table.set_column(position, table.schema.field("split"), split)
    manifest = {
        "sources": [d.facts for d in done],
        "failed": failed,
        "flows": len(flows),
        "rounds": table.num_rows,
        "splits": dict(sorted(Counter(splits.values()).items())),
    }
    store.write(out, table, manifest)
    return manifest
