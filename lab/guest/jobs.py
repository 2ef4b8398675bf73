# SPDX-License-Identifier: GPL-2.0-only
"""One of many runs: what it is, how it is tried, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from ndm_tcp import files
from ndm_tcp.datasets.readers.run_folder import is_run
from ndm_tcp.errors import NdmError
from ndm_tcp.lab.guest import externals, uml_build
from ndm_tcp.lab.guest import run as lab_run
from ndm_tcp.lab.guest.externals import Externals
from ndm_tcp.lab.guest.root import guest_root
from ndm_tcp.lab.paths.scenario import Scenario

RESULT = "result.json"
TAG = "tag"
ATTEMPTS = 2


@dataclass(frozen=True)
class Job:
    """One run."""

    scenario: Scenario
    cc: str
    """`fixed_cwnd:N` is a constant window of N packets; `fixed_cwnd:N:paced` as ndm_tcp sends it"""
    seed: int
    folder: Path
    kmod: Path | None = None
    """sources, or a .ko, of its own; None: those of all jobs, see `execute`"""
    others: Externals = externals.NONE
    """patches of its kernel, and modules that it loads"""
    tag: str = ""
    """what the run depends on, `suite.tag`, where the folder's name does not have it"""


@dataclass(frozen=True)
class Outcome:
    """How a job ended."""

    job: Job
    result: dict[str, Any] | None
    """result.json, or None if it failed every time"""
    error: str = ""


def load_result(folder: Path) -> dict[str, Any] | None:
    """The result of a finished run, or None."""
    path = folder / RESULT
    if not path.is_file():
        return None
    try:
        result: Any = orjson.loads(path.read_bytes())
    except ValueError:  # cut short
        return None
    whole = isinstance(result, dict) and isinstance(result.get("flows"), list)
    return result if whole else None


def was_other(job: Job) -> bool:
    """Is the run in the job's folder one of another scenario, module or guest?

    An earlier version left no tag: then the scenario's text decides.
    """
    return _is_other(job, load_result(job.folder) or {})


def _is_other(job: Job, done: dict[str, Any]) -> bool:
    """`was_other`, of the run with this result; one in the simulator had no guest."""
    kernel = uml_build.built(patches=job.others.patches) if "kernel_build" in done else None
    if kernel is not None and kernel.dir.name != done["kernel_build"]:
        return True
    if "programs" in done and done["programs"] != guest_root().name:
        return True
    tag, text = job.folder / TAG, job.folder / "scenario.toml"
    if not job.tag or not text.is_file():
        return False
    if tag.is_file():
        return tag.read_text(encoding="utf-8").strip() != job.tag
    return text.read_text(encoding="utf-8") != job.scenario.text


def finished(job: Job, light: bool) -> Outcome | None:
    """How a job ended before, unless it has to run: a light run left no recording, another
    scenario, module or guest was recorded, or an earlier version began its flows at other times."""
    done = load_result(job.folder)
    if done is None or not (light or is_run(job.folder)) or _is_other(job, done):
        return None
    begun = [flow.start_s for flow in job.scenario.begun(job.seed).flows[1:]]
    same = [flow.get("start_s") for flow in done["flows"][1:]] == begun
    return Outcome(job, done) if same else None


def attempt(job: Job, cpu: int | None, light: bool, kmod: Path | None) -> Outcome:
    """Run a job, and once more if it fails.

    Args:
        job: what to run.
        cpu: to run on; None: one without another run.
        light: without captures and traces.
        kmod: a module in the place of the checkout's, or beside it.
    """
    error = ""
    for _ in range(ATTEMPTS):
        try:
            cc, params = lab_run.split_cc(job.cc)
            needed = job.scenario.algorithms(cc)
            brings = lab_run.module_names(kmod) if kmod else []
            module = kmod if any(name in needed for name in brings) else None
            result = lab_run.run(
                *(job.scenario, cc, job.seed, job.folder, cpu, module, params or None, light),
                *(None, (), job.others),
            )
            if job.tag:
                files.write_text(job.folder / TAG, job.tag + "\n")
            return Outcome(job, result)
        except NdmError as caught:
            error = str(caught)
    return Outcome(job, None, error)
