# SPDX-License-Identifier: GPL-2.0-only
"""Where a network to export comes from: a training run, or an ONNX file of any framework."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ndm_tcp import files
from ndm_tcp.export import judge
from ndm_tcp.export.onnx import reader, writer
from ndm_tcp.training.checkpoint import MODEL, load_policy
from ndm_tcp.training.config import RANDOM


@dataclass(frozen=True)
class Source:
    """A network in real numbers, and where it comes from."""

    what: Path
    graph: reader.Graph
    notes: dict[str, str]
    compare: Callable[[npt.NDArray[np.float32]], float]
    """onnxruntime on the ONNX file against ... on inputs [n, dense]"""
    compared: str
    """... in words"""
    folder: Path
    """where the reports go"""
    held_out: judge.Judgement
    metrics: dict[str, float]
    """on held-out paths"""


def from_run(run: Path, even_if_worse: bool) -> Source:
    """The network of a training run, by way of ONNX.

    Raises:
        NdmError: bad run, or not fit; see `judge`.
    """
    policy, checkpoint = load_policy(run)
    held_out = judge.require(run, even_if_worse)
    path = run / "model.onnx"
    writer.write(policy, path, {"dataset_sha256": checkpoint.dataset_sha256})
    graph = writer.read(path)
    config = checkpoint.config
    notes = {
        "checkpoint": f"sha256 {files.sha256(run / MODEL)}",
        "dataset": f"sha256 {checkpoint.dataset_sha256}",
        "onnx": f"sha256 {graph.sha256}",
        "objective": f"{config.objective}, seed {config.seed}"
        + (", split by path" if config.split_by == "path" else "")
        + (f", inputs {list(config.mask)} masked" if config.mask else ""),
    }
    if config.teachers:
        count = len(config.teachers)
        notes["targets"] = f"mean outputs of {count} networks, sha256 {', '.join(config.teachers)}"
    if config.init != RANDOM and not config.freeze:
        notes["start"] = config.init
    if config.freeze:
        notes["frozen"] = f"{', '.join(config.freeze)} of {config.init}"
    if not held_out.fit:
        notes["held out"] = held_out.text
    return Source(
        run,
        graph,
        notes,
        lambda x: writer.check_against(policy, path, x),
        "PyTorch",
        run,
        held_out,
        judge.metrics(run),
    )


def from_file(path: Path) -> Source:
    """The network of an ONNX file that anything may have made.

    Raises:
        NdmError: it cannot be carried into the integer core.
    """
    graph = reader.read(path, "ndm export FILE.onnx")
    notes = {
        "onnx": f"sha256 {graph.sha256}",
        "made by": graph.producer,
        "contract": "named in the file"
        if graph.contract
        else "not named in the file, taken on trust",
    }
    return Source(
        path,
        graph,
        notes,
        lambda x: writer.compare(graph, path, x),
        "the layers read from the file",
        path.with_suffix(".export"),
        judge.Judgement("not judged: an ONNX file carries no metrics", True),
        {},
    )


def is_onnx(what: Path) -> bool:
    """An ONNX file, or else the folder of a run?"""
    return what.suffix == ".onnx" or what.is_file()


def folder_of(what: Path) -> Path:
    """Where the reports of an export go: into the run, or beside the ONNX file."""
    return what.with_suffix(".export") if is_onnx(what) else what


def read(what: Path, even_if_worse: bool) -> Source:
    """The network of a run or of an ONNX file.

    Raises:
        NdmError: see `from_run` and `from_file`.
    """
    return from_file(what) if is_onnx(what) else from_run(what, even_if_worse)
