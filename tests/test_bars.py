# SPDX-License-Identifier: GPL-2.0-only
"""Bars: the committed ones, what chance has done, and means over runs that lack a figure."""

from __future__ import annotations

import math

import pytest

from ndm_tcp.lab.paths import sealed_paths
from ndm_tcp.lab.score import bars, metrics

from .conftest import ROOT


def test_the_committed_bars_are_those_of_the_boards() -> None:
    folder = ROOT / "docs" / "board"
    page = (folder / "bars.md").read_text()
    assert bars.text(folder) == page
    found = bars.facts(folder)
    for word, verdict in (("goodput", "goodput"), ("retransmission rate", "retransmission_rate")):
        rows = [row[verdict] for row in found["published_reached"].values()]
        assert f"{word} {sum(rows)} of {len(rows)}" in page
    assert f"{100 * found['ccbench_wins']['set1']['ndm_tcp']:.1f} %" in page
    assert bars.headline(folder) in (ROOT / "README.md").read_text()


def test_the_sealed_board_is_of_the_shipped_networks_paths() -> None:
    board_of = bars.load(ROOT / "docs" / "board" / "sealed.csv")
    assert {f"{name}.toml" for name in board_of} == set(sealed_paths.scenarios())


@pytest.mark.parametrize(
    ("runs", "spread", "chance"), [(5, 1, True), (30, 1, False), (5, 0, False)]
)
def test_a_bar_missed_by_what_seeds_differ_by_is_marked(
    runs: int, spread: float, chance: bool
) -> None:
    means = dict.fromkeys(metrics.MEASURES, 20.0)
    spreads = dict.fromkeys(metrics.MEASURES, float(spread))
    cells = {
        cc: metrics.Cell("c", cc, runs, dict(means), spreads) for cc in (*bars.RIVALS, bars.OWN)
    }
    cells[bars.OWN].mean["rtt_mean_ms"] = 21.0
    row = next(line for line in bars._published({"c": cells}) if line.startswith("| c |"))
    assert row.endswith("| **21.0 / 20.0** ~ |" if chance else "| **21.0 / 20.0** |")


def of_rows(rows: dict[str, dict[str, tuple[float, float]]]) -> bars.Board:
    """Of scenario to algorithm to Mbit/s and share."""
    same, none = (dict.fromkeys(metrics.MEASURES, value) for value in (1.0, 0.0))
    return {
        name: {
            cc: metrics.Cell(name, cc, 1, same | {"goodput_mbps": mbps, "share": share}, none)
            for cc, (mbps, share) in group.items()
        }
        for name, group in rows.items()
    }


def test_paths_people_have_are_judged_one_by_one_and_by_what_a_late_cubic_gets() -> None:
    lone = {"reno": (5.0, 1.0), "cubic": (8.0, 1.0), "bbr": (10.0, 1.0)}
    late = {"ndm_tcp": (8.0, 0.8), "cubic": (7.5, 0.75), "reno": (5.0, 0.5), "bbr": (9.0, 0.9)}
    rows = {
        **{f"access-0{n}-slots": {**lone, "ndm_tcp": (9.9, 1.0)} for n in range(3)},
        "access-03-lan": {**lone, "ndm_tcp": (8.9, 1.0)},
        "access-04-late-cubic": late,
        # More than any other on a path with several flows: it must not count as a lone one.
        "access-05-staggered": {**lone, "ndm_tcp": (1.0, 1.0)},
    }
    page = "\n".join(bars._access(of_rows(rows)))
    assert "over the 4 paths with one flow" in page
    assert "Bar: **75 %** of them for 95 %, and **0.890** on the worst for 0.9." in page
    assert "| access-03-lan | **0.890** | bbr |" in page and "slots" not in page
    # 2.0 of 2.5 Mbit/s
    assert "access-04-late-cubic: the CUBIC that comes late gets 0.80 of" in page


@pytest.mark.parametrize(("mbps", "spread", "mark"), [(9.7, 0.5, " ~"), (8.0, 0.5, ""),
                                                      (9.7, 0.0, "")])  # fmt: skip
def test_a_goodput_missed_by_what_seeds_differ_by_is_marked(
    mbps: float, spread: float, mark: str
) -> None:
    """Of each path with one flow, and of the published scenarios: against 0.98 of the best."""
    means = dict.fromkeys(metrics.MEASURES, 1.0)
    cells = {
        cc: metrics.Cell(
            "a", cc, 5, means | {"goodput_mbps": found}, dict.fromkeys(metrics.MEASURES, spread)
        )
        for cc, found in (("reno", 5.0), ("cubic", 8.0), ("bbr", 10.0), (bars.OWN, mbps))
    }
    part = mbps / 10
    lone = next(line for line in bars._access({"a": cells}) if line.startswith("| a |"))
    assert lone.startswith(f"| a | {bars._verdict(part >= bars.LEAST, f'{part:.3f}')}{mark} |")
    published = next(line for line in bars._published({"a": cells}) if line.startswith("| a |"))
    assert f"| **{part:.3f}**{mark} |" in published


def run(cc: str, goodput_mbps: float, rtt_ms: float, seed: int = 1) -> metrics.RunMetrics:
    return metrics.RunMetrics("a", cc, seed, goodput_mbps, 0, 0, rtt_ms, rtt_ms, math.nan, 1, 1)


def test_a_run_without_an_rtt_hides_no_other() -> None:
    (cell,) = metrics.cells([run("bbr", 4, 50), run("bbr", 0, math.nan, 2), run("bbr", 8, 52, 3)])
    assert cell.mean["goodput_mbps"] == 4 and cell.mean["rtt_mean_ms"] == 51
    assert cell.spread["rtt_mean_ms"] == pytest.approx(math.sqrt(2)) and cell.runs == 3
    assert math.isnan(cell.mean["zero_intervals"]) and math.isnan(cell.spread["zero_intervals"])
    (one, *_) = metrics.cells([run("bbr", 4, 50)])
    (two, *_) = metrics.cells([run("bbr", 4, 50), run("bbr", 0, math.nan, 2)])
    assert one.spread["rtt_mean_ms"] == 0 and math.isnan(two.spread["rtt_mean_ms"])


def test_a_rival_without_an_rtt_gives_no_verdict_on_it() -> None:
    runs = [run(cc, 5, math.nan if cc == "bbr" else 40) for cc in (*bars.RIVALS, bars.OWN)]
    cells = {cell.cc: cell for cell in metrics.cells(runs)}
    row, verdicts = bars._published_row("a", cells)
    assert row.endswith("| - |") and len(verdicts) == 2


def test_nobody_wins_where_nothing_was_delivered() -> None:
    dead = metrics.cells([run("reno", 0, math.nan), run("bbr", 0, math.nan)])
    assert metrics.winning_rates(dead, set_two=False) == {"bbr": 0, "reno": 0}


def test_no_interval_of_an_index_passes_its_ends() -> None:
    assert bars._within_one((0.9, 0.7, 1.1)) == "0.900 [0.700, 1.000]"
    assert bars._within_one((0.2, -0.1, 0.5)) == "0.200 [0.000, 0.500]"
