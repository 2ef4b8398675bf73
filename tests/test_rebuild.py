# SPDX-License-Identifier: GPL-2.0-only
"""A run rebuilt from the integers of a model is that network, and says what it is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import orjson
import pytest

from ndm_tcp import model_json
from ndm_tcp.errors import NdmError
from ndm_tcp.export import judge
from ndm_tcp.export import source as export_source
from ndm_tcp.export.integers import quantize
from ndm_tcp.training import checkpoint as ckpt
from ndm_tcp.training import rebuild
from ndm_tcp.training.config import RESULTS, TrainConfig


def test_a_rebuilt_run_has_the_same_integers(tmp_path: Path) -> None:
    assert rebuild.main(["-o", str(tmp_path / "run")]) == 0
    policy, checkpoint = ckpt.load_policy(tmp_path / "run")
    layers = quantize.quantize([(w.numpy(), b.numpy()) for w, b in policy.linear_layers()])
    model = model_json.from_json(model_json.SHIPPED)
    for ours, theirs in zip(layers, model.layers, strict=True):
        for part in ("weight", "bias", "shift"):
            assert np.array_equal(getattr(ours, part), getattr(theirs, part))
    assert checkpoint.dataset_sha256 in model.notes["dataset"]
    named = model.notes["objective"].split(",")[0]
    assert checkpoint.config.objective == TrainConfig.from_dict({"objective": named}).objective
    origin = orjson.loads((tmp_path / "run" / RESULTS).read_bytes())
    assert origin["checkpoint"] in model.notes["checkpoint"]
    found = judge.judge(tmp_path / "run")
    assert found.fit and model.hash() in found.text and "not judged" in found.text


@pytest.mark.parametrize("split_by", ["path", "flow"])
def test_the_split_of_a_run_survives(split_by: str, run: Path, tmp_path: Path) -> None:
    """So that what is measured on a rebuilt run is measured on paths that it never saw."""
    checkpoint = ckpt.load(run / ckpt.MODEL)
    old = replace(checkpoint, config=replace(checkpoint.config, split_by=split_by))
    ckpt.save(tmp_path / "run" / ckpt.MODEL, old)
    source = export_source.from_run(tmp_path / "run", even_if_worse=True)
    layers = quantize.quantize(source.graph.layers)
    (tmp_path / "model.json").write_text(model_json.to_json(model_json.Model(layers, source.notes)))
    rebuild.rebuild(tmp_path / "model.json", tmp_path / "again")
    again = ckpt.load(tmp_path / "again" / ckpt.MODEL).config
    assert (again.split_by, again.objective, again.seed) == (split_by, "awbc", 1)


def test_it_replaces_no_run_and_names_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rebuild.rebuild(model_json.SHIPPED, tmp_path / "run")
    with pytest.raises(NdmError, match="holds a network; name another -o"):
        rebuild.rebuild(model_json.SHIPPED, tmp_path / "run")
    words = ["-o", str(tmp_path / "other"), "--model", str(tmp_path / "none.json")]
    assert rebuild.main(words) == 2
    assert "neither a run" in capsys.readouterr().err and not (tmp_path / "other").exists()
