# SPDX-License-Identifier: GPL-2.0-only
"""`datasets/rounds.lock`: the lab's recordings that train the network, and what is committed.

TOML, written by `ndm data lock`. A `[[file]]` is committed. A
`[[recording]]` is a dataset of one recording, too large to commit: its recipe, and the SHA-256 of
its rounds.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from ndm_tcp import checkout, files
from ndm_tcp.datasets.store import store
from ndm_tcp.errors import NdmError

LOCK = Path(__file__).resolve().parents[1] / "rounds.lock"
HEAD = """\
# SPDX-License-Identifier: CC0-1.0
# Written by: ndm data lock
"""
RESTORE = "restore it with: git checkout -- datasets/rounds.lock"
HERE = Path("out/rounds")
"""where recordings lie that are made again"""
T = TypeVar("T")


@dataclass(frozen=True)
class File:
    """A committed file."""

    path: str
    """in the folder of the lock"""
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Recording:
    """A dataset of one recording, its recipe, and its rounds' hash."""

    name: str
    suite: str
    paths: str
    """of the suite; all, or which"""
    cc: str
    """algorithms, as --cc takes them"""
    seeds: int
    explore: bool
    """does ndm_tcp make excursions (lab/guest/explore.py)?"""
    commit: str
    """the project's commit whose tree recorded it"""
    module: str
    """SHA-256 of the module's sources; empty: there was none, or they are not known"""
    network: str
    """hash of the module's network; empty: there is none"""
    programs: str
    """hash of the guest's programs (lab/guest/root.py); empty: they were the host's, with all of
    its files beside them, so that nobody can have the same bytes again"""
    rounds_in: str
    """the project's commit that still holds the rounds; empty: they were never committed"""
    flows: int
    rounds: int
    bytes: int
    """of rounds.parquet"""
    sha256: str
    """of rounds.parquet"""


@dataclass(frozen=True)
class Lock:
    """Content of `rounds.lock`."""

    files: tuple[File, ...]
    recordings: tuple[Recording, ...]

    def recording(self, name: str) -> Recording:
        """The recording of this name.

        Raises:
            NdmError: there is none.
        """
        for recording in self.recordings:
            if recording.name == name:
                return recording
        known = ", ".join(recording.name for recording in self.recordings)
        raise NdmError(f"{name}: no recording of rounds.lock, there are: {known}")


def _checked(kind: type[T], table: dict[str, Any], where: str) -> T:
    kinds = {"str": str, "int": int, "bool": bool}
    expected = {field.name: kinds[str(field.type)] for field in fields(kind)}  # type: ignore[arg-type]
    for name, wanted in expected.items():
        if type(table.get(name)) is not wanted:
            raise NdmError(f"{where}: {name} is missing or of another kind; {RESTORE}")
    if unknown := sorted(set(table) - set(expected)):
        raise NdmError(f"{where}: unknown key {unknown[0]}; {RESTORE}")
    return kind(**table)


def read(path: Path = LOCK) -> Lock:
    """The lock of a file.

    Raises:
        NdmError: no such file, or none that `write` wrote.
    """
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
        tables = [(kind, found.pop(kind, [])) for kind in ("file", "recording")]
    except OSError as error:
        remedy = RESTORE if checkout.is_here() else "a checkout has one; name it: --lock FILE"
        raise NdmError(f"{path}: {files.why(error)}; {remedy}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise NdmError(f"{path}: not TOML ({error}); {RESTORE}") from None
    for kind, value in tables:
        if not isinstance(value, list) or not all(isinstance(v, dict) for v in value):
            raise NdmError(f"{path}: {kind}: expected [[{kind}]]; {RESTORE}")
    if found:
        raise NdmError(f"{path}: unknown key {sorted(found)[0]}; {RESTORE}")
    (_, committed), (_, recorded) = tables
    return Lock(
        tuple(_checked(File, t, f"{path}: file {n}") for n, t in enumerate(committed, 1)),
        tuple(_checked(Recording, t, f"{path}: recording {n}") for n, t in enumerate(recorded, 1)),
    )


def text(lock: Lock) -> str:
    """The file of a lock."""

    def value(of: object) -> str:
        if isinstance(of, bool):
            return str(of).lower()
        return str(of) if isinstance(of, int) else f'"{of}"'

    parts = [HEAD]
    for kind, entries in (("file", lock.files), ("recording", lock.recordings)):
        for entry in entries:
            lines = "".join(f"{name} = {value(of)}\n" for name, of in vars(entry).items())
            parts.append(f"\n[[{kind}]]\n{lines}")
    return "".join(parts)


@dataclass(frozen=True)
class Checked:
    """A file compared with its entry in the lock."""

    path: Path
    said: str
    """ok, missing, or how it differs"""
    needed: bool
    """is it committed?"""

    @property
    def bad(self) -> bool:
        """Is something wrong?"""
        return self.said != OK and (self.needed or self.said != MISSING)


OK, MISSING = "ok", "missing"


def _said(path: Path, size: int, sha256: str) -> str:
    if not path.is_file():
        return MISSING
    found = path.stat().st_size
    if found != size:
        return f"{found} bytes, not {size}"
    return OK if files.sha256(path) == sha256 else "same size, other bytes"


def check(lock: Lock, folder: Path, recorded: Path) -> list[Checked]:
    """Hold files against the lock.

    Args:
        lock: the expected sizes and hashes.
        folder: of the committed files.
        recorded: of the recordings, each in a folder of its name; those that are not there are no
            fault.
    """
    found = []
    for file in lock.files:
        path = folder / file.path
        found.append(Checked(path, _said(path, file.bytes, file.sha256), needed=True))
    for r in lock.recordings:
        path = recorded / r.name / store.ROUNDS
        found.append(Checked(path, _said(path, r.bytes, r.sha256), needed=False))
    return found
