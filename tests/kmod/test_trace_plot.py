# SPDX-License-Identifier: GPL-2.0-only
"""`ndm trace --plot`, and that a replay of a trace can fail."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest

from ndm_tcp import core
from ndm_tcp.cli import run_command
from ndm_tcp.datasets.module_event import command, event_lines, event_plot
from ndm_tcp.errors import NdmError
from ndm_tcp.export.integers import generated, model_c

from ..replay import assert_replays, inputs
from .test_trace import LINE


def rounds(folder: Path) -> pa.Table:
    """Forty rounds of a flow, one of each reason and one without inputs among them."""
    path = folder / "rounds"
    lines = []
    for number in range(40):
        why = event_lines.WHY[number % len(event_lines.WHY)]
        line = LINE.replace("2.404064", f"{2 + number / 20:.6f}").replace("=network", f"={why}")
        lines.append(line.replace("cwnd=10 target=11", f"cwnd={10 + number} target={11 + number}"))
    path.write_text("\n".join(lines))
    table = event_lines.read(path)
    path.unlink()
    return table


def test_another_output_does_not_replay(tmp_path: Path) -> None:
    table = rounds(tmp_path)
    with pytest.raises(AssertionError):
        assert_replays(table)
    layers = model_c.from_json(generated.GENERATED / "ndm_model.json").layers
    out, _ = core.infer(layers, inputs(table))
    for number, name in enumerate(("cwnd_gain", "congestion")):
        at = table.column_names.index(name)
        table = table.set_column(at, name, pa.array(out[:, number]))
    assert assert_replays(table) == 40


def test_a_flow_becomes_a_picture(tmp_path: Path) -> None:
    table = rounds(tmp_path)
    for kind in ("svg", "png"):
        event_plot.plot(table, tmp_path / f"flow.{kind}")
    text = (tmp_path / "flow.svg").read_text()
    labels = [*event_lines.INPUTS, *event_lines.WHY, "packets", "time since the first round (s)"]
    assert all(re.search(rf"<!-- {re.escape(label)}( \[.*\])? -->", text) for label in labels)
    assert (tmp_path / "flow.png").read_bytes().startswith(b"\x89PNG")
    twice = (tmp_path / "flow.svg").read_bytes()
    event_plot.plot(table, tmp_path / "flow.svg")
    assert (tmp_path / "flow.svg").read_bytes() == twice


def test_a_picture_that_cannot_be_drawn_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text(f"{LINE}\n{LINE.replace('sport=20001', 'sport=20002')}\n")
    assert run_command(["trace", str(path), "--plot", str(tmp_path / "a.png")]) == 2
    assert run_command(["trace", str(path), "--port", "20001", "--plot", str(tmp_path / "a.gif")])
    assert [entry.name for entry in tmp_path.iterdir()] == ["trace"]
    assert run_command(["trace", str(path), "--port", "20001", "--plot", f"{tmp_path}/a.png"]) == 0
    with pytest.raises(NdmError, match="2 flows in one picture; choose one by --port: 20001, 2"):
        event_plot.plot(event_lines.read(path), tmp_path / "b.png")


def test_flows_of_one_server_are_told_apart_by_their_peers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two clients may have the same port, and all flows of a server have its own."""
    served = LINE.replace("sport=20001 dport=5201", "src=10.0.0.1:443 dest={0} sport=443 dport={1}")
    peers = ("10.0.0.2:50000", "10.0.0.3:50000", "[fe80::1]:50001")
    trace = tmp_path / "trace"
    lines = [served.format(peer, peer.rpartition(":")[2]) for peer in peers]
    trace.write_text("\n".join([*lines, lines[0]]))
    table = event_lines.read(trace)
    assert command.summary(table).startswith("4 rounds of 3 flows")
    picture = ["trace", str(trace), "--plot", str(tmp_path / "a.svg")]
    assert run_command([*picture, "--port", "443"]) == 2
    said = capsys.readouterr().err
    assert f"3 flows in one picture; choose one by --peer: {', '.join(peers)}" in said
    assert run_command([*picture, "--peer", "10.0.0.9:1"]) == 2
    assert "no round of a flow with --peer 10.0.0.9:1" in capsys.readouterr().err
    assert run_command([*picture, "--peer", peers[0]]) == 0
    assert f"Port 443 to {peers[0]}: 2 rounds" in (tmp_path / "a.svg").read_text()
    rows = tmp_path / "rows.csv"
    assert run_command(["trace", str(trace), "--peer", peers[2], "-o", str(rows)]) == 0
    assert len(rows.read_text().splitlines()) == 2
