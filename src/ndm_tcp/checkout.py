# SPDX-License-Identifier: GPL-2.0-only
"""Does this package run from a checkout of the project, or is it installed by itself?"""

from __future__ import annotations

from pathlib import Path

from ndm_tcp.errors import NdmError

ROOT = Path(__file__).resolve().parents[2]
"""of the checkout"""


def is_here() -> bool:
    """Of an installed package only Python's folders lie above."""
    return (ROOT / "Makefile").is_file()


def require(what: str, instead: str) -> None:
    """Refuse what only a checkout can do.

    Args:
        what: the verb or option.
        instead: the remedy.

    Raises:
        NdmError: the package is installed by itself.
    """
    if not is_here():
        raise NdmError(f"{what}: this is no checkout, but an installed package; {instead}")
