# SPDX-License-Identifier: GPL-2.0-only
"""`ndm lab plot`: pictures hold the figures of the board, and refuse what is none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard

from ndm_tcp.cli import run_command
from ndm_tcp.errors import NdmError
from ndm_tcp.lab.score import bars, plot

from .conftest import ROOT, TRACES
from .test_board import OURS, run_folder

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
        assert panel.get_ylim()[0] == 0 and panel.get_ylim()[1] > 1.1 * top


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


def run_of(folder: Path, cc: str) -> Path:
    """A run of a flow."""
    return run_folder(folder, [{"cc": cc, "tested": True, "port": OURS}], cc)


def test_two_boards_of_other_paths_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    """Or the simulator's beside the lab's would look like an improvement."""
    first, second = plot.board(BOARD, CCS), plot.board(BOARD, CCS)
    name = next(iter(first))
    plot.compared(first, second)
    assert not capsys.readouterr().err
    moved = {cc: replace(c, path="simulator 1") for cc, c in second[name].items()}
    plot.compared(first, second | {name: moved})
    said = capsys.readouterr().err
    assert f"{name} ran on another path" in said and said.count("\n") == 1


@pytest.mark.parametrize(
    ("runs", "labels"),
    [
        (["a/cubic", "a/bbr"], ["cubic", "bbr"]),
        (["a/one--cubic", "a/two--cubic", "a/bbr"], ["one--cubic", "two--cubic", "bbr"]),
        (["a/cubic", "b/cubic"], ["a/cubic", "b/cubic"]),
        (["a/mine", "a/yours"], ["mine", "yours"]),
        (["a/_1-cubic", "a/2-cubic"], ["./_1-cubic", "2-cubic"]),
    ],
)
def test_runs_are_told_apart(
    runs: list[str], labels: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folders = [run_of(Path(name), name.rsplit("-")[-1].rsplit("/")[-1]) for name in runs]
    lines = plot.over_time(folders).axes[0].get_lines()
    assert [line.get_label() for line in lines] == labels
    assert len({line.get_color() for line in lines}) == len(runs)


def test_the_current_folder_has_a_name_in_the_legend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = (run_of(tmp_path / name, "cubic") for name in ("one", "two"))
    monkeypatch.chdir(one)
    lines = plot.over_time([Path(), two]).axes[0].get_lines()
    assert [line.get_label() for line in lines] == ["one", "two"]


def test_a_run_without_a_flow_over_time_is_refused(tmp_path: Path) -> None:
    page = run_folder(tmp_path / "page", [])
    simulated = run_of(tmp_path / "simulated", "cubic")
    (simulated / "tcp_info.jsonl.zst").unlink()
    brief = run_of(tmp_path / "brief", "cubic")
    states = zstandard.decompress((brief / "tcp_info.jsonl.zst").read_bytes()).splitlines()[:2]
    (brief / "tcp_info.jsonl.zst").write_bytes(zstandard.compress(b"\n".join(states)))
    for folder in (page, simulated, brief):
        with pytest.raises(NdmError, match=f"{folder}: has no flow under test over time"):
            plot.over_time([run_of(tmp_path / f"beside-{folder.name}", "bbr"), folder])


@pytest.mark.parametrize("unknown", [np.nan, 0.0])
def test_a_board_without_an_rtt_leaves_no_panel_blank(unknown: float) -> None:
    made = plot.board(BOARD, CCS)
    for group in made.values():
        for cell in group.values():
            cell.mean["rtt_mean_ms"] = unknown
    for kind in (plot.overview, plot.latency):
        with pytest.raises(NdmError, match="no run of the board has an RTT; draw it with"):
            kind(made)
    for figure in (plot.cdf(made), plot.compared(made, made)):
        assert [said(panel) for panel in figure.axes] == [[], [], ["no RTT"]]


def test_one_scenario_without_an_rtt_is_left_out_and_says_so() -> None:
    made = plot.board(BOARD, CCS)
    first, *others = made
    for cell in made[first].values():
        cell.mean["rtt_mean_ms"] = np.nan
    panels = [panel for panel in plot.latency(made).axes if panel.get_visible()]
    assert [said(panel) for panel in panels] == [["no RTT"], *([] for _ in others)]
    for line in plot.cdf(made).axes[2].get_lines():
        x, y = line.get_data()
        assert len(x) == len(others) + 1 and (np.diff(x) >= 0).all() and y[-1] == 1


def test_where_no_rival_delivered_anything_a_goodput_has_no_part() -> None:
    made = plot.board(BOARD, CCS)
    first, *others = made
    for cell in made[first].values():
        cell.mean["goodput_mbps"] = 0.0
    figures = [kind(made) for kind in (plot.overview, plot.cdf, plot.latency)]
    for line in figures[1].axes[0].get_lines():
        assert len(line.get_xdata()) == len(others) + 1
    assert len(plot.compared(made, made).axes) == 3


def said(panel: Any) -> list[str]:
    """The sentences in a panel."""
    return [text.get_text() for text in panel.texts]
