# SPDX-License-Identifier: GPL-2.0-only
"""Recorded rounds get the right windows that the lab's truth tells now, and only those change."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
import pyarrow as pa
import pytest

from ndm_tcp.datasets import store
from ndm_tcp.datasets.rounds import SCHEMA
from ndm_tcp.errors import NdmError
from ndm_tcp.lab import relabel, scenario, truth

CLEAN, STEP, LOSSY, JITTER, RIVALS, SLOW_RIVAL = (
    "train-00-clean",
    "train-49-step",
    "train-10-loss",
    "train-23-jitter",
    "train-59-cubic",
    "train-91-equals",
)
THEN = {
    'EXTRA_PACKETS_ALONE = value("EXTRA_PACKETS_ALONE")': "EXTRA_PACKETS_ALONE = 3",
    'EXTRA_SHARE_NOISE = value("EXTRA_SHARE_NOISE")': "EXTRA_SHARE_NOISE = 0.2",
    "EXTRA_SHARE + link.loss": "EXTRA_SHARE",
    'RIVAL_SHARE = value("RIVAL_SHARE")': "RIVAL_SHARE = 1.0",
}


@pytest.fixture
def was(tmp_path: Path) -> ModuleType:
    """`truth` as it might have been."""
    text = Path(truth.__file__).read_text(encoding="utf-8")
    for now, then in THEN.items():
        assert text.count(now) == 1
        text = text.replace(now, then)
    path = tmp_path / "was.py"
    path.write_text(text, encoding="utf-8")
    return relabel.load(path)


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


def windows(teller: ModuleType, source: str) -> list[float]:
    """As the dataset builder computes them from `ideal.csv`; of rivals, with an RTT of 0.1 s."""
    name, cc, _ = source.split("--")
    path = relabel.TRAINING / f"{name}.toml"
    lines = teller.table(scenario.load(path), cc, 0).splitlines()[1:]
    pairs = [[float(v) for v in line.split(",")[2:]] for line in lines]
    return [rate * (rtt or 1e5) / 1e6 for rate, rtt in pairs]


def test_rounds_get_the_windows_of_now(tmp_path: Path, was: ModuleType) -> None:
    then, now = [], []
    sources = [f"{name}--ndm_tcp--1" for name in (CLEAN, STEP, LOSSY, JITTER, RIVALS)]
    for source in (*sources, f"{SLOW_RIVAL}--bbr--1"):
        before, after = windows(was, source), windows(truth, source)
        assert not np.allclose(before, after, rtol=1e-3)
        then.append(rounds(source, [*before, 0.0]))
        now.append(rounds(source, [*after, 0.0]))
    store.write(tmp_path / "old", then, {"sources": []})
    arguments = [str(tmp_path / "old"), "-o", str(tmp_path / "out")]
    assert relabel.main([*arguments, "--was", str(tmp_path / "was.py")]) == 0
    found = store.load(tmp_path / "out" / "old").rounds
    wanted = pa.concat_tables(now)
    # Beside rivals the factor is told from rates that `ideal.csv` has in thousandths.
    rivals = np.array(
        [RIVALS in name or SLOW_RIVAL in name for name in wanted["source"].to_pylist()]
    )
    pair = found[relabel.COLUMN].to_numpy(), wanted[relabel.COLUMN].to_numpy()
    np.testing.assert_allclose(*(column[~rivals] for column in pair), rtol=1e-6)
    np.testing.assert_allclose(*(column[rivals] for column in pair), rtol=2e-5)
    assert not found.equals(pa.concat_tables(then))
    others = [name for name in SCHEMA.names if name != relabel.COLUMN]
    assert found.select(others).equals(wanted.select(others))


def test_what_is_no_recorded_run_is_refused(tmp_path: Path, was: ModuleType) -> None:
    with pytest.raises(NdmError, match="no dataset here"):
        relabel.convert(tmp_path, tmp_path / "out", was)
    for source in ("train-00-clean", "nothing--ndm_tcp--1"):
        with pytest.raises(NdmError, match=f"{source}: no run of a path"):
            relabel.relabel(rounds(source, [1.0]), was)


def test_rounds_that_the_former_truth_does_not_explain_are_refused(was: ModuleType) -> None:
    table = rounds(f"{CLEAN}--ndm_tcp--1", [12345.0])
    with pytest.raises(NdmError, match=r"windows that was\.py does not tell"):
        relabel.relabel(table, was)


def test_what_is_no_former_truth_is_refused(tmp_path: Path) -> None:
    for name, text in {"a.txt": "", "b.py": "x = (", "c.py": "x = 1"}.items():
        (tmp_path / name).write_text(text)
        with pytest.raises(NdmError, match=rf"{name}: .*expected a former lab/truth\.py"):
            relabel.load(tmp_path / name)
    with pytest.raises(NdmError, match="expected a former"):
        relabel.load(tmp_path / "nothing.py")
