# SPDX-License-Identifier: GPL-2.0-only
"""What `ndm export` refuses, and where it writes: never over the committed network unasked."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import orjson
import pytest

from ndm_tcp.cli import run_command
from ndm_tcp.errors import NdmError
from ndm_tcp.export import judge
from ndm_tcp.export.chain import export
from ndm_tcp.export.integers import generated, model_c, quantize
from ndm_tcp.export.onnx import writer
from ndm_tcp.training.config import RESULTS


@pytest.fixture
def copy(run: Path, tmp_path: Path) -> Path:
    """A copy of the run that a test may change."""
    shutil.copytree(run, tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A kmod/generated that `--shipped` may replace."""
    folder = tmp_path / "checkout" / "kmod" / "generated"
    shutil.copytree(generated.GENERATED, folder)
    monkeypatch.setattr(generated, "GENERATED", folder)
    return folder


def judged(folder: Path, **changes: Any) -> None:
    """Set what held-out rounds said: `val_gain_mae=0.5` and the like; or other keys."""
    results = orjson.loads((folder / RESULTS).read_bytes())
    for name, value in changes.items():
        split, _, key = name.partition("_")
        if split in ("train", "val", "test"):
            results[split][key] = value
        else:
            results[name] = value
    (folder / RESULTS).write_bytes(orjson.dumps(results))


BETTER = {
    **{"val_gain_mae": 0.1, "val_hold_mae": 0.3, "val_rounds": 100},
    **{"test_gain_mae": 0.2, "test_hold_mae": 0.3, "test_rounds": 300},
}


def test_validation_and_test_are_apart(copy: Path) -> None:
    """Validation chose the epoch, so its figures are too good."""
    judged(copy, **BETTER)
    found = judge.metrics(copy)
    error, still = "mean absolute error of cwnd_gain (log2)", "the same for a constant window"
    for paths, wanted in (("test paths", 0.2), ("val paths, which chose the epoch", 0.1)):
        assert found[f"{error}, {paths}"] == wanted
        assert found[f"{still}, {paths}"] == 0.3


@pytest.mark.parametrize(
    ("changes", "fit", "rounds"),
    [
        ({"val_gain_mae": 0.9}, True, "300 rounds of test paths; "),
        ({"test_gain_mae": 0.31}, False, "300 rounds of test paths; "),
        ({"test_rounds": 0, "test_gain_mae": 0.9}, True, "100 rounds of val paths, which chose"),
    ],
    ids=["val is worse", "test is worse", "no test"],
)
def test_the_test_paths_judge_where_there_are_some(
    changes: dict[str, Any], fit: bool, rounds: str, copy: Path
) -> None:
    judged(copy, **{**BETTER, **changes})
    found = judge.judge(copy)
    assert found.fit is fit and rounds in found.text


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_by_default_the_checkout_is_left_alone(copy: Path, checkout: Path) -> None:
    judged(copy, **BETTER)
    before = content(checkout)
    assert run_command(["export", str(copy)]) == 0
    assert content(checkout) == before
    assert set(content(copy / "generated")) == set(before)


def test_an_onnx_file_leaves_the_checkout_alone(checkout: Path, tmp_path: Path) -> None:
    layers = model_c.from_json(checkout / "ndm_model.json").layers
    path = tmp_path / "policy.onnx"
    writer.write_layers(quantize.dequantize(layers), path, {})
    before = content(checkout)
    assert run_command(["export", str(path)]) == 0
    assert content(checkout) == before
    assert set(content(tmp_path / "policy.export" / "generated")) == set(before)


@pytest.mark.parametrize("words", [["--shipped"], ["-o", "{generated}"]], ids=" ".join)
def test_the_checkout_is_replaced_when_told(words: list[str], copy: Path, checkout: Path) -> None:
    judged(copy, **BETTER)
    before = content(checkout)
    words = [word.replace("{generated}", str(checkout)) for word in words]
    assert run_command(["export", str(copy), *words]) == 0
    assert content(checkout)["ndm_model.h"] != before["ndm_model.h"]
    assert not (copy / "generated").exists()


WORSE = {**BETTER, "test_gain_mae": 0.4}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (WORSE, "WORSE than a constant window: mean error of the step 0.4000"),
        ({**BETTER, "val_gain_mae": 0.3, "test_gain_mae": 0.3}, "WORSE"),
        ({"val_rounds": 0, "test_rounds": 0}, "the datasets hold none"),
    ],
    ids=["worse", "equal", "none"],
)
def test_a_network_that_does_not_beat_holding_still_needs_a_flag(
    changes: dict[str, Any],
    expected: str,
    copy: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    judged(copy, **changes)
    before = sorted(copy.rglob("*"))
    assert run_command(["export", str(copy)]) == 2
    error = capsys.readouterr().err.strip()
    assert expected in error and "--even-if-worse" in error and "\n" not in error
    assert sorted(copy.rglob("*")) == before, "something was written"
    if changes is not WORSE:
        return
    assert run_command(["export", str(copy), "--even-if-worse"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert expected in said
    for name in ("MODEL_CARD.md", "report.html", "export.json", "generated/ndm_model.json"):
        assert expected in (copy / name).read_text(), name


def test_a_better_one_says_by_how_much(copy: Path) -> None:
    judged(copy, **BETTER)
    export(copy, copy / "generated", even_if_worse=False)
    text = (
        "better than a constant window: mean error of the step 0.2000, of a constant window "
        "0.3000, 300 rounds of test paths; mean error of the step 0.1000, of a constant window "
        "0.3000, 100 rounds of val paths, which chose the epoch"
    )
    for name in ("MODEL_CARD.md", "report.html"):
        assert text in (copy / name).read_text(), name
    assert "held out" not in (copy / "generated" / "ndm_model.json").read_text()


@pytest.mark.parametrize("missing", ["congestion", "noise"])
def test_an_output_that_had_no_labels_is_never_exported(
    missing: str, copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Runs older than `--init` left it random, without a message."""
    judged(copy, **BETTER, **{f"train_{missing}_losses": 0})
    for words in ([], ["--even-if-worse"]):
        assert run_command(["export", str(copy), *words]) == 2
        assert "no labels for congestion, which is still random" in capsys.readouterr().err
    judged(copy, frozen=["congestion"], start="the shipped network")
    assert run_command(["export", str(copy)]) == 0


def test_a_frozen_gain_is_not_judged_by_the_data_of_another(copy: Path) -> None:
    judged(copy, **WORSE, train_rounds=0, frozen=["cwnd_gain"], start="model 0123456789abcdef")
    found = judge.judge(copy)
    assert found.fit and "model 0123456789abcdef" in found.text


def test_metrics_that_are_missing_or_damaged_are_named(copy: Path) -> None:
    for text in ("{", "[]", "{}", '{"train": 1}', '{"train": {"rounds": 1}}'):
        (copy / RESULTS).write_text(text)
        with pytest.raises(NdmError, match=r"metrics.json: not written by ndm train .* run: ndm"):
            judge.judge(copy)
    (copy / RESULTS).unlink()
    with pytest.raises(NdmError, match=r"metrics.json is missing; train again"):
        judge.require(copy, even_if_worse=False)
    assert not judge.require(copy, even_if_worse=True).fit
