# SPDX-License-Identifier: GPL-2.0-only
"""The notebooks run on a run that they never saw; the committed ones are of the shipped network."""

from __future__ import annotations

import json
import re
import runpy
import shutil
from pathlib import Path
from typing import Any

import jupytext
import matplotlib
import pytest
from nbclient import NotebookClient

from ndm_tcp.cli import run_command
from ndm_tcp.datasets.builder.build import build

from .conftest import ROOT, small_proofs

FOLDER = ROOT / "notebooks"
PLOTS = {
    "training_run": ("learning_curves", "coverage", "paths", "actions", "causes", "reliability"),
    "policy": (
        *("response_gain", "response_congestion", "permutation", "integrated_gradients"),
        "stories",
    ),
    "quantisation": ("quantisation", "float_or_fixed"),
    "closed_loop": ("board_goodput", "board_rtt", "board_ccbench"),
    "your_own_trace": ("trace_flow", "trace_inputs", "trace_outputs"),
    "your_path": ("path_model",),
}
"""notebook to the figures that it leaves whatever run it looks at"""
SAYS = {
    "training_run": "right sign",
    "policy": "Of the delay: rtt_variation +",
    "quantisation": "proved (",
    "closed_loop": "ndm lab build",
    "your_own_trace": "sender bbr, window inflight",
    "your_path": "no replay: no lab kernel; run: ndm lab build",
}
MAX_BYTES = 1_000_000
execute = runpy.run_path(str(FOLDER / "execute.py"))["execute"]


def text_of(notebook: Any) -> str:
    outputs = [o for c in notebook.cells if c.cell_type == "code" for o in c.outputs]
    return "".join(o.get("text", "") for o in outputs)


@pytest.fixture(scope="module")
def exported(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the run, exported, with little searched for its proofs."""
    from ndm_tcp.export.chain import export

    copy = tmp_path_factory.mktemp("exported") / "run"
    shutil.copytree(run, copy)
    with pytest.MonkeyPatch.context() as patch:
        small_proofs(patch)
        export(copy, copy.parent / "generated")
    return copy


SLOW = ("policy", "quantisation", "training_run", "closed_loop")
RUN = [pytest.param(name, marks=pytest.mark.long if name in SLOW else ()) for name in PLOTS]


@pytest.mark.parametrize("name", RUN)
def test_a_notebook_runs_on_another_run_and_leaves_its_plots(
    name: str, dataset: Path, exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NDM_RUN", str(exported))
    monkeypatch.setenv("NDM_DATA", str(dataset))
    monkeypatch.setenv("NDM_OUT", str(tmp_path))
    monkeypatch.setenv("NDM_CAPTURE", str(ROOT / "datasets/traces/bbr-03-lossy"))
    # No lab in there: closed_loop must say how to build it, and do without.
    monkeypatch.setenv("MPLCONFIGDIR", matplotlib.get_cachedir())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    notebook = jupytext.read(FOLDER / f"{name}.py")
    where = {"metadata": {"path": str(FOLDER)}}
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources=where).execute()
    left = {p.stem for p in (exported / "plots").glob("*.png")}
    assert left >= set(PLOTS[name])
    assert SAYS[name] in text_of(notebook)


@pytest.mark.parametrize(
    ("name", "said"),
    [("training_run", "No flow was held out"), ("policy", "Nothing was held out")],
)
def test_a_notebook_runs_where_nothing_is_held_out(
    name: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user's first dataset is one flow."""
    build([ROOT / "datasets" / "traces" / "cubic-03-lossy"], tmp_path / "data", quiet=True)
    words = ["train", "--data", str(tmp_path / "data"), "-o", str(tmp_path / "run")]
    assert run_command([*words, "--objective", "awbc", "--epochs", "2"]) == 0
    monkeypatch.setenv("NDM_RUN", str(tmp_path / "run"))
    monkeypatch.setenv("NDM_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("MPLCONFIGDIR", matplotlib.get_cachedir())
    execute(FOLDER / f"{name}.py", tmp_path / "out.ipynb")
    text = text_of(jupytext.read(tmp_path / "out.ipynb"))
    assert said in text and "nan" not in text


def test_bad_input_of_a_notebook_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NDM_RUN", str(tmp_path / "none"))
    with pytest.raises(SystemExit, match="no checkpoint here") as error:
        execute(FOLDER / "training_run.py", tmp_path / "out.ipynb")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", PLOTS)
def test_the_committed_notebook_is_executed_and_current(name: str) -> None:
    source = jupytext.read(FOLDER / f"{name}.py")
    path = FOLDER / f"{name}.ipynb"
    executed = jupytext.read(path)
    again = "not its source's output; run: make notebooks"
    assert [c.source for c in source.cells] == [c.source for c in executed.cells], again
    code = [c for c in executed.cells if c.cell_type == "code"]
    assert all(c.execution_count for c in code), again
    images = [o for c in code for o in c.outputs if "image/png" in o.get("data", {})]
    assert len(images) >= len(PLOTS[name]) and path.stat().st_size < MAX_BYTES
    assert not any(o.output_type == "error" for c in code for o in c.outputs)
    text = text_of(executed)
    assert str(ROOT) not in path.read_text(encoding="utf-8")
    if name == "closed_loop":
        assert "is not built" not in text and text.count("ndm_tcp") > 4
        return
    notes = json.loads((ROOT / "kmod/generated/ndm_model.json").read_text())["notes"]
    (shipped,) = re.findall(r"[0-9a-f]{64}", notes["checkpoint"])
    assert f"checkpoint {shipped[:16]}" in text, "of another network; run: make shipped"
    assert "trained on other data" not in text


def test_the_page_of_the_ablation_is_that_of_its_numbers() -> None:
    """Every variant that was measured has its row, and the intervals are those of the file."""
    data = json.loads((ROOT / "docs/ablation.json").read_text())
    page = (ROOT / "docs/ablation.md").read_text()
    for name, parts in data["variants"].items():
        for where, part in parts.items():
            if not name.startswith("never saw") and where == "all":
                r2 = part["r2"]
                numbers = f"{r2['mean']:.3f} [{r2['low']:.3f}, {r2['high']:.3f}]"
                assert f"| {name} | {data['parameters'][name]} | {numbers} |" in page
    assert "without 7, 8" in data["closed_loop"]


def test_the_stories_of_the_policy_are_recorded_ones() -> None:
    """Made-up states lay off every recorded path, and showed what no recording shows."""
    source = (FOLDER / "policy.py").read_text()
    assert "core.replay" not in source
    text = text_of(jupytext.read(FOLDER / "policy.ipynb"))
    said = re.findall(
        r"^(random losses|a queue of its own)[^\n(]*\((\S+--ndm_tcp--\d+),", text, re.M
    )
    assert [story for story, _ in said] == ["random losses", "a queue of its own"]
    for kind, low, high in (("random", 0.0, 0.5), ("overflow", 0.5, 1.0)):
        found = re.findall(
            rf"at \d+ {kind} losses [^;\n]*probability of congestion (\d\.\d+)", text
        )
        assert found and all(low <= float(p) <= high for p in found), (kind, found)


def test_no_other_target_replaces_the_committed_network() -> None:
    """On another kind of processor training gives other bits, which nobody asked to ship."""
    calls = re.findall(r"\$\(MAKE\)[^\n]* shipped(?!-)\b", (ROOT / "Makefile").read_text())
    assert not calls
