# SPDX-License-Identifier: GPL-2.0-only
"""Patches of the lab's kernel that are given by path: none is part of the project."""

from __future__ import annotations

import argparse
import re
import subprocess
from pathlib import Path

from ndm_tcp.errors import NdmError

NEW_OPTION = re.compile(r"^\+config (TCP_CONG_\w+)", re.MULTILINE)
NEW_NAME = re.compile(r'^\+.*\.name\s*=\s*"([\w.-]{1,15})"', re.MULTILINE)
TROUBLE = re.compile(r"FAILED|No file|can't find|garbage|previously applied|Skipping patch")


def add_argument(parser: argparse.ArgumentParser, help_: str) -> None:
    """The option that names patches."""
    parser.add_argument(
        "--kernel-patch",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help=f"{help_} (repeatable, in order)",
    )


def content(patch: Path) -> bytes:
    """A patch, as it is.

    Raises:
        NdmError: no such file.
    """
    try:
        return patch.read_bytes()
    except OSError as error:
        raise NdmError(
            f"{patch}: {error.strerror}; name a patch (diff -u) of the kernel's source"
        ) from None


def _text(patch: Path) -> str:
    return content(patch).decode(errors="replace")


def options(patches: tuple[Path, ...]) -> str:
    """Lines of a configuration that build in the algorithms which patches add."""
    names = [name for patch in patches for name in NEW_OPTION.findall(_text(patch))]
    return "".join(f"CONFIG_{name}=y\n" for name in names)


def algorithms(patches: tuple[Path, ...]) -> list[str]:
    """The names of algorithms, among others, that patches add."""
    return [name for patch in patches for name in NEW_NAME.findall(_text(patch))]


def change(patches: tuple[Path, ...], file: str) -> list[Path]:
    """The patches that change a file of the kernel's source."""
    head = re.compile(rf"^(\+\+\+|---) [^/\s]+/{re.escape(file)}\s", re.MULTILINE)
    return [patch for patch in patches if head.search(_text(patch))]


def apply(patch: Path, tree: Path, version: str, log: Path) -> None:
    """Apply a patch to a kernel's source; every hunk has to fit as it is.

    Args:
        patch: as given.
        tree: the source.
        version: of the source, for messages.
        log: takes the output.

    Raises:
        NdmError: it does not apply; names the first part that does not.
    """
    content(patch)
    words = ["patch", "-p1", "--fuzz=0", "--batch", "--forward", "-i", str(patch.absolute())]
    done = subprocess.run(words, cwd=tree, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    with log.open("a", encoding="utf-8") as stream:
        stream.write(said)
    if done.returncode:
        raise NdmError(
            f"{patch}: does not apply to Linux {version}: {_why(said)} (all of it: {log}); "
            "bring the patch up to this source"
        )


def _why(said: str) -> str:
    """The first complaint of `patch`, and the file that it was at."""
    file = ""
    for line in said.splitlines():
        if line.startswith("patching file "):
            file = f"{line.removeprefix('patching file ').strip()}: "
        elif TROUBLE.search(line):
            return file + line.strip().strip("* ")
    return f"{file}no reason given"
