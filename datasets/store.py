# SPDX-License-Identifier: GPL-2.0-only
"""A dataset on disk: `rounds.parquet` with the contract in its metadata, `dataset.json`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ndm_tcp import contract, files
from ndm_tcp.datasets.rounds import SCHEMA
from ndm_tcp.errors import NdmError

ROUNDS = "rounds.parquet"
MANIFEST = "dataset.json"
ROW_GROUP = 1 << 20
REBUILD = "ndm dataset build SOURCE... -o DIR"
TEXT = [field.name for field in SCHEMA if pa.types.is_string(field.type)]


@dataclass(frozen=True)
class Dataset:
    """A dataset in memory."""

    rounds: pa.Table
    """one row a round, by `rounds.SCHEMA`, flows together and in order"""
    manifest: dict[str, Any]
    """contract, sources with SHA-256, counts"""
    sha256: str
    """of rounds.parquet"""


def write(folder: Path, tables: Iterable[pa.Table], manifest: dict[str, Any]) -> None:
    """Write a dataset; each file appears whole or not at all, the manifest last.

    Args:
        folder: where it goes.
        tables: the rounds by `rounds.SCHEMA`, piece by piece; only some are held in memory.
        manifest: what `dataset.json` says of them.
    """
    ours = contract.INTERFACE_HASH
    metadata = {"ndm_contract": ours, "ndm_revision": str(contract.REVISION)}
    schema = SCHEMA.with_metadata(metadata)
    with (
        files.replacing(folder / ROUNDS) as temporary,
        pq.ParquetWriter(temporary, schema, compression="zstd", compression_level=9) as writer,
    ):
        for group in _row_groups(tables):
            writer.write_table(group.replace_schema_metadata(metadata))
    # First in the file, and this code's, should the manifest be another dataset's.
    manifest = {"contract": "", **manifest} | {"contract": ours}
    manifest |= {"sha256": files.sha256(folder / ROUNDS)}
    text = orjson.dumps(manifest, option=orjson.OPT_INDENT_2).decode() + "\n"
    files.write_text(folder / MANIFEST, text)


def _row_groups(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The same rows in tables of `ROW_GROUP` rows, whatever the pieces were."""
    held: list[pa.Table] = [SCHEMA.empty_table()]
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


def manifest_of(folder: Path) -> dict[str, Any]:
    """What `dataset.json` says."""
    manifest: dict[str, Any] = orjson.loads((folder / MANIFEST).read_bytes())
    return manifest


def load(folder: Path, columns: Sequence[str] | None = None) -> Dataset:
    """Read a dataset.

    Args:
        folder: of the dataset.
        columns: which to read, text among them dictionary-encoded; all, and plain, without them.

    Raises:
        NdmError: not a dataset, another contract, or files that do not belong together.
    """
    manifest_path, rounds_path = folder / MANIFEST, folder / ROUNDS
    for path in (manifest_path, rounds_path):
        if not path.is_file():
            raise NdmError(f"{folder}: no dataset here ({path.name} is missing); run: {REBUILD}")
    try:
        manifest = manifest_of(folder)
        schema = pq.read_schema(rounds_path)
        text = TEXT if columns is not None else None
        table = pq.read_table(rounds_path, columns=columns, read_dictionary=text)
    except (orjson.JSONDecodeError, pa.ArrowInvalid, OSError) as error:
        detail = str(error).splitlines()[0]
        raise NdmError(f"{folder}: damaged dataset ({detail}); run: {REBUILD}") from None
    found = (schema.metadata or {}).get(b"ndm_contract", b"").decode() or None
    contract.require(found, str(folder), REBUILD, contract.INTERFACE_HASH)
    digest = files.sha256(rounds_path)
    if manifest.get("sha256") != digest:
        raise NdmError(f"{folder}: {ROUNDS} is not the one {MANIFEST} describes; run: {REBUILD}")
    if not schema.remove_metadata().equals(pa.schema(list(SCHEMA)).remove_metadata()):
        raise NdmError(f"{folder}: {ROUNDS} has other columns than this code; run: {REBUILD}")
    return Dataset(table, manifest, digest)


def load_all(folders: Sequence[Path], columns: Sequence[str] | None = None) -> Dataset:
    """Several datasets as one, in this order; a flow that is in two of them counts once.

    Args:
        folders: of the datasets.
        columns: see `load`; flow_id is always read.

    Returns:
        the rounds of all; manifest and hash are the first one's if it is alone, else there is no
        manifest, and the hash is of theirs.

    Raises:
        NdmError: see `load`.
    """
    if columns is not None:
        columns = list(dict.fromkeys(["flow_id", *columns]))
    found = [load(folder, columns) for folder in folders]
    if len(found) == 1:
        return found[0]
    seen: set[str] = set()
    tables = []
    for dataset in found:
        table = dataset.rounds
        flows = pc.unique(table["flow_id"]).to_pylist()
        if again := sorted(seen.intersection(flows)):
            twice = pc.is_in(table["flow_id"].cast(pa.string()), pa.array(again))
            table = table.filter(pc.invert(twice))
        tables.append(table)
        seen.update(flows)
    digest = hashlib.sha256("".join(d.sha256 for d in found).encode()).hexdigest()
    return Dataset(pa.concat_tables(tables), {}, digest)
