# SPDX-License-Identifier: GPL-2.0-only
"""The ablation's page: which runs in the lab it compares, and how sure it is of the difference."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import orjson
import pytest
import torch

from ndm_tcp.lab.score import tables
from ndm_tcp.lab.score.metrics import MEASURES, Cell

from .conftest import ROOT


@pytest.fixture(scope="module")
def page() -> Iterator[Any]:
    threads = torch.get_num_threads()  # the notebooks set both for their process
    sys.path.insert(0, str(ROOT / "notebooks"))
    with matplotlib.rc_context():
        try:
            yield importlib.import_module("ablation_page")
        finally:
            sys.path.pop(0)
            torch.set_num_threads(threads)


def write_board(path: Path, goodputs: dict[tuple[str, str], float]) -> None:
    cells = [
        Cell(
            scenario,
            cc,
            1,
            dict.fromkeys(MEASURES, 1.0) | {"goodput_mbps": goodput},
            dict.fromkeys(MEASURES, 0.0),
        )
        for (scenario, cc), goodput in goodputs.items()
    ]
    path.mkdir(parents=True)
    board = tables.Board("", "", cells, {}, {}, {}, [])
    (path / "board.csv").write_text(tables.comma_separated(board))


def test_an_interval_is_over_paths_and_over_seeds(page: Any) -> None:
    alike = page.mean([[0.5] * 4] * 3)
    assert alike["low"] == alike["mean"] == alike["high"] == 0.5
    paths = page.mean([[0.0, 1.0, 0.0, 1.0]] * 3)
    assert paths["low"] < 0.3 < paths["mean"] == 0.5 < 0.7 < paths["high"]
    seeds = page.mean([[0.0] * 4, [0.5] * 4, [1.0] * 4])
    assert seeds["low"] < 0.3 < seeds["mean"] == 0.5 < 0.7 < seeds["high"]
    one_seed = page.mean([[0.0, 1.0, 0.0, 1.0]])
    assert one_seed["low"] < 0.3 < 0.7 < one_seed["high"]


@pytest.mark.parametrize("paths", [3, 40])
@pytest.mark.parametrize("seeds_apart", [0.0, 1.0])
def test_an_interval_says_no_more_than_it_knows(page: Any, paths: int, seeds_apart: float) -> None:
    """Without a difference no more than one of twenty excludes zero, with five networks, too."""
    rng = np.random.default_rng(4)
    wrong = 0
    for _ in range(200):
        own, full = (
            rng.normal(0, 1, paths) * 0.5 + rng.normal(0, seeds_apart, (5, 1)) for _ in range(2)
        )
        wrong += page.excludes_zero(page.mean(own, full))
    assert wrong <= 20  # of 10 expected


def test_the_committed_page_is_that_of_its_data(page: Any) -> None:
    docs = ROOT / "docs"
    assert page.page(orjson.loads((docs / "ablation.json").read_bytes())) == (
        docs / "ablation.md"
    ).read_text(encoding="utf-8")


def test_goodput_is_a_part_of_the_best_rivals_on_paths_of_its_kind(
    page: Any, tmp_path: Path
) -> None:
    jitter = (("reno", 2.0), ("cubic", 4.0), ("bbr", 8.0))
    rivals = {("valid-00-jitter", cc): goodput for cc, goodput in jitter}
    rivals |= {("valid-01-clean", cc): 10.0 for cc in ("reno", "cubic", "bbr")}
    write_board(tmp_path / "board" / "rivals", rivals)
    for seed, goodput in ((1, 6.0), (2, 4.0)):
        own = {("valid-00-jitter", "ndm_tcp"): goodput, ("valid-01-clean", "ndm_tcp"): 9.0}
        write_board(tmp_path / "board" / f"full-{seed}", own)
        write_board(tmp_path / "board" / f"no-delay-{seed}", own)
    found = page.closed(tmp_path)
    assert set(found) == {"full", "without 7, 8"}
    assert found["full"]["goodput, jitter, reordering"] == [[0.75], [0.5]]
    assert found["full"]["goodput, clean, steps"] == [[0.9], [0.9]]


def test_a_variant_that_did_not_run_with_every_seed_is_not_compared(
    page: Any, tmp_path: Path
) -> None:
    path = {("valid-00-clean", cc): 1.0 for cc in ("reno", "cubic", "bbr")}
    write_board(tmp_path / "board" / "rivals", path)
    for name in ("full-1", "full-2", "untrained-2"):
        write_board(tmp_path / "board" / name, {("valid-00-clean", "ndm_tcp"): 1.0})
    found = page.closed(tmp_path)
    assert set(found) == {"full"}
    assert page.closed(tmp_path / "nowhere") == {}


def test_the_epochs_are_those_of_the_runs_that_make_ablation_trains(
    page: Any, tmp_path: Path
) -> None:
    words = ["make", "-n", f"OUT={tmp_path}", f"{tmp_path}/ablation/run/full/trained"]
    said = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    (folder,) = re.findall(r"ndm train .*?-o (\S+)", said, re.DOTALL)
    run = Path(folder) / "seed-1"
    run.mkdir(parents=True)
    (run / "model.safetensors").touch()
    (run / "config.json").write_text('{"epochs": 7}')
    assert page.epochs(tmp_path / "ablation") == 7
