# SPDX-License-Identifier: GPL-2.0-only
"""What an adaptation learns from: windows, recordings, captures, and what the search decided."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ndm_tcp.adapt import command, steps, windows
from ndm_tcp.adapt.recordings import Plan
from ndm_tcp.datasets.builder.build import build
from ndm_tcp.datasets.store import store
from ndm_tcp.lab.guest import suite, uml_build
from ndm_tcp.lab.guest.workers import ONE
from ndm_tcp.paths.model import Value
from ndm_tcp.training.config import TrainConfig
from ndm_tcp.training.objective import examples, needed

from .conftest import ROOT, TRACES
from .test_adapt import path


def test_where_all_windows_score_the_same_the_computed_one_is_taught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as those of four packets at least, on a path of three."""

    def execute(jobs: list[suite.Job], *_: object, **__: object) -> Iterator[suite.Outcome]:
        flow = {"tested": True, "goodput_mbps": 1.0, "retransmissions": 0}
        flow |= {"rtt_mean_ms": 50.0, "rtt_p95_ms": 50.0}
        yield from (suite.Outcome(job, {"flows": [flow]}) for job in jobs)

    monkeypatch.setattr(suite, "execute", execute)
    small = path("small", 1.0, rtt_us=Value.exact(20_000))
    (found,) = windows.measured([small], tmp_path, 2, ONE)
    assert found.window_bdp == pytest.approx(windows.computed_bdp(small))


@pytest.mark.parametrize(("targets", "offset"), [(True, 0.0), (True, 0.08), (False, 0.08)])
def test_what_the_search_found_is_what_trains(
    targets: bool, offset: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[TrainConfig] = []

    class Fake:
        def __init__(self, data: list[Path], run: Path, config: TrainConfig) -> None:
            seen.append(config)
            assert len(data) == len(config.offsets)

        def run(self, **_: object) -> None:
            pass

    monkeypatch.setattr("ndm_tcp.training.loop.Trainer", Fake)
    monkeypatch.setattr(steps, "_teach", lambda *_: True)
    lab = command.shipped_rounds()
    setting = steps.Steps(tmp_path, lab, 1, 1, ONE)
    steps.train(setting, tmp_path / "recorded", 0, targets=targets, offset=offset)
    (config,) = seen
    assert config.offsets == (offset, offset) + (0.0,) * len(lab)
    # The network keeps what it does on the lab's rounds, and on all if no target is taught.
    assert config.kept == tuple(range(2 if targets else 0, 2 + len(lab)))


def test_runs_of_another_network_are_no_recordings_of_this_one(tmp_path: Path) -> None:
    plan, folders = Plan.of([path("a")], {"a": "train"}, 1), []
    for name in ("one", "two"):
        kmod = tmp_path / name
        shutil.copytree(uml_build.KMOD, kmod)
        header = kmod / "generated" / "ndm_model.h"
        header.write_text(header.read_text() + f"/* {name} */\n")
        folders.append([job.folder for job in plan.jobs("ndm_tcp", kmod, tmp_path)])
    assert folders[0] and not {*folders[0]} & {*folders[1]}


def test_captures_are_held_out_as_the_training_holds_them_out(tmp_path: Path) -> None:
    """Recordings of the lab by their scenario, beside captures of elsewhere."""
    runs = [p for p in sorted((TRACES / "lab").glob("*--cubic--1")) if "compete" not in p.name]
    places = [*runs, *(TRACES / f"cubic-0{n}" for n in ("1-clean", "3-lossy", "7-jitter"))]
    build(places, tmp_path / "first", quiet=True)
    rounds = store.load(tmp_path / "first").rounds
    pairs = zip(rounds["source"].to_pylist(), rounds["flow_id"].to_pylist(), strict=True)
    models = [replace(path(source), flow_id=flow) for source, flow in sorted({*pairs})]
    assert len(models) == len(places)
    found = steps.captures(places, steps.Steps(tmp_path, (), 1, 1, ONE), models)
    config = TrainConfig()
    data = examples(store.load(tmp_path / "captures", needed(config)).rounds, config)
    trained = dict(zip(data.flows.text().tolist(), data.split.tolist(), strict=True))
    assert {m.name: trained[m.flow_id] for m in models} == found
    assert {*found.values()} >= {"train", "test"}


def test_a_few_recordings_of_the_lab_are_held_out_beside_its_rounds_as_the_training_does(
    tmp_path: Path,
) -> None:
    """Two paths of the lab alone would all train; with its rounds there are enough of them."""
    places = sorted((TRACES / "lab").glob("train-0[03]*--cubic--1"))
    places += sorted((TRACES / "lab").glob("train-0[03]*--reno--1"))
    lab = ROOT / "datasets" / "lab-rounds" / "lan-short"
    build(places, tmp_path / "first", quiet=True)
    rounds = store.load(tmp_path / "first").rounds
    pairs = zip(rounds["source"].to_pylist(), rounds["flow_id"].to_pylist(), strict=True)
    models = [replace(path(source), flow_id=flow) for source, flow in sorted({*pairs})]
    setting = steps.Steps(tmp_path, (lab,), 1, 1, ONE)
    found = steps.captures(places, setting, models)
    config = TrainConfig()
    table = store.load_all([tmp_path / "captures", lab], needed(config)).rounds
    data = examples(table, config)
    trained = dict(zip(data.flows.text().tolist(), data.split.tolist(), strict=True))
    assert {m.name: trained[m.flow_id] for m in models} == found
    assert {*found.values()} == {"train", "val"}
