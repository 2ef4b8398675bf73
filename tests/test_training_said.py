# SPDX-License-Identifier: GPL-2.0-only
"""What `ndm train`, `ndm eval` and the card say of data, settings and a start."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ndm_tcp.cli import run_command
from ndm_tcp.datasets.builder.build import build
from ndm_tcp.datasets.store import store
from ndm_tcp.export import source
from ndm_tcp.training.config import RESULTS

from .conftest import TRACES
from .test_sampling import iperf3_report


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Datasets: recorded runs, one of these again, and polls."""
    to = tmp_path_factory.mktemp("said")
    names = ("train-00-clean--cubic--1", "train-03-loss--reno--1", "train-01-clean--bbr--1")
    (to / "poll.json").write_text(iperf3_report(1))
    sources = {
        "runs": [TRACES / "lab" / name for name in names],
        "again": [TRACES / "lab" / names[0]],
        "polls": [to / "poll.json"],
    }
    for name, of in sources.items():
        build(of, to / name, quiet=True)
    return {name: to / name for name in sources}


def train(out: Path, *words: object) -> int:
    return run_command(["train", "-o", str(out), "--epochs", "2", *map(str, words)])


def test_data_that_teach_nothing_are_named(
    folders: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(tmp_path / "run", "--data", *folders.values()) == 0
    said = capsys.readouterr().err
    assert f"{folders['again']}: nothing of it is used: its flows are in the datasets" in said
    assert f"{folders['polls']}: nothing of it is used: its rounds are sampled" in said
    polls = store.load(folders["polls"], ["flow_id"]).rounds.num_rows
    assert f"{polls} rounds are sampled in another way, and not used" in said
    assert train(tmp_path / "alone", "--data", folders["runs"]) == 0
    assert "nothing of it is used" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", ["--lr -1", "--lr nan", "--lr 1e6", "--weight-decay -1", "--pool-weight -1"]
)
def test_numbers_that_no_training_can_have_are_refused(
    words: str, folders: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(tmp_path / "run", "--data", folders["runs"], *words.split()) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "expected" in said and not (tmp_path / "run").exists()


def test_a_start_that_no_epoch_improved_is_said_to_be_kept(
    folders: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(tmp_path / "one", "--data", folders["runs"]) == 0
    assert json.loads((tmp_path / "one" / RESULTS).read_text())["epoch"] in (1, 2)
    words = ("--data", folders["runs"], "--init", tmp_path / "one", "--lr", "10")
    capsys.readouterr()
    assert train(tmp_path / "two", *words) == 0
    assert json.loads((tmp_path / "two" / RESULTS).read_text())["epoch"] == 0
    assert "these are the weights of the start" in capsys.readouterr().out
    notes = source.from_run(tmp_path / "two", True).notes
    assert notes["start"].startswith("checkpoint") and "targets" not in notes
    assert "start" not in source.from_run(tmp_path / "one", True).notes


def test_the_targets_of_teachers_are_said_to_be_theirs(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    assert train(tmp_path / "many", "--data", folders["runs"], "--seeds", 2) == 0
    assert train(tmp_path / "mean", "--data", folders["runs"], "--teachers", tmp_path / "many") == 0
    notes = source.from_run(tmp_path / "mean", True).notes
    assert notes["targets"].startswith("mean outputs of 2 networks, sha256 ")


def test_eval_and_export_name_what_they_want(
    folders: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(tmp_path / "many", "--data", folders["runs"], "--seeds", 1) == 0
    run = tmp_path / "many" / "seed-1"
    capsys.readouterr()
    assert run_command(["eval", str(run), "--data", str(folders["polls"])]) == 2
    assert "no per_ack rounds, of which" in capsys.readouterr().err.splitlines()[-1]
    for words in (["export"], ["eval", "--data", str(folders["runs"])]):
        assert run_command([*words, str(tmp_path / "many")]) == 2
        assert f"holds a population; name one of it, such as {run}" in capsys.readouterr().err


def test_a_file_of_this_contract_needs_no_conversion(
    folders: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(tmp_path / "run", "--data", folders["runs"]) == 0
    assert run_command(["export", str(tmp_path / "run"), "--even-if-worse"]) == 0
    capsys.readouterr()
    for name in ("model.onnx", "generated/ndm_model.json"):
        words = [str(tmp_path / "run" / name), "-o", str(tmp_path / "new")]
        assert run_command(["convert", *words]) == 2
        said = capsys.readouterr().err
        assert said.endswith("already, which is this code's; use it as it is\n")


def test_rounds_without_weight_are_no_labels(
    folders: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All flows are other algorithms', which are to count for nothing: nothing would be learned."""
    words = ("--data", folders["runs"], "--pool-weight", 0)
    assert train(tmp_path / "run", *words) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "have no weight; leave --pool-weight 0 out" in said
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--seed", "99999999999999999999"], "seed 99999999999999999999: expected"),
        (["--seed", "-1"], "seed -1: expected"),
        (["--beta", "nan"], "beta nan: expected"),
        (["--beta", "inf"], "beta inf: expected"),
        (["--beta", "0"], "beta 0.0: expected"),
    ],
)
def test_settings_out_of_range_are_named(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["train", "--data", "x", "-o", str(tmp_path / "run"), *words]) == 2
    assert message in capsys.readouterr().err and not list(tmp_path.iterdir())
