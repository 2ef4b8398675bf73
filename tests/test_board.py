# SPDX-License-Identifier: GPL-2.0-only
"""Scores, winners, tables and suites, on made-up runs."""

from __future__ import annotations

import argparse
import csv
import io
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
import zstandard

from ndm_tcp import plots
from ndm_tcp.cli import run_command
from ndm_tcp.errors import NdmError
from ndm_tcp.lab.guest import run as lab_run
from ndm_tcp.lab.guest import suite
from ndm_tcp.lab.guest.workers import ONE
from ndm_tcp.lab.paths import scenario
from ndm_tcp.lab.score import board, figures, html, metrics, tables

from .conftest import ROOT

SCENARIO = """
title = "A made-up path"
seconds = 10
topology = "path"
[link]
rate_bps = 10_000_000
rtt_us = 40_000
queue_packets = 60
[[published]]
cc = "cubic"
mbps = 9.5
retransmissions = 12
[[published]]
cc = "somebody"
mbps = 5.0
"""


def result(mbps: float, rtt_ms: float, retransmissions: int = 10) -> dict[str, Any]:
    flow = {
        "cc": "x",
        "goodput_mbps": mbps,
        "retransmissions": retransmissions,
        "segments": 1000,
        "rtt_mean_ms": rtt_ms,
        "rtt_p95_ms": 2 * rtt_ms,
        "zero_intervals": 1,
        "share": 1.0,
    }
    return {"flows": [flow], "jain": 1.0}


def outcome(cc: str, seed: int, mbps: float, rtt_ms: float, out: Path) -> suite.Outcome:
    made = scenario.parse(SCENARIO, "made-up", "made-up.toml")
    job = suite.Job(made, cc, seed, out / f"made-up--{cc}--{seed}")
    return suite.Outcome(job, result(mbps, rtt_ms))


@pytest.fixture
def made(tmp_path: Path) -> tuple[tables.Board, list[suite.Outcome]]:
    outcomes = [
        outcome("cubic", 1, 9.0, 100, tmp_path),
        outcome("cubic", 2, 9.4, 120, tmp_path),
        outcome("ndm_tcp", 1, 9.5, 50, tmp_path),
        outcome("ndm_tcp", 2, 9.5, 50, tmp_path),
    ]
    bad = replace(outcomes[0].job, cc="broken", folder=tmp_path / "made-up--broken--1")
    outcomes.append(suite.Outcome(bad, None, "guest panicked"))
    scenarios = [outcomes[0].job.scenario]
    return board.build(outcomes, scenarios, ["cubic", "ndm_tcp"], "ndm lab board X"), outcomes


def cell(cc: str, scenario_name: str, **mean: float) -> metrics.Cell:
    zero = dict.fromkeys(metrics.MEASURES, 0.0)
    return metrics.Cell(scenario_name, cc, 1, zero | mean, zero)


def test_cells_hold_mean_and_spread(made: tuple[tables.Board, list[suite.Outcome]]) -> None:
    first, second = made[0].cells
    assert (first.cc, second.cc) == ("ndm_tcp", "cubic")
    assert second.mean["goodput_mbps"] == pytest.approx(9.2)
    assert second.spread["goodput_mbps"] == pytest.approx(0.2 * 2**0.5)
    assert second.mean["retransmitted_share"] == pytest.approx(0.01)


def test_an_unknown_rtt_stays_unknown(tmp_path: Path) -> None:
    web = scenario.parse(SCENARIO + "[web]\nobjects = 2\nbytes = 1000\n", "web", "web.toml")
    outcomes = []
    for seed in (1, 2):
        job = suite.Job(web, "cubic", seed, tmp_path / str(seed))
        page = {"mbps": 3.0 + seed, "retransmissions": 1}
        outcomes.append(suite.Outcome(job, {"flows": [], "web": page, "jain": 1.0}))
    shown = board.build(outcomes, [web], ["cubic"], "x")
    assert shown.cells[0].mean["goodput_mbps"] == pytest.approx(4.5)
    assert "| - ± - |" in tables.markdown(shown)
    html.page(shown, outcomes)


def test_set_one_is_won_by_throughput_squared_over_delay_within_ten_percent() -> None:
    cells = [
        cell("slow", "a", goodput_mbps=5, rtt_mean_ms=20),
        cell("bloated", "a", goodput_mbps=10, rtt_mean_ms=200),
        cell("good", "a", goodput_mbps=10, rtt_mean_ms=25),
        cell("nearly", "a", goodput_mbps=9.6, rtt_mean_ms=25),
    ]
    rates = metrics.winning_rates(cells, set_two=False)
    assert rates == {"good": 1.0, "nearly": 1.0, "bloated": 0.0, "slow": 0.0}
    assert list(rates)[:2] == ["good", "nearly"]


def test_an_algorithm_without_a_result_has_not_won() -> None:
    cells = [cell("sound", "a", goodput_mbps=5, rtt_mean_ms=20)]
    cells += [cell(cc, "b", goodput_mbps=5, rtt_mean_ms=20) for cc in ("sound", "frail")]
    assert metrics.winning_rates(cells, set_two=False) == {"sound": 1.0, "frail": 0.5}


def test_set_two_is_won_by_the_fairest() -> None:
    cells = [cell("shy", "a", share=0.1), cell("fair", "a", share=0.48)]
    cells += [
        cell("rude", "a", share=0.9),
        cell("fair", "b", share=0.2),
        cell("shy", "b", share=0.4),
    ]
    assert metrics.winning_rates(cells, set_two=True) == {"fair": 0.5, "shy": 0.5, "rude": 0.0}


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (12.345, "12.3"), (123.4, "123"), (0.01234, "0.0123"), (1e-9, "0.0000")],
)
def test_numbers_have_three_digits(value: float, text: str) -> None:
    assert metrics.number(value) == text


def test_every_form_of_the_board_names_everything(
    made: tuple[tables.Board, list[suite.Outcome]],
) -> None:
    shown, outcomes = made
    texts = [tables.terminal(shown), tables.markdown(shown), html.page(shown, outcomes)]
    for text in texts:
        for expected in ("A made-up path", "ndm_tcp", "cubic", "9.50", "guest panicked"):
            assert expected in text
        assert "12.0 retr." in text, "the published figure"
        assert "somebody 5.00 Mbit/s" in text, "published, but not on the board"
    rows = list(csv.DictReader(io.StringIO(tables.comma_separated(shown))))
    assert [r["cc"] for r in rows] == ["ndm_tcp", "cubic"]
    assert float(rows[1]["goodput_mbps_mean"]) == pytest.approx(9.2)


def test_an_earlier_board_lends_the_algorithms_that_did_not_run_again(
    made: tuple[tables.Board, list[suite.Outcome]], tmp_path: Path
) -> None:
    before, _ = made
    path = tmp_path / "board.csv"
    path.write_text(tables.comma_separated(before))
    again = outcome("ndm_tcp", 1, 9.1, 40, tmp_path)
    elsewhere = cell("cubic", "another scenario", goodput_mbps=1)
    earlier = [*tables.read(path), elsewhere]
    shown = board.build([again], [again.job.scenario], ["ndm_tcp"], "x", earlier)
    got = [(c.cc, c.runs, c.mean["goodput_mbps"]) for c in shown.cells]
    assert got == [("cubic", 2, pytest.approx(9.2)), ("ndm_tcp", 1, 9.1)]
    assert "12.0 retr." in tables.markdown(shown), "cubic's published figure"


@pytest.mark.parametrize(
    ("text", "problem"),
    [("a,b\n1,2\n", "not a board"), (",".join(tables.COLUMNS) + "\nx,reno,1,y\n", "damaged")],
)
def test_what_is_no_board_is_refused(text: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "board.csv"
    path.write_text(text)
    with pytest.raises(NdmError, match=problem):
        tables.read(path)
    with pytest.raises(NdmError, match="No such file"):
        tables.read(tmp_path / "missing.csv")


def test_the_page_is_self_contained(made: tuple[tables.Board, list[suite.Outcome]]) -> None:
    text = html.page(*made)
    assert figures.picture(*made).startswith(b"\x89PNG")
    assert figures.picture(*made, "svg").startswith(b"<?xml")
    assert "data:image/png;base64," in text
    assert not re.search(r'(src|href)="(?!data:|#)', text)


@pytest.mark.parametrize(("name", "begin"), [("a.svg", b"<?xml"), ("a.png", b"\x89PNG")])
def test_the_picture_has_the_format_of_its_name(
    name: str,
    begin: bytes,
    made: tuple[tables.Board, list[suite.Outcome]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outcomes = made[1]
    ran = ([outcomes[0].job.scenario], ["cubic", "ndm_tcp"], outcomes)
    monkeypatch.setattr(suite, "run_all", lambda *_, **__: ran)
    words = ["lab", "board", "made-up.toml", "-o", tmp_path / "out", "--picture", tmp_path / name]
    assert run_command([str(word) for word in words]) == 1  # as one run failed
    assert (tmp_path / name).read_bytes().startswith(begin)


def test_every_panel_of_the_picture_says_what_it_shows(
    made: tuple[tables.Board, list[suite.Outcome]], monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Any] = []
    monkeypatch.setattr(figures, "_bytes", lambda figure, _: drawn.append(figure) or b"")
    figures.picture(*made)
    titles = [panel.get_title(loc="left") or panel.get_title() for panel in drawn[0].axes]
    names = [name for name, _ in tables.sections(made[0])]
    window, *others = figures.OVER_TIME
    assert titles == [title for name in names for title in (f"{name}\n{window}", *others)]


RIVAL, OURS = 5001, 5000


def run_folder(folder: Path, flows: list[dict[str, Any]], cc: str = "cubic") -> Path:
    """A run of two flows that nobody can take for one another: 10 and 100 packets."""
    folder.mkdir(parents=True)
    rows = [
        {"t_ns": k * 10**8, "sport": port, "dport": 1, "cwnd": cwnd, "srtt_us": 100 * cwnd,
         "bytes_acked": k * 1000 * cwnd, "bytes_sent": k * 1000 * cwnd, "state": 1}
        for k in range(1, 60)
        for port, cwnd in ((OURS, 10), (RIVAL, 100))
    ]  # fmt: skip
    lines = b"\n".join(map(orjson.dumps, rows))
    (folder / "tcp_info.jsonl.zst").write_bytes(zstandard.compress(lines + b"\n"))
    (folder / "result.json").write_bytes(orjson.dumps({"cc": cc, "flows": flows}))
    return folder


def drawn(runs: list[tuple[str, Path]], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Label to the line of the first panel of `over_time`."""
    made: list[Any] = []
    monkeypatch.setattr(figures, "_image", lambda figure: made.append(figure) or "")
    figures.over_time(runs)
    return {str(line.get_label()): line for line in made[0].axes[0].lines}


@pytest.mark.parametrize("says", [True, False], ids=["marked", "older run"])
@pytest.mark.parametrize("first", [True, False], ids=["tested first", "rival first"])
def test_the_flow_under_test_is_drawn_not_its_rival(
    first: bool, says: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flows = [
        {"cc": "ndm_tcp", "port": OURS, "tested": True},
        {"cc": "cubic", "port": RIVAL, "tested": False},
    ]
    if not says:
        flows = [{k: v for k, v in flow.items() if k != "tested"} for flow in flows]
    folder = run_folder(tmp_path / "run", flows if first else flows[::-1])
    (line,) = drawn([("ndm_tcp", folder)], monkeypatch).values()
    assert set(line.get_ydata()) == {10}


def test_an_algorithm_beside_itself_is_the_one_under_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flows = [
        {"cc": "cubic", "port": RIVAL, "tested": False},
        {"cc": "cubic", "port": OURS, "tested": True},
    ]
    folder = run_folder(tmp_path / "run", flows)
    assert set(drawn([("cubic", folder)], monkeypatch)["cubic"].get_ydata()) == {10}
    assert figures.tested_port(run_folder(tmp_path / "fixed", flows[:1]), "fixed_cwnd:40") is None


def test_a_page_has_no_flow_to_draw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not drawn([("ndm_tcp", run_folder(tmp_path / "run", []))], monkeypatch)


def test_an_algorithm_has_one_colour_in_every_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flows = [[{"cc": cc, "port": OURS, "tested": True}] for cc in figures.SHOWN]
    runs = [(f[0]["cc"], run_folder(tmp_path / f[0]["cc"], f)) for f in flows]
    for shown in (runs, runs[::-1], runs[2:]):
        for cc, line in drawn(shown, monkeypatch).items():
            assert line.get_color() == plots.CC[cc]
    made: list[Any] = []
    monkeypatch.setattr(figures, "_image", lambda figure: made.append(figure) or "")
    names = (*figures.SHOWN, "htcp")
    figures.scatter([cell(cc, "a", rtt_mean_ms=9, goodput_mbps=9) for cc in names])
    for cc, container in zip(names, made[0].axes[0].containers, strict=True):
        assert container.lines[0].get_color() == plots.CC[cc]
    many = [cell(cc, f"x-loss-{n}", goodput_mbps=9.0) for cc in figures.SHOWN for n in (1, 2)]
    figures.against_loss(tables.Board("t", "c", many, {}, {}, {}, []))
    for line in made[1].axes[0].lines:
        assert line.get_color() == plots.CC[str(line.get_label())]


def test_no_two_algorithms_share_a_colour() -> None:
    assert len(set(plots.CC.values())) == len(plots.CC)
    assert set(plots.CC) >= {*figures.SHOWN, *bars_algorithms()}
    ours = (ROOT / "notebooks" / "figures.py").read_text()
    assert "ndm_tcp.plots import" in ours and "#0072b2" not in ours, "a palette of its own"


def bars_algorithms() -> set[str]:
    """Those of the committed boards."""
    cells = tables.read(ROOT / "docs" / "board" / "published.csv")
    return {one.cc for one in cells if not one.cc.startswith("ceiling")}


def test_flows_of_others_do_not_count(tmp_path: Path) -> None:
    text = SCENARIO + '[[flows]]\ncc = "cubic"\n[[flows]]\nsender = 1\n'
    two = scenario.parse(text, "two", "two.toml")
    flows = [result(7, 80)["flows"][0] | {"share": 0.7}, result(3, 90)["flows"][0] | {"share": 0.3}]
    job = suite.Job(two, "vegas", 1, tmp_path)
    got = board.metrics(suite.Outcome(job, {"flows": flows, "jain": 0.86}))
    assert (got.goodput_mbps, got.share, got.jain) == (3, 0.3, 0.86)
    assert got.rtt_mean_ms == 90


def test_all_failed_is_an_error(tmp_path: Path) -> None:
    job = outcome("cubic", 1, 1, 1, tmp_path).job
    with pytest.raises(NdmError, match="every run failed; the first: no kernel"):
        board.build([suite.Outcome(job, None, "no kernel")], [job.scenario], ["cubic"], "x")


def test_a_failed_run_is_tried_twice_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls: list[str] = []

    def fake(made: scenario.Scenario, cc: str, seed: int, out: Path, *_: Any) -> dict[str, Any]:
        calls.append(f"{cc}{seed}")
        if cc == "reno" or (cc == "bbr" and len(calls) == 2):
            raise NdmError("the guest stopped")
        out.mkdir(parents=True)
        data = result(5, 50)
        (out / suite.RESULT).write_bytes(orjson.dumps(data))
        return data

    monkeypatch.setattr(lab_run, "run", fake)
    made = scenario.parse(SCENARIO, "made-up", "made-up.toml")
    jobs = suite.jobs_of([made], ["cubic", "bbr", "reno"], 1, tmp_path)
    outcomes = list(suite.execute(jobs, ONE, light=True, quiet=True))
    assert calls == ["cubic1", "bbr1", "bbr1", "reno1", "reno1"]
    assert [o.error for o in outcomes if o.result is None] == ["the guest stopped"]
    assert "failed 2 times: made-up--reno--1" in capsys.readouterr().err
    calls.clear()
    again = list(suite.execute(jobs, ONE, light=True, quiet=True))
    assert calls == ["reno1", "reno1"], "finished runs are not repeated"
    assert sum(o.result is not None for o in again) == 2


@pytest.mark.parametrize(
    ("loss", "cc", "seeds", "repeat"),
    [
        ("", "reno", [1, 2], 1),
        ("", "reno", [1, 2], 6),
        ("", "bbr", [1, 2, 3, 4], 1),
        ("loss = 0.01", "reno", [1, 2, 3, 4], 1),
        ("loss = 0.01", "reno", [1, 2, 3, 4, 5, 6, 7, 8], 2),
    ],
)
def test_more_seeds_run_only_where_something_is_drawn(
    loss: str,
    cc: str,
    seeds: list[int],
    repeat: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ran: list[int] = []

    def fake(made: scenario.Scenario, cc: str, seed: int, out: Path, *_: Any) -> dict[str, Any]:
        ran.append(seed)
        return {**result(5 + (cc == "bbr") * seed, 50), "seed": seed, "wall_s": seed / 3}

    monkeypatch.setattr(lab_run, "run", fake)
    file = tmp_path / "made-up.toml"
    text = SCENARIO.replace("queue_packets = 60", f"queue_packets = 60\n{loss}")
    file.write_text(f"repeat = {repeat}{text}")
    options = argparse.Namespace(suite=file, cc=cc, seeds=4, jobs=1, engine="local", kmod=None)
    _, _, outcomes = suite.run_all(options, tmp_path / "runs", light=True)
    assert sorted(ran) == seeds
    assert len(outcomes) == len(seeds)


def test_a_board_takes_no_kept_run_of_another_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[str] = []

    def fake(made: scenario.Scenario, cc: str, seed: int, out: Path, *_: Any) -> dict[str, Any]:
        ran.append(f"{cc} {seed}")
        out.mkdir(parents=True)
        found = {**result(1.0 * len(ran), 50), "seed": seed, "wall_s": 1}
        (out / "result.json").write_bytes(orjson.dumps(found))
        return found

    monkeypatch.setattr(lab_run, "run", fake)
    file, kmod = tmp_path / "made-up.toml", tmp_path / "kmod"
    shutil.copytree(ROOT / "kmod", kmod)
    file.write_text(SCENARIO)
    words = ["lab", "board", str(file), "--cc", "reno,ndm_tcp,fixed_cwnd:40", "--seeds", "1"]
    words += ["--jobs", "1", "--kmod", str(kmod), "-o", str(tmp_path / "out")]

    def board_of() -> list[str]:
        ran.clear()
        assert run_command(words) == 0, capsys.readouterr().err
        return sorted(ran)

    assert board_of() == ["fixed_cwnd 1", "ndm_tcp 1", "reno 1"]
    assert board_of() == []
    model = kmod / "generated" / "ndm_model.h"
    model.write_text(model.read_text() + "\n")
    assert board_of() == ["ndm_tcp 1"]
    file.write_text(SCENARIO.replace("queue_packets = 60", "queue_packets = 61"))
    assert board_of() == ["fixed_cwnd 1", "ndm_tcp 1", "reno 1"]


def test_the_ceiling_is_the_best_constant_window_of_loopback_scenarios(tmp_path: Path) -> None:
    lo, path = (
        suite.load_suite(f"published/{n}.toml")[0] for n in ("a1-extreme-jitter", "e-long-path")
    )
    jobs = suite.jobs_of([lo, path], suite.algorithms("bbr,ceiling"), 1, tmp_path)
    assert sum(j.scenario is path for j in jobs) == 1
    runs = [suite.Outcome(j, result(20 + i % 5, 200)) for i, j in enumerate(jobs)]
    shown = board.build(runs, [lo, path], ["bbr", suite.CEILING], "x").cells
    names = [c.cc for c in shown if c.scenario == lo.name]
    assert sum(n.startswith("ceiling (cwnd ") for n in names) == 1
    best = next(c for c in shown if c.cc.startswith("ceiling"))
    assert best.mean["goodput_mbps"] == 24
