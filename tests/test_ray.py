# SPDX-License-Identifier: GPL-2.0-only
"""`--engine ray` on a Ray cluster of two workers; where ray is installed (`make test-ray`)."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ndm_tcp import selection
from ndm_tcp.cli import run_command
from ndm_tcp.cluster import connect, pack
from ndm_tcp.datasets.builder import build, parts, remote
from ndm_tcp.datasets.readers import sources
from ndm_tcp.errors import NdmError
from ndm_tcp.lab.guest import suite, uml_build
from ndm_tcp.lab.guest.workers import ONE, Workers

from .conftest import TRACES
from .kmod.lab import need_kernel, scenario
from .lab.test_externals import SEVEN
from .lab.test_run import LOSSY, contents

pytestmark = pytest.mark.pictures
NAMES = ("cubic-00-clean", "reno-03-lossy", "bbr-01-clean")
FILES = ("rounds.parquet", "dataset.json", "DATASET_CARD.md", "inputs.png", "paths.png")


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """Two workers on this machine."""
    ray = pytest.importorskip("ray", reason="no ray; make test-ray installs it")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=40)
    yield
    ray.shutdown()


def test_ray_gives_the_same_bytes(cluster: None, tmp_path: Path) -> None:
    paths = [TRACES / name for name in NAMES]
    build.build(paths, tmp_path / "local", quiet=True)
    build.build(paths, tmp_path / "ray", quiet=True, engine="ray")
    for name in FILES:
        assert (tmp_path / "local" / name).read_bytes() == (tmp_path / "ray" / name).read_bytes()


def test_errors_come_back(cluster: None, tmp_path: Path) -> None:
    bad = tmp_path / "bad.pcap"
    bad.write_bytes(b"no capture at all, but long enough to look at")
    with pytest.raises(NdmError, match="neither a packet capture"):
        build.build([TRACES / NAMES[0], bad], tmp_path / "out", quiet=True, engine="ray")
    assert not (tmp_path / "out").exists()


def test_sources_and_parts_behind_urls(cluster: None, tmp_path: Path) -> None:
    path = TRACES / "third_party" / "mlab_tcpinfo_jdczh_00183.jsonl.zst"
    build.build([path], tmp_path / "local", quiet=True)
    build.build(
        [f"file://{path}"],
        tmp_path / "ray",
        quiet=True,
        engine="ray",
        parts_url=f"file://{tmp_path}/parts",
    )
    assert not (tmp_path / "parts").exists()
    for name in FILES:
        assert (tmp_path / "local" / name).read_bytes() == (tmp_path / "ray" / name).read_bytes()


# --- runs of the lab --------------------------------------------------------------------------
def test_runs_of_the_lab_are_the_same_bytes_and_go_on(cluster: None, tmp_path: Path) -> None:
    need_kernel()
    (tmp_path / "lossy.toml").write_text(LOSSY)

    def record(out: Path, *more: str) -> None:
        words = ["lab", "record", str(tmp_path / "lossy.toml"), "--cc", "bbr,ndm_tcp,seven"]
        assert run_command([*words, "--cc-module", str(SEVEN), "-o", str(out), *more]) == 0

    record(tmp_path / "local", "--jobs", "1")
    record(tmp_path / "ray", "--engine", "ray")
    names = sorted(path.name for path in (tmp_path / "local").iterdir())
    assert len(names) == 3 and names == sorted(p.name for p in (tmp_path / "ray").iterdir())
    for name in names:
        assert contents(tmp_path / "local" / name) == contents(tmp_path / "ray" / name)
    kept = {name: (tmp_path / "ray" / name).stat().st_ino for name in names[1:]}
    (tmp_path / "ray" / names[0]).rename(tmp_path / "lost")
    record(tmp_path / "ray", "--engine", "ray")
    assert contents(tmp_path / "lost") == contents(tmp_path / "ray" / names[0])
    assert {name: (tmp_path / "ray" / name).stat().st_ino for name in names[1:]} == kept


def parent(pid: int) -> int:
    text = Path(f"/proc/{pid}/stat").read_text()
    return int(text.rpartition(")")[2].split()[1])


def busy_workers() -> list[int]:
    """Processes of this test's cluster that run a task of the lab."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):
            if (folder / "cmdline").read_bytes().startswith(b"ray::there"):
                pid = int(folder.name)
                if parent(parent(pid)) == os.getpid():
                    found.append(pid)
    return found


def test_a_lost_worker_loses_nothing(cluster: None, tmp_path: Path) -> None:
    need_kernel()
    text = LOSSY.replace("seconds = 2", "seconds = 20")
    jobs = [suite.Job(scenario(text), "bbr", seed, tmp_path / str(seed)) for seed in (1, 2)]
    killed: list[int] = []

    def kill() -> None:
        patience_s = time.monotonic() + 120
        while not killed and time.monotonic() < patience_s:
            for pid in busy_workers()[:1]:
                time.sleep(1)  # into the run
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
            time.sleep(0.05)

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    outcomes = list(suite.execute(jobs, Workers(1, "ray"), True, True))
    thread.join()
    assert killed and all(o.result for o in outcomes) and len(outcomes) == 2
    local = suite.Job(scenario(text), "bbr", 1, tmp_path / "local")
    assert all(o.result for o in suite.execute([local], ONE, True, True))
    assert contents(tmp_path / "1") == contents(tmp_path / "local")


def test_scores_of_networks_are_those_of_this_machine(cluster: None, tmp_path: Path) -> None:
    """So `ndm select`, the guard of `ndm adapt` and `worth` may run anywhere."""
    need_kernel()
    (tmp_path / "lossy.toml").write_text(LOSSY)
    suites = [str(tmp_path / "lossy.toml")]
    kmod = shutil.copytree(uml_build.KMOD, tmp_path / "kmod")
    here, there = (
        selection.measure("one", kmod, suites, 2, where, tmp_path / where.engine)
        for where in (ONE, Workers(1, "ray"))
    )
    assert here == there and len(here) == 1


def test_predictions_are_those_of_this_machine(cluster: None, tmp_path: Path) -> None:
    need_kernel()
    capture = TRACES / NAMES[0]
    for engine in ("local", "ray"):
        paths = tmp_path / engine
        assert run_command(["path", "estimate", str(capture), "-o", str(paths)]) == 0
        words = ["path", "predict", str(paths), "--cc", "cubic,bbr", "--draws", "1"]
        assert run_command([*words, "--engine", engine]) == 0
    here, there = (tmp_path / engine / "prediction.json" for engine in ("local", "ray"))
    assert here.read_bytes() == there.read_bytes()


def test_populations_are_those_of_this_machine(
    cluster: None, dataset: Path, tmp_path: Path
) -> None:
    words = [
        "train",
        "--data",
        str(dataset),
        "--objective",
        "awbc",
        "--epochs",
        "3",
        "--seeds",
        "3",
    ]
    for engine in ("local", "ray"):
        assert run_command([*words, "--engine", engine, "-o", str(tmp_path / engine)]) == 0
    assert pack(tmp_path / "local") == pack(tmp_path / "ray")
    assert len(list((tmp_path / "ray").iterdir())) == 3


# --- URLs without Ray ------------------------------------------------------------------------
def test_urls_with_the_local_engine(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    path = TRACES / "third_party" / "mlab_tcpinfo_jdczh_00183.jsonl.zst"
    (folder / path.name).write_bytes(path.read_bytes())
    url = f"file://{folder}"
    assert remote.find(url) == [f"{url}/{path.name}"]
    build.build([url], tmp_path / "a", jobs=2, quiet=True, parts_url=f"file://{tmp_path}/parts")
    build.build([path], tmp_path / "b", quiet=True)
    for name in FILES:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    with remote.local(f"{url}/{path.name}") as copy:
        assert sources.digest(copy) == sources.digest(path)


@pytest.mark.parametrize("scheme", ["file://", ""], ids=["URL", "path"])
def test_what_else_lies_where_parts_go_stays(scheme: str, tmp_path: Path) -> None:
    """A file of the user, and the parts of a build that runs at the same time."""
    path = TRACES / "third_party" / "mlab_tcpinfo_jdczh_00183.jsonl.zst"
    shared = tmp_path / "shared"
    (shared / "thesis").mkdir(parents=True)
    (shared / "thesis" / "text").write_text("ten years")
    names = {build._name_among_builds(tmp_path / name) for name in "ab"}
    assert len(names) == 2
    build.build([path], tmp_path / "a", quiet=True, parts_url=f"{scheme}{shared}")
    assert [p.name for p in shared.iterdir()] == ["thesis"]
    assert (shared / "thesis" / "text").read_text() == "ten years"
    build.build([path], tmp_path / "a", quiet=True, parts_url=f"{scheme}{shared}/new/")
    assert not (shared / "new").exists()
    (shared / "old").mkdir()
    build.build([path], tmp_path / "a", quiet=True, parts_url=f"{scheme}{shared}/old")
    assert (shared / "old").is_dir(), "it was there before"


@pytest.mark.parametrize(
    "url",
    ["file:///nowhere/at/all", "nonsense://x/y", "ftp://127.0.0.1:1/x.pcap", "github://x/y"],
)
def test_bad_urls_are_one_line(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["dataset", "build", url, "-o", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"ndm: {url}: ") and error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_parts_that_no_machine_can_reach_are_named_by_their_url(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not the dataset's folder: nothing is wrong with that."""
    path = TRACES / "third_party" / "mlab_tcpinfo_jdczh_00183.jsonl.zst"
    words = ["dataset", "build", str(path), "-o", str(tmp_path / "out"), "--keep-going"]
    assert run_command([*words, "--parts", "ftp://127.0.0.1:1/p"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("ndm: ftp://127.0.0.1:1/p") and "check the URL" in error
    assert "out: cannot be written" not in error and error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_part_that_is_gone_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a cluster whose machines share no folder."""
    path = TRACES / "third_party" / "mlab_tcpinfo_jdczh_00183.jsonl.zst"
    whole = parts.make

    def gone(task: parts.Task) -> dict[str, Any]:
        facts = whole(task)
        (Path(task.folder) / facts["part"]).unlink()
        return facts

    monkeypatch.setattr(parts, "make", gone)
    with pytest.raises(NdmError, match="do the machines share this folder.* --parts URL"):
        build.build([path], tmp_path / "out", quiet=True)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ConnectionError("none"), "no Ray cluster here; run: ray start"),
        (
            RuntimeError("Version mismatch:\n  cluster: 2.40\n  here: 2.56"),
            "mismatch: cluster: 2.40",
        ),
    ],
)
def test_a_cluster_that_cannot_be_used_is_one_line(
    error: Exception, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def init(**_: object) -> None:
        raise error

    ray = SimpleNamespace(is_initialized=lambda: False, init=init)
    monkeypatch.setitem(sys.modules, "ray", ray)
    with pytest.raises(NdmError, match=message) as caught:
        connect()
    assert "\n" not in str(caught.value)
