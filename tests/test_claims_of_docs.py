# SPDX-License-Identifier: GPL-2.0-only
"""What the pages say of how the network was chosen, beside the log and the suites there are."""

from __future__ import annotations

import pytest

from .conftest import ROOT

SUITES = sorted(p.name for p in (ROOT / "lab" / "scenarios").iterdir() if p.is_dir())


@pytest.mark.parametrize("page", ["MODEL_CARD.md", "model_card_tail.md"])
def test_the_card_tells_of_every_seed_that_was_compared(page: str) -> None:
    text = " ".join((ROOT / "docs" / page).read_text().split())
    assert "Seed 2 of three" in text and "was on the boards before seeds 2 and 3" in text
    assert "before either was on the boards" not in text
    page = ROOT / "docs" / "decisions" / "2026-11-25-01-record-short-queues-and-fast-lossy-paths.md"
    log = page.read_text()
    assert "that build of seed 2 was on the boards before the choice between 2 and 3" in log


def test_the_card_ends_with_its_tail() -> None:
    card, tail = ((ROOT / "docs" / n).read_text() for n in ("MODEL_CARD.md", "model_card_tail.md"))
    assert card.endswith(tail)


@pytest.mark.parametrize("page", ["README.md", "docs/lab.md"])
def test_the_suites_that_steered_the_design_are_named(page: str) -> None:
    text = (ROOT / page).read_text()
    start = text.index("evelopment suites**")
    said = text[max(0, start - 300) : start + 400]
    for name in ("published", "ccbench", "fairness", "validation*", "lan"):
        assert f"`{name}" in said, name
    named = ("published", "ccbench", "fairness", "valid", "lan")
    others = [n for n in SUITES if not n.startswith(named)]
    assert others == ["training", "training-lan", "variable"], "does a new suite steer decisions?"
