# SPDX-License-Identifier: GPL-2.0-only
"""Run the loader, and hand on its one line when it refuses."""

from __future__ import annotations

import argparse
import subprocess
from pathlib import Path

from ndm_tcp.errors import NdmError

NAME = "ndm_tcp_bpf"
"""of the algorithm; the module's is ndm_tcp, so both may be loaded"""
CHECKOUT = Path(__file__).resolve().parents[3] / "bpf"
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
        raise NdmError(f"{found}: not built; run: make -C {folder}")
    return found


def run(folder: Path, *words: str) -> tuple[int, str]:
    """Exit code and standard output of the loader.

    Raises:
        NdmError: its one line on standard error.
    """
    done = subprocess.run([program(folder), *words], capture_output=True, text=True, check=False)
    if done.stderr:
        raise NdmError(done.stderr.strip().removeprefix("ndm_bpf: "))
    return done.returncode, done.stdout


def facts(text: str) -> dict[str, str]:
    """The lines key=value of `ndm_bpf status`."""
    return dict(line.split("=", 1) for line in text.splitlines())
