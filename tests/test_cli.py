# SPDX-License-Identifier: GPL-2.0-only
"""The command line: help with examples, one-line errors, exit codes scripts can trust."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ndm_tcp.cli import COMMANDS, parser_for, run_command

from .conftest import ROOT, TRACES


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_verb_has_help_with_an_example(words: tuple[str, ...]) -> None:
    assert "example:" in parser_for(words).format_help()


def test_help_lists_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(" ".join(words) in text for words in COMMANDS)


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


def test_the_whole_chain_from_the_command_line(tmp_path: Path) -> None:
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
    assert "rtt_gradient" in ndm("dataset", "info", data)
    # Random weights would need more than three short flows to beat holding the window still.
    ndm("train", "--data", data, "-o", run, "--epochs", 5, "--init", "shipped")
    assert json.loads(ndm("eval", run, "--data", data, "--json"))["parameters"] == 1730
    report = json.loads(ndm("export", run, "-o", tmp_path / "generated", "--json"))
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
