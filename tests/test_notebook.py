# SPDX-License-Identifier: GPL-2.0-only
"""The notebook runs on a run it never saw; the committed one is its output."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import jupytext
from nbclient import NotebookClient

from .conftest import ROOT


def cells(notebook: object) -> list[str]:
    return [c.source for c in notebook.cells]  # type: ignore[attr-defined]


def test_notebook_runs_and_leaves_its_plots(dataset: Path, run: Path, tmp_path: Path) -> None:
    from ndm_tcp.export.run import export

    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    export(copy, tmp_path / "generated")
    notebook = jupytext.read(ROOT / "notebooks" / "model.py")
    environment = {"NDM_RUN": str(copy), "NDM_DATA": str(dataset)}
    os.environ.update(environment)
    try:
        NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    finally:
        for name in environment:
            del os.environ[name]
    plots = {p.name for p in (copy / "plots").iterdir()}
    assert plots == {"learning_curves.png", "response.png", "inputs.png", "fixed_point.png"}
    text = "".join(
        output.get("text", "")
        for c in notebook.cells
        if c.cell_type == "code"
        for output in c.outputs
    )
    assert "without 7, 8" in text and "cwnd_gain: bound" in text


def test_the_committed_notebook_is_executed_and_current() -> None:
    source = jupytext.read(ROOT / "notebooks" / "model.py")
    executed = jupytext.read(ROOT / "notebooks" / "model.ipynb")
    assert cells(source) == cells(executed)
    code = [c for c in executed.cells if c.cell_type == "code"]
    assert all(c.execution_count for c in code)
    images = [o for c in code for o in c.outputs if "image/png" in o.get("data", {})]
    assert len(images) >= 4
    assert not any(o.output_type == "error" for c in code for o in c.outputs)
