# SPDX-License-Identifier: GPL-2.0-only
"""Run a notebook kept as text: `python notebooks/execute.py notebooks/model.py OUT.ipynb`."""

import sys
from pathlib import Path

import jupytext
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

if __name__ == "__main__":
    source, target = Path(sys.argv[1]), Path(sys.argv[2])
    notebook = jupytext.read(source)
    try:
        # Wall-clock stamps in the cells would make every run differ.
        NotebookClient(notebook, timeout=900, kernel_name="python3", record_timing=False).execute()
    except CellExecutionError as error:
        sys.exit(f"{source}: {error}")
    temporary = target.with_suffix(".tmp.ipynb")
    jupytext.write(notebook, temporary)
    temporary.replace(target)
