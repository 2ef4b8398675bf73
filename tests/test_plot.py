# SPDX-License-Identifier: GPL-2.0-only
"""`ndm lab plot`: pictures hold the figures of the board, and refuse what is none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ndm_tcp.cli import run_command
from ndm_tcp.lab.score import bars, plot

from .conftest import ROOT, TRACES

BOARD = ROOT / "docs" / "board" / "published.csv"
CCS = ["reno", "cubic", "bbr", "ndm_tcp"]


def points(panel: object, cc: str) -> list[float]:
    """x of the dots of an algorithm, in the order of scenarios."""
    line = next(one for one in panel.get_lines() if one.get_label() == cc)  # type: ignore[attr-defined]
    return [float(x) for x in line.get_xdata()]


def test_the_overview_has_every_figure_of_the_board() -> None:
    made = plot.board(BOARD, CCS)
    left, middle, right = plot.overview(made).axes
    for cc in CCS:
        for number, group in enumerate(made.values()):
            best = max(group[r].mean["goodput_mbps"] for r in bars.RIVALS)
            mean = group[cc].mean
            assert points(left, cc)[number] == pytest.approx(mean["goodput_mbps"] / best)
            assert points(middle, cc)[number] == pytest.approx(100 * mean["retransmitted_share"])
            assert points(right, cc)[number] == pytest.approx(mean["rtt_mean_ms"])
    assert [t.get_text() for t in left.get_yticklabels()] == list(made)


def test_a_distribution_ends_at_all_scenarios_and_rises() -> None:
    made = plot.board(BOARD, CCS)
    for panel in plot.cdf(made).axes:
        for line in panel.get_lines():
            x, y = line.get_data()
            assert len(x) == len(made) + 1 and (y[0], y[-1]) == (0, 1)
            assert (np.diff(x) >= 0).all() and (np.diff(y) > 0).all()


def test_latency_has_a_panel_for_each_scenario() -> None:
    made = plot.board(BOARD, CCS)
    shown = [panel for panel in plot.latency(made).axes if panel.get_visible()]
    assert [panel.get_title() for panel in shown] == list(made)
    for panel, group in zip(shown, made.values(), strict=True):
        top = max(cell.mean["goodput_mbps"] for cell in group.values())
        assert panel.get_ylim()[0] == 0 and panel.get_ylim()[1] > top


@pytest.mark.parametrize("kind", plot.KINDS)
@pytest.mark.parametrize("scenarios", [1, 4, 26])
def test_all_of_a_legend_is_in_the_picture(kind: str, scenarios: int) -> None:
    """With every algorithm of the kernel; and one scenario's curves rise from the axis."""
    made = dict([*plot.board(BOARD, []).items()][:scenarios])
    figure = plot.KINDS[kind](made)
    figure.canvas.draw()
    legends = [*figure.legends, *(p.get_legend() for p in figure.axes if p.get_legend())]
    names = {cc for group in made.values() for cc in group}
    assert len(names) > 10
    for legend in legends:
        assert {text.get_text() for text in legend.get_texts()} == names
        box, whole = legend.get_window_extent(), figure.bbox
        assert whole.x0 <= box.x0 and box.x1 <= whole.x1
        assert whole.y0 <= box.y0 and box.y1 <= whole.y1


def test_two_boards_are_compared_second_over_first() -> None:
    one, two = (plot.board(BOARD, [cc]) for cc in ("bbr", "bbr"))
    for group in two.values():
        group["bbr"].mean["goodput_mbps"] *= 2
        group["bbr"].mean["retransmitted_share"] += 0.01
    left, middle, right = plot.compared(one, two).axes
    assert points(left, "bbr") == pytest.approx([2] * len(two))
    assert points(middle, "bbr") == pytest.approx([1] * len(two))
    assert points(right, "bbr") == pytest.approx([1] * len(two))


@pytest.mark.parametrize("name", ["a.svg", "a.png"])
def test_the_same_board_gives_the_same_bytes(name: str, tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        assert run_command(["lab", "plot", str(BOARD), "-o", str(tmp_path / folder / name)]) == 0
    assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_the_picture_of_the_readme_is_of_the_board(tmp_path: Path) -> None:
    out = tmp_path / "board.svg"
    assert run_command(["lab", "plot", str(BOARD), "--cc", ",".join(CCS), "-o", str(out)]) == 0
    shown = ROOT / "docs" / "pictures" / "board.svg"
    assert out.read_bytes() == shown.read_bytes(), "run: make pictures"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["none.csv", "-o", "x.svg"], "expected a board.csv"),
        ([str(BOARD), "-o", "x.gif"], "name it *.svg or *.png"),
        ([str(BOARD), "--cc", "nosuch", "-o", "x.svg"], "no algorithm nosuch"),
        ([str(BOARD), str(BOARD), str(BOARD), "-o", "x.svg"], "two to compare them"),
        ([".", "-o", "x.svg"], "no run here"),
        ([str(TRACES / "cubic-00-clean" / "sender.pcap.zst"), "-o", "x.svg"], "not a board"),
    ],
)
def test_what_is_no_board_is_refused(
    words: list[str],
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_command(["lab", "plot", *words]) == 2
    assert expected in capsys.readouterr().err and not list(tmp_path.iterdir())
