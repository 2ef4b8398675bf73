# SPDX-License-Identifier: GPL-2.0-only
"""Means that a dataset is given afterwards are those that the C features would have made."""

from __future__ import annotations

from pathlib import Path

import orjson
import pyarrow.parquet as pq
import pytest

from ndm_tcp import contract, files
from ndm_tcp.datasets import build, means, store
from ndm_tcp.errors import NdmError

from .conftest import TRACES

MEAN_COLUMNS = [i.name for i in contract.INPUTS if i.of]


@pytest.fixture(scope="module")
def forgetful(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A dataset, and the same under another contract, without a single mean."""
    folder = tmp_path_factory.mktemp("means")
    sources = [TRACES / name for name in ("reno-03-lossy", "bbr-06-lossy-jitter")]
    build.build(sources, folder / "now", quiet=True)
    old = folder / "old"
    old.mkdir()
    table = pq.read_table(folder / "now" / store.ROUNDS).drop_columns(MEAN_COLUMNS)
    pq.write_table(table.replace_schema_metadata({"ndm_contract": "another"}), old / store.ROUNDS)
    manifest = store.manifest_of(folder / "now")
    manifest |= {"contract": "another", "sha256": files.sha256(old / store.ROUNDS)}
    (old / store.MANIFEST).write_bytes(orjson.dumps(manifest))
    return folder / "now", old


def test_a_dataset_without_means_is_given_the_same(
    forgetful: tuple[Path, Path], tmp_path: Path
) -> None:
    now, old = forgetful
    with pytest.raises(NdmError, match="made for contract another"):
        store.load(old)
    assert means.main([str(old), "-o", str(tmp_path)]) == 0
    found, wanted = store.load(tmp_path / "old"), store.load(now)
    assert found.rounds.equals(wanted.rounds)
    assert found.sha256 == wanted.sha256 and found.manifest == wanted.manifest
    assert len(set(found.rounds[MEAN_COLUMNS[0]].to_pylist())) > 100


def test_what_cannot_be_given_means_is_refused(
    forgetful: tuple[Path, Path], tmp_path: Path
) -> None:
    _, old = forgetful
    with pytest.raises(NdmError, match="no dataset here"):
        means.convert(tmp_path, tmp_path / "out")
    for name in (store.ROUNDS, store.MANIFEST):
        (tmp_path / name).write_bytes((old / name).read_bytes())
    (tmp_path / store.ROUNDS).write_bytes((old / store.ROUNDS).read_bytes() + b"x")
    with pytest.raises(NdmError, match="damaged|is not the one"):
        means.convert(tmp_path, tmp_path / "out")
    table = pq.read_table(old / store.ROUNDS).drop_columns(["bdp_ratio"])
    with pytest.raises(NdmError, match="no column bdp_ratio"):
        means.give(table)
    assert not (tmp_path / "out").exists()
