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
