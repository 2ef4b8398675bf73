# SPDX-License-Identifier: GPL-2.0-only
"""The committed rounds: small, of whole flows, as rounds.lock says; and how they are chosen."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from ndm_tcp.cli import run_command
from ndm_tcp.datasets.builder import build
from ndm_tcp.datasets.rounds import columns
from ndm_tcp.datasets.store import rounds_lock, store
from ndm_tcp.errors import NdmError
from ndm_tcp.training import core_set, objective, splits
from ndm_tcp.training.config import TrainConfig

from .conftest import ROOT, TRACES

COMMITTED = ROOT / "datasets" / "lab-rounds"
MOST_BYTES = 15_000_000
NAMES = [f"train-{n:02}-{kind}" for n, kind in enumerate(("clean", "clean", "clean", "loss"))]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two recordings: the same paths, other senders."""
    folder = tmp_path_factory.mktemp("recorded")
    for name, ccs in (("one", ("reno", "cubic")), ("two", ("vegas", "cubic"))):
        sources = [TRACES / "lab" / f"{path}--{cc}--1" for path in NAMES for cc in ccs]
        build.build(sources, folder / name, quiet=True)
    return folder / "one", folder / "two"


def flow(number: int, **changes: object) -> core_set.Flow:
    one = core_set.Flow(f"{number:016x}", "pool", "train-02-clean", "train", True, 100, 1.0)
    return replace(one, **changes)  # type: ignore[arg-type]


def test_the_committed_files_are_those_of_the_lock_and_small() -> None:
    found = rounds_lock.check(rounds_lock.read(), rounds_lock.LOCK.parent, Path("nowhere"))
    assert not [one for one in found if one.bad]
    there = {p for p in COMMITTED.rglob("*") if p.is_file() and p.name != "README.md"}
    assert there == {one.path for one in found if one.needed}, "each file is in the lock"
    assert sum(p.stat().st_size for p in there) <= MOST_BYTES


def test_the_committed_flows_are_whole_and_as_many_as_their_recordings_say() -> None:
    """A mean depends on all rounds before: that a flow begins where its sender did is in `t_us`."""
    known = {recording.name: recording for recording in rounds_lock.read().recordings}
    for folder in sorted(p for p in COMMITTED.iterdir() if p.is_dir()):
        dataset = store.load(folder)
        first = columns.begins(dataset.rounds)
        ids = dataset.rounds["flow_id"].take(pa.array(np.flatnonzero(first))).to_pylist()
        assert len(ids) == len(set(ids)) == dataset.manifest["flows"]
        starts = np.flatnonzero(first)
        at = 0
        for part in dataset.manifest["recordings"]:
            assert part["rounds"] <= known[part["name"]].rounds
            assert part["flows"] <= known[part["name"]].flows
            assert at == dataset.rounds.num_rows or at in starts or not part["rounds"]
            assert ((starts >= at) & (starts < at + part["rounds"])).sum() == part["flows"]
            at += part["rounds"]
        assert at == dataset.rounds.num_rows
        # The first round of a whole flow ends with its first ACK, or within its first RTTs; the
        # lab's hosts send 2 ms after the handshake.
        t_us, srtt_us = (dataset.rounds[n].to_numpy() for n in ("t_us", "srtt_us"))
        assert np.median(t_us[starts] / np.maximum(srtt_us[starts], 2000)) < 2
        assert (np.diff(t_us)[~first[1:]] >= 0).all()


def test_every_path_is_in_the_committed_set() -> None:
    paths = {
        splits.scenario_of(source)
        for folder in COMMITTED.iterdir()
        if folder.is_dir()
        for source in set(store.load(folder).rounds["source"].to_pylist())
    }
    names = ("training", "training-access", "training-lan")
    suites = [ROOT / "lab" / "scenarios" / name for name in names]
    expected = {path.stem for suite in suites for path in suite.glob("*.toml")}
    assert paths <= expected
    trained = {name for name in expected if splits.split_of(name) == "train"}
    assert not trained - paths, "each path that trains"
    held_out = expected - trained
    assert len(held_out & paths) >= 0.8 * len(held_out)


def test_chosen_flows_are_whole_and_their_rounds_unchanged(
    recorded: tuple[Path, Path], tmp_path: Path
) -> None:
    words = ["data", "core", *map(str, recorded), "-o", str(tmp_path / "core")]
    assert run_command([*words, "--megabytes", "0.02"]) == 0
    core, whole = store.load(tmp_path / "core"), store.load_all(recorded)
    assert 0 < core.manifest["flows"] < columns.begins(whole.rounds).sum()
    assert core.rounds.num_rows == core.manifest["rounds"] < whole.rounds.num_rows
    chosen = set(core.rounds["flow_id"].to_pylist())
    mask = pa.array([flow_id in chosen for flow_id in whole.rounds["flow_id"].to_pylist()])
    rest = whole.rounds.filter(mask)
    for name in ("flow_id", "t_us", *columns.INPUT_COLUMNS, "cwnd", "srtt_us", "scenario"):
        assert core.rounds[name].to_pylist() == rest[name].to_pylist(), name
    assert not set(columns.DETAIL) & set(core.rounds.column_names)
    assert core.manifest["recordings"][0]["name"] == "one"
    # Of a core set, too: its recordings are known by the names that they had.
    again = ["data", "core", str(tmp_path / "core"), "-o", str(tmp_path / "smaller")]
    assert run_command([*again, "--megabytes", "0.01"]) == 0
    smaller = store.load(tmp_path / "smaller")
    assert [part["name"] for part in smaller.manifest["recordings"]] == ["one", "two"]
    assert 0 < smaller.manifest["flows"] < core.manifest["flows"]
    assert set(smaller.rounds["flow_id"].to_pylist()) < chosen
    first = (tmp_path / "core" / store.ROUNDS).read_bytes()
    words[2:4] = reversed(words[2:4])
    assert run_command([*words, "--megabytes", "0.02"]) == 0
    assert (tmp_path / "core" / store.ROUNDS).read_bytes() == first, "in whatever order"
    assert run_command(["dataset", "info", str(tmp_path / "core")]) == 0


def test_what_is_asked_for_wrongly_is_refused_in_one_line(
    recorded: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, _ = recorded
    shutil.copytree(one, tmp_path / "one")
    build.build([TRACES / "reno-00-clean"], tmp_path / "host", quiet=True)
    for words, said in (
        ([one, tmp_path / "one", "-o", tmp_path / "new"], "two recordings of this name"),
        ([one, "-o", one], "would be overwritten"),
        ([tmp_path / "host", "-o", tmp_path / "new"], "no run of the lab; leave the folder out"),
        ([tmp_path / "none", "-o", tmp_path / "new"], "no dataset here"),
        ([one, "-o", tmp_path / "new", "--megabytes", "0.00001"], "raise --megabytes"),
        ([one, "-o", tmp_path / "new", "--megabytes", "nan"], "raise --megabytes"),
    ):
        line = [str(word) for word in words]
        line += [] if "--megabytes" in line else ["--megabytes", "1"]
        assert run_command(["data", "core", *line]) == 2, words
        error = capsys.readouterr().err
        assert said in error and len(error.splitlines()) == 1
        assert not (tmp_path / "new").exists()


def test_a_path_without_flows_comes_before_more_of_another_and_held_out_ones_count_less() -> None:
    same = [flow(n) for n in range(20)]
    other = flow(20, path="train-03-clean", worth=0.5)
    assert other in core_set.choose([*same, other], 5 * other.size), "worth half, and the first"
    held = [flow(n, path="train-00-clean", split="val", worth=0.12) for n in range(30, 50)]
    chosen = core_set.choose([*held, *same], 20 * same[0].size)
    assert sum(f.split == "train" for f in chosen) > 12 and any(f.split == "val" for f in chosen)
    assert core_set.choose(same, 0) == []
    worthless = flow(60, worth=0.0)
    assert worthless not in core_set.choose([worthless, *same], 3 * same[0].size)


def test_what_training_weighs_more_is_worth_more(recorded: tuple[Path, Path]) -> None:
    found = core_set.flows_of(core_set.read(recorded), TrainConfig())
    assert len({f.flow_id for f in found}) == len(found), "a flow in two recordings counts once"
    assert {f.recording for f in found} == {"one", "two"}
    assert all(f.worth >= 0 and not f.own for f in found) and any(f.worth for f in found)
    config, weight, causes = TrainConfig(), Counter[str](), Counter[str]()
    for table in core_set.read(recorded).values():
        data = objective.examples(table, config)
        for name in {*data.flows.text().tolist()} - {*weight}:
            rows = data.flows.text() == name
            weight[name] = float(data.weight[rows & data.policy].sum())
            causes[name] = int((data.cause[rows] >= 0).sum())
    for f in found:
        of_gain = weight[f.flow_id] / weight.total()
        of_logit = config.congestion_weight * causes[f.flow_id] / causes.total()
        part = core_set.HELD_OUT[f.split] * core_set.OTHERS
        assert f.worth == pytest.approx(part * (of_gain + of_logit), rel=1e-4), f.path
    assert len({f.split for f in found}) > 1 and causes.total() > 0
    with pytest.raises(NdmError, match="no dataset here"):
        core_set.read([recorded[0] / "none"])
