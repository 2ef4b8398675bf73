# SPDX-License-Identifier: GPL-2.0-only
"""What people do by mistake ends in one line and exit code 2, and costs no other source."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ndm_tcp.cli import run_command
from ndm_tcp.datasets.builder import build, parts
from ndm_tcp.datasets.store import store

from .test_archives import LOG, tar

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "in" / "a.txt"
    path.parent.mkdir()
    path.write_bytes(LOG)
    return path


def ndm(capsys: Capture, *words: object) -> tuple[int, list[str], str]:
    """Exit code, lines on stderr, stdout."""
    code = run_command(["dataset", "build", *map(os.fspath, map(str, words))])
    said = capsys.readouterr()
    return code, said.err.splitlines(), said.out


def entries(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def refused(capsys: Capture, *words: object) -> str:
    code, lines, _ = ndm(capsys, *words)
    assert code == 2 and len(lines) == 1 and lines[0].startswith("ndm: "), lines
    return lines[0]


# --- the output ----------------------------------------------------------------------------------
def test_the_output_is_a_file(log: Path, tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "f.txt"
    out.write_text("keep")
    assert "f.txt: not a folder" in refused(capsys, log, "-o", out)
    assert "f.txt" in refused(capsys, log, "-o", out / "below")
    assert out.read_text() == "keep" and entries(tmp_path) == ["f.txt", "in"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_the_output_may_not_be_written(log: Path, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "r").mkdir(mode=0o500)
    assert "cannot be written" in refused(capsys, log, "-o", tmp_path / "r" / "ds")


Fail = Callable[..., object]


def full(*_: object, **__: object) -> None:
    raise OSError(28, os.strerror(28))


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize(
    ("module", "name"), [(parts, "_write"), (store, "write"), (build.card, "write")]
)
@pytest.mark.parametrize("before", [False, True])
def test_a_full_disk_leaves_what_was_there(
    log: Path,
    tmp_path: Path,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
    module: object,
    name: str,
    jobs: int,
    before: bool,
) -> None:
    out = tmp_path / "out"
    if before:
        assert ndm(capsys, log, "-o", out)[0] == 0
        log.write_bytes(LOG + LOG)
    wanted = {p.name: p.read_bytes() for p in out.iterdir()} if before else {}
    monkeypatch.setattr(module, name, full)
    line = refused(capsys, log, "-o", out, "--jobs", jobs, "--keep-going")
    assert "cannot be written (No space left on device)" in line
    assert ({p.name: p.read_bytes() for p in out.iterdir()} if before else {}) == wanted
    assert out.exists() == before and entries(tmp_path) == ["in"] + ["out"] * before


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount")
@pytest.mark.pictures  # which fill the disk
@pytest.mark.parametrize("options", ["ro", "size=128k"])
def test_read_only_and_full_file_systems(
    log: Path, tmp_path: Path, capsys: Capture, options: str
) -> None:
    place = tmp_path / "m"
    place.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)]
    if subprocess.run(words, check=False, capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        log.write_bytes(LOG * 40)
        assert "cannot be written (" in refused(capsys, log, "-o", place / "ds")
        assert entries(place) == []
    finally:
        subprocess.run(["umount", str(place)], check=True)


# --- names and entries of folders ----------------------------------------------------------------
def test_a_name_that_is_no_utf8(log: Path, tmp_path: Path, capsys: Capture) -> None:
    odd = log.rename(Path(os.fsdecode(os.fsencode(log.parent) + b"/ss\xe9.txt")))
    words = [sys.executable, "-m", "ndm_tcp.cli", "dataset", "build"]
    for name in (odd, log.parent):
        done = subprocess.run([*words, name, "-o", tmp_path / "out"], capture_output=True)
        assert done.returncode == 0 and not done.stderr, done.stderr
        assert store.manifest_of(tmp_path / "out")["sources"][0]["name"] == "ss\\xe9.txt"
    odd.write_text("nothing")
    done = subprocess.run([*words, odd, "-o", tmp_path / "out"], capture_output=True)
    assert done.returncode == 2 and done.stderr.count(b"\n") == 1 and b"\\xe9" in done.stderr
    other = Path(os.fsdecode(os.fsencode(tmp_path) + b"/out\xe9"))
    odd.write_bytes(LOG)
    assert ndm(capsys, log.parent, "-o", tmp_path / "out")[0] == 0
    done = subprocess.run([*words, odd, "-o", other], capture_output=True)
    assert done.returncode == 2 and done.stderr.endswith(
        b"not UTF-8; name another folder with -o\n"
    )


Make = Callable[[Path], None]
ODD: dict[str, Make] = {
    "a link to nothing": lambda folder: (folder / "x.pcap").symlink_to("nosuch"),
    "a link to itself": lambda folder: (folder / "x.pcap").symlink_to("x.pcap"),
    "a damaged file": lambda folder: (folder / "x.gz").write_bytes(b"\x1f\x8b\x08broken") and None,
}  # type: ignore[dict-item]
IGNORED: dict[str, Make] = {
    "a link to the folder above": lambda folder: (folder / "up").symlink_to(".."),
    "a link to a folder": lambda folder: (folder / "again").symlink_to(folder),
    "a pipe": lambda folder: os.mkfifo(folder / "pipe"),
    "a socket": lambda folder: bind(folder / "socket"),
    "notes": lambda folder: (folder / "notes.md").write_text("cwnd") and None,
    "a hidden link": lambda folder: (folder / ".x").symlink_to("nosuch"),
}  # type: ignore[dict-item]


def bind(path: Path) -> None:
    import socket

    with socket.socket(socket.AF_UNIX) as made:
        made.bind(os.path.relpath(path))


@pytest.mark.parametrize("name", ODD)
def test_entries_that_cannot_be_read(log: Path, tmp_path: Path, capsys: Capture, name: str) -> None:
    ODD[name](log.parent)
    line = refused(capsys, log.parent, "-o", tmp_path / "out")
    assert "x." in line
    code, lines, out = ndm(capsys, log.parent, "-o", tmp_path / "out", "--keep-going")
    assert code == 0 and "1 flows" in out
    assert len(lines) == 1 and lines[0].startswith("ndm: left out: ") and "x." in lines[0]
    assert len(store.manifest_of(tmp_path / "out")["failed"]) == 1


@pytest.mark.parametrize("name", IGNORED)
def test_entries_that_are_no_sources(log: Path, tmp_path: Path, capsys: Capture, name: str) -> None:
    IGNORED[name](log.parent)
    code, lines, out = ndm(capsys, log.parent, "-o", tmp_path / "out")
    assert code == 0 and not lines and "of 1 flows" in out and "from 1 sources" in out


def test_a_folder_deeper_than_python_recurses(tmp_path: Path, capsys: Capture) -> None:
    here = Path.cwd()
    (tmp_path / "deep").mkdir()
    os.chdir(tmp_path / "deep")
    try:
        for _ in range(1100):
            Path("d").mkdir()
            os.chdir("d")
        Path("a.txt").write_bytes(LOG)
        os.chdir(here)
        code, lines, _ = ndm(capsys, tmp_path / "deep", "-o", tmp_path / "out")
        assert code == 0 and not lines
    finally:
        os.chdir(here)
        # pytest cannot: it recurses
        subprocess.run(["rm", "-rf", tmp_path / "deep"], check=True)


def test_a_source_that_is_not_there_costs_no_other(
    log: Path, tmp_path: Path, capsys: Capture
) -> None:
    missing = tmp_path / "missing.pcap"
    assert "missing.pcap: no such file" in refused(capsys, log, missing, "-o", tmp_path / "out")
    code, lines, _ = ndm(capsys, log, missing, "-o", tmp_path / "out", "--keep-going")
    assert code == 0 and len(lines) == 1 and "missing.pcap: no such file" in lines[0]
    assert "missing.pcap" in refused(capsys, missing, "-o", tmp_path / "o2", "--keep-going")


def test_a_source_that_breaks_while_it_is_read(
    log: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise OSError(5, os.strerror(5))

    monkeypatch.setattr(parts.sources, "read_rounds", broken)
    line = refused(capsys, log, "-o", tmp_path / "out")
    assert line == f"ndm: {log}: Input/output error"


def test_warnings_are_kept_with_the_dataset(log: Path, tmp_path: Path, capsys: Capture) -> None:
    log.write_bytes(LOG.replace(b"1669057201", b"--\n1669057201", 1))
    code, (line,), _ = ndm(capsys, log, "-o", tmp_path / "out")
    assert code == 0 and "1 lines that ss did not print were left out" in line
    assert line.removeprefix("ndm: ") in (tmp_path / "out" / build.card.CARD).read_text()
    assert run_command(["dataset", "info", str(tmp_path / "out")]) == 0
    assert line.removeprefix("ndm: ") in capsys.readouterr().out


def test_an_archive_beside_its_files_and_one_of_something_else(
    log: Path, tmp_path: Path, capsys: Capture
) -> None:
    tar(log.parent / "logs.tgz", {"a.txt": LOG, "b.txt": LOG.replace(b"cubic", b"reno")})
    tar(log.parent / "code.tgz", {f"{k}.c": b"int main;" for k in range(30)})
    code, (line,), out = ndm(capsys, log.parent, "-o", tmp_path / "out")
    assert code == 0 and "of 2 flows" in out and "from 2 sources" in out
    assert line == "ndm: logs.tgz: 1 flows are in another source, too; used once"
    flows = store.load(tmp_path / "out").rounds["flow_id"].to_pylist()
    assert len(set(flows)) == 2 and len(flows) == 2 * 39
    manifest = store.manifest_of(tmp_path / "out")
    assert [len(source["flows"]) for source in manifest["sources"]] == [1, 1]
    assert "nothing to read" in refused(capsys, log.parent / "code.tgz", "-o", tmp_path / "o2")


def test_a_file_that_may_not_be_read_is_named(
    log: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_: object, **__: object) -> None:
        raise PermissionError(13, os.strerror(13))

    monkeypatch.setattr(build.sources.streams, "open_bytes", denied)
    assert "a.txt: Permission denied" in refused(capsys, log, "-o", tmp_path / "out")
    assert "a.txt: Permission denied" in refused(capsys, log.parent, "-o", tmp_path / "out")
    assert "/dev/fd/99: " in refused(capsys, "/dev/fd/99", "-o", tmp_path / "out")


# --- standard input ------------------------------------------------------------------------------
@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[bytes], None]]:
    def give(data: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))

    yield give


@pytest.mark.parametrize("jobs", [1, 2])
def test_standard_input_is_a_source(
    log: Path, tmp_path: Path, capsys: Capture, stdin: Callable[[bytes], None], jobs: int
) -> None:
    stdin(LOG + LOG)
    code, lines, _ = ndm(capsys, "-", log, "-", "-o", tmp_path / "out", "--jobs", jobs)
    assert code == 0 and not lines
    names = [source["name"] for source in store.manifest_of(tmp_path / "out")["sources"]]
    assert sorted(names) == ["a.txt", "stdin"]
    stdin(b"")
    assert "ndm: -: empty file" in refused(capsys, "-", "-o", tmp_path / "out")
    stdin(b"words")
    assert "ndm: -: neither a packet capture" in refused(capsys, "-", "-o", tmp_path / "out")


def test_pipes_of_the_shell_are_sources_and_others_are_named(
    log: Path, tmp_path: Path, capsys: Capture
) -> None:
    read_end, write_end = os.pipe()
    os.write(write_end, LOG[:60_000])
    os.close(write_end)
    assert ndm(capsys, f"/dev/fd/{read_end}", "-o", tmp_path / "out")[0] == 0
    os.close(read_end)
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/null")):
        line = refused(capsys, path, "-o", tmp_path / "o2")
        assert f"name - instead, and redirect: < {path}" in line
