# SPDX-License-Identifier: GPL-2.0-only
"""What the pages say of how the network was chosen, beside the log and the suites there are."""

from __future__ import annotations

import json
import re

from .conftest import ROOT

SUITES = sorted(p.name for p in (ROOT / "lab" / "scenarios").iterdir() if p.is_dir())


def test_the_card_shows_every_seed_that_was_compared() -> None:
    text = (ROOT / "docs" / "MODEL_CARD.md").read_text()
    assert "Eight seeds were trained, and all scored" in text
    selection = json.loads((ROOT / "docs" / "selection.json").read_text())
    scores = re.findall(r"^\| (?:\*\*)?(seed-\d|shipped)(?:\*\*)? \| ([+-][\d.]+) \|", text, re.M)
    assert sorted(name for name, _ in scores) == [*(f"seed-{n}" for n in range(1, 9)), "shipped"]
    assert {name for name, _ in scores} == set(selection["networks"])
    assert [s for _, s in scores] == sorted((s for _, s in scores), key=float, reverse=True)
    (chosen,) = re.findall(r"^\| \*\*seed-(\d)\*\* \|", text, re.M)
    assert f"\nSEED = {chosen}\n" in (ROOT / "Makefile").read_text()


def test_the_card_ends_with_its_tail() -> None:
    card, tail = ((ROOT / "docs" / n).read_text() for n in ("MODEL_CARD.md", "model_card_tail.md"))
    assert card.endswith(tail)


STEERED = ("access", "published", "ccbench", "fairness", "validation*", "lan")


def test_the_suites_that_steered_the_design_are_named() -> None:
    text = (ROOT / "docs" / "lab.md").read_text()
    start = text.index("evelopment suites**")
    said = text[max(0, start - 300) : start + 400]
    assert not [name for name in STEERED if f"`{name}" not in said]
    assert "All suites but `sealed` are **development suites**" in (ROOT / "README.md").read_text()


def test_every_suite_trains_steers_or_is_sealed() -> None:
    named = tuple(name.rstrip("*") for name in STEERED)
    others = [n for n in SUITES if not n.startswith(named)]
    want = ["sealed", "training", "training-access", "training-lan", "variable"]
    assert others == want, (
        "does a new suite steer decisions? if so, add it to STEERED and docs/lab.md"
    )
