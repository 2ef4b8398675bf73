# SPDX-License-Identifier: GPL-2.0-only
"""A dataset on disk: `rounds.parquet` with the contract in its metadata, `dataset.json`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from ndm_tcp import contract, files
from ndm_tcp.datasets.rounds import SCHEMA
from ndm_tcp.errors import NdmError

ROUNDS = "rounds.parquet"
MANIFEST = "dataset.json"
REBUILD = "ndm dataset build SOURCE... -o DIR"


@dataclass(frozen=True)
class Dataset:
    """A dataset in memory."""

    rounds: pa.Table
    """one row a round, by `rounds.SCHEMA`, flows together and in order"""
    manifest: dict[str, Any]
    """contract, sources with SHA-256, counts"""
    sha256: str
    """of rounds.parquet"""


def write(folder: Path, rounds: pa.Table, manifest: dict[str, Any]) -> None:
    """Write a dataset; each file appears whole or not at all, the manifest last."""
    metadata = {"ndm_contract": contract.HASH, "ndm_revision": str(contract.REVISION)}
    table = rounds.replace_schema_metadata(metadata)
    with files.replacing(folder / ROUNDS) as temporary:
        pq.write_table(table, temporary, compression="zstd", compression_level=9)
    manifest = {"contract": contract.HASH, **manifest, "sha256": files.sha256(folder / ROUNDS)}
    text = orjson.dumps(manifest, option=orjson.OPT_INDENT_2).decode() + "\n"
    files.write_text(folder / MANIFEST, text)


def load(folder: Path) -> Dataset:
    """Read a dataset.

    Raises:
        NdmError: not a dataset, another contract, or files that do not belong together.
    """
    manifest_path, rounds_path = folder / MANIFEST, folder / ROUNDS
    for path in (manifest_path, rounds_path):
        if not path.is_file():
            raise NdmError(f"{folder}: no dataset here ({path.name} is missing); run: {REBUILD}")
    try:
        manifest = orjson.loads(manifest_path.read_bytes())
        table = pq.read_table(rounds_path)
    except (orjson.JSONDecodeError, pa.ArrowInvalid, OSError) as error:
        detail = str(error).splitlines()[0]
        raise NdmError(f"{folder}: damaged dataset ({detail}); run: {REBUILD}") from None
    found = (table.schema.metadata or {}).get(b"ndm_contract", b"").decode() or None
    contract.require(found, str(folder), REBUILD)
    digest = files.sha256(rounds_path)
    if manifest.get("sha256") != digest:
        raise NdmError(f"{folder}: {ROUNDS} is not the one {MANIFEST} describes; run: {REBUILD}")
    if not table.schema.remove_metadata().equals(pa.schema(list(SCHEMA)).remove_metadata()):
        raise NdmError(f"{folder}: {ROUNDS} has other columns than this code; run: {REBUILD}")
    return Dataset(table, manifest, digest)
