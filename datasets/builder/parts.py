# SPDX-License-Identifier: GPL-2.0-only
"""One source (or one share of a large capture) to one file of rounds, the unit of a build.

A part depends only on the bytes of its source, the source's name and this code, all of which
are in its file name. So any process on any machine can make it, a part that is there need not
be made again, and a build that was killed goes on where it stopped.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from ndm_tcp import contract, core, files
from ndm_tcp.datasets.builder import remote
from ndm_tcp.datasets.readers import sources
from ndm_tcp.datasets.readers.sources import SourceResult
from ndm_tcp.datasets.rounds import columns
from ndm_tcp.datasets.rounds.flow import FlowRounds, Label
from ndm_tcp.errors import NdmError

FACTS = b"ndm_facts"
T = TypeVar("T")


class CannotWriteError(NdmError):
    """The disk's fault and no source's, so going on with the next source does not help."""


@dataclass(frozen=True)
class Labeller:
    """A function from a module above this room, which the command line brings together."""

    label: Label
    digest: str
    """of its code: parts depend on it"""


@dataclass(frozen=True)
class Task:
    """The source to read, and the place of the part."""

    source: str
    """path or fsspec URL of a file, or path of a recorded run's folder"""
    folder: str
    """of the parts: a path, or an fsspec URL"""
    shard: int = 0
    shards: int = 1
    """of a large capture, the flows whose number is `shard` modulo `shards`"""
    labeller: Labeller | None = None
    """for flows whose path is not known"""


@functools.cache
def code_digest() -> str:
    """SHA-256 over all code that the rounds of a source depend on."""
    total = hashlib.sha256(contract.DATA_HASH.encode())
    room = Path(__file__).resolve().parents[1]
    for path in sorted(room.rglob("*.py")):
        total.update(f"{path.relative_to(room)}:{files.sha256(path)}\n".encode())
    total.update(f"core:{files.sha256(Path(core.EXTENSION))}\n".encode())
    return total.hexdigest()


def part_name(task: Task, name: str, sha256: str) -> str:
    """The file name of a part."""
    words = [code_digest(), sha256, name, str(task.shard), str(task.shards)]
    words += [task.labeller.digest] if task.labeller else []
    return hashlib.sha256("\n".join(words).encode()).hexdigest()[:32] + ".parquet"


def _facts(result: SourceResult[FlowRounds]) -> dict[str, Any]:
    flows = [
        {
            "flow_id": flow.flow_id,
            "group": flow.group or flow.flow_id,
            "fingerprint": flow.fingerprint,
            "format": flow.format,
            "sampling": flow.sampling.value,
            "cwnd_source": flow.cwnd_source.value,
            "cc": flow.cc_name,
            "acks": flow.n_acks,
            "rounds": len(flow.rows),
            **flow.facts,
        }
        for flow in result.flows
    ]
    return {
        "name": result.name,
        "sha256": result.sha256,
        "flows": flows,
        "numbers": result.numbers,
        "skipped": dict(sorted(result.skipped.items())),
        "capture": result.report.counters(),
        "truncated_at": result.report.truncated_at,
        "warnings": result.warnings,
    }


def make(task: Task) -> dict[str, Any]:
    """Make a part, unless it is there.

    Returns:
        the facts of the source, with `part`, the name of the part's file.

    Raises:
        NdmError: see `sources.read_rounds`.
    """
    with remote.local(task.source) as path, remote.writable(task.folder) as folder:
        name = files.shown(path.name)
        sha256 = _reading(task, lambda: sources.digest(path))
        part = part_name(task, name, sha256)
        target = folder / part
        with _of_all_parts():
            there = remote.fetch(task.folder, part, target)
        if there:
            return {**facts_of(target), "part": part}
        label = task.labeller.label if task.labeller else None
        result = _reading(
            task, lambda: sources.read_rounds(path, sha256, (task.shard, task.shards), label)
        )
        try:
            facts = _write(result, target)
        except OSError as error:
            raise CannotWriteError(
                f"{files.shown(task.folder)}: cannot be written ({files.why(error)}); make room, "
                "or name another folder with -o"
            ) from None
        with _of_all_parts():
            remote.publish(target, task.folder, part)
        return {**facts, "part": part}


@contextmanager
def _of_all_parts() -> Iterator[None]:
    """An error of the parts' folder is no error of one source."""
    try:
        yield
    except NdmError as error:
        raise CannotWriteError(str(error)) from None


def _reading(task: Task, read: Callable[[], T]) -> T:
    try:
        return read()
    except OSError as error:
        raise NdmError(f"{files.shown(task.source)}: {files.why(error)}") from None


def _write(result: SourceResult[FlowRounds], target: Path) -> dict[str, Any]:
    facts = _facts(result)
    tables = [columns.table(flow, result.name, "") for flow in result.flows]
    table = pa.concat_tables([columns.SCHEMA.empty_table(), *tables])
    with files.replacing(target) as temporary:
        metadata = {FACTS: orjson.dumps(facts)}
        pq.write_table(table.replace_schema_metadata(metadata), temporary, compression="zstd")
    return facts


def facts_of(part: Path) -> dict[str, Any]:
    """The result of `make` for the part's source."""
    facts: dict[str, Any] = orjson.loads(pq.read_schema(part).metadata[FACTS])
    return facts
