# SPDX-License-Identifier: GPL-2.0-only
"""The flows of a capture, and of several, beside one another."""

from __future__ import annotations

import gzip
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from ndm_tcp.cli import run_command
from ndm_tcp.datasets.builder import build
from ndm_tcp.datasets.readers import run_folder
from ndm_tcp.datasets.rounds.flow import LABEL_ERROR, NO_LABEL
from ndm_tcp.paths import label, model, rivals
from ndm_tcp.paths.estimate import estimate

from .. import captures
from ..captures import Captured
from ..conftest import TRACES


def bulk(path: Path, port: int = captures.SENDER[1], start_us: int = 1_000_000) -> Captured:
    """A second of data where they are sent: the RTT is 20 ms."""
    made = Captured(path, (captures.SENDER[0], port))
    made.handshake(start_us, start_us + 20_000, start_us + 20_050)
    made.transfer(start_us + 21_000, 1200)
    return made


def test_a_flow_that_is_left_out_is_named_beside_one_that_is_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An upload and a download: the first was captured where data are sent, the second not."""
    both = bulk(tmp_path / "both.pcap")
    other = Captured(tmp_path / "other.pcap", (captures.SENDER[0], 4321))
    other.handshake(1_000_000, 1_000_050, 1_020_000)
    other.transfer(1_021_000, 1200, rtt_us=50)
    both.records += other.records
    path = both.sort().write()
    assert run_command(["path", "estimate", str(path), "-o", str(tmp_path / "out")]) == 1
    told = capsys.readouterr().err
    assert f"left out: {path}: 1 x captured near the receiver" in told


def test_a_flow_in_other_formats_is_used_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same packets, and the same with other bytes; another flow has the same path."""
    shutil.copy(bulk(tmp_path / "one.pcap").sort().write(), tmp_path / "copy.pcap")
    data = (tmp_path / "copy.pcap").read_bytes()
    (tmp_path / "gone.pcap.gz").write_bytes(gzip.compress(data))
    (tmp_path / "longer.pcap").write_bytes(data[:16] + (9999).to_bytes(4, "little") + data[20:])
    bulk(tmp_path / "other.pcap", 4321, 5_000_000).sort().write()
    assert run_command(["path", "estimate", str(tmp_path), "-o", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().err.count("used once") == 3
    models = model.load_all(tmp_path / "out")
    assert len(models) == 2 and {m.path for m in models} == {1}


def test_flows_of_one_capture_are_each_others_rivals() -> None:
    """Two that share a link evenly, half of its rate each; one that was over does not count."""
    (flow,), _ = run_folder.read(TRACES / "lab" / "train-01-clean--cubic--1")
    alone = replace(flow, group="a", start_us=0)
    beside = replace(alone, start_us=500_000)
    shared = rivals.of_source(alone, [alone, beside])
    assert shared.rivals == 1 and shared.joined and shared.shown
    mbps = shared.pps * (flow.mss or 0) * 8 / 1e6
    assert mbps == pytest.approx(2 * estimate(flow, "a").seen.goodput_mbps, rel=0.05)
    made = estimate(alone, "a", [alone, beside])
    assert made.rivals and made.label_error_log2 > 0.24
    assert 0 < made.loss.high < 0.1  # of the half second before
    never = estimate(alone, "a", [alone, replace(beside, start_us=0)])
    assert never.loss == model.Value.exact(0.0, model.Kind.ASSUMED)
    assert made.notes[0].startswith("Another flow between the same hosts")
    before = replace(alone, start_us=-int(flow.acks["now_us"][-1]))
    for other in (before, replace(beside, group="b"), replace(beside, start_us=None)):
        assert rivals.of_source(alone, [alone, other]) == rivals.NONE


def test_labels_know_the_flows_beside_one(tmp_path: Path) -> None:
    """`ndm dataset build` labels a lone flow, but not one of two that share the link."""
    header, lone = captures.captured(TRACES / "lab" / "train-01-clean--cubic--1")
    (tmp_path / "lone.pcap").write_bytes(header + b"".join(lone))
    both = [r for record in lone for r in (record, with_port(record, lone[0]))]
    (tmp_path / "both.pcap").write_bytes(header + b"".join(both))
    found = {}
    for name in ("lone", "both"):
        source = tmp_path / f"{name}.pcap"
        made = build.build([source], tmp_path / name, quiet=True, labeller=label.labeller())
        found[name] = made["sources"][0]["flows"]
    assert LABEL_ERROR in found["lone"][0]
    assert len(found["both"]) == 2 and all("uncertain" in flow[NO_LABEL] for flow in found["both"])


def with_port(record: bytes, syn: bytes) -> bytes:
    """The record as of another connection: one more is the port of who sent the SYN."""
    made = bytearray(record)
    at = 16 + 20 + 2 * (record[28:32] != syn[28:32])
    made[at + 1] ^= 1
    return bytes(made)
