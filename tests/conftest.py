# SPDX-License-Identifier: GPL-2.0-only
"""What several tests need: the shipped traces, a dataset of them, a short training run."""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SLOWEST = (
    *("test_lan.py", "test_slow_start.py", "test_cases.py", "test_clamped.py", "test_notebook.py"),
    *("test_drain.py", "test_mutants.py", "test_adapt.py", "test_boot.py", "test_ab_host.py"),
    *("test_run.py", "test_cross.py", "test_lab_cli.py", "test_cli.py", "test_shallow_queue.py"),
    *("test_style.py", "test_judge.py", "test_watchdog.py", "test_export.py", "test_checker.py"),
    *("test_fuzz.py", "test_trace.py", "test_transfer.py", "test_selection.py"),
)
"""Files that take longest on one processor, the longest first."""
ROOT = Path(__file__).resolve().parents[1]
TRACES = ROOT / "datasets" / "traces"
EMPTY_PNG = b"\x89PNG\r\n\x1a\n"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest files: one that begins last keeps a single processor busy alone.

    Files of `bpf` wait for each other, so they are spread over the rest.
    """
    rank = {name: number for number, name in enumerate(SLOWEST)}
    items.sort(key=lambda item: rank.get(item.path.name, len(SLOWEST)))
    place: dict[Path, float] = {}
    for waits in (True, False):
        files = dict.fromkeys(i.path for i in items if (i.path.parent.name == "bpf") is waits)
        place |= {path: (number + 0.5) / len(files) for number, path in enumerate(files)}
    items.sort(key=lambda item: place[item.path])


@pytest.fixture(autouse=True)
def no_pictures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cards and reports with empty pictures: to draw them takes longer than most tests.

    A test that is marked `pictures` gets real ones, and so do the fixtures of a session.
    """
    if request.node.get_closest_marker("pictures"):
        return
    from ndm_tcp.datasets.store import card

    for name in ("_plot_inputs", "_plot_paths"):
        monkeypatch.setattr(card, name, lambda *given: given[-1].write_bytes(EMPTY_PNG))
    # Not imported here, since it brings torch.
    if page := sys.modules.get("ndm_tcp.export.report.page"):
        monkeypatch.setattr(page, "histograms", lambda *_: "<svg></svg>")


SMALL: tuple[dict[str, Any], dict[str, Any]] = {}, {}
"""proofs and traces of small proofs, for all tests of a worker that ask for `few_boxes`"""


def small_proofs(patch: pytest.MonkeyPatch) -> None:
    """Proofs of 64 sub-boxes a property: the checker walks 1,023 in three seconds.

    For tests that do not ask how much is proved. Those of the shipped network have all boxes.
    """
    from ndm_tcp.export.integers import network
    from ndm_tcp.export.proof import properties

    patch.setattr(properties, "BOXES", 64)
    for name, kept in zip(("PROOFS", "TRACES"), SMALL, strict=True):
        patch.setattr(network, name, kept)


@pytest.fixture
def few_boxes(monkeypatch: pytest.MonkeyPatch) -> None:
    """See `small_proofs`."""
    small_proofs(monkeypatch)


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture(scope="session")
def realdata() -> Path:
    """Captures with known truth that do not ship with the project."""
    folder = ROOT.parent / "shared" / "realdata"
    if not folder.is_dir():
        pytest.skip("../shared/realdata is not here; the shipped traces are tested instead")
    return folder


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """A folder that the first worker to need it makes for all workers of a run; only to read."""
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "once" / name
    folder.parent.mkdir(exist_ok=True)
    done = folder.with_name(f"{name}.done")
    with folder.with_name(f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)  # of one that failed
            make(folder)
            done.touch()
    return folder


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of six shipped traces."""
    from ndm_tcp.datasets.builder.build import build

    names = ["reno-03-lossy", "reno-07-jitter", "cubic-00-clean", "cubic-04-lossy"]
    names += ["bbr-01-clean", "bbr-03-lossy"]
    sources = [TRACES / name for name in names]
    made = once(tmp_path_factory, "dataset", lambda out: build(sources, out, jobs=2, quiet=True))
    return Path(shutil.copytree(made, tmp_path_factory.mktemp("dataset") / "dataset"))


@pytest.fixture(scope="session")
def run(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training run of a few epochs."""
    import torch

    from ndm_tcp.training.config import TrainConfig
    from ndm_tcp.training.loop import Trainer

    torch.set_num_threads(1)
    config = TrainConfig(objective="awbc", epochs=12, lr=3e-3)
    made = once(
        tmp_path_factory, "run", lambda out: Trainer([dataset], out, config).run(quiet=True)
    )
    return Path(shutil.copytree(made, tmp_path_factory.mktemp("run") / "run"))
