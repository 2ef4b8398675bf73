# SPDX-License-Identifier: GPL-2.0-only
"""Gives a dataset of another memory the means of this contract.

    python -m ndm_tcp.datasets.means DIR... -o DIR

The means are a function of the inputs of a flow's valid rounds, so recordings outlive a change of
which there are and how long they remember. Whether the inputs themselves were computed as they are
now, no file says: only for datasets whose contract differed in nothing else.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from ndm_tcp import contract, files
from ndm_tcp.datasets import store
from ndm_tcp.datasets.rounds import INPUT_COLUMNS, SCHEMA
from ndm_tcp.errors import NdmError

ROUND_COLUMNS = INPUT_COLUMNS[: contract.N_ROUND_INPUTS]
REMEMBERED = [ROUND_COLUMNS.index(name) for name in contract.MEANS]
HALF = 1 << (contract.MEAN_SHIFT - 1)
HIGHEST = (1 << 15) - 1


def means(x: npt.NDArray[np.int64]) -> npt.NDArray[np.int16]:
    """Of one flow's valid rounds: `ndm_features_means()` in kmod/ndm_features.h.

    Args:
        x: [n, 10], Q12.

    Returns:
        [n, N_MEANS], Q12.
    """
    now = np.minimum(x[:, REMEMBERED] << contract.MEAN_BITS, HIGHEST)
    result = np.empty_like(now)
    if len(now):
        result[0] = now[0]
    for k in range(1, len(now)):
        result[k] = result[k - 1] + ((now[k] - result[k - 1] + HALF) >> contract.MEAN_SHIFT)
    found: npt.NDArray[np.int16] = (result >> contract.MEAN_BITS).astype(np.int16)
    return found


def give(table: pa.Table) -> pa.Table:
    """The same rounds by `rounds.SCHEMA`.

    Args:
        table: rounds, flows together and in order; means of its own are not looked at.

    Raises:
        NdmError: a column is missing that is no mean.
    """
    missing = set(SCHEMA.names) - set(INPUT_COLUMNS[contract.N_ROUND_INPUTS :])
    if missing := missing - set(table.column_names):
        raise NdmError(f"dataset: no column {sorted(missing)[0]}; build it from its sources")
    x = np.stack([table[name].to_numpy() for name in ROUND_COLUMNS], axis=1).astype(np.int64)
    valid = table["valid"].to_numpy(zero_copy_only=False)
    flow = table["flow_id"].to_numpy(zero_copy_only=False).astype(str)
    found = np.zeros((len(x), contract.N_MEANS), dtype=np.int16)
    for rows in np.split(np.arange(len(x)), np.flatnonzero(flow[1:] != flow[:-1]) + 1):
        good = rows[valid[rows]]
        found[good] = means(x[good])
    columns: dict[str, Any] = {name: table[name] for name in table.column_names}
    columns |= dict(zip(INPUT_COLUMNS[contract.N_ROUND_INPUTS :], found.T, strict=True))
    return pa.Table.from_arrays(
        [
            pa.array(columns[f.name], f.type)
            if isinstance(columns[f.name], np.ndarray)
            else columns[f.name]
            for f in SCHEMA
        ],
        schema=SCHEMA,
    )


def convert(folder: Path, out: Path) -> int:
    """Write a dataset anew with the means of this contract; returns how many rounds it has.

    Raises:
        NdmError: no dataset, a damaged one, or one without the columns.
    """
    path = folder / store.ROUNDS
    if not path.is_file() or not (folder / store.MANIFEST).is_file():
        raise NdmError(f"{folder}: no dataset here; run: {store.REBUILD}")
    try:
        manifest = store.manifest_of(folder)
        table = pq.read_table(path)
    except (orjson.JSONDecodeError, pa.ArrowInvalid, OSError) as error:
        detail = str(error).splitlines()[0]
        raise NdmError(f"{folder}: damaged dataset ({detail}); run: {store.REBUILD}") from None
    if manifest.get("sha256") != files.sha256(path):
        raise NdmError(f"{folder}: {store.ROUNDS} is not the one {store.MANIFEST} describes")
    out.mkdir(parents=True, exist_ok=True)
    store.write(out, [give(table)], manifest)
    return int(table.num_rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description="give datasets the means of this contract")
    parser.add_argument("folder", type=Path, nargs="+", help="datasets")
    parser.add_argument("-o", "--out", type=Path, required=True, help="folder for them, by name")
    args = parser.parse_args(arguments)
    for folder in args.folder:
        print(f"{args.out / folder.name}: {convert(folder, args.out / folder.name)} rounds")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except NdmError as error:
        sys.exit(f"means: {error}")
