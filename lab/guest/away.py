# SPDX-License-Identifier: GPL-2.0-only
"""Runs on a Ray cluster, whose machines share no folder.

What a run needs travels with it: its scenario, and modules and patches that were given by path. Its
files come back and are put where a local run would leave them. A machine whose kernel, programs or
module are not those of this one would leave other bytes, so it refuses.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Generator
from dataclasses import dataclass, replace
from pathlib import Path

from ndm_tcp import cluster, files
from ndm_tcp.cluster import Content
from ndm_tcp.errors import NdmError
from ndm_tcp.lab.guest import uml_build
from ndm_tcp.lab.guest.externals import Externals
from ndm_tcp.lab.guest.jobs import Job, Outcome, attempt, finished
from ndm_tcp.lab.guest.root import guest_root


@dataclass(frozen=True)
class Recipe:
    """What the bytes of a run depend on beside its job."""

    kernel: str
    programs: str
    module: str
    lab: str
    """its own code: what it writes depends on it"""

    @classmethod
    def here(cls, patches: tuple[Path, ...]) -> Recipe:
        """Of this machine; builds the kernel if it must."""
        kernel = uml_build.build(quiet=True, patches=patches).dir.name
        module = uml_build.sources_digest(uml_build.KMOD)
        return cls(kernel, guest_root().name, module, _code())


@functools.cache
def _code() -> str:
    """Of the lab's own files that decide what a run leaves."""
    lab = Path(__file__).resolve().parents[1]
    found = sorted(
        path
        for folder in ("guest", "paths", "uml", "fixed_cwnd")
        for path in (lab / folder).rglob("*")
        if path.suffix in (".py", ".c", ".h", ".sh") and not path.name.endswith(".mod.c")
    )
    return files.digest(*(path.read_bytes() for path in found))


@dataclass(frozen=True)
class Task:
    """A job on its way to another machine."""

    job: Job
    light: bool
    kmod: Path | None
    recipe: Recipe
    luggage: dict[Path, Content]
    """modules and patches by their path on the machine that sends"""


@dataclass(frozen=True)
class Back:
    """What comes back."""

    outcome: Outcome
    files: Content
    """of the run"""
    log: bytes
    """of a failed run"""
    refused: bool = False
    """the machine's lab is another"""


def _pack(path: Path) -> Content:
    if path.is_file():
        return {"": path.read_bytes()}
    return {str(p.relative_to(path)): p.read_bytes() for p in uml_build.module_files(path)}


def there(task: Task) -> Back:
    """Run a task on the machine that got it."""
    job = task.job
    with tempfile.TemporaryDirectory(prefix="ndm-lab-") as name:
        folder = Path(name) / job.folder.name
        luggage = Path(name) / "luggage"
        mine = {
            path: cluster.unpack(content, luggage / str(number) / path.resolve().name)
            for number, (path, content) in enumerate(task.luggage.items())
        }
        patches = tuple(mine[path] for path in job.others.patches)
        others = Externals(patches, tuple(mine[path] for path in job.others.modules))
        try:
            cluster.require_same("its lab", Recipe.here(patches), task.recipe)
        except NdmError as error:
            return Back(Outcome(job, None, str(error)), {}, b"", refused=True)
        kmod = mine[task.kmod] if task.kmod else None
        found = attempt(replace(job, folder=folder, others=others), None, task.light, kmod)
        log = folder.with_name(f"{folder.name}.failed.log")
        said = log.read_bytes() if log.is_file() else b""
        content = cluster.pack(folder) if found.result else {}
        error_text = found.error.replace(str(folder), str(job.folder))
        return Back(Outcome(job, found.result, error_text), content, said)


def _keep(back: Back) -> None:
    """Put what came back where a local run leaves it."""
    out = back.outcome.job.folder
    if back.log:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.with_name(f"{out.name}.failed.log").write_bytes(back.log)
    if back.files:
        cluster.keep(back.files, out)


def execute(jobs: list[Job], light: bool, kmod: Path | None) -> Generator[Outcome, None, None]:
    """Run jobs on the cluster, in any order; finished ones are read, not run again.

    Args:
        jobs: the runs.
        light: without captures and traces.
        kmod: a module in the place of the checkout's, or beside it, for jobs without their own.

    Raises:
        NdmError: Ray is not installed, no cluster runs, or a machine of it has another lab.
    """
    tasks: list[Task] = []
    for job in jobs:
        if done := finished(job, light):
            yield done
            continue
        module = job.kmod or kmod
        given = [*job.others.patches, *job.others.modules, *([module] if module else [])]
        recipe = Recipe.here(job.others.patches)
        luggage = {path: _pack(path) for path in given}
        tasks.append(Task(job, light, module, recipe, luggage))
    for number, back in cluster.each(there, tasks) if tasks else ():
        if isinstance(back, NdmError):
            yield Outcome(tasks[number].job, None, str(back))
            continue
        if back.refused:  # in no time: such a machine would take all that waits
            raise NdmError(back.outcome.error)
        _keep(back)
        yield back.outcome
