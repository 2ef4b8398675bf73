# SPDX-License-Identifier: GPL-2.0-only
"""Open plain, gzip and zstd files alike, by their magic numbers."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

import zstandard

from ndm_tcp.errors import NdmError

GZIP = b"\x1f\x8b"
ZSTD = b"\x28\xb5\x2f\xfd"


class _Whole(io.RawIOBase):
    """Passes reads on and turns a damaged or cut-off stream into an NdmError."""

    def __init__(self, path: Path, inner: IO[bytes]) -> None:
        self.path = path
        self.inner = inner
        self.offset = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer)
        try:
            data = self.inner.read(len(view))
        except (EOFError, OSError, zlib.error, zstandard.ZstdError) as error:
            raise NdmError(
                f"{self.path}: compressed data ends or breaks after {self.offset} bytes "
                f"({error}); fetch the file again"
            ) from None
        self.offset += len(data)
        view[: len(data)] = data
        return len(data)


@contextmanager
def open_bytes(path: Path) -> Iterator[IO[bytes]]:
    """Decompressed bytes of a file.

    Raises:
        NdmError: no such file, or (while reading) a damaged compressed stream.
    """
    try:
        raw = path.open("rb")
    except OSError as error:
        raise NdmError(f"{path}: {error.strerror}") from None
    with raw:
        magic = raw.read(4)
        raw.seek(0)
        if magic[:2] == GZIP:
            inner = cast(IO[bytes], gzip.GzipFile(fileobj=raw))
        elif magic == ZSTD:
            inner = cast(
                IO[bytes],
                zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True),
            )
        else:
            yield raw
            return
        yield cast(IO[bytes], io.BufferedReader(_Whole(path, inner), 1 << 20))


@contextmanager
def open_text(path: Path) -> Iterator[IO[str]]:
    """Decompressed text of a file, UTF-8 with replacement of what is not."""
    with open_bytes(path) as stream:
        yield io.TextIOWrapper(stream, encoding="utf-8", errors="replace")
