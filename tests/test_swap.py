# SPDX-License-Identifier: GPL-2.0-only
"""`ndm swap` and the module, over a copy of the folders that the kernel shows."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ndm_tcp import swap_command
from ndm_tcp.cli import run_command
from ndm_tcp.errors import NdmError

from . import blobs


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A host with the module loaded."""
    parameters = (tmp_path / swap_command.PARAMETER).parent
    parameters.mkdir(parents=True)
    (parameters / "model").write_text("")
    (parameters / "model_hash").write_text(f"{blobs.shipped().hash()}\n")
    return tmp_path


@pytest.fixture
def blob(tmp_path: Path) -> Path:
    path = tmp_path / "other.blob"
    path.write_bytes(blobs.of(blobs.other()))
    return path


def test_the_blob_lies_where_the_kernel_looks(root: Path, blob: Path) -> None:
    done = swap_command.swap_module(blob, root)
    name = (root / swap_command.PARAMETER).read_text().strip()
    assert name == blobs.other().hash() == swap_command.hash_of(blob)
    assert (root / swap_command.FIRMWARE / name).read_bytes() == blob.read_bytes()
    assert done["before"] == blobs.shipped().hash()


def test_the_built_in_network_needs_no_file(root: Path) -> None:
    swap_command.swap_module(None, root)
    assert (root / swap_command.PARAMETER).read_text() == "built-in\n"
    assert not (root / swap_command.FIRMWARE).exists()


def test_a_module_that_cannot_swap(root: Path, blob: Path) -> None:
    (root / swap_command.PARAMETER).unlink()
    with pytest.raises(NdmError, match="make -C kmod"):
        swap_command.swap_module(blob, root)
    assert not (root / swap_command.FIRMWARE).exists()


@pytest.mark.skipif(not os.access("/dev/full", os.W_OK), reason="no /dev/full")
def test_what_the_kernel_refuses(root: Path, blob: Path) -> None:
    """The write fails: the line names the file and where the reason is."""
    parameter = root / swap_command.PARAMETER
    parameter.unlink()
    parameter.symlink_to("/dev/full")
    with pytest.raises(NdmError, match="other.blob: the module refuses it .*dmesg"):
        swap_command.swap_module(blob, root)
    with pytest.raises(NdmError, match="^built-in: the module refuses it"):
        swap_command.swap_module(None, root)


@pytest.mark.skipif(not os.access("/dev/full", os.W_OK), reason="no /dev/full")
def test_a_refused_file_replaces_no_good_one(root: Path, blob: Path) -> None:
    """The name that a blob gives itself may be that of a network that loads at boot."""
    parameter, firmware = root / swap_command.PARAMETER, root / swap_command.FIRMWARE
    swap_command.swap_module(blob, root)
    good, whole = firmware / swap_command.hash_of(blob), blob.read_bytes()
    parameter.unlink()
    parameter.symlink_to("/dev/full")
    blob.write_bytes(whole[:200])
    with pytest.raises(NdmError, match="the module refuses it"):
        swap_command.swap_module(blob, root)
    assert good.read_bytes() == whole
    blob.write_bytes(b"x" * 1000)
    with pytest.raises(NdmError, match="the module refuses it"):
        swap_command.swap_module(blob, root)
    assert [path.name for path in firmware.iterdir()] == [good.name]


def test_a_form_that_refuses_does_not_hide_that_the_other_has_swapped(
    tmp_path: Path, blob: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: object) -> swap_command.Done:
        raise NdmError("another model is loaded; unload it")

    loaded = {"loaded": True, "model_hash": "before"}
    (tmp_path / "ndm_bpf").touch()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(swap_command.kmod_status, "read", lambda *_: loaded)
    monkeypatch.setattr(swap_command.status_command, "read", lambda *_: loaded)
    monkeypatch.setattr(swap_command, "swap_module", lambda *_: {"model_hash": "after"})
    monkeypatch.setattr(swap_command, "swap_bpf", refuses)
    with pytest.raises(NdmError, match=r"unload it; the module has swapped: it runs after$"):
        swap_command.swap(tmp_path, blob)
    monkeypatch.setattr(swap_command.kmod_status, "read", lambda *_: {"loaded": False})
    with pytest.raises(NdmError, match=r"unload it$"):
        swap_command.swap(tmp_path, blob)


def test_a_file_that_is_too_short(tmp_path: Path) -> None:
    short = tmp_path / "short.blob"
    short.write_bytes(b"NDMB")
    with pytest.raises(NdmError, match="too short"):
        swap_command.hash_of(short)


def test_a_run_without_a_blob(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for what in (tmp_path, tmp_path / "a.onnx", tmp_path / "none"):
        assert run_command(["swap", str(what)]) == 2
        assert "run: ndm export RUN" in capsys.readouterr().err
