# SPDX-License-Identifier: GPL-2.0-only
"""`make demo`: what it would run, what it would not run again, and its last screen."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ndm_tcp import model_json
from ndm_tcp.adapt import report as adapt_report
from ndm_tcp.datasets.store import card
from ndm_tcp.errors import NdmError
from ndm_tcp.export.report import summary
from ndm_tcp.intervals import FEWEST
from ndm_tcp.lab.guest import suite
from ndm_tcp.paths import report as paths_report

from .conftest import ROOT

STEPS = (
    *("kernel", "data", "run", "export", "module", "check", "rivals", "board", "predict"),
    "adapt",
)


def make(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """`make` in the checkout, with results and stamps elsewhere."""
    if shutil.which("make") is None:
        pytest.skip("no make; install the package make")
    command = ["make", "-C", str(ROOT), f"OUT={folder}/out", f"STAMPS={folder}/stamps"]
    env = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS", "DEMO_"))}
    return subprocess.run([*command, *words], capture_output=True, text=True, env=env, check=False)


def logged(text: str) -> set[str]:
    """The steps that a dry run would run, by their logs."""
    return {name for name in STEPS if f"/log/{name}.log;" in text}


@pytest.fixture
def done(tmp_path: Path) -> Path:
    """A folder that make believes to hold a finished demo."""
    for name in ("stamps", "out/demo/done"):
        (tmp_path / name).mkdir(parents=True)
    steps = [f"{tmp_path}/out/demo/done/{name}" for name in STEPS]
    assert make(tmp_path, "-t", "HAS_PACKAGES=1", *steps).returncode == 0
    return tmp_path


def test_a_first_demo_runs_every_step_and_installs_no_tools(tmp_path: Path) -> None:
    said = make(tmp_path, "-n", "demo")
    assert said.returncode == 0, said.stderr
    assert logged(said.stdout) == set(STEPS)
    wanted = [line for line in said.stdout.splitlines() if "stamps/venv.txt" in line]
    assert "' train >" in wanted[0]
    assert "notebooks" not in said.stdout
    assert "stamps/tools" not in said.stdout
    assert list(tmp_path.iterdir()) == []


def test_torch_comes_from_where_the_user_says(tmp_path: Path) -> None:
    said = make(tmp_path, "-n", "demo", "PIP_TORCH=--index-url https://torch.invalid/cpu").stdout
    lines = [line for line in said.splitlines() if "torch.invalid" in line]
    assert len(lines) == 1
    assert lines[0].endswith("--no-deps --index-url https://torch.invalid/cpu torch")
    assert "torch.invalid" not in make(tmp_path, "-n", "demo").stdout


def test_python_keeps_what_it_compiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pip compiled nothing; to compile torch again takes two seconds an import."""
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    said = make(tmp_path, "--eval=shown: ; @env", "shown")
    assert "PIP_DISABLE_PIP_VERSION_CHECK=1" in said.stdout
    assert "PYTHONDONTWRITEBYTECODE" not in said.stdout


@pytest.mark.parametrize(
    ("changed", "again"),
    [
        ("", set()),
        ("training/train.py", {"run", "export", "module", "check", "board", "adapt"}),
        ("export/check.py", {"export", "module", "check", "board", "adapt"}),
        ("kmod/ndm_tcp.c", {"export", "module", "check", "board", "adapt"}),
        ("lab/score/board.py", {"rivals", "board", "predict", "adapt"}),
        ("lab/uml/kernel.config", {"kernel", "rivals", "board", "predict", "adapt"}),
        ("paths/rates.py", {"predict", "adapt"}),
        ("src/ndm_tcp/adapt/steps.py", {"adapt"}),
        ("README.md", set()),
    ],
)
def test_only_what_changed_is_made_again(done: Path, changed: str, again: set[str]) -> None:
    what_if = ["-W", changed] if changed else []
    steps = [f"{done}/out/demo/done/{name}" for name in STEPS]
    said = make(done, "-n", *what_if, "HAS_PACKAGES=1", *steps)
    assert said.returncode == 0, said.stderr
    assert logged(said.stdout) == again


def test_a_failed_step_is_not_taken_for_done(tmp_path: Path) -> None:
    for name in ("stamps", "out/demo/done"):
        (tmp_path / name).mkdir(parents=True)
    target = f"{tmp_path}/out/demo/done/check"
    assert make(tmp_path, "-t", "HAS_PACKAGES=1", target).returncode == 0
    Path(target).unlink()
    said = make(tmp_path, "HAS_PACKAGES=1", "BIN=/nowhere", target)
    assert said.returncode == 2
    assert f"make: failed: checks; all of it: {tmp_path}/out/demo/log/check.log" in said.stderr
    assert not Path(target).exists()


@pytest.mark.parametrize(("leaves", "taken"), [("adapt.json", True), ("network-0", False)])
def test_an_adaptation_that_ends_without_a_report_has_failed(
    leaves: str, taken: bool, tmp_path: Path
) -> None:
    """Advice against the network and a traceback both exit with 1."""
    for name in ("stamps", "out/demo/done", "bin"):
        (tmp_path / name).mkdir(parents=True)
    target = f"{tmp_path}/out/demo/done/adapt"
    assert make(tmp_path, "-t", "HAS_PACKAGES=1", target).returncode == 0
    Path(target).unlink()
    ndm = tmp_path / "bin" / "ndm"
    ndm.write_text(f"#!/bin/sh\nmkdir -p $4 && touch $4/{leaves}; exit 1\n")
    ndm.chmod(0o755)
    said = make(tmp_path, "HAS_PACKAGES=1", f"BIN={ndm.parent}", target)
    assert Path(target).exists() is taken is (said.returncode == 0), said.stderr


def test_predictions_of_the_demo_have_intervals(tmp_path: Path) -> None:
    said = make(tmp_path, "-n", "demo").stdout
    (draws,) = re.findall(r"path predict \S+ --draws (\d+)", said)
    assert int(draws) >= FEWEST


def test_the_kernel_needs_no_package_of_python(tmp_path: Path) -> None:
    """It compiles while these are installed."""
    command = [sys.executable, "-S", "-m", "ndm_tcp.cli", "lab", "build", "--check"]
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "src")}
    env["XDG_CACHE_HOME"] = str(tmp_path)
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.fixture(scope="module")
def shipped() -> model_json.Model:
    return model_json.from_json(model_json.SHIPPED)


def moved(model: model_json.Model, layer: int, units: int) -> model_json.Model:
    """A network with one weight of a layer some units nearer to the other end of its range."""
    layers = list(model.layers)
    weight = layers[layer].weight.copy()
    weight[1, 2] += units if weight[1, 2] < 0 else -units
    layers[layer] = replace(layers[layer], weight=weight)
    return replace(model, layers=layers)


def written(model: model_json.Model, folder: Path) -> Path:
    (folder / model_json.NAME).write_text(model_json.to_json(model))
    return folder


@pytest.mark.parametrize("layer", range(3))
@pytest.mark.parametrize(
    ("units", "says"),
    [
        (0, "the shipped network, bit for bit"),
        (1, "the shipped network, to the last place (at most 1 unit apart)"),
        (2, "the shipped network, to the last place (at most 2 units apart)"),
        (3, "up to 3 units in the last place apart"),
        (900, "up to 900 units in the last place apart"),
    ],
)
def test_a_network_is_compared_with_the_shipped_one(
    shipped: model_json.Model, layer: int, units: int, says: str, tmp_path: Path
) -> None:
    other = moved(shipped, layer, units)
    assert summary.apart(other, shipped) == pytest.approx(units)
    said = summary.beside_shipped(written(other, tmp_path))
    assert says in said
    assert ("data or the recipe have changed" in said) == (units > 2)


def test_a_row_at_another_shift_is_compared_in_the_coarser_units(
    shipped: model_json.Model,
) -> None:
    first = shipped.layers[0]
    shift, weight, bias = first.shift.copy(), first.weight.copy(), first.bias.copy()
    row = int(np.argmin(np.abs(weight).max(axis=1)))
    shift[row] -= 1
    weight[row] = (weight[row].astype(int) + 1) >> 1
    bias[row] = bias[row] >> 1
    finer = replace(shipped, layers=[replace(first, shift=shift, weight=weight, bias=bias)])
    finer.layers.extend(shipped.layers[1:])
    units = summary.apart(finer, shipped)
    assert units is not None
    assert 0 < units <= 0.5


def test_a_bias_counts_too(shipped: model_json.Model) -> None:
    last = shipped.layers[-1]
    bias = last.bias.copy()
    bias[0] += 5 << 15  # a weight's unit times an input of 1, which is Q15
    other = replace(shipped, layers=[*shipped.layers[:-1], replace(last, bias=bias)])
    assert summary.apart(other, shipped) == pytest.approx(5)


def test_another_shape_and_a_missing_model_are_said(
    shipped: model_json.Model, tmp_path: Path
) -> None:
    first, *others = shipped.layers
    narrow = replace(first, weight=first.weight[:4], bias=first.bias[:4], shift=first.shift[:4])
    after = replace(others[0], weight=others[0].weight[:, :4])
    other = replace(shipped, layers=[narrow, after, *others[1:]])
    assert summary.apart(other, shipped) is None
    assert "its layers have other sizes" in summary.beside_shipped(written(other, tmp_path))
    with pytest.raises(NdmError, match="no exported model here"):
        summary.beside_shipped(tmp_path / "nowhere")


@pytest.fixture
def finished(shipped: model_json.Model, tmp_path: Path) -> Path:
    """What the last screen reads of a finished demo."""
    for name in ("data", "run", "kmod/generated"):
        (tmp_path / name).mkdir(parents=True)
    written(shipped, tmp_path / "kmod" / "generated")
    dataset = {"flows": 2, "rounds": 9, "sources": ["a"]}
    part = {"rounds": 9, "gain_mae": 0.1, "hold_mae": 0.2, "congestion_auc": None}
    results = dict.fromkeys(("train", "val", "test"), part)
    export = {"parameters": 242, "weight_bytes": 986, "model": shipped.hash(), "vectors": 3}
    export |= {"bound": [0.1, 0.2], "observed": [0.01, 0.02]}
    for name, found in (
        ("data/dataset.json", dataset),
        ("run/metrics.json", results),
        ("run/export.json", export),
    ):
        (tmp_path / name).write_text(json.dumps(found))
    (tmp_path / "kmod" / "ndm_tcp.ko").touch()
    (tmp_path / "board.txt").write_text("bbr 9.08 4.90 Mbit/s\nwrote board.html\n")
    (tmp_path / "paths.txt").write_text("cubic 3.30\npage: out/paths/index.html\n")
    (tmp_path / "adapt.txt").write_text("stay\nreport:  out/adapt/report.html\n")
    return tmp_path


def test_the_last_screen_names_every_page_and_then_the_users_own_captures(finished: Path) -> None:
    said = summary.summary(finished)
    names = ["board/board.html", "board.png", f"paths/{paths_report.PAGE}"]
    names += [f"adapt/{adapt_report.PAGE}", f"data/{card.CARD}", "run/MODEL_CARD.md"]
    names += ["run/report.html", "Your own captures"]
    places = [said.rindex(name) for name in names]
    assert places == sorted(places)
    assert "\n## Your own captures\n" in (ROOT / "README.md").read_text()
    assert all(said.count(f" {name} ") == 1 for name in names[:-1])
    assert max(map(len, said.split("read ")[1].splitlines())) <= 100


def test_the_last_screen_explains_its_figures(finished: Path) -> None:
    said = summary.summary(finished)
    assert "published is\nwhat the experiment's authors measured in a network of theirs" in said
    assert "get there;\nndm_tcp is the shipped network:\ncubic 3.30\n" in said
    (head,) = (line for line in said.splitlines() if line.startswith("  split "))
    assert head.endswith("(val chose the epoch)")


def test_several_scenarios_make_one_suite() -> None:
    names = ["published/d-star-loss-1.toml", "published/c-dumbbell-loss-1.toml"]
    found = suite.load_suite(",".join(names))
    assert [s.name for s in found] == ["d-star-loss-1", "c-dumbbell-loss-1"]
    with pytest.raises(NdmError, match="two scenarios are called d-star-loss-1"):
        suite.load_suite(f"{names[0]},published")
    with pytest.raises(NdmError, match="nowhere.toml: no scenario file"):
        suite.load_suite(f"{names[0]},nowhere.toml")
    with pytest.raises(NdmError, match="no scenario file"):
        suite.load_suite(",")
