# SPDX-License-Identifier: GPL-2.0-only
"""Does this package run from a checkout of the project, or is it installed by itself?"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""of the checkout"""


def is_here() -> bool:
    """Of an installed package only Python's folders lie above."""
    return (ROOT / "Makefile").is_file()
