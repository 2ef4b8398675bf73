# SPDX-License-Identifier: GPL-2.0-only
"""Files are written whole, and an error names the file that the user asked for."""

from __future__ import annotations

import errno
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
