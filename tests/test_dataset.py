# SPDX-License-Identifier: GPL-2.0-only
"""Datasets: deterministic, split by flow, tied to their contract, without addresses."""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ndm_tcp import contract, files
from ndm_tcp.datasets.builder import build
from ndm_tcp.datasets.readers import sources
from ndm_tcp.datasets.rounds import columns
from ndm_tcp.datasets.store import card, info_command, store
from ndm_tcp.errors import NdmError

from .conftest import TRACES


def test_the_same_sources_give_the_same_bytes_for_any_number_of_jobs(tmp_path: Path) -> None:
    names = [TRACES / n for n in ("cubic-00-clean", "reno-03-lossy", "bbr-01-clean")]
    build.build(names, tmp_path / "a", jobs=1, quiet=True)
    build.build(names[::-1], tmp_path / "b", jobs=3, quiet=True)
    for name in (store.ROUNDS, store.MANIFEST):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_every_flow_is_in_one_split_and_no_split_is_empty(dataset: Path) -> None:
    table = store.load(dataset).rounds
    pairs = set(zip(table["flow_id"].to_pylist(), table["split"].to_pylist(), strict=True))
    assert len(pairs) == len({flow for flow, _ in pairs}) == 6
    assert {split for _, split in pairs} == {"train", "val", "test"}


def test_splits_do_not_depend_on_order() -> None:
    flows = [f"{i:016x}" for i in range(40)]
    assert build.assign_splits(flows) == build.assign_splits(flows[::-1])


def test_schema_names_units_and_carries_the_contract(dataset: Path) -> None:
    table = pq.read_table(dataset / store.ROUNDS)
    assert table.schema.metadata[b"ndm_contract"].decode() == contract.DATA_HASH
    assert all(field.metadata[b"meaning"] for field in table.schema)
    assert set(columns.INPUT_COLUMNS) == {i.name for i in contract.INPUTS} < set(table.column_names)
    derived = {i.name for i in contract.MEANS} | {f.name for f in columns.DERIVED}
    assert not derived & set(table.column_names), "what follows from the rest is not stored"


def test_rounds_add_up(dataset: Path) -> None:
    manifest = store.load(dataset).manifest
    table = store.load(dataset).rounds.to_pylist()
    for source in manifest["sources"]:
        for flow in source["flows"]:
            own = [row for row in table if row["flow_id"] == flow["flow_id"]]
            assert [row["round"] for row in own] == list(range(flow["rounds"]))
            assert sum(row["duration_us"] for row in own) == own[-1]["t_us"]
            delivered = sum(row["delivered"] for row in own)
            assert (
                0.9 * flow["segments"] < delivered + flow["retransmitted"] < 1.1 * flow["segments"]
            )


def test_no_address_in_the_output(dataset: Path) -> None:
    """Every recording is between 10.x addresses; none may be left, in text or in binary."""
    for path in dataset.iterdir():
        data = path.read_bytes()
        assert not re.search(rb"\b10\.\d+\.\d+\.\d+\b", data), path.name
    for row in store.load(dataset).rounds.slice(0, 50).to_pylist():
        for value in row.values():
            assert not (isinstance(value, str) and re.search(r"\d+\.\d+\.\d+\.\d+|:.*:", value))


def test_datasets_of_another_contract_are_refused(dataset: Path, tmp_path: Path) -> None:
    table = pq.read_table(dataset / store.ROUNDS)
    pq.write_table(
        table.replace_schema_metadata({"ndm_contract": "0" * 16}), tmp_path / store.ROUNDS
    )
    (tmp_path / store.MANIFEST).write_bytes((dataset / store.MANIFEST).read_bytes())
    with pytest.raises(NdmError, match="made for contract 0000.*run: ndm dataset build"):
        store.load(tmp_path)


def test_mixed_up_and_damaged_datasets_are_refused(dataset: Path, tmp_path: Path) -> None:
    with pytest.raises(NdmError, match="no dataset here"):
        store.load(tmp_path)
    manifest = orjson.loads((dataset / store.MANIFEST).read_bytes())
    (tmp_path / store.MANIFEST).write_bytes(orjson.dumps({**manifest, "sha256": "0"}))
    data = (dataset / store.ROUNDS).read_bytes()
    (tmp_path / store.ROUNDS).write_bytes(data)
    with pytest.raises(NdmError, match="is not the one"):
        store.load(tmp_path)
    (tmp_path / store.ROUNDS).write_bytes(data[: len(data) // 2])
    with pytest.raises(NdmError, match="damaged dataset"):
        store.load(tmp_path)


def test_a_failed_build_leaves_nothing(tmp_path: Path) -> None:
    bad = tmp_path / "empty.pcap"
    bad.touch()
    with pytest.raises(NdmError, match="empty file"):
        build.build([TRACES / "cubic-00-clean", bad], tmp_path / "out", quiet=True)
    assert not (tmp_path / "out").exists()


def test_keep_going_leaves_bad_sources_out_and_says_so(tmp_path: Path) -> None:
    bad = tmp_path / "bad.pcap"
    bad.write_bytes(b"no capture at all, but long enough to look at")
    manifest = build.build(
        [TRACES / "cubic-00-clean", bad], tmp_path / "out", keep_going=True, quiet=True
    )
    assert manifest["flows"] == 1
    assert [entry["name"] for entry in manifest["failed"]] == ["bad.pcap"]


def test_nothing_usable_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing to see")
    with pytest.raises(NdmError, match="no capture"):
        build.build([tmp_path], tmp_path / "out", quiet=True)
    with pytest.raises(NdmError, match="no such file"):
        sources.discover([tmp_path / "missing"])


def test_write_is_atomic(tmp_path: Path) -> None:
    target = tmp_path / "file"
    files.write_text(target, "old")
    with pytest.raises(RuntimeError), files.replacing(target) as temporary:
        temporary.write_text("new, but")
        raise RuntimeError("stopped half way")
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_info_describes_every_input(dataset: Path) -> None:
    facts = info_command.describe(store.load(dataset))
    assert list(facts["inputs"]) == [i.name for i in contract.INPUTS]
    assert all(sum(i["histogram"]) == facts["valid_rounds"] for i in facts["inputs"].values())
    assert facts["rounds_with_loss"]["random"] > 0 and facts["rounds_with_loss"]["queue"] > 0


def test_poll_and_per_ack_rounds_are_marked(tmp_path: Path) -> None:
    build.build(
        [TRACES / "cubic-00-clean", TRACES / "third_party" / "mlab_tcpinfo_jdczh_00183.jsonl.zst"],
        tmp_path,
        quiet=True,
    )
    table = store.load(tmp_path).rounds
    kinds = set(zip(table["format"].to_pylist(), table["sampling"].to_pylist(), strict=True))
    assert {sampling for _, sampling in kinds} == {"per_ack", "poll"}
    poll = table.filter(pa.compute.equal(table["sampling"], "poll"))
    assert not any(poll["queue_floor"].to_pylist())


def test_an_empty_flow_has_no_rounds() -> None:
    assert columns.SCHEMA.empty_table().num_rows == 0


def test_the_pictures_do_not_follow_the_style_of_who_builds(tmp_path: Path) -> None:
    build.build([TRACES / "cubic-00-clean"], tmp_path / "plain", quiet=True)
    with matplotlib.rc_context({"font.size": 20, "axes.spines.top": False}):
        build.build([TRACES / "cubic-00-clean"], tmp_path / "styled", quiet=True)
        assert matplotlib.rcParams["font.size"] == 20
    for name in (card.INPUTS_PLOT, card.PATHS_PLOT):
        plain, styled = (tmp_path / folder / name for folder in ("plain", "styled"))
        assert plain.read_bytes() == styled.read_bytes(), name
