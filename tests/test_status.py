# SPDX-License-Identifier: GPL-2.0-only
"""`ndm status`: both forms of the algorithm, as a table, as JSON, for Prometheus."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from ndm_tcp import kmod_status, status_command
from ndm_tcp.bpf import loader
from ndm_tcp.cli import run_command

MODULE = {
    "kernel": "6.12", "default": "cubic", "loaded": True, "model_hash": "ab12",
    "contract_hash": "cd34", "flows": 3, "rounds": 70, "fallbacks": None, "guarded": 5,
}  # fmt: skip
LOADER = """#!/bin/sh
echo "loaded=1
pin=/sys/fs/bpf/ndm_tcp_bpf
model_hash=ef56
contract_hash=cd34
flows=1
rounds=9
fallbacks=0
guarded=4
events_lost=2
no_memory=0"
"""
METRIC = re.compile(r'[a-z_]+\{[a-z_]+="[^"]*"(,[a-z_]+="[^"]*")*\} \d+')


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module that is loaded, and a loader that says the same of the BPF form."""
    monkeypatch.setattr(kmod_status, "read", lambda: dict(MODULE))
    program = tmp_path / "ndm_bpf"
    program.write_text(LOADER)
    program.chmod(0o755)
    return tmp_path


def test_prometheus(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["status", "--prometheus", "--folder", str(folder)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert 'ndm_tcp_flows{form="module"} 3' in lines
    assert 'ndm_tcp_flows{form="bpf"} 1' in lines
    assert 'ndm_tcp_events_lost_total{form="bpf"} 2' in lines
    assert 'ndm_tcp_info{form="bpf",model_hash="ef56",contract_hash="cd34"} 1' in lines
    assert 'ndm_tcp_fallbacks_total{form="bpf"} 0' in lines
    assert 'ndm_tcp_guarded_total{form="module"} 5' in lines
    assert not any(line.startswith('ndm_tcp_fallbacks_total{form="module"}') for line in lines)
    values = [line for line in lines if not line.startswith("#")]
    assert all(METRIC.fullmatch(line) for line in values)
    named = {line.split("{")[0] for line in values}
    assert {line.split()[2] for line in lines if line.startswith("# TYPE")} == named
    assert {line.split()[2] for line in lines if line.startswith("# HELP")} == named


def test_table_and_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["status", "--folder", str(folder)]) == 0
    first, head, module, bpf = capsys.readouterr().out.splitlines()
    assert first == "kernel 6.12, default cubic"
    assert head.split()[:3] == ["form", "loaded", "model_hash"]
    assert module.split() == ["module", "yes", "ab12", "3", "70", "-", "5", "-", "-"]
    assert bpf.split() == ["bpf", "yes", "ef56", "1", "9", "0", "4", "2", "0"]
    assert run_command(["status", "--json", "--folder", str(folder)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["module"] == MODULE and found["bpf"]["rounds"] == 9


def test_neither_is_loaded_and_the_loader_not_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nothing = {"kernel": "6.12", "default": "cubic", "loaded": False}
    monkeypatch.setattr(kmod_status, "read", lambda: nothing)
    assert run_command(["status", "--prometheus", "--folder", str(tmp_path)]) == 1
    said = capsys.readouterr()
    assert said.out.splitlines()[-1] == 'ndm_tcp_loaded{form="module"} 0'
    assert said.err.startswith("ndm: without the BPF form:") and "make -C" in said.err
    assert status_command.METRICS.keys() >= {"flows", "rounds", "fallbacks"}


def test_without_a_checkout_the_installed_loader_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As from a wheel, which has no bpf/."""
    installed = tmp_path / "lib"
    monkeypatch.setattr(loader, "CHECKOUT", tmp_path / "site-packages" / "bpf")
    monkeypatch.setattr(loader, "INSTALLED", (installed, tmp_path / "other"))
    assert run_command(["bpf", "status"]) == 2
    said = capsys.readouterr().err
    assert said == f"ndm: {installed}/ndm_bpf: not there; in a checkout run: make -C bpf install\n"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "ndm_bpf").write_text(LOADER)
    (tmp_path / "other" / "ndm_bpf").chmod(0o755)
    assert run_command(["bpf", "status"]) == 0
    assert "guarded      4 rounds in which the guard held" in capsys.readouterr().out
