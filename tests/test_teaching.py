# SPDX-License-Identifier: GPL-2.0-only
"""The choices of the lesson: one table, each with a reason and the page that compared it."""

from __future__ import annotations

import re

from ndm_tcp import teaching
from ndm_tcp.lab.paths import truth
from ndm_tcp.training import objective
from ndm_tcp.training.config import TrainConfig

from .conftest import ROOT


def test_the_table_is_what_is_used() -> None:
    used = {
        "EXPECTILE": TrainConfig.expectile,
        "POOL_WEIGHT": TrainConfig.pool_weight,
        "STEP_SHARE": objective.STEP_SHARE,
        **{n: getattr(truth, n) for n in dir(truth) if re.match("EXTRA_|JITTER_|LOSS_|RIVAL_", n)},
    }
    assert used == {choice.name: choice.value for choice in teaching.CHOICES}


def test_every_choice_has_a_reason_and_a_page_that_compared_it() -> None:
    for choice in teaching.CHOICES:
        assert choice.reason and choice.unit, choice.name
        assert (ROOT / "docs" / "decisions" / f"{choice.decision}.md").is_file(), choice.name


def test_the_docs_show_the_table() -> None:
    assert teaching.table() in (ROOT / "docs" / "training.md").read_text()
