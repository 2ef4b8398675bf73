# SPDX-License-Identifier: GPL-2.0-only
"""The folder of a run: one training at a time, and nothing damaged is carried on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from safetensors import SafetensorError

from ndm_tcp import files
from ndm_tcp.errors import NdmError
from ndm_tcp.training import checkpoint as ckpt
from ndm_tcp.training.loop import METRICS, Trainer

from .test_training import FEW, train


def test_two_trainings_do_not_mix_in_a_folder(dataset: Path, tmp_path: Path) -> None:
    """Both ended well, and left the settings of one beside the network of the other."""
    one, other = (Trainer([dataset], tmp_path, replace(FEW, seed=seed)) for seed in (1, 2))
    with (
        files.locked(tmp_path),
        pytest.raises(NdmError, match="another training goes on here; wait for it"),
    ):
        other.run(quiet=True)
    assert not list(tmp_path.iterdir())
    one.run(quiet=True)


@pytest.mark.parametrize(
    ("name", "damage", "said"),
    [
        (METRICS, b"", "metrics.csv: missing or damaged; remove .* to begin anew"),
        (METRICS, None, "metrics.csv: missing or damaged; remove .* to begin anew"),
        (METRICS, b"\x00\xff,\n\x00", "metrics.csv: missing or damaged; remove .* to begin anew"),
        (METRICS, b"epoch,lr\n1,2", "metrics.csv: missing or damaged; remove .* to begin anew"),
        (ckpt.PROGRESS, b"", "not a readable safetensors file .*; remove .* to begin anew"),
    ],
)
def test_a_damaged_run_is_not_carried_on(
    dataset: Path, tmp_path: Path, name: str, damage: bytes | None, said: str
) -> None:
    run = train(dataset, tmp_path / "run", FEW)
    (run / name).unlink()
    if damage is not None:
        (run / name).write_bytes(damage)
    with pytest.raises(NdmError, match=said):
        Trainer([dataset], run, FEW)


def test_a_checkpoint_that_cannot_be_written_is_named(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """safetensors has an error of its own for a full disk."""

    def full(*_: object, **__: object) -> None:
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(ckpt, "save_file", full)
    with pytest.raises(NdmError, match=r"checkpoint.safetensors: cannot be written \(I/O error"):
        Trainer([dataset], tmp_path, FEW).run(quiet=True)
    assert not [path for path in tmp_path.iterdir() if "safetensors" in path.name]
