# SPDX-License-Identifier: GPL-2.0-only
"""atheris over the Python readers: whatever a file holds, it is read or refused in one line.

    python -m tests.fuzz.fuzz_readers CORPUS... [libFuzzer options]

The first byte of an input says how the rest is packed and what it is: a log or capture, or one
of the files of a recorded run.
"""

from __future__ import annotations

import gzip
import random
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import zstandard

from ndm_tcp.datasets.module_event import event_lines
from ndm_tcp.datasets.readers import run_folder, simulated, sources
from ndm_tcp.datasets.rounds import columns
from ndm_tcp.datasets.rounds.compute import rounds_of
from ndm_tcp.errors import NdmError

MEMORY = Path("/dev/shm")
PACKS: tuple[Callable[[bytes], bytes], ...] = (
    bytes,
    bytes,
    bytes,
    gzip.compress,
    zstandard.ZstdCompressor().compress,
)


def read_source(path: Path) -> None:
    """As a build does."""
    for flow in sources.read_rounds(path, "0" * 64).flows:
        columns.table(flow, "fuzz", "")


def read_recording(path: Path) -> None:
    """As the ACKs of a simulated run with two flows."""
    (path.parent / "scenario.toml").write_text("seconds = 1\n")
    flows = '[{"cc": "reno"}, {"cc": "bbr"}]'
    (path.parent / "result.json").write_text(f'{{"scenario": "a", "cc": "reno", "flows": {flows}}}')
    for flow in simulated.read(path)[0]:
        columns.table(rounds_of(flow), "fuzz", "")


READERS: tuple[Callable[[Path], object], ...] = (
    read_source,
    read_source,
    read_source,
    read_source,
    run_folder.read_drops,
    read_recording,
    event_lines.read,
)


def try_one(data: bytes, folder: Path) -> bool:
    """Read one input; true if a reader took it, false if it was refused.

    Raises:
        anything but NdmError: a finding.
    """
    if not data:
        return False
    path = folder / "input"
    path.write_bytes(PACKS[data[0] // 16 % len(PACKS)](data[1:]))
    try:
        READERS[data[0] % 16 % len(READERS)](path)
    except NdmError as error:
        assert "\n" not in str(error), "more than one line"
        return False
    return True


def bend(data: bytes, draw: random.Random) -> bytes:
    """A seed with a few bytes changed, cut out, doubled or swapped for hard values."""
    out = bytearray(data)
    for _ in range(draw.randrange(1, 8)):
        at = draw.randrange(len(out) + 1)
        n = draw.choice((1, 2, 4, 8, 60))
        choice = draw.randrange(4)
        if choice == 0:
            out[at : at + n] = draw.randbytes(n)
        elif choice == 1:
            del out[at : at + n]
        elif choice == 2:
            out[at:at] = out[at : at + n]
        else:
            hard = (b"\xff\xff\xff\xff", b"\0\0\0\0", b"99999999999999999999", b"-1", b"1e400")
            hard += (b"null", b"{}", b"[]", b'""', b"NaN", b"\x80", b":", b"=", b"\n")
            spoiled = draw.choice(hard)
            out[at : at + len(spoiled)] = spoiled
    return bytes(out)


def main() -> None:
    """Fuzz until told to stop."""
    import atheris

    from tests.fuzz import corpus

    atheris.instrument_all()
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as name:
        folder = Path(name)
        seeds = folder / "seeds"
        seeds.mkdir()
        for number, (kind, data) in enumerate(corpus.texts()):
            (seeds / str(number)).write_bytes(bytes([kind]) + data)
        atheris.Setup([*sys.argv, str(seeds)], lambda data: try_one(data, folder) and None)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
