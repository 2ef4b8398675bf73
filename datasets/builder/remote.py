# SPDX-License-Identifier: GPL-2.0-only
"""Sources and parts behind fsspec URLs; plain paths pass through untouched."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ndm_tcp.errors import NdmError


def is_url(name: str) -> bool:
    """True for `protocol://...`."""
    return "://" in name


def _filesystem(url: str) -> tuple[Any, str]:
    try:
        import fsspec

        return fsspec.core.url_to_fs(url)  # type: ignore[no-any-return]
    except (ImportError, ValueError) as error:
        raise NdmError(f"{url}: {error}; install it or use a path") from None
    except (OSError, TypeError) as error:  # of its server; of a driver that needs more than a URL
        raise NdmError(f"{url}: {error}; check the URL, or copy it here first") from None


@contextmanager
def _reached(url: str, advice: str = "check the URL, or try again") -> Iterator[None]:
    """An error of the network or the server names the URL."""
    try:
        yield
    except OSError as error:
        why = error.strerror or str(error) or type(error).__name__
        raise NdmError(f"{url}: {why}; {advice}") from None


def find(url: str) -> list[str]:
    """The files at or below a URL, sorted.

    Raises:
        NdmError: nothing there, or no driver for this protocol.
    """
    filesystem, path = _filesystem(url)
    with _reached(url):
        found = sorted(filesystem.find(path))
    if not found:
        raise NdmError(f"{url}: no such file or folder; check the URL")
    return [filesystem.unstrip_protocol(name) for name in found]


@contextmanager
def local(name: str) -> Iterator[Path]:
    """A source as a local path; a URL's file is copied for the duration of the block.

    Raises:
        NdmError: the file cannot be fetched.
    """
    if not is_url(name):
        yield Path(name)
        return
    filesystem, path = _filesystem(name)
    with tempfile.TemporaryDirectory(prefix="ndm-") as folder:
        target = Path(folder) / path.rpartition("/")[2]
        with _reached(name, "try again, or copy it here first"):
            filesystem.get_file(path, str(target))
        yield target


@contextmanager
def writable(name: str) -> Iterator[Path]:
    """A local folder for files that `publish` takes to `name`; `name` itself if it is a path."""
    if not is_url(name):
        Path(name).mkdir(parents=True, exist_ok=True)
        yield Path(name)
        return
    with tempfile.TemporaryDirectory(prefix="ndm-") as folder:
        yield Path(folder)


def fetch(folder: str, name: str, target: Path) -> bool:
    """Get a file of a folder to `target`; false if it is not there."""
    if not is_url(folder):
        return target.is_file()
    filesystem, path = _filesystem(folder)
    with _reached(folder):
        if not filesystem.exists(f"{path}/{name}"):
            return False
        filesystem.get_file(f"{path}/{name}", str(target))
    return True


def publish(source: Path, folder: str, name: str) -> None:
    """Take a finished file to a folder behind a URL; whole or not at all."""
    if is_url(folder):
        filesystem, path = _filesystem(folder)
        with _reached(folder):
            filesystem.makedirs(path, exist_ok=True)
            filesystem.put_file(str(source), f"{path}/.{name}")
            filesystem.mv(f"{path}/.{name}", f"{path}/{name}")


def exists(folder: str) -> bool:
    """Is there a folder behind the URL?"""
    filesystem, path = _filesystem(folder)
    with _reached(folder):
        return bool(filesystem.exists(path))


def remove(folder: str, above: str | None) -> None:
    """Remove a folder behind a URL, if it is there; and the one above it, if it is now empty."""
    filesystem, path = _filesystem(folder)
    with _reached(folder):
        if filesystem.exists(path):
            filesystem.rm(path, recursive=True)
        path = filesystem._strip_protocol(above) if above else ""
        if path and filesystem.exists(path) and not filesystem.ls(path):
            filesystem.rmdir(path)
