# SPDX-License-Identifier: GPL-2.0-only
"""What a board says of its module, and what its page shows."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import pytest

from ndm_tcp import model_json
from ndm_tcp.errors import NdmError
from ndm_tcp.lab.score import board


def test_a_board_names_the_module_that_it_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parser = argparse.ArgumentParser()
    board.add_arguments(parser)
    words = ["published", "--cc", "ndm_tcp", "--seeds", "2", "--full", "-o", "DIR", "--kmod"]
    made = board._command(parser.parse_args([*words, "out/mine/kmod"]))
    assert "--kmod out/mine/kmod" in made and "--full" in made
    assert parser.parse_args(made.split()[3:]).suite == "published"
    monkeypatch.chdir(tmp_path)  # pages that are committed hold no folder of a machine
    made = board._command(parser.parse_args([*words, str(tmp_path / "mine" / "kmod")]))
    assert "--kmod mine/kmod" in made and str(tmp_path) not in made


def test_a_board_names_a_network_that_is_not_the_shipped_one(tmp_path: Path) -> None:
    other = tmp_path / "generated" / model_json.NAME
    other.parent.mkdir()
    shutil.copy(model_json.SHIPPED, other)
    assert [board.network_of(kmod) for kmod in (None, tmp_path, other)] == [[], [], []]
    shipped = model_json.from_json(model_json.SHIPPED)
    shipped.layers[0].bias[0] += 1
    other.write_text(model_json.to_json(shipped))
    (said,) = board.network_of(tmp_path)
    assert shipped.hash() in said and "not the shipped" in said
    other.write_text("{")
    with pytest.raises(NdmError, match="not a model written by ndm export; run: ndm export"):
        board.network_of(tmp_path)
