# SPDX-License-Identifier: GPL-2.0-only
"""tar archives of logs and captures, such as M-Lab's, file by file."""

from __future__ import annotations

import itertools
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Self

from ndm_tcp.datasets.readers import streams
from ndm_tcp.errors import NdmError

MAGIC_AT = 257
FIRST = 20
"""Files that distinguish an archive of logs from any other archive."""


class _Member(tarfile.TarInfo):
    """A header; tarfile takes a damaged one behind the first for the archive's end."""

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> Self:
        try:
            return super().fromtarfile(archive)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]  # zeros: the end
            raise
        except tarfile.HeaderError as error:
            raise tarfile.ReadError(f"{error} at byte {archive.offset}") from None


def sniff(head: bytes) -> bool:
    """True if these first bytes, decompressed, are those of a tar archive."""
    return head[MAGIC_AT : MAGIC_AT + 5] == b"ustar"


def holds(path: Path, is_known: Callable[[Path], bool]) -> bool:
    """True if one of an archive's first files is known.

    Raises:
        NdmError: damaged, or cut short, before there was one.
    """
    return any(is_known(member) for _, member in itertools.islice(members(path), FIRST))


def members(path: Path) -> Iterator[tuple[str, Path]]:
    """Name and content of each file, in a place that is gone when the caller takes the next one.

    Args:
        path: plain, gzip or zstd; read once, in its order.

    Raises:
        NdmError: damaged, or cut short.
    """
    try:
        with (
            streams.open_bytes(path) as stream,
            tarfile.open(fileobj=stream, mode="r|", tarinfo=_Member) as archive,
        ):
            for member in archive:
                # A sparse file can have any size and take no room in the archive.
                inner = archive.extractfile(member) if member.isreg() else None
                if inner is None or member.issparse():
                    continue
                name = PurePosixPath(member.name).name
                with tempfile.TemporaryDirectory(prefix="ndm-") as folder:
                    target = Path(folder) / "file"
                    with target.open("wb") as out:
                        shutil.copyfileobj(inner, out)
                    yield name, target
    except (tarfile.TarError, EOFError) as error:
        raise NdmError(f"{path}: damaged archive ({error}); fetch it again") from None
