# SPDX-License-Identifier: GPL-2.0-only
"""Files are written whole, and an error names the file that the user asked for."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from ndm_tcp import files
from ndm_tcp.cli import run_command

Capture = pytest.CaptureFixture[str]


def test_an_error_without_a_name_gets_one(tmp_path: Path) -> None:
    """A full disk is met by write(), which knows no file."""
    with pytest.raises(OSError, match="No space left") as caught, files.replacing(tmp_path / "x"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert caught.value.filename == str(tmp_path / "x")
    assert not list(tmp_path.iterdir())


def test_the_temporary_file_is_not_named(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError) as caught:
        files.write_text(tmp_path / "folder", "text")
    assert caught.value.filename == str(tmp_path / "folder")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_another_file_keeps_its_name(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught, files.replacing(tmp_path / "x"):
        (tmp_path / "absent").read_bytes()
    assert caught.value.filename == str(tmp_path / "absent")


def test_ab_looks_at_its_folder_before_it_watches(capsys: Capture) -> None:
    assert run_command(["ab", "--watch", "600", "-o", "/proc/ndm-tcp/ab"]) == 2
    assert capsys.readouterr().err.startswith("ndm: /proc/ndm-tcp")


@pytest.mark.parametrize("ending", ["20261202", "original", "ndm", "ndm-", "ndm-x", "parts.ndm-1"])
def test_a_folder_of_the_user_stays(ending: str, tmp_path: Path) -> None:
    mine = tmp_path / f".run.{ending}"
    mine.mkdir()
    (mine / "text").write_text("ten years")
    with files.scratch(tmp_path / "run"):
        pass
    with files.replacing(tmp_path / "run") as temporary:
        temporary.write_text("x")
    assert (mine / "text").read_text() == "ten years"


@pytest.mark.parametrize(
    "words",
    [
        ["dataset", "build", "x.pcap", "-o", ""],
        ["dataset", "build", "", "-o", "out"],
        ["path", "estimate", "", "-o", "out"],
        ["path", "estimate", "x.pcap", "-o", ""],
        ["train", "--data", "", "-o", "out"],
        ["export", "", "-o", "out"],
    ],
)
def test_an_empty_name_is_no_folder(
    words: list[str], tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unset variable of a script would mean the working folder."""
    monkeypatch.chdir(tmp_path)
    assert run_command(words) == 2
    error = capsys.readouterr().err
    assert "an empty name; write . for the working folder" in error and error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    """And what one that runs uses is not."""
    out = tmp_path / "run"
    code = "import sys, time\nfrom pathlib import Path\nfrom ndm_tcp import files\n"
    code += "with files.scratch(Path(sys.argv[1])) as folder:\n"
    code += (
        "    (folder / 'big').write_text('x')\n    print(folder, flush=True)\n    time.sleep(60)"
    )
    words = [sys.executable, "-c", code, str(out)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        left = Path(process.stdout.readline().strip())
        with files.scratch(out) as mine:
            assert left.is_dir() and mine.is_dir() and mine != left
        process.kill()
    assert left.is_dir() and not mine.exists()
    with files.scratch(out):
        assert not left.exists()
    with files.scratch(tmp_path / "ru"):
        pass
    assert list(tmp_path.iterdir()) == []
