# SPDX-License-Identifier: GPL-2.0-only
"""The command line: help with examples, one-line errors, exit codes scripts can trust."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import ndm_tcp
from ndm_tcp import cli, progress
from ndm_tcp.cli import COMMANDS, GROUPS, run_command
from ndm_tcp.errors import NdmError

from .conftest import ROOT, TRACES


@pytest.fixture(scope="module")
def parsers() -> dict[tuple[str, ...], cli.Parser]:
    return cli.verb_parsers(cli.parser())


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_verb_explains_itself(
    words: tuple[str, ...], parsers: dict[tuple[str, ...], cli.Parser]
) -> None:
    """An example, and of every option what it does, its default, and a name for its value."""
    parser = parsers[words]
    assert "example:" in parser.format_help()
    for action in parser._actions:
        assert action.help, action.dest
        if action.default not in (None, False) and isinstance(action.default, (str, int, float)):
            assert action.default == argparse.SUPPRESS or "default" in parser.formatter_class(
                "ndm"
            )._get_help_string(action), action.dest
        named = action.metavar if isinstance(action.metavar, str) else ""
        assert not any(letter.isdigit() for letter in named), "a value, not the name of one"


WITHOUT_JSON = {
    *("dataset convert", "data core", "data record", "data lock", "convert", "lab build"),
    *("lab plot", "lab scenarios", "lab host-record", "completion", "bpf load", "bpf unload"),
    *("trace", "bpf events"),
}
"""They write files or change the kernel; the last two print rows, CSV and text."""
WRITE_A_FILE = {"trace", "bpf events", "convert", "lab plot"}


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_results_can_be_printed_as_json(
    words: tuple[str, ...], parsers: dict[tuple[str, ...], cli.Parser]
) -> None:
    options = {option for action in parsers[words]._actions for option in action.option_strings}
    assert ("--json" in options) != (" ".join(words) in WITHOUT_JSON)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_file_is_no_folder_of_results(
    words: tuple[str, ...], parsers: dict[tuple[str, ...], cli.Parser], tmp_path: Path
) -> None:
    """An `-o` names a file that is written, or refuses a file before any work is done."""
    (tmp_path / "f").write_text("keep")
    for action in parsers[words]._actions:
        if "-o" in action.option_strings:
            if " ".join(words) in WRITE_A_FILE:
                assert action.type is Path
            else:
                assert callable(action.type)
                with pytest.raises(NdmError, match="f: not a folder; name another with -o"):
                    action.type(str(tmp_path / "f"))


def test_jobs_are_the_cpus_that_may_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container or under taskset those are fewer than there are."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3})
    parsers = cli.verb_parsers(cli.parser())
    defaults = [a.default for p in parsers.values() for a in p._actions if a.dest == "jobs"]
    assert len(defaults) > 5 and set(defaults) == {1}


@pytest.mark.parametrize("group", ["", *GROUPS])
def test_help_lists_the_verbs(group: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = [group] if group else []
    for arguments in (before, [*before, "--help"], [*before, "-h"]):
        assert run_command(arguments) == 0
        text = capsys.readouterr().out
        assert text.startswith(f"usage: {' '.join(['ndm', *before])} ")
        shown = {line.split()[0] for line in text.splitlines() if line.startswith("    ")}
        here = {words[len(before)] for words in COMMANDS if [*words[: len(before)]] == before}
        here |= set() if group else {*GROUPS}
        assert here <= shown
        assert not shown & ({words[-1] for words in COMMANDS} - here)


def test_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["--version"]) == 0
    assert capsys.readouterr().out == f"ndm {ndm_tcp.__version__}\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_completion_knows_every_word(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(word in script for words in COMMANDS for word in words)
    assert "--expectile" in script or shell == "tcsh"
    if shell == "bash":
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)


def test_progress_is_lines_on_a_pipe(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "LINE_S", 0.0)
    with progress.bar(3, "run", quiet=False) as bar:
        for _ in range(3):
            bar.update()
    text = capsys.readouterr().err
    assert "3/3" in text and "\r" not in text and text.endswith("\n")
    lines = text.splitlines()
    assert "#" not in text and all(lines) and len(lines) == len(set(lines)) == 4


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["train", "--data", "{tmp}", "-o", "{tmp}/run"], "no dataset here"),
        (["dataset", "build", "{tmp}/none.pcap", "-o", "{tmp}/d"], "no such file"),
        (["dataset", "build", "{tmp}/empty.pcap", "-o", "{tmp}/d"], "empty file"),
        (["dataset", "info", "{tmp}"], "run: ndm dataset build"),
        (["export", "{tmp}"], "run: ndm train"),
        (["check", "--kmod", "{tmp}"], "run: ndm export"),
        (["fly"], "unknown verb 'fly'"),
        (["dataset", "burn"], "unknown verb 'dataset burn'"),
        (["train", "-o", "{tmp}/run"], "--data; run: ndm train --help"),
        (["lab", "board", "x", "--fast"], "run: ndm lab board --help"),
        (["convert", "{tmp}/x.txt", "-o", "{tmp}/y"], "neither .onnx nor .json"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    arguments: list[str], expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty.pcap").touch()
    before = sorted(tmp_path.rglob("*"))
    assert run_command([a.replace("{tmp}", str(tmp_path)) for a in arguments]) == 2
    error = capsys.readouterr().err.strip()
    assert "\n" not in error and error.startswith("ndm: ") and expected in error
    assert sorted(tmp_path.rglob("*")) == before, "something half-written was left"


def test_the_whole_chain_from_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The verbs that import torch, which takes seconds, are called in this process."""

    def here(*arguments: object) -> str:
        capsys.readouterr()
        assert run_command([str(word) for word in arguments]) == 0
        return capsys.readouterr().out

    def ndm(*arguments: object) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "ndm_tcp.cli", *map(str, arguments)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    names = ("train-00-clean--cubic--1", "train-03-loss--reno--1", "train-01-clean--bbr--1")
    sources = [TRACES / "lab" / name for name in names]
    data, run = tmp_path / "data", tmp_path / "run"
    manifest = json.loads(ndm("dataset", "build", *sources, "-o", data, "--json"))
    assert manifest["flows"] == 3
    assert "rtt_gradient" in here("dataset", "info", data)
    # Random weights would need more than three short flows to beat a constant window.
    here("train", "--data", data, "-o", run, "--epochs", 5, "--init", "shipped")
    assert json.loads(here("eval", run, "--data", data, "--json"))["parameters"] == 242
    report = json.loads(here("export", run, "-o", tmp_path / "generated", "--json"))
    assert report["vectors"] > 42_000
    assert report["model"] in (tmp_path / "generated" / "ndm_model.h").read_text()


def test_train_script_is_ndm_train() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "training" / "train.py", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "usage: ndm train" in done.stdout


def test_datasets_work_without_torch(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from ndm_tcp.cli import run_command\n"
        f"sys.exit(run_command(['dataset', 'build', {str(TRACES / 'cubic-00-clean')!r}, "
        f"'-o', {str(tmp_path / 'd')!r}]))"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--nope"], "ndm: unrecognized arguments: --nope; run: ndm --help"),
        (
            ["path", "replay", "x", "--nope", "1"],
            "ndm: path replay: unrecognized arguments: --nope 1; run: ndm path replay --help",
        ),
        (["path", "--nope"], "ndm: path: unrecognized arguments: --nope; run: ndm path --help"),
    ],
    ids=" ".join,
)
def test_unknown_options_name_their_verb(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(words) == 2
    assert capsys.readouterr().err == f"{said}\n"


@pytest.mark.parametrize("words", [["ab", "x"], ["trace", "x"], ["lab", "board", "x", "-o", "y"]])
def test_only_what_carries_on_says_so(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What begins anew must not promise that its work is kept."""

    def interrupted(_: argparse.Namespace) -> int:
        raise KeyboardInterrupt

    name = tuple(words[: words.index("x")])
    module = importlib.import_module(COMMANDS[name][0])
    monkeypatch.setattr(module, "main", interrupted)
    assert run_command(words) == 130
    kept = " to carry on" if name == ("lab", "board") else ""
    assert capsys.readouterr().err == f"ndm: interrupted; run the same command again{kept}\n"


def test_what_resumes_is_a_verb() -> None:
    assert set(COMMANDS) >= cli.RESUMED
