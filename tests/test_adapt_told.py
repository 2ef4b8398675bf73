# SPDX-License-Identifier: GPL-2.0-only
"""What `ndm adapt` says while it runs, and of its numbers."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ndm_tcp.adapt import command, report, steps, verdict
from ndm_tcp.cli import run_command
from ndm_tcp.lab.guest import suite, uml_build
from ndm_tcp.lab.guest.workers import ONE, Workers
from ndm_tcp.lab.sim import simulate
from ndm_tcp.paths import difference

from .conftest import TRACES
from .paths.made import model, prediction


def test_every_table_says_which_runs_and_which_brackets(tmp_path: Path) -> None:
    """`ndm path predict` runs longer, so one path and algorithm have other numbers there."""
    lasts = {"one": 5.0, "two": 4.0, "three": 20.0}
    runs = {"shipped": prediction(9, 9.1, 9.2), "adapted": prediction(9.2, 9.3, 9.4)}
    of: difference.Of = dict.fromkeys(lasts, runs)
    found = report.Adapted(
        "", True, "kmod", None, [], {}, of, difference.differences(of, "adapted"), seconds=lasts
    )
    page = report.write(found, tmp_path, [model(name) for name in of]).read_text()
    lines = report.screen(found).splitlines()
    for name, seconds in lasts.items():
        said = f"runs of {seconds:g} s, 3 draws; brackets: lowest and highest of 3 draws; "
        said += "shipped: the network that ships"
        assert f"{name}: {said}:" in lines
        assert f"The means of {said}." in page.partition(f'<h2 id="{name}">')[2]
    (head,) = (line for line in lines if line.startswith("adapted less the others"))
    assert head.endswith("; brackets: 95 % intervals:")
    assert "The brackets of this table are 95 % intervals." in page


def test_flows_of_one_path_are_no_independent_witnesses() -> None:
    """Four flows between two hosts, each a little better: one path, and two with a fifth."""
    flows: difference.Of = {
        name: {
            "adapted": prediction(10 * (1.03 + 0.001 * number), 10.0),
            "shipped": prediction(10.0, 10.1),
        }
        for number, name in enumerate("abcde")
    }
    apart = difference.difference(flows, "adapted", "shipped")
    assert apart.pairs == 5
    two = {"a": 1, "b": 1, "c": 1, "d": 1, "e": 2}
    few = difference.difference(flows, "adapted", "shipped", two)
    assert few.pairs == 5  # fewer than three paths: the flows
    pair = difference.difference({name: flows[name] for name in "ab"}, "adapted", "shipped")
    assert pair.pairs == 2  # fewer than three flows, too: the draws
    three = difference.difference(
        flows, "adapted", "shipped", {"a": 1, "b": 1, "c": 1, "d": 2, "e": 3}
    )
    assert three.pairs == 3 and three.high - three.low > apart.high - apart.low
    assert difference.count(flows, two) == 2 and difference.count(flows, {}) == 5
    use, said = verdict.sentence({"shipped": three}, None)
    assert use and f"(score {three.score:+.3f} [{three.low:+.3f}, {three.high:+.3f}]" in said


@pytest.mark.parametrize("flows", [1, 2, 3, 6])
def test_chance_is_significant_as_seldom_as_the_interval_says(flows: int) -> None:
    """On one path two equal networks differ by flow and by draw; 2.5 % may look better."""
    rng = np.random.default_rng(1)
    names = [f"f{number}" for number in range(flows)]
    # What flows share is a part of the path, so with one flow or two only draws are independent.
    of_flow = 0.02 if flows > 2 else 0.0
    better, cases = 0, 400
    for _ in range(cases):
        of: difference.Of = {}
        for name in names:
            apart = rng.normal(0, of_flow) + rng.normal(0, 0.01, 3)
            adapted = prediction(*(10 * np.exp(apart)))
            of[name] = {"adapted": adapted, "shipped": prediction(10.0, 10.0, 10.0)}
        better += difference.difference(of, "adapted", "shipped", dict.fromkeys(names, 1)).low > 0
    assert better <= 0.05 * cases  # 2.5 % are expected; 4.4 standard errors above


def test_flows_between_the_same_hosts_count_as_one_path() -> None:
    runs = {"shipped": prediction(9, 9.1, 9.2), "adapted": prediction(9.2, 9.3, 9.4)}
    of: difference.Of = dict.fromkeys(("one", "two", "three"), runs)
    made = report.Adapted("", True, "kmod", None, [], {}, of, difference.differences(of, "adapted"))
    assert report.judged_on(made).startswith("draws of 3 paths that")
    same = replace(made, paths={"one": 1, "two": 1, "three": 2})
    assert report.judged_on(same).startswith("draws of 2 paths with 3 flows that")


def test_a_guard_names_what_runs_before_each_bar(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two networks on two suites: four bars, of which each ends at 100 %."""

    def nothing(*_: object) -> Iterator[suite.Outcome]:
        return (one for one in ())

    monkeypatch.setattr(suite, "_threads", nothing)
    monkeypatch.setattr(verdict, "guard", lambda *_: verdict.Guard("x", 1, 0.0, 0.0, 0.0))
    setting = steps.Steps(tmp_path, (), 1, 1, Workers(simulated=True))
    monkeypatch.setattr(steps, "GUARD_SEEDS", 1)
    steps.guarded(setting, "validation,lan", tmp_path, uml_build.KMOD, 0.0)
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("guard")]
    wanted = []
    for network in (verdict.SHIPPED, verdict.ADAPTED):
        for name in ("validation", "lan"):
            scenarios = suite.load_suite(name)
            number = sum(simulate.has(one, "ndm_tcp") for one in scenarios)
            simulated = f"{number} in the simulator, " * (number > 0)
            rest = f"{len(scenarios) - number} in the lab"
            wanted.append(f"guard, {network} on {name}, runs: {simulated}{rest}")
    assert said == wanted and "simulator" in said[0] and "simulator" not in said[1]


def test_a_command_that_names_no_stage_says_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(suite, "_threads", lambda *_: (one for one in ()))
    (one,) = suite.load_suite("published/c-dumbbell-loss-1.toml")
    job = suite.Job(one, "cubic", 1, Path("unused"))
    assert [*suite.execute([job], ONE, True, quiet=False)] == []
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("there", ["kmod/Kbuild", "paths/model.py", "notes.txt"])
def test_a_folder_of_something_else_is_not_replaced(
    tmp_path: Path, there: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With `-o .` in a checkout, the module's own sources were deleted."""
    (tmp_path / there).parent.mkdir(exist_ok=True)
    (tmp_path / there).write_text("mine")
    assert run_command(["adapt", str(TRACES / "README.md"), "-o", str(tmp_path)]) == 2
    assert capsys.readouterr().err == (
        f"ndm: {tmp_path}: not empty, and of no ndm adapt; name an empty folder with -o\n"
    )
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == [tmp_path / there]


@pytest.mark.parametrize("name", [command.MARK, report.RESULT])
def test_a_folder_that_was_begun_goes_on(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The result alone: of a version without the mark."""
    (tmp_path / name).touch()
    assert run_command(["adapt", str(TRACES / "README.md"), "-o", str(tmp_path)]) == 2
    assert "no ndm adapt" not in capsys.readouterr().err


def test_a_full_disk_leaves_the_earlier_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kmod, out = tmp_path / "kmod-last", tmp_path / "out"
    for folder, text in ((kmod, "new"), (out / "kmod", "old")):
        folder.mkdir(parents=True)
        (folder / "Kbuild").write_text(text)
    (out / report.RESULT).write_text("advised")

    def full(_: Path, place: Path) -> None:
        place.mkdir()
        raise shutil.Error([(name, name, "[Errno 28] No space left on device") for name in "ab"])

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "copytree", full)
        patched.setattr(command, "main", lambda _: command._place(out, kmod, True))
        assert run_command(["adapt", "x.pcap", "-o", str(out)]) == 2
    said = capsys.readouterr().err
    assert said == "ndm: [Errno 28] No space left on device\n"
    assert (out / "kmod" / "Kbuild").read_text() == "old"
    assert sorted(p.name for p in out.iterdir()) == [report.RESULT, "kmod"]
    assert command._place(out, kmod, False) == out / "refused"
    assert (out / "refused" / "Kbuild").read_text() == "new"
    assert [p.name for p in out.iterdir()] == ["refused"], "nothing of the earlier result"
