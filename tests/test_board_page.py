# SPDX-License-Identifier: GPL-2.0-only
"""What a board says of its module, and what its page shows."""

from __future__ import annotations

import argparse
import itertools
import shutil
from pathlib import Path

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from ndm_tcp import model_json, plots
from ndm_tcp.errors import NdmError
from ndm_tcp.lab.score import board, figures, html, metrics, tables


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
    made = board._command(parser.parse_args([*words, str(tmp_path.parent / "other")]))
    assert "--kmod other" in made and str(tmp_path.parent) not in made


def test_a_board_names_a_network_that_is_not_the_shipped_one(tmp_path: Path) -> None:
    other = tmp_path / "generated" / model_json.NAME
    other.parent.mkdir()
    shutil.copy(model_json.SHIPPED, other)
    assert [board.network_of(kmod) for kmod in (None, tmp_path, other)] == [[], [], []]
    shipped = model_json.from_json(model_json.SHIPPED)
    assert board.network_of(None, True) == [f"ndm_tcp has the shipped network, {shipped.hash()}."]
    shipped.layers[0].bias[0] += 1
    other.write_text(model_json.to_json(shipped))
    (said,) = board.network_of(tmp_path)
    assert shipped.hash() in said and "not the shipped" in said
    other.write_text("{")
    with pytest.raises(NdmError, match="not a model written by ndm export; run: ndm export"):
        board.network_of(tmp_path)


@pytest.mark.parametrize(
    "points",
    [
        [("reno", 116.0, 1.36), ("cubic", 116.1, 1.35), ("bbr", 166, 9.08), ("ndm_tcp", 164, 9.26)],
        [(name, 30.0, 9.0) for name in plots.CC],
        [(name, 30.0 + n, 0.0) for n, name in enumerate(plots.CC)],
    ],
    ids=["the demo's", "all at one point", "all at the bottom"],
)
def test_no_name_in_the_scatter_hides_another(points: list[tuple[str, float, float]]) -> None:
    zero = dict.fromkeys(metrics.MEASURES, 0.0)
    group = [
        metrics.Cell("a", name, 1, {**zero, "rtt_mean_ms": ms, "goodput_mbps": mbps}, zero)
        for name, ms, mbps in points
    ]
    with plots.plain():
        figure = figures.scatter_figure(group)
        FigureCanvasAgg(figure).draw()
        texts = figure.axes[0].texts
        boxes = [Text.get_window_extent(text) for text in texts]
    assert {text.get_text() for text in texts} == {name for name, *_ in points}
    for one, other in itertools.combinations(boxes, 2):
        assert not one.overlaps(other)
    whole = figure.bbox
    assert all(whole.x0 <= box.x0 and box.x1 <= whole.x1 for box in boxes)
    assert all(whole.y0 <= box.y0 and box.y1 <= whole.y1 for box in boxes)


def test_names_stay_near_their_points() -> None:
    assert figures.spread_out([0.1, 0.5, 0.9], 0.1) == [0.1, 0.5, 0.9]
    assert figures.spread_out([0.5, 0.5], 0.1) == pytest.approx([0.5, 0.6])
    assert figures.spread_out([0.98, 0.99], 0.1) == pytest.approx([0.9, 1.0])
    assert figures.spread_out([], 0.1) == []


def test_backticks_of_a_remark_are_code_on_the_page() -> None:
    remarks = ["`bbr` is the one in Linux: <version> 1."]
    made = tables.Board("The board", "c", [], {}, {}, {}, [], remarks=remarks)
    text = html.page(made, [])
    assert "<p><code>bbr</code> is the one in Linux: &lt;version&gt; 1.</p>" in text
    assert "`bbr`" not in text
