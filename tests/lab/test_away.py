# SPDX-License-Identifier: GPL-2.0-only
"""Runs on other machines: what they need travels, what they leave comes back, here without Ray."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ndm_tcp import cluster
from ndm_tcp.errors import NdmError
from ndm_tcp.lab.guest import away, suite
from ndm_tcp.lab.guest.externals import Externals
from ndm_tcp.lab.guest.workers import Workers

from ..far import pretend
from ..kernel.kbuild import copy_kmod
from ..kmod.lab import need_kernel, scenario
from .test_externals import PATH, SEVEN
from .test_run import contents

SHORT = PATH.replace("seconds = 2", "seconds = 1")


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[away.Task]:
    """The tasks that went to a machine that shares nothing but the kernel's cache."""
    need_kernel()
    return pretend(monkeypatch)


def run(jobs: list[suite.Job], engine: str, kmod: Path | None = None) -> list[suite.Outcome]:
    return list(suite.execute(jobs, Workers(1, engine), False, True, kmod))


def test_the_same_bytes_come_back(sent: list[away.Task], tmp_path: Path) -> None:
    others = Externals(modules=(SEVEN,))
    local = suite.Job(scenario(SHORT), "seven", 1, tmp_path / "local", others=others)
    far = replace(local, folder=tmp_path / "far" / "run")
    (here,) = run([local], "local")
    (there,) = run([far], "ray")
    assert here.result and there.result and len(sent) == 1
    first, second = contents(local.folder), contents(far.folder)
    assert first == second
    assert [path.name for path in far.folder.parent.iterdir()] == ["run"]


def test_modules_travel_with_their_runs(sent: list[away.Task], tmp_path: Path) -> None:
    kmod = copy_kmod(tmp_path / "mine")
    job = suite.Job(scenario(SHORT), "ndm_tcp", 1, tmp_path / "run")
    assert [o.error for o in run([job], "ray", kmod)] == [""]
    (task,) = sent
    assert "ndm_tcp.c" in task.luggage[kmod] and "Kbuild" in task.luggage[kmod]
    broken = replace(task, luggage={kmod: {**task.luggage[kmod], "ndm_tcp.c": b"no C at all"}})
    back = away.there(broken)
    assert back.outcome.result is None and "compiling mine failed" in back.outcome.error


def test_what_is_done_does_not_travel(sent: list[away.Task], tmp_path: Path) -> None:
    jobs = [suite.Job(scenario(SHORT), cc, 1, tmp_path / cc) for cc in ("reno", "cubic")]
    assert all(o.result for o in run(jobs[:1], "ray"))
    sent.clear()
    assert all(o.result for o in run(jobs, "ray"))
    assert [task.job.cc for task in sent] == ["cubic"]


def test_a_failed_run_comes_back_with_its_log(sent: list[away.Task], tmp_path: Path) -> None:
    job = suite.Job(scenario(SHORT), "nosuch", 1, tmp_path / "run")
    (outcome,) = run([job], "ray")
    assert outcome.result is None and "no algorithm nosuch" in outcome.error
    log = tmp_path / "run.failed.log"
    assert str(log) in outcome.error and "NDM-LAB" in log.read_text()
    assert not job.folder.exists()


def test_another_lab_refuses(
    sent: list[away.Task], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    job = suite.Job(scenario(SHORT), "reno", 1, tmp_path / "run")
    recipe = replace(away.Recipe.here(()), programs="others")
    back = away.there(away.Task(job, True, None, recipe, {}))
    assert "its lab is not that of the machine that asks" in back.outcome.error
    assert not back.files
    # It refuses in no time, and would refuse all that waits for the others.
    monkeypatch.setattr(cluster, "each", lambda _, tasks: ((n, back) for n in range(len(tasks))))
    with pytest.raises(NdmError, match="its lab is not that"):
        run([job], "ray")


def test_lost_workers_are_failed_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    need_kernel()
    gone = NdmError("lost 6 workers: gone; run it again, what is done stays")
    monkeypatch.setattr(cluster, "each", lambda _, tasks: ((n, gone) for n in range(len(tasks))))
    job = suite.Job(scenario(SHORT), "reno", 1, tmp_path / "run")
    (outcome,) = run([job], "ray")
    assert outcome.result is None and "lost 6 workers" in outcome.error
