# SPDX-License-Identifier: GPL-2.0-only
"""`ndm trace --plot`, and that a replay of a trace can fail."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest

from ndm_tcp import core
from ndm_tcp.cli import run_command
from ndm_tcp.datasets.module_event import event_lines, event_plot
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
