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


class _ZstdFrames:
    """Decompressed bytes of zstd frames; unlike zstandard's own reader it notices a cut."""

    def __init__(self, raw: IO[bytes]) -> None:
        self.raw = raw
        self.frame = zstandard.ZstdDecompressor().decompressobj()
        self.inside = False
        self.ready = b""

    def read(self, size: int) -> bytes:
        while not self.ready:
            packed = self.frame.unused_data if self.frame.eof else b""
            packed = packed or self.raw.read(1 << 16)
            if not packed:
                if self.inside:
                    raise EOFError("the last frame is not whole")
                return b""
            if self.frame.eof:
                self.frame = zstandard.ZstdDecompressor().decompressobj()
            self.ready = self.frame.decompress(packed)
            self.inside = not self.frame.eof
        data, self.ready = self.ready[:size], self.ready[size:]
        return data


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
            inner = cast(IO[bytes], _ZstdFrames(raw))
        else:
            yield raw
            return
        yield cast(IO[bytes], io.BufferedReader(_Whole(path, inner), 1 << 20))


@contextmanager
def open_text(path: Path) -> Iterator[IO[str]]:
    """Decompressed text of a file, UTF-8 with replacement of what is not."""
    with open_bytes(path) as stream:
        yield io.TextIOWrapper(stream, encoding="utf-8", errors="replace")
