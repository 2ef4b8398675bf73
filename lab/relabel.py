# SPDX-License-Identifier: GPL-2.0-only
"""Gives recorded rounds the right windows that `truth` tells now.

    python -m ndm_tcp.lab.relabel DIR... -o DIR --was 3

For datasets of which nobody has kept the runs; those that are kept take `ndm_tcp.lab.truth` and are
built anew. Nothing but the spare packets of a flow that is alone on a clean path may have changed
since: a round is told by the window that it was given then.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ndm_tcp.datasets import store
from ndm_tcp.errors import NdmError
from ndm_tcp.lab import scenario, truth

TRAINING = Path(scenario.__file__).resolve().parent / "scenarios" / "training"
COLUMN = "ideal_cwnd"
SAME = 2e-6
"""a window was rounded in `ideal.csv` and once more to 32 bits"""


def windows(source: str, spare: int) -> npt.NDArray[np.float64]:
    """[n] the right windows of a recorded run, packets, where no rivals make the RTT.

    Args:
        source: `SCENARIO--CC--SEED`, the run's folder.
        spare: packets of a flow that is alone on a clean path.

    Raises:
        NdmError: no run of `lab/scenarios/training`.
    """
    name, _, rest = source.partition("--")
    path = TRAINING / f"{name}.toml"
    if not rest or not path.is_file():
        raise NdmError(f"{source}: no run of a path in {TRAINING}")
    ideals = truth.ideals(scenario.load(path), rest.partition("--")[0], spare)
    return np.array([round(i.packets_per_s, 3) * round(i.rtt_us) / 1e6 for i in ideals if i.rtt_us])


def relabel(table: pa.Table, was: int) -> pa.Table:
    """The same rounds by `rounds.SCHEMA`, with other windows.

    Args:
        table: rounds, those of a source together.
        was: spare packets of a flow that is alone on a clean path, when they were recorded.
    """
    source = table["source"].to_numpy(zero_copy_only=False).astype(str)
    old = table[COLUMN].to_numpy()
    new = old.copy()
    for rows in np.split(np.arange(len(old)), np.flatnonzero(source[1:] != source[:-1]) + 1):
        name = str(source[rows[0]])
        pairs = zip(windows(name, was), windows(name, truth.EXTRA_PACKETS_ALONE), strict=True)
        for then, now in pairs:
            new[rows[np.isclose(old[rows], then, rtol=SAME, atol=0)]] = now
    at = table.column_names.index(COLUMN)
    return table.set_column(at, table.schema.field(COLUMN), pa.array(new, pa.float32()))


def convert(folder: Path, out: Path, was: int) -> int:
    """Write a dataset anew; returns how many of its rounds have another window.

    Raises:
        NdmError: see `store.load` and `windows`.
    """
    dataset = store.load(folder)
    found = relabel(dataset.rounds, was)
    out.mkdir(parents=True, exist_ok=True)
    store.write(out, [found], dataset.manifest)
    return int(np.sum(found[COLUMN].to_numpy() != dataset.rounds[COLUMN].to_numpy()))


def main(arguments: Sequence[str] | None = None) -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description="give datasets the right windows of today")
    parser.add_argument("folder", type=Path, nargs="+", help="datasets")
    parser.add_argument("-o", "--out", type=Path, required=True, help="folder for them, by name")
    parser.add_argument(
        "--was", type=int, required=True, help="spare packets of a lone flow, as recorded"
    )
    args = parser.parse_args(arguments)
    for folder in args.folder:
        changed = convert(folder, args.out / folder.name, args.was)
        print(f"{args.out / folder.name}: {changed} rounds with another right window")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except NdmError as error:
        sys.exit(f"relabel: {error}")
