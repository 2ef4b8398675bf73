# SPDX-License-Identifier: GPL-2.0-only
"""Open plain, gzip and zstd files alike, by their magic numbers."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

import zstandard

from ndm_tcp.errors import NdmError

GZIP = b"\x1f\x8b"
ZSTD = b"\x28\xb5\x2f\xfd"


WHOLE_BYTES = 256 << 20
"""Most of a document that has to be held in memory as a whole."""
COMPRESSED_BYTES = 2048
"""Fed to zstd at a time: a frame can grow 30,000-fold, and memory holds the result."""


_progress: Callable[[int], None] | None = None


def on_read(progress: Callable[[int], None] | None) -> None:
    """From here on report to `progress` the bytes read from files; None: to nobody."""
    global _progress
    _progress = progress


class _Told(io.RawIOBase):
    """A file that reports how much of it was read."""

    def __init__(self, raw: IO[bytes], progress: Callable[[int], None]) -> None:
        self.raw = raw
        self.progress = progress

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        n: int = self.raw.readinto(buffer)  # type: ignore[attr-defined]
        self.progress(n)
        return n


class BrokenStream(NdmError):
    """Compressed data that ends too early or is damaged."""


class _ZstdFrames:
    """Decompressed bytes of zstd frames; unlike zstandard's own reader it notices a cut."""

    def __init__(self, raw: IO[bytes]) -> None:
        self.raw = raw
        self.frame = zstandard.ZstdDecompressor().decompressobj()
        self.inside = False
        self.ready = b""

    def read1(self, size: int) -> bytes:
        while not self.ready:
            packed = self.frame.unused_data if self.frame.eof else b""
            packed = packed or self.raw.read(COMPRESSED_BYTES)
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

    def __init__(self, path: Path, inner: gzip.GzipFile | _ZstdFrames) -> None:
        self.path = path
        self.inner = inner
        self.offset = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer)
        try:
            data = self.inner.read1(len(view))  # the bytes so far, also when a cut follows
        except (EOFError, OSError, zlib.error, zstandard.ZstdError) as error:
            raise BrokenStream(
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
        if _progress is not None:
            raw = io.BufferedReader(_Told(raw, _progress), 1 << 20)
        if magic[:2] == GZIP:
            inner: gzip.GzipFile | _ZstdFrames = gzip.GzipFile(fileobj=raw)
        elif magic == ZSTD:
            inner = _ZstdFrames(raw)
        else:
            yield raw
            return
        yield cast(IO[bytes], io.BufferedReader(_Whole(path, inner), 1 << 20))


def read_whole(path: Path, stream: IO[bytes], most: int = WHOLE_BYTES) -> bytes:
    """All of a JSON document.

    Raises:
        NdmError: larger than any real one, as a small compressed file can become.
    """
    data = stream.read(most + 1)
    if len(data) > most:
        raise NdmError(f"{path}: more than {most >> 20} MiB in one document; split it")
    return data


@contextmanager
def open_text(path: Path) -> Iterator[IO[str]]:
    """Decompressed text of a file, UTF-8, other bytes replaced."""
    with open_bytes(path) as stream:
        yield io.TextIOWrapper(stream, encoding="utf-8", errors="replace")
