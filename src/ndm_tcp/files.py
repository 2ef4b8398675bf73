# SPDX-License-Identifier: GPL-2.0-only
"""Write files whole or not at all, and name their contents by SHA-256."""

from __future__ import annotations

import contextlib
import fcntl
import glob
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ndm_tcp.errors import NdmError


def _prefix(path: Path) -> str:
    """What names of temporary files and folders beside `path` begin with, and no user's does."""
    return f".{path.name}.ndm-"


def leftovers(path: Path) -> list[Path]:
    """The temporary files and folders beside `path`, of processes that run and that were killed."""
    return list(path.parent.glob(f"{glob.escape(_prefix(path))}????????"))


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; rename it onto `path` if the block succeeds.

    An OSError names `path` if it would name the temporary file or none.
    """
    prefix = _prefix(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=prefix, dir=path.parent)
        os.close(handle)
        temporary = Path(name)
        try:
            yield temporary
            temporary.chmod(0o644)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        named = os.fsdecode(error.filename) if isinstance(error.filename, (str, bytes)) else ""
        if error.errno and (not named or Path(named).name.startswith(prefix)):
            error.filename = str(path)
        raise


@contextlib.contextmanager
def scratch(beside: Path) -> Iterator[Path]:
    """Yield a temporary folder beside `beside`, for what will be renamed onto it.

    It is removed at the end, and so is one that a killed process has left: a lock says whether its
    owner lives.
    """
    beside.parent.mkdir(parents=True, exist_ok=True)
    for other in leftovers(beside):
        with contextlib.suppress(OSError), locked(other):
            shutil.rmtree(other)
    made = tempfile.TemporaryDirectory(prefix=_prefix(beside), dir=beside.parent)
    with made as name, locked(Path(name)):
        yield Path(name)


@contextlib.contextmanager
def locked(folder: Path, wait: bool = False) -> Iterator[None]:
    """Hold the lock of a folder, which ends with the process.

    Args:
        folder: that exists.
        wait: for another holder; else an OSError says that there is one.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


def require_writable(path: Path) -> None:
    """Make the folder of results, and see that a file can be written there.

    Raises:
        OSError: not; names the folder or the file.
    """
    with replacing(path / ".probe") as probe:
        probe.write_bytes(bytes(4096))
    (path / ".probe").unlink()


def folder(name: Path | str) -> Path:
    """Where a command leaves its results: a folder, or nothing yet.

    Raises:
        NdmError: there is something else, or the name is empty.
    """
    if not str(name):
        raise NdmError("-o: an empty name; write . for the working folder")
    path = Path(name)
    if path.exists() and not path.is_dir():
        raise NdmError(f"{path}: not a folder; name another with -o")
    return path


def shown(path: Path | str) -> str:
    """A name as text that can be printed and stored, also if it is not UTF-8."""
    return os.fsencode(path).decode("utf-8", errors="backslashreplace")


def why(error: OSError) -> str:
    """The reason of a failure in one line; of many copies that failed, of the first."""
    if isinstance(error, shutil.Error) and isinstance(error.args[0], list):
        return str(error.args[0][0][-1])
    return os.strerror(error.errno) if error.errno else str(error).partition("\n")[0]


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path` atomically."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def sha256(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def digest(*parts: bytes) -> str:
    """A name for the result of these: 64 bits of a SHA-256, in hex."""
    whole = hashlib.sha256()
    for part in parts:
        whole.update(len(part).to_bytes(8, "little") + part)
    return whole.hexdigest()[:16]
