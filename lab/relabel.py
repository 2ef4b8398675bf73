# SPDX-License-Identifier: GPL-2.0-only
"""Gives recorded rounds the right windows that `truth` tells now.

    git show COMMIT:src/ndm_tcp/lab/truth.py > was.py
    python -m ndm_tcp.lab.relabel DIR... -o DIR --was was.py

For datasets of which nobody has kept the runs; those that are kept take `ndm_tcp.lab.truth` and are
built anew. A round is told by the window that it was given then, so a flow must have as many
windows as it had; beside rivals all that may have changed is their common factor.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

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
Floats = npt.NDArray[np.float64]


def load(path: Path) -> ModuleType:
    """A former `lab/truth.py`.

    Raises:
        NdmError: it cannot be read, or is no such module.
    """
    spec = importlib.util.spec_from_file_location("ndm_truth_then", path)
    if spec is None or spec.loader is None:
        raise NdmError(f"{path}: no Python file; expected a former lab/truth.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look themselves up there
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise NdmError(f"{path}: {error}; expected a former lab/truth.py") from None
    if not hasattr(module, "ideals"):
        raise NdmError(f"{path}: no ideals() in it; expected a former lab/truth.py")
    return module


def windows(teller: ModuleType, source: str) -> tuple[Floats, Floats]:
    """The right windows of a recorded run.

    Args:
        teller: `truth`, of now or then.
        source: `SCENARIO--CC--SEED`, the run's folder.

    Returns:
        [n] packets, and [m] packets/s beside rivals, who make the RTT.

    Raises:
        NdmError: no run of `lab/scenarios/training`.
    """
    name, _, rest = source.partition("--")
    path = TRAINING / f"{name}.toml"
    if not rest or not path.is_file():
        raise NdmError(f"{source}: no run of a path in {TRAINING}")
    told = teller.ideals(scenario.load(path), rest.partition("--")[0])
    alone = [round(i.packets_per_s, 3) * round(i.rtt_us) / 1e6 for i in told if i.rtt_us]
    return np.array(alone), np.array([round(i.packets_per_s, 3) for i in told if not i.rtt_us])


def relabel(table: pa.Table, was: ModuleType) -> pa.Table:
    """The same rounds by `rounds.SCHEMA`, with other windows.

    Args:
        table: rounds, those of a source together.
        was: `truth` as it was when they were recorded.

    Raises:
        NdmError: see `windows`; or more has changed since than can be told from the rounds.
    """
    source = table["source"].to_numpy(zero_copy_only=False).astype(str)
    old = table[COLUMN].to_numpy()
    new = old.copy()
    for rows in np.split(np.arange(len(old)), np.flatnonzero(source[1:] != source[:-1]) + 1):
        name = str(source[rows[0]])
        (then, then_rates), (now, now_rates) = windows(was, name), windows(truth, name)
        if (len(then), len(then_rates)) != (len(now), len(now_rates)):
            raise NdmError(f"{name}: {len(then)} windows then, {len(now)} now; record it again")
        known = old[rows] <= 0
        for before, after in zip(then, now, strict=True):
            hit = np.isclose(old[rows], before, rtol=SAME, atol=0)
            new[rows[hit]] = after
            known |= hit
        factors = np.unique(np.round(now_rates / then_rates, 4))
        if len(factors) > 1 or not (known.all() or len(factors)):
            raise NdmError(f"{name}: windows that {Path(str(was.__file__)).name} does not tell")
        if len(factors):
            new[rows[~known]] *= np.float32(factors[0])
    at = table.column_names.index(COLUMN)
    return table.set_column(at, table.schema.field(COLUMN), pa.array(new, pa.float32()))


def convert(folder: Path, out: Path, was: ModuleType) -> int:
    """Write a dataset anew; returns how many of its rounds have another window.

    Raises:
        NdmError: see `store.load` and `relabel`.
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
        "--was", type=Path, required=True, help="lab/truth.py as it was when they were recorded"
    )
    args = parser.parse_args(arguments)
    was = load(args.was)
    for folder in args.folder:
        changed = convert(folder, args.out / folder.name, was)
        print(f"{args.out / folder.name}: {changed} rounds with another right window")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except NdmError as error:
        sys.exit(f"relabel: {error}")
