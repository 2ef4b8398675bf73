# SPDX-License-Identifier: GPL-2.0-only
"""Run notebooks kept as text: `python notebooks/execute.py FOLDER NOTEBOOK.py...`.

Leaves FOLDER/NOTEBOOK.ipynb with the outputs; each appears whole or not at all.
"""

import sys
import time
from pathlib import Path

import jupytext
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError


def execute(source: Path, target: Path) -> None:
    """Run one notebook where it lies."""
    notebook = jupytext.read(source)
    where = {"metadata": {"path": str(source.resolve().parent)}}
    # Wall-clock stamps in the cells would make every run differ.
    client = NotebookClient(
        notebook, timeout=900, kernel_name="python3", record_timing=False, resources=where
    )
    try:
        client.execute()
    except CellExecutionError as error:
        # Bad input is a sentence; else the cell and its traceback show what went wrong.
        bad = error.ename in ("NdmError", "FileNotFoundError")
        sys.exit(f"{source}: {error.evalue if bad else error}")
    temporary = target.with_suffix(".tmp.ipynb")
    jupytext.write(notebook, temporary)
    temporary.replace(target)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[2:]:
        before = time.monotonic()
        execute(Path(name), folder / (Path(name).stem + ".ipynb"))
        print(f"{name}: {time.monotonic() - before:.1f} s")
