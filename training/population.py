# SPDX-License-Identifier: GPL-2.0-only
"""Networks that differ only in their seed, trained side by side: RUN/seed-1, RUN/seed-2, ...

The data are read once, then one process a network, one thread each, shares them, here or on a Ray
cluster. Each run has the bytes as from a training of its own.
"""

from __future__ import annotations

import multiprocessing
import os
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ndm_tcp import cluster, interrupts
from ndm_tcp.errors import NdmError
from ndm_tcp.training import away
from ndm_tcp.training import checkpoint as ckpt
from ndm_tcp.training.config import TrainConfig
from ndm_tcp.training.loop import Trainer
from ndm_tcp.training.prepared import Prepared, prepare

MEMBER = re.compile(r"seed-(\d+)$")
_shared: Prepared | None = None
"""data that forked processes find in their memory"""


def members(folder: Path) -> dict[int, Path]:
    """The runs of a population by seed.

    Raises:
        NdmError: there are none, or one is not finished.
    """
    found = {int(m[1]): p for p in folder.glob("seed-*") if (m := MEMBER.match(p.name))}
    if not found:
        raise NdmError(f"{folder}: no population here; run: ndm train --seeds 8 ... -o {folder}")
    for path in found.values():
        if not (path / ckpt.MODEL).is_file():
            raise NdmError(f"{path}: not trained to its end; run the ndm train of {folder} again")
    found = dict(sorted(found.items()))
    first, *others = found.values()
    if others:
        one, learned = ckpt.load(first / ckpt.MODEL), _learned(first)
        for path in others:
            _require_alike(path, one.config, one.dataset_sha256, learned)
    return found


def _learned(run: Path) -> str | None:
    """Digest of all that a run learned from: `Prepared.learned_sha256`; None if it left none."""
    path = run / ckpt.PROGRESS
    return ckpt.load(path).dataset_sha256 if path.is_file() else None


def _require_alike(
    run: Path, config: TrainConfig, dataset_sha256: str, learned: str | None
) -> None:
    """Refuse a network of other settings or data: its score differs by more than the seed's luck.

    Args:
        run: its folder.
        config: of the others.
        dataset_sha256: of theirs.
        learned: of all they learned from: code makes target windows, which no dataset holds.

    Raises:
        NdmError: names the settings in which the run differs.
    """
    saved = ckpt.load(run / ckpt.MODEL)
    mine, theirs = saved.config.to_dict(), config.to_dict()
    apart = [name for name in mine if name != "seed" and mine[name] != theirs[name]]
    apart += ["dataset"] * (saved.dataset_sha256 != dataset_sha256)
    if not apart and learned and _learned(run) not in (learned, None):
        apart = ["target windows, which another version of the code made"]
    if apart:
        raise NdmError(
            f"{run}: differs from the rest of the population in more than its seed: "
            f"{', '.join(apart)}; choose another -o, or remove it"
        )


def every(paths: Sequence[Path]) -> tuple[str, ...]:
    """The runs among these folders, and the members of those that are populations; each once.

    Raises:
        NdmError: see `members`.
    """
    alone = [path for path in paths if (path / ckpt.MODEL).is_file()]
    many = [run for path in paths if path not in alone for run in members(path).values()]
    distinct: dict[Path, str] = {}
    for run in (*alone, *many):
        distinct.setdefault(run.resolve(), str(run))
    return tuple(distinct.values())


def _one(run: Path, seed: int, quiet: bool, board: bool) -> dict[str, Any]:
    assert _shared is not None
    torch.set_num_threads(1)
    config = replace(_shared.config, seed=seed)
    return Trainer(_shared, run, config).run(quiet, f"seed {seed}", board)


def train(
    data: Sequence[Path],
    folder: Path,
    config: TrainConfig,
    count: int,
    quiet: bool = False,
    board: bool = False,
    engine: str = cluster.LOCAL,
) -> dict[int, dict[str, Any]]:
    """Train the seeds from the config's on; finished ones are left as they are.

    Args:
        data: dataset folders.
        folder: of the population.
        config: of all, with the first seed.
        count: how many networks.
        quiet: no progress.
        board: metrics for TensorBoard too.
        engine: local, or ray for the Ray cluster that is running.

    Returns:
        results by seed.

    Raises:
        NdmError: as in `Trainer` and `away.execute`, and if a process ended by itself.
    """
    if (folder / ckpt.MODEL).is_file():
        raise NdmError(f"{folder}: holds a single run; choose another -o")
    if engine == cluster.RAY:
        cluster.connect()
    prepared = prepare(data, config)
    seeds = range(config.seed, config.seed + count)
    runs = {seed: folder / f"seed-{seed}" for seed in seeds}
    for run in sorted({*folder.glob("seed-*")} - {*runs.values()}):  # those refuse by themselves
        if (run / ckpt.MODEL).is_file():
            _require_alike(run, prepared.config, prepared.dataset_sha256, prepared.learned_sha256)
    if engine == cluster.RAY:
        return dict(sorted(away.execute(prepared, runs, board, not quiet)))
    return _here(prepared, runs, quiet, board)


def _here(
    prepared: Prepared, runs: Mapping[int, Path], quiet: bool, board: bool
) -> dict[int, dict[str, Any]]:
    """On all processors of this machine."""
    global _shared
    _shared = prepared
    workers = min(len(runs), len(os.sched_getaffinity(0)))
    fork = multiprocessing.get_context("fork")
    try:
        with ProcessPoolExecutor(workers, fork, interrupts.end_with, (os.getpid(),)) as pool:
            try:
                with interrupts.deferred():
                    waiting: dict[int, Future[dict[str, Any]]] = {
                        seed: pool.submit(_one, run, seed, quiet, board)
                        for seed, run in runs.items()
                    }
                return {seed: future.result() for seed, future in waiting.items()}
            except BaseException as error:
                pool.shutdown(wait=False, cancel_futures=True)
                if not isinstance(error, Exception):  # a signal, of this process alone perhaps
                    for process in multiprocessing.active_children():
                        process.terminate()
                raise
    except BrokenProcessPool:
        raise NdmError(
            f"{next(iter(runs.values())).parent}: a training process was ended, by a full memory "
            "perhaps; run the same command again to carry on, or train one seed at a time: --seed N"
        ) from None
    finally:
        _shared = None


def summary(results: dict[int, dict[str, Any]]) -> str:
    """A line a network, and the spread."""
    lines = [f"{'seed':>6}{'held-out loss':>15}{'gain MAE':>10}{'congestion AUC':>16}"]
    rows = []
    for seed, found in results.items():
        part = found["val"]
        # Else it is the loss of the training rounds.
        loss = found["val_loss"] if found["epoch_chosen_by"] == "val" else None
        row = (loss, part["gain_mae"], part["congestion_auc"])
        rows.append([np.nan if value is None else value for value in row])
        lines.append(f"{seed:6}{rows[-1][0]:15.5f}{rows[-1][1]:10.4f}{rows[-1][2]:16.3f}")
    mean, spread = np.mean(rows, axis=0), np.std(rows, axis=0, ddof=min(1, len(rows) - 1))
    for name, row in (("mean", mean), ("sd", spread)):
        lines.append(f"{name:>6}{row[0]:15.5f}{row[1]:10.4f}{row[2]:16.3f}")
    return "\n".join(lines)
