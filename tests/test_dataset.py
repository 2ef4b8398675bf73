# SPDX-License-Identifier: GPL-2.0-only
"""Datasets: deterministic, split by flow, tied to their contract, without addresses."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Any

import matplotlib
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ndm_tcp import contract, files
from ndm_tcp.datasets.builder import build
from ndm_tcp.datasets.readers import sources
from ndm_tcp.datasets.rounds import columns
from ndm_tcp.datasets.store import card, describe, info_command, store
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


@pytest.mark.pictures
def test_the_pictures_do_not_follow_the_style_of_who_builds(tmp_path: Path) -> None:
    build.build([TRACES / "cubic-00-clean"], tmp_path / "plain", quiet=True)
    with matplotlib.rc_context({"font.size": 20, "axes.spines.top": False}):
        build.build([TRACES / "cubic-00-clean"], tmp_path / "styled", quiet=True)
        assert matplotlib.rcParams["font.size"] == 20
    for name in (card.INPUTS_PLOT, card.PATHS_PLOT):
        plain, styled = (tmp_path / folder / name for folder in ("plain", "styled"))
        assert plain.read_bytes() == styled.read_bytes(), name


@pytest.mark.parametrize(
    ("low", "high"), [(41, 48), (4.1, 39), (2, 30), (20, 21), (1, 900), (0.8, 11)]
)
def test_an_axis_has_numbers(low: float, high: float) -> None:
    figure = Figure()
    panel = figure.subplots()
    panel.stairs([1, 2], [low, (low + high) / 2, high])
    card.log_axis(panel, low, high)
    FigureCanvasAgg(figure).draw()
    shown = [
        label
        for label, at in zip(panel.get_xticklabels(), panel.get_xticks(), strict=True)
        if label.get_text() and panel.get_xlim()[0] <= at <= panel.get_xlim()[1]
    ]
    assert len(shown) >= 2


def test_an_axis_has_numbers_where_the_rounds_are() -> None:
    """Nearly all RTTs lie below 200 ms, though a few reach 700."""
    figure = Figure()
    panel = figure.subplots()
    panel.stairs([1, 2], [18, 100, 700])
    card.log_axis(panel, 18, 700)
    FigureCanvasAgg(figure).draw()
    shown = {t.get_text() for t in panel.get_xticklabels()}
    assert {"20", "50", "100", "200", "500"} <= shown


@pytest.mark.pictures
def test_a_few_polls_do_not_dwarf_the_other_rounds(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bars are counts, so those of a group are as large as it is."""
    loaded = store.load(dataset)
    sampling = ["poll"] * 10 + ["per_ack"] * (loaded.rounds.num_rows - 10)
    at = loaded.rounds.schema.get_field_index("sampling")
    rounds = loaded.rounds.set_column(at, "sampling", pa.chunked_array([sampling]))
    figures: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda self, *_, **__: figures.append(self))
    changed = store.Dataset(rounds, loaded.manifest, loaded.sha256)
    with contextlib.suppress(FileNotFoundError):  # nothing was saved, so nothing is renamed
        card._plot_paths(changed, describe.describe(loaded), tmp_path / "paths.png")
    per_ack, poll = (p.get_data().values for p in figures[0].axes[0].patches)
    assert poll.sum() <= 10 and per_ack.sum() > 500


CARD = """# Dataset card

9 rounds (7 valid) of 3 flows from 41 sources. Contract of the measurements abc, SHA-256 of \
rounds.parquet def.

A round is one packet-timed round trip of one TCP flow, as measured by its sender: 1 measured \
inputs and the raw numbers behind them. Columns and units are in the schema of the file. No \
address is stored; flow names are hashes. All flows between the same two hosts, or over the same \
path, are in one split.

## Counts

| rounds by |  |
|---|---|
| sampling | per_ack 5, poll 4 |
| cwnd_source | inflight 9 |
| rounds with loss | overflow 2 |

## Target windows of captures

- 1 flow of captures has a target window, by its estimated path, with an expected error of 0.250 \
(median) and 0.500 (90th percentile) in log2.
- 2 have none, each for this reason: short & <slow>.

## Masks

- 2 rounds are blind (`valid` false): their inputs are all zero.
- In rounds marked poll these inputs have no data and are 0: `ecn`, `loss`.
- Polls have no raw RTT samples: their `entropy` has no delay part.
- Where `cwnd_source` is inflight, the window is estimated from the packets in flight.

## Inputs

Range of the contract, extremes of the rounds, and quantiles.

| # | input | meaning | range | least | 5 % | median | 95 % | most |
|---|---|---|---|---|---|---|---|---|
| 1 | `loss` | lost / sent | [0, 1] | 0.000 | 0.050 | 0.500 | 0.950 | 1.000 |

![distribution of every input](inputs.png)

![round trip times, rates, windows, losses](paths.png)

## Origin

Captured packets: tcp 7.

Connections left out: 3 x no data.

Warning: a gap.

Not read: bad.pcap: no packets

Not used: again.pcap has the bytes of 0.pcap.

| source | SHA-256 | flows | rounds |  |
|---|---|---|---|---|
| 0.pcap | 0000000000000000 | 2 | 9 | cut at byte 5 |
"""
MORE = "| {}.pcap | 0000000000000000 | 2 | 9 |  |\n"


def test_without_a_card_the_rounds_are_the_same_and_none_of_before_is_left(tmp_path: Path) -> None:
    source, out = [TRACES / "cubic-00-clean"], tmp_path / "out"
    build.build(source, out, quiet=True)
    assert (out / card.CARD).is_file()
    before = (out / store.ROUNDS).read_bytes()
    build.build(source, out, quiet=True, with_card=False)
    assert {path.name for path in out.iterdir()} == {store.ROUNDS, store.MANIFEST}
    assert (out / store.ROUNDS).read_bytes() == before


def test_every_flow_with_rounds_has_a_line_on_its_label_and_no_other() -> None:
    known, why = {"label_error_log2": 0.1, "rounds": 5}, "its estimate is uncertain"
    without, short = {"no_label": why, "rounds": 5}, {"no_label": why, "rounds": 0}
    of_lab = {"rounds": 5}
    flows = [known, known, without, short, short, {**known, "rounds": 0}, of_lab]
    manifest = {"sources": [{"flows": flows[:4]}, {"flows": flows[4:]}]}
    labelled, unlabelled = describe.labels(manifest)
    assert (labelled, unlabelled) == (2, {why: 1})
    assert describe.label_lines(4, labelled, unlabelled) == [
        "2 flows of captures have a target window, by their estimated path",
        f"1 has none: {why}",
        "1 flow of the lab has a target window, by its known path",
    ]
    assert describe.label_lines(6, 1, {why: 2})[1:] == [
        f"2 have none, each for this reason: {why}",
        "3 flows of the lab have a target window, by their known path",
    ]
    assert describe.label_lines(4, 0, {}) == []


def test_the_card_word_for_word() -> None:
    of_input = {"meaning": "lost / sent", "range": (0, 1), "least": 0, "p5": 0.05, "median": 0.5}
    facts: dict[str, Any] = {
        **{"rounds": 9, "valid_rounds": 7, "flows": 3, "sources": 41},
        **{"contract": "abc", "sha256": "def", "rounds_with_loss": {"overflow": 2, "random": 0}},
        "counts": {"sampling": {"per_ack": 5, "poll": 4}, "cwnd_source": {"inflight": 9}},
        **{"labelled": 1, "label_error_log2": {"median": 0.25, "p90": 0.5}},
        **{"unlabelled": {"short & <slow>": 2}, "masked": {"poll": ["ecn", "loss"]}},
        "inputs": {"loss": {**of_input, "p95": 0.95, "most": 1}},
        **{"capture": {"tcp": 7, "udp": 0}, "skipped": {"no data": 3}, "warnings": ["a gap"]},
    }
    source = {"sha256": "0" * 64, "flows": [{"rounds": 4}, {"rounds": 5}], "truncated_at": None}
    manifest: dict[str, Any] = {
        "failed": [{"name": "bad.pcap", "error": "no packets"}],
        "repeated": [{"name": "again.pcap", "same_as": "0.pcap"}],
        "sources": [{**source, "name": f"{number}.pcap"} for number in range(41)],
    }
    manifest["sources"][0]["truncated_at"] = 5
    rest = "".join(MORE.format(number) for number in range(1, 40))
    assert card.text(facts, manifest) == CARD + rest + "\nAnd 1 more, in dataset.json.\n"

    facts |= {"labelled": 0, "unlabelled": {}, "capture": {}, "skipped": {}, "masked": {}}
    manifest["sources"] = manifest["sources"][:2]
    plain = card.text(facts, manifest)
    assert "## Target" not in plain and "In rounds marked" not in plain
    assert "Captured packets: none.\n\nConnections left out: none.\n" in plain
    assert plain.endswith(MORE.format(1))
