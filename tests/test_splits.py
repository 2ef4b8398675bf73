# SPDX-License-Identifier: GPL-2.0-only
"""No path is in two splits, in training or in evaluation, for any sender."""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ndm_tcp.cli import run_command
from ndm_tcp.datasets.builder.build import assign_splits, build
from ndm_tcp.datasets.store import store
from ndm_tcp.errors import NdmError
from ndm_tcp.training import checkpoint as ckpt
from ndm_tcp.training import splits
from ndm_tcp.training.config import TrainConfig
from ndm_tcp.training.loop import Trainer
from ndm_tcp.training.objective import examples

from .conftest import ROOT, TRACES

FEW = TrainConfig(epochs=2)
ALGORITHMS = ("reno", "cubic", "bbr")
PATHS = ("train-00-clean", "train-01-clean", "train-02-clean", "train-03-loss", "train-04-loss")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five paths of the lab, each with three algorithms."""
    out = tmp_path_factory.mktemp("recorded")
    names = [f"lab/{path}--{cc}--1" for path, cc in itertools.product(PATHS, ALGORITHMS)]
    build([TRACES / name for name in names], out, quiet=True)
    return out


def flows_of(folders: list[Path], config: TrainConfig) -> dict[str, set[str]]:
    """Scenario to the splits that its flows are in."""
    table = store.load_all(folders).rounds
    data = examples(table, config)
    source = table["source"].to_numpy(zero_copy_only=False).astype(str)
    assert len(source) == len(data.split)
    found = defaultdict(set)
    for name, split in set(zip(source.tolist(), data.split.tolist(), strict=True)):
        found[name.split("--")[0]].add(split)
    return found


def test_a_path_of_the_lab_is_in_one_split(recorded: Path, tmp_path: Path) -> None:
    """So the builder splits them now; of recordings made before that the loader does."""
    found = flows_of([recorded], FEW)
    assert set(found) == set(PATHS) and all(len(s) == 1 for s in found.values())
    assert {s for one in found.values() for s in one} == {"train", "val", "test"}
    table = pq.read_table(recorded / store.ROUNDS)
    flow = table["flow_id"].to_pylist()
    by_flow = assign_splits(sorted(set(flow)))  # as builds once did
    column = pa.array([by_flow[name] for name in flow])
    at = table.column_names.index("split")
    former = [tmp_path / "former"]
    former[0].mkdir()
    table = table.set_column(at, table.schema.field(at), column)
    store.write(former[0], [table], store.manifest_of(recorded))
    found = flows_of(former, FEW)
    assert all(len(s) == 1 for s in found.values())
    found = flows_of(former, replace(FEW, split_by="flow"))
    assert any(len(s) > 1 for s in found.values()), "the dataset splits by flow"


def test_training_and_evaluation_agree(
    recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also on a dataset of some of the paths alone."""
    Trainer([recorded], tmp_path / "run", FEW).run(quiet=True)
    _, checkpoint = ckpt.load_policy(tmp_path / "run")
    assert checkpoint.config.split_by == "path"
    trained = flows_of([recorded], checkpoint.config)
    some = [f"lab/{path}--vegas--1" for path in PATHS[:3]]
    build([TRACES / name for name in some], tmp_path / "some", quiet=True)
    for path, split in flows_of([tmp_path / "some"], checkpoint.config).items():
        assert split == trained[path], path
    assert run_command(["eval", str(tmp_path / "run"), "--data", str(tmp_path / "some")]) == 0
    assert "val" in capsys.readouterr().out


def test_the_shipped_rounds_hold_out_whole_paths_of_every_kind() -> None:
    sources: set[str] = set()
    for file in (ROOT / "datasets" / "lab-rounds").glob("*/rounds.parquet"):
        column = pq.read_table(file, columns=["source"])["source"].combine_chunks()
        sources |= set(column.unique().to_pylist())
    assert len(sources) > 800
    paths = {scenario for name in sources if (scenario := splits.scenario_of(name))}
    assert len(paths) > 300 and all(map(splits.scenario_of, sources))
    kinds = defaultdict(set)
    for path in paths:
        kind = "lan" if path.startswith("tlan-") else path.split("-", 2)[2]
        kinds[kind].add(splits.split_of(path))
    assert "lan" in kinds and len(kinds["lan"]) == 3
    assert all("train" in found for found in kinds.values()), kinds
    shares = [splits.split_of(path) for path in paths]
    assert all(0.15 < shares.count(s) / len(shares) < 0.25 for s in ("val", "test"))


def names(*values: str) -> splits.Names:
    return np.array(values, dtype=str)


def test_other_flows_over_one_path_stay_together() -> None:
    found = splits.by_path(
        flow=names("c", "a", "b", "d"),
        source=names("x.pcap", "y.pcap", "z.pcap", "w.pcap"),
        path=names("p", "p", "", "q"),
        split=names("val", "train", "test", "test"),
    )
    assert found.tolist() == ["train", "train", "test", "test"]


def test_few_paths_of_the_lab_all_train() -> None:
    flow, path = names("a", "b"), names("", "")
    source = names("train-00-clean--bbr--1", "train-01-clean--bbr--1")
    assert splits.by_path(flow, source, path, names("val", "test")).tolist() == ["train"] * 2


def test_the_split_depends_on_the_name_of_the_path_alone() -> None:
    assert splits.scenario_of("my-path--ndm_tcp--12") == "my-path"
    assert splits.scenario_of("validation-03-lone--fixed_cwnd-40--1") == "validation-03-lone"
    assert splits.scenario_of("capture.pcap") is None
    assert splits.split_of("any") == splits.split_of("any")
    assert [splits.split_of(f"train-{n:02}-loss") for n in range(5)] == [
        *("val", "test", "train", "train", "train")
    ]


def test_runs_of_before_are_evaluated_as_they_were_split() -> None:
    old = {k: v for k, v in FEW.to_dict().items() if k != "split_by"}
    assert TrainConfig.from_dict(old).split_by == "flow"
    assert TrainConfig.from_dict(FEW.to_dict()) == FEW
    with pytest.raises(NdmError, match="expected path or flow"):
        TrainConfig(split_by="moon")
