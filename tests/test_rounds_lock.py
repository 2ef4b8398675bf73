# SPDX-License-Identifier: GPL-2.0-only
"""rounds.lock: read, held against files, and what can be recorded again with this tree."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from ndm_tcp import files
from ndm_tcp.cli import run_command
from ndm_tcp.datasets.builder import build
from ndm_tcp.datasets.store import rounds_lock, store
from ndm_tcp.errors import NdmError
from ndm_tcp.lab.guest import suite, uml_build
from ndm_tcp.lab.recordings import again, write_lock

from .conftest import ROOT, TRACES


class Done:
    """Of git: the module is committed."""

    returncode, stdout = 0, "abcdef1"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A lock of two files and a recording, all of which are there."""
    (tmp_path / "core").mkdir()
    (tmp_path / "out" / "pool").mkdir(parents=True)
    paths = ["core/rounds.parquet", "core/dataset.json"]
    for path in [*paths, f"out/pool/{store.ROUNDS}"]:
        (tmp_path / path).write_bytes(path.encode() * 9)
    committed = tuple(
        rounds_lock.File(p, (tmp_path / p).stat().st_size, files.sha256(tmp_path / p))
        for p in paths
    )
    made = tmp_path / "out" / "pool" / store.ROUNDS
    one = replace(
        rounds_lock.read().recordings[0],
        name="pool",
        bytes=made.stat().st_size,
        sha256=files.sha256(made),
    )
    (tmp_path / "rounds.lock").write_text(rounds_lock.text(rounds_lock.Lock(committed, (one,))))
    return tmp_path


def verify(folder: Path) -> int:
    words = ["data", "verify", "--lock", str(folder / "rounds.lock")]
    return run_command([*words, "--recorded", str(folder / "out")])


def test_verify_finds_a_changed_byte(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify(copy) == 0
    assert capsys.readouterr().out.count(": ok\n") == 3
    for name in ("core/rounds.parquet", "core/dataset.json", f"out/pool/{store.ROUNDS}"):
        path = copy / name
        good = path.read_bytes()
        path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
        assert verify(copy) == 1
        assert f"{path}: same size, other bytes\n" in capsys.readouterr().out
        path.write_bytes(good[:-1])
        assert verify(copy) == 1
        assert f"{len(good) - 1} bytes, not {len(good)}" in capsys.readouterr().out
        path.write_bytes(good)
    assert verify(copy) == 0


def test_results_for_scripts(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["data", "verify", "--lock", str(copy / "rounds.lock"), "--json"]
    assert run_command([*words, "--recorded", str(copy / "out")]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == 3 and {row["found"] for row in rows} == {"ok"}
    (copy / rows[0]["path"]).write_bytes(b"")
    assert run_command([*words, "--recorded", str(copy / "out")]) == 1
    assert json.loads(capsys.readouterr().out)[0]["bad"] is True


def test_a_committed_file_must_be_there_and_a_recording_need_not(
    copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(copy / "out")
    assert verify(copy) == 0
    assert "1 recordings are not in" in capsys.readouterr().out
    (copy / "core" / "dataset.json").unlink()
    assert verify(copy) == 1
    assert "dataset.json: missing" in capsys.readouterr().out


def test_a_damaged_lock_is_refused_in_one_line(
    copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = copy / "rounds.lock"
    good = path.read_text()
    for text in (
        good[:-3],
        good.replace("bytes = ", "bytes = -x"),
        good.replace("[[file]]", "[file]", 1),
        good.replace('suite = "training"\n', ""),
        good.replace("seeds = 1", "seeds = true"),
        good + "more = 1\n",
        "more = 1\n" + good,
        "file = 3\n",
        "file = [3]\n",
    ):
        path.write_text(text)
        assert verify(copy) == 2, text
        error = capsys.readouterr().err
        assert "git checkout -- datasets/rounds.lock" in error and len(error.splitlines()) == 1
    path.write_bytes(b"\xff")
    assert verify(copy) == 2
    path.unlink()
    assert verify(copy) == 2


def test_the_lock_is_what_it_writes_and_names_what_the_lab_has() -> None:
    found = rounds_lock.read()
    assert rounds_lock.text(found) == rounds_lock.LOCK.read_text(encoding="utf-8")
    names = [recording.name for recording in found.recordings]
    assert names == [recipe.name for recipe in write_lock.RECIPES]
    for recording in found.recordings:
        assert suite.load_suite(recording.suite) and suite.algorithms(recording.cc)
        assert len(recording.sha256) == 64 and recording.flows and recording.commit
        assert bool(recording.network) == (recording.cc == write_lock.OWN)
        assert recording.explore == recording.name.endswith("-explored")
    for name in write_lock.COMMITTED:
        for part in store.manifest_of(ROOT / "datasets" / name)["recordings"]:
            assert part["name"] in names


def test_what_another_tree_recorded_is_refused_with_what_to_do(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_command(["data", "record", "pool"]) == 2
    error = capsys.readouterr().err
    pool = rounds_lock.read().recording("pool")
    assert len(error.splitlines()) == 1 and pool.commit in error
    assert f"git archive {pool.rounds_in} datasets/lab-rounds/pool" in error
    other = replace(rounds_lock.read().recording("lan"), module="0" * 64, commit="abcdef1")
    with pytest.raises(NdmError, match="git archive abcdef1 kmod .* record lan --kmod out/kmod$"):
        again.require_here(other, uml_build.KMOD)
    same = replace(other, module=uml_build.sources_digest(uml_build.KMOD))
    again.require_here(same, uml_build.KMOD)
    again.require_here(replace(other, module=""), uml_build.KMOD)
    assert run_command(["data", "record", "nosuch"]) == 2
    assert "there are: pool, pool-long" in capsys.readouterr().err


def test_the_lock_keeps_the_module_that_recorded_the_same_rounds(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    shutil.copytree(TRACES / "lab" / "train-00-clean--reno--1", runs / "train-00-clean--reno--1")
    first = again.shrink(runs, tmp_path / "lan", 1)
    assert again.shrink(runs, tmp_path / "again" / "lan", 1) == first, "the same bytes"
    recipe = next(r for r in write_lock.RECIPES if r.name == "lan")
    new = write_lock.entry(recipe, tmp_path / "lan", "abcdef1")
    assert (new.sha256, new.flows, new.commit) == (first, 1, "abcdef1")
    assert new.module == uml_build.sources_digest(uml_build.KMOD)
    old = replace(new, module="0" * 64, commit="1234567", network="f" * 16)
    assert write_lock.entry(recipe, tmp_path / "lan", "abcdef1", old) == old
    other = replace(old, sha256="0" * 64)
    assert write_lock.entry(recipe, tmp_path / "lan", "abcdef1", other) == new
    build.build([runs], tmp_path / "whole", quiet=True)
    with pytest.raises(NdmError, match="not a lean dataset; make it with: ndm data record lan"):
        write_lock.entry(recipe, tmp_path / "whole", "abcdef1")


def test_a_range_of_numbers_records_these_paths_of_the_suite() -> None:
    lock = rounds_lock.read()
    former, short = (
        again.paths_of(lock.recording(n)).split(",") for n in ("lan", "lan-short-explored")
    )
    assert (len(former), len(short)) == (24, 12)
    assert sorted(former + short) == sorted(map(str, (suite.SUITES / "training-lan").iterdir()))
    assert again.paths_of(lock.recording("6")) == "training"


def test_recordings_that_are_not_there_keep_their_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_lock.subprocess, "run", lambda *a, **k: Done())
    lock = write_lock.make(tmp_path, ROOT / "datasets")
    assert lock == rounds_lock.read()


def test_the_digest_of_a_module_is_of_what_it_is_compiled_from(tmp_path: Path) -> None:
    shutil.copytree(uml_build.KMOD, tmp_path / "kmod")
    same = uml_build.sources_digest(tmp_path / "kmod")
    (tmp_path / "kmod" / "ndm_tcp.o").write_bytes(b"built")
    (tmp_path / "kmod" / "generated" / "ndm_model.json").write_text("{}")
    assert uml_build.sources_digest(tmp_path / "kmod") == same
    model = tmp_path / "kmod" / "generated" / "ndm_model.h"
    model.write_text(model.read_text() + "\n")
    assert uml_build.sources_digest(tmp_path / "kmod") != same


def _is_shallow() -> bool:
    words = ["git", "-C", str(ROOT), "rev-parse", "--is-shallow-repository"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.stdout.strip() != "false"


@pytest.mark.skipif(_is_shallow(), reason="no git history here")
def test_each_commit_has_the_paths_that_it_recorded() -> None:
    lacking = []
    for one in rounds_lock.read().recordings:
        numbers = re.fullmatch(r"(\d+) to (\d+)", one.paths)
        if numbers is None:
            continue
        words = ["git", "-C", str(ROOT), "ls-tree", "-r", "--name-only", one.commit]
        tree = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        there = {int(n) for n in re.findall(rf"{one.suite}/\w+-(\d+)-\S+\.toml\n", tree)}
        if not set(range(int(numbers[1]), int(numbers[2]) + 1)) <= there:
            lacking.append(f"{one.name}: {one.commit} lacks paths of {one.paths}")
    assert not lacking
