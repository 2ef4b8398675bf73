# SPDX-License-Identifier: GPL-2.0-only
"""Recorded rounds get the right windows that the lab's truth tells now, and only those change."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from ndm_tcp.datasets import store
from ndm_tcp.datasets.rounds import SCHEMA
from ndm_tcp.errors import NdmError
from ndm_tcp.lab import relabel, scenario, truth

CLEAN, STEP, LOSSY, RIVALS = (
    "train-00-clean",
    "train-49-step",
    "train-10-loss",
    "train-59-cubic",
)


def rounds(source: str, windows: list[float]) -> pa.Table:
    """Rounds of one recorded run, all zero but for their right windows."""
    n = len(windows)
    columns = {
        field.name: pa.array([0] * n).cast(field.type)
        if not pa.types.is_string(field.type)
        else pa.array([source] * n, field.type)
        for field in SCHEMA
    }
    columns[relabel.COLUMN] = pa.array(windows, pa.float32())
    return pa.Table.from_arrays([columns[f.name] for f in SCHEMA], schema=SCHEMA)


def windows(name: str, alone: int) -> list[float]:
    """As the dataset builder computes them from `ideal.csv`; of rivals, with an RTT of 0.1 s."""
    path = relabel.TRAINING / f"{name}.toml"
    lines = truth.table(scenario.load(path), "ndm_tcp", 0, alone).splitlines()[1:]
    pairs = [[float(v) for v in line.split(",")[2:]] for line in lines]
    return [rate * (rtt or 1e5) / 1e6 for rate, rtt in pairs]


def test_rounds_get_the_windows_of_now(tmp_path: Path) -> None:
    then, now = [], []
    for name in (CLEAN, STEP, LOSSY, RIVALS):
        then.append(rounds(f"{name}--ndm_tcp--1", [*windows(name, 3), 0.0, 7.0]))
        now.append(rounds(f"{name}--ndm_tcp--1", [*windows(name, 0), 0.0, 7.0]))
    store.write(tmp_path / "old", then, {"sources": []})
    assert relabel.main([str(tmp_path / "old"), "-o", str(tmp_path / "out"), "--was", "3"]) == 0
    found = store.load(tmp_path / "out" / "old").rounds
    wanted = pa.concat_tables(now)
    np.testing.assert_allclose(found[relabel.COLUMN], wanted[relabel.COLUMN], rtol=1e-6)
    others = [name for name in SCHEMA.names if name != relabel.COLUMN]
    assert found.select(others).equals(wanted.select(others))
    assert not found.equals(pa.concat_tables(then))


def test_alone_on_a_clean_path_nothing_is_to_spare() -> None:
    assert windows(CLEAN, 3)[0] - windows(CLEAN, 0)[0] == pytest.approx(3, abs=0.01)
    assert windows(LOSSY, 3) == windows(LOSSY, 0)
    assert windows(RIVALS, 3) == windows(RIVALS, 0)


def test_what_is_no_recorded_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NdmError, match="no dataset here"):
        relabel.convert(tmp_path, tmp_path / "out", 3)
    for source in ("train-00-clean", "nothing--ndm_tcp--1"):
        with pytest.raises(NdmError, match=f"{source}: no run of a path"):
            relabel.relabel(rounds(source, [1.0]), 3)
