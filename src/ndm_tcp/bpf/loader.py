# SPDX-License-Identifier: GPL-2.0-only
"""Run the loader, and hand on its one line when it refuses."""

from __future__ import annotations

import argparse
import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

from ndm_tcp import checkout, files, interrupts
from ndm_tcp.errors import NdmError

NAME = "ndm_tcp_bpf"
"""of the algorithm; the module's is ndm_tcp, so both may be loaded"""
CHECKOUT = checkout.ROOT / "bpf"
INSTALLED = (Path("/usr/local/lib/ndm-tcp"), Path("/usr/lib/ndm-tcp"))
"""where `make -C bpf install` puts it"""


def default_folder() -> Path:
    """Where the loader is: in this checkout, else installed."""
    if (CHECKOUT / "Makefile").is_file():
        return CHECKOUT
    return next((path for path in INSTALLED if path.is_dir()), INSTALLED[0])


def add_folder(parser: argparse.ArgumentParser) -> None:
    """The option of every verb: where the loader is."""
    parser.add_argument(
        "--folder",
        type=Path,
        default=default_folder(),
        help="what make -C bpf built (default: this checkout's, else what it installed)",
    )


def program(folder: Path) -> Path:
    """The loader in a folder.

    Raises:
        NdmError: it is not built.
    """
    found = folder / "ndm_bpf"
    if folder in INSTALLED and not found.is_file():
        raise NdmError(f"{found}: not there; in a checkout run: make -C bpf install")
    if not found.is_file():
        raise NdmError(f"{found}: not built; {_command(folder)}")
    return found


def _command(folder: Path) -> str:
    """How to build what is in a folder: where the sources are, or out of them."""
    if (folder / "Makefile").is_file():
        return f"run: make -C {folder}"
    return f"in a checkout run: make -C bpf OUT={folder.absolute()}"


def run(folder: Path, *words: str) -> tuple[int, str]:
    """Exit code and standard output of the loader.

    Raises:
        NdmError: its one line on standard error.
    """
    with started(folder, *words, stdout=subprocess.PIPE) as child:
        text, trouble = child.communicate()
    refuse(trouble)
    return child.returncode, text


@contextlib.contextmanager
def started(
    folder: Path, *words: str, stdout: int | None = None
) -> Iterator[subprocess.Popen[str]]:
    """The loader, begun; its standard error is piped. A signal while it begins ends it, too.

    Raises:
        NdmError: it is not built, or cannot run.
    """
    path = program(folder)
    command: list[str | Path] = [path, *words]
    child: subprocess.Popen[str] | None = None
    try:
        try:
            with interrupts.deferred():
                child = subprocess.Popen(command, stdout=stdout, stderr=subprocess.PIPE, text=True)
        except OSError as error:
            why = files.why(error)
            raise NdmError(f"{path}: {why}; remove it, then {_command(folder)}") from None
        with child:
            yield child
    finally:
        if child is not None and child.poll() is None:
            child.terminate()
            child.wait()


def refuse(trouble: str) -> None:
    """Raise NdmError with the loader's line on standard error, if there is one."""
    if trouble:
        raise NdmError(trouble.strip().removeprefix("ndm_bpf: "))


def facts(text: str) -> dict[str, str]:
    """The lines key=value of `ndm_bpf status`."""
    return dict(line.split("=", 1) for line in text.splitlines())
