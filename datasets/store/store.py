# SPDX-License-Identifier: GPL-2.0-only
"""A dataset on disk: `rounds.parquet` with the contract in its metadata, `dataset.json`."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ndm_tcp import contract, files
from ndm_tcp.datasets.rounds.columns import DERIVED, DETAIL, SCHEMA, with_derived
from ndm_tcp.errors import NdmError

ROUNDS = "rounds.parquet"
MANIFEST = "dataset.json"
ROW_GROUP = 1 << 20
REBUILD = "ndm dataset build SOURCE... -o DIR"
BEFORE_MEMORY = "9682b82887b1b138"
"""Contract of the datasets that held means and target windows; `convert` drops them."""
CONVERT = "ndm dataset convert {folder} -o NEW_DIR"
TEXT = [field.name for field in SCHEMA if pa.types.is_string(field.type)]
"""Columns of few values: in memory a number a round each."""
DERIVES = frozenset(field.name for field in DERIVED)
PART = pa.field("dataset", pa.int16(), metadata={"meaning": "number of the folder, from 0"})
"""column that `load_all` adds"""


@dataclass(frozen=True)
class Dataset:
    """A dataset in memory."""

    rounds: pa.Table
    """one row a round, by `columns.SCHEMA` and `columns.DERIVED`, flows together and in order; text
    is dictionary-encoded, and columns of `columns.DETAIL` may be missing"""
    manifest: dict[str, Any]
    """contract, sources with SHA-256, counts"""
    sha256: str
    """of rounds.parquet"""


def write(
    folder: Path, tables: Iterable[pa.Table], manifest: dict[str, Any], smallest: bool = False
) -> None:
    """Write a dataset; each file appears whole or not at all, the manifest last.

    Args:
        folder: where it goes.
        tables: the rounds by `columns.SCHEMA`, which may lack `columns.DETAIL`, piece by piece;
            only some are held in memory.
        manifest: their entries in `dataset.json`.
        smallest: take ten times as long for a file that is a twentieth smaller; for what ships.
    """
    ours = contract.DATA_HASH
    metadata = {"ndm_contract": ours, "ndm_revision": str(contract.REVISION)}
    pieces = iter(tables)
    first = next(pieces, SCHEMA.empty_table())
    schema = first.schema.with_metadata(metadata)
    with (
        files.replacing(folder / ROUNDS) as temporary,
        pq.ParquetWriter(temporary, schema, **_format(schema, smallest)) as writer,
    ):
        for group in _row_groups(itertools.chain([first], pieces)):
            writer.write_table(group.replace_schema_metadata(metadata))
    # First in the file, and this code's, should the manifest be another dataset's.
    manifest = {"contract": "", **manifest} | {"contract": ours}
    manifest |= {"sha256": files.sha256(folder / ROUNDS)}
    option = 0 if smallest else orjson.OPT_INDENT_2
    text = orjson.dumps(manifest, option=option).decode() + "\n"
    files.write_text(folder / MANIFEST, text)


def _format(schema: pa.Schema, smallest: bool) -> dict[str, Any]:
    """How columns are written: a third smaller than as dictionaries, and as fast to read."""
    encodings = {
        field.name: "DELTA_BINARY_PACKED" if field.name == "t_us" else "BYTE_STREAM_SPLIT"
        for field in schema
        if pa.types.is_integer(field.type)
    }
    return {
        "compression": "zstd",
        "compression_level": 22 if smallest else 12,
        "use_dictionary": [name for name in TEXT if name in schema.names],
        "column_encoding": encodings,
    }


def _row_groups(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The same rows in tables of `ROW_GROUP` rows, whatever the pieces were."""
    held: list[pa.Table] = []
    rows = 0
    for table in tables:
        held.append(table)
        rows += table.num_rows
        while rows >= ROW_GROUP:
            whole = pa.concat_tables(held)
            yield whole.slice(0, ROW_GROUP).combine_chunks()
            held, rows = [whole.slice(ROW_GROUP)], rows - ROW_GROUP
    if rows:
        yield pa.concat_tables(held).combine_chunks()


def _there(folder: Path, name: str) -> Path:
    """A file of a dataset.

    Raises:
        NdmError: it is missing.
    """
    path = folder / name
    if not path.is_file():
        raise NdmError(f"{folder}: no dataset here ({name} is missing); run: {REBUILD}")
    return path


def _damaged(folder: Path, why: object) -> NdmError:
    return NdmError(f"{folder}: damaged dataset ({why}); run: {REBUILD}")


def manifest_of(folder: Path) -> dict[str, Any]:
    """Content of `dataset.json`.

    Raises:
        NdmError: there is none, or it is damaged.
    """
    path = _there(folder, MANIFEST)
    try:
        manifest = orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError as error:
        raise _damaged(folder, error) from None
    if not isinstance(manifest, dict):
        raise _damaged(folder, f"{MANIFEST} is no object")
    return manifest


def load(folder: Path, columns: Sequence[str] | None = None) -> Dataset:
    """Read a dataset.

    Args:
        folder: of the dataset.
        columns: which to read, of `columns.SCHEMA` and `columns.DERIVED`; None: all.

    Raises:
        NdmError: not a dataset, another contract, or files that do not belong together.
    """
    read = read_whole(folder, contract.DATA_HASH, _stored(columns))
    if not _fits(read.schema):
        raise NdmError(f"{folder}: {ROUNDS} has other columns than this code; run: {REBUILD}")
    derives = columns is None or DERIVES.intersection(columns)
    return Dataset(with_derived(read.table) if derives else read.table, read.manifest, read.sha256)


@dataclass(frozen=True)
class Files:
    """Content of a dataset's files, with any columns."""

    table: pa.Table
    schema: pa.Schema
    """of the file"""
    manifest: dict[str, Any]
    sha256: str
    """of rounds.parquet"""


def read_whole(folder: Path, ours: str, columns: Sequence[str] | None = None) -> Files:
    """Read the files of a dataset, and check that they belong together.

    Args:
        folder: of the dataset.
        ours: the contract that it should be of.
        columns: which to read, as far as there are; None: all.

    Raises:
        NdmError: not a dataset, another contract, or files that do not belong together.
    """
    manifest, rounds_path = manifest_of(folder), _there(folder, ROUNDS)
    try:
        schema = pq.read_schema(rounds_path)
        kept = None if columns is None else [n for n in columns if n in schema.names]
        table = pq.read_table(rounds_path, columns=kept, read_dictionary=TEXT)
    except (pa.ArrowInvalid, OSError) as error:
        raise _damaged(folder, str(error).splitlines()[0]) from None
    found = (schema.metadata or {}).get(b"ndm_contract", b"").decode() or None
    if found == contract.DATA_HASH != ours:
        raise NdmError(f"{folder}: needs no conversion; leave it out")
    remedy = CONVERT.format(folder=folder) if found == BEFORE_MEMORY else REBUILD
    contract.require(found, str(folder), remedy, ours)
    digest = files.sha256(rounds_path)
    if manifest.get("sha256") != digest:
        raise NdmError(f"{folder}: {ROUNDS} is not the one {MANIFEST} describes; run: {REBUILD}")
    return Files(table, schema, manifest, digest)


def _stored(columns: Sequence[str] | None) -> list[str]:
    """Which columns to read for these, some of which are derived."""
    if columns is None:
        return [str(name) for name in SCHEMA.names]
    of_flows = ("flow_id", "t_us") if DERIVES.intersection(columns) else ()
    return list(dict.fromkeys([*(c for c in columns if c not in DERIVES), *of_flows]))


def _fits(found: pa.Schema) -> bool:
    """Is it `SCHEMA`, except for columns that may be missing?"""
    names = [name for name in SCHEMA.names if name in found.names or name not in DETAIL]
    if names != found.names:
        return False
    return list(found.types) == [SCHEMA.field(name).type for name in names]


def load_all(folders: Sequence[Path], columns: Sequence[str] | None = None) -> Dataset:
    """Several datasets as one, in this order; a flow that is in two of them counts once.

    Args:
        folders: of the datasets.
        columns: see `load`; flow_id is always read.

    Returns:
        the rounds of all, with `PART`; manifest and hash are those of a single dataset, else
        there is no manifest, and the hash is of theirs.

    Raises:
        NdmError: see `load`.
    """
    if columns is not None:
        columns = list(dict.fromkeys(["flow_id", *columns]))
    found = [load(folder, columns) for folder in folders]
    seen: set[str] = set()
    tables = []
    for number, dataset in enumerate(found):
        part = pa.repeat(pa.scalar(number, PART.type), dataset.rounds.num_rows)
        table = dataset.rounds.append_column(PART, part)
        flows = pc.unique(table["flow_id"]).to_pylist()
        if again := sorted(seen.intersection(flows)):
            twice = pc.is_in(table["flow_id"].cast(pa.string()), pa.array(again))
            table = table.filter(pc.invert(twice))
        tables.append(table)
        seen.update(flows)
    if len(found) == 1:
        return Dataset(tables[0], found[0].manifest, found[0].sha256)
    digest = hashlib.sha256("".join(d.sha256 for d in found).encode()).hexdigest()
    whole = pa.concat_tables(tables, promote_options="default")
    return Dataset(whole, {}, digest)
