# SPDX-License-Identifier: GPL-2.0-only
"""Older datasets: refused with the command that converts them, and the converted ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ndm_tcp import contract, files
from ndm_tcp.cli import run_command
from ndm_tcp.datasets.builder import build
from ndm_tcp.datasets.rounds import columns
from ndm_tcp.datasets.store import store
from ndm_tcp.errors import NdmError
from ndm_tcp.lab.paths import scenario, truth
from ndm_tcp.lab.recordings import convert
from ndm_tcp.training import derived

from ..conftest import TRACES

RUNS = ("train-11-compete--cubic--1", "train-11-compete--vegas--1", "train-10-step--cubic--1")


@pytest.fixture(scope="module")
def now(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("now")
    sources = [*(TRACES / "lab" / name for name in RUNS), TRACES / "cubic-00-clean"]
    build.build(sources, out, jobs=2, quiet=True)
    return out


@pytest.fixture(autouse=True)
def scenarios(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the shipped runs, which were drawn before today's of these names."""
    folder = tmp_path_factory.mktemp("scenarios")
    (folder / "some").mkdir()
    for name in RUNS:
        text = (TRACES / "lab" / name / "scenario.toml").read_text()
        (folder / "some" / f"{name.partition('--')[0]}.toml").write_text(text)
    convert._text.cache_clear()
    monkeypatch.setattr(convert, "SCENARIOS", folder)


def as_before(new: Path, old: Path, **changed: Any) -> Path:
    """A dataset as it was when it held means and target windows."""
    dataset = store.load(new)
    table = dataset.rounds
    dense = derived.dense(table)
    for number, i in enumerate(contract.MEANS, contract.N_INPUTS):
        table = table.append_column(i.name, pa.array(dense[:, number]))
    table = table.append_column("ideal_cwnd", pa.array(derived.targets(dataset.rounds)))
    table = table.drop_columns(list(convert.TRUTH))
    for name, column in changed.items():
        table = table.drop_columns([name]) if column is None else table.set_column(
            table.column_names.index(name), name, column
        )  # fmt: skip
    plain = [table[n].cast(t.value_type) if pa.types.is_dictionary(t) else table[n]
             for n, t in zip(table.column_names, table.schema.types, strict=True)]  # fmt: skip
    whole = pa.Table.from_arrays(plain, names=table.column_names)
    old.mkdir()
    metadata = {"ndm_contract": store.BEFORE_MEMORY}
    pq.write_table(whole.replace_schema_metadata(metadata), old / store.ROUNDS)
    manifest = {**dataset.manifest, "contract": store.BEFORE_MEMORY}
    manifest["sha256"] = files.sha256(old / store.ROUNDS)
    (old / store.MANIFEST).write_bytes(orjson.dumps(manifest))
    return old


def test_it_is_refused_with_the_command_that_converts_it(
    now: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = as_before(now, tmp_path / "old")
    assert run_command(["train", "--data", str(old), "-o", str(tmp_path / "run")]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and f"run: ndm dataset convert {old} -o NEW_DIR" in said
    words = said.rpartition("run: ndm ")[2].split()
    new = tmp_path / "new"
    assert run_command([word.replace("NEW_DIR", str(new)) for word in words]) == 0
    assert "0 of them with another target window" in capsys.readouterr().out
    before, after = store.load(now), store.load(new / "old")
    assert np.array_equal(derived.targets(after.rounds), derived.targets(before.rounds))
    assert np.array_equal(derived.dense(after.rounds), derived.dense(before.rounds))
    same = [name for name in before.rounds.column_names if name != "start_us"]
    assert after.rounds.select(same).to_pylist() == before.rounds.select(same).to_pylist()
    assert after.manifest["sources"] == before.manifest["sources"]


def test_a_lean_one_lacks_what_no_training_reads(now: Path, tmp_path: Path) -> None:
    old, new = as_before(now, tmp_path / "old"), tmp_path / "new"
    assert run_command(["dataset", "convert", str(old), "-o", str(new), "--lean"]) == 0
    lean, whole = store.load(new / "old"), store.load(now)
    assert set(whole.rounds.column_names) - set(lean.rounds.column_names) == columns.DETAIL
    assert np.array_equal(derived.targets(lean.rounds), derived.targets(whole.rounds))
    size = [(folder / store.ROUNDS).stat().st_size for folder in (new / "old", old)]
    assert size[0] < size[1] / 2
    both = store.load_all([new / "old", now])
    assert both.rounds.num_rows == whole.rounds.num_rows, "the same flows"


def test_flows_of_a_run_may_have_changed_places(now: Path) -> None:
    """Which of a scenario's flows began late is told by where their windows change."""
    text = (scenario.find(Path("training/train-204-long-equals.toml"))).read_text()
    told = truth.windows(text, "cubic")
    t_us = np.arange(0, 50_000_000, 90_000)
    srtt_us = np.full(len(t_us), 70_000)
    rows, order = [], [3, 0, 5, 1, 2, 4]
    for number in order:
        start_us = int(told[number].from_us[0]) + 300_000
        old = told[number].packets(t_us + start_us, srtt_us).astype(np.float32)
        rows.append(("cubic", {"t_us": t_us, "srtt_us": srtt_us, "ideal_cwnd": old}))
    found = convert.place(text, "cubic", rows)
    numbers = [f.number for f in found]
    assert not any(f.differ for f in found) and sorted(numbers) == sorted(order)
    assert numbers[0] == 3 and numbers[1] == 0, "they are told apart"


def test_what_cannot_be_converted_is_one_line(
    now: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = store.load(now).rounds.num_rows
    foreign = pa.array(["somebody's run"] * rows)
    unknown = pa.array(["train-9999-none--cubic--1"] * rows)
    cases = {
        "cut": ({"bdp_ratio": None}, "no column bdp_ratio; run: ndm dataset build"),
        "untold": ({"ideal_cwnd": None}, "no column ideal_cwnd; run: ndm dataset build"),
        "foreign": ({"source": foreign}, "no run of the lab; build the dataset from its sources"),
        "unknown": ({"source": unknown}, "no scenario train-9999-none in "),
    }
    for name, (changed, message) in cases.items():
        old = as_before(now, tmp_path / name, **changed)
        out = tmp_path / "out"
        assert run_command(["dataset", "convert", str(old), "-o", str(out)]) == 2
        said = capsys.readouterr().err
        assert message in said and said.count("\n") == 1, said
        assert not (out / name).exists()
    for words, message in (
        ([now], "needs no conversion; leave it out"),
        ([tmp_path], "no dataset here"),
        ([tmp_path / "nowhere"], "no dataset here"),
    ):
        command = ["dataset", "convert", *map(str, words), "-o", str(tmp_path / "out")]
        assert run_command(command) == 2
        said = capsys.readouterr().err
        assert message in said and said.count("\n") == 1
    old = as_before(now, tmp_path / "twice")
    assert run_command(["dataset", "convert", str(old), "-o", str(tmp_path)]) == 2
    assert "would be overwritten; name another folder" in capsys.readouterr().err
    (old / store.ROUNDS).write_bytes((old / store.ROUNDS).read_bytes() + b"x")
    with pytest.raises(NdmError, match="damaged dataset|is not the one"):
        convert.convert(old, tmp_path / "out", False)


def test_a_dataset_of_yet_another_contract_is_to_be_built_anew(now: Path, tmp_path: Path) -> None:
    old = as_before(now, tmp_path / "old")
    table = pq.read_table(old / store.ROUNDS).replace_schema_metadata({"ndm_contract": "0" * 16})
    pq.write_table(table, old / store.ROUNDS)
    for read in (store.load, lambda path: convert.convert(path, tmp_path / "out", False)):
        with pytest.raises(NdmError, match="made for contract 0000.*run: ndm dataset build"):
            read(old)


def test_two_datasets_of_one_name_do_not_become_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for place in "ab":
        (tmp_path / place / "pool").mkdir(parents=True)
    words = [str(tmp_path / place / "pool") for place in "ab"]
    assert run_command(["dataset", "convert", *words, "-o", str(tmp_path / "out")]) == 2
    assert "pool: the name of two datasets" in capsys.readouterr().err
    (tmp_path / "README").write_text("x")
    readme = str(tmp_path / "README")
    assert run_command(["dataset", "convert", readme, "-o", str(tmp_path / "out")]) == 2
    assert "a file, not a dataset" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
