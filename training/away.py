# SPDX-License-Identifier: GPL-2.0-only
"""Trainings on a Ray cluster, whose machines share no folder.

The prepared data travel once to a machine, with them the files of a run that had begun. All files
of the run come back. A machine with other code or libraries would leave other bytes, so it refuses.
"""

from __future__ import annotations

import functools
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ndm_tcp import cluster, contract, files
from ndm_tcp.cluster import Content
from ndm_tcp.errors import NdmError
from ndm_tcp.training.loop import Trainer, deterministic, val_text
from ndm_tcp.training.prepared import Prepared

Results = dict[str, Any]
"""of `Trainer.run`"""


@dataclass(frozen=True)
class Recipe:
    """What the bytes of a network depend on beside its data, its settings and the processor."""

    torch: str
    numpy: str
    code: str

    @classmethod
    def here(cls) -> Recipe:
        """Of this machine."""
        return cls(str(torch.__version__), np.__version__, _code())


@functools.cache
def _code() -> str:
    """SHA-256 of the training's own files and the contract."""
    files_of = (*sorted(Path(__file__).parent.glob("*.py")), Path(contract.__file__))
    return files.digest(*(path.read_bytes() for path in files_of))


@dataclass(frozen=True)
class Task:
    """One network on its way to another machine."""

    seed: int
    run: Path
    """its folder on the machine that sends"""
    begun: Content
    """that folder, of a training that was stopped"""
    board: bool
    recipe: Recipe


@dataclass(frozen=True)
class Back:
    """What comes back."""

    results: Results
    files: Content
    """of the run"""
    error: str = ""


def there(task: Task, data: Prepared) -> Back:
    """Train one network on the machine that got the task."""
    deterministic()
    with tempfile.TemporaryDirectory(prefix="ndm-train-") as name:
        run = cluster.unpack(task.begun, Path(name) / task.run.name)
        try:
            cluster.require_same("its training", Recipe.here(), task.recipe)
            trainer = Trainer(data, run, replace(data.config, seed=task.seed))
            results = trainer.run(quiet=True, board=task.board)
        except NdmError as error:
            return Back({}, {}, str(error).replace(str(run), str(task.run)))
        return Back(results, cluster.pack(run))


def execute(
    data: Prepared, runs: Mapping[int, Path], board: bool, say: bool
) -> Iterator[tuple[int, Results]]:
    """Train on the cluster, and put each network where a local training leaves it.

    Args:
        data: of all.
        runs: seed to its folder; one that a local training or an earlier call left goes on.
        board: metrics for TensorBoard too.
        say: a line for each that is done.

    Yields:
        seed and results, in any order.

    Raises:
        NdmError: Ray is not installed, no cluster runs, a machine of it has other libraries or
            code, a training failed, or its workers were lost too often.
    """
    recipe = Recipe.here()
    tasks = [Task(seed, run, cluster.pack(run), board, recipe) for seed, run in runs.items()]
    for number, back in cluster.each(there, tasks, data):
        task = tasks[number]
        if isinstance(back, NdmError):
            raise back
        if back.error:
            raise NdmError(back.error)
        cluster.keep(back.files, task.run)
        if say:
            held_out = val_text(back.results["val_loss"], data.val, data.judges)
            print(f"seed {task.seed}: done, {held_out}", file=sys.stderr)
        yield task.seed, back.results
