# SPDX-License-Identifier: GPL-2.0-only
"""Write docs/cli.md: exit codes, and the help of every verb.

python docs/cli.py
"""

from __future__ import annotations

import os
from pathlib import Path
from unittest.mock import patch

from ndm_tcp import cli

HERE = Path(__file__).resolve().parent
WIDTH = "100"


def page() -> str:
    """The page; the same for every width of the terminal and number of processors."""
    with patch.dict(os.environ, COLUMNS=WIDTH):
        helps = {w: p.format_help() for w, p in cli.verb_parsers(cli.parser()).items()}
    parts = [(HERE / "cli.md.in").read_text(), f"```\n{cli.listed()}\n```\n"]
    for words, text in helps.items():
        parts.append(f"\n### ndm {' '.join(words)}\n\n```\n{text.rstrip()}\n```\n")
    return "".join(parts)


if __name__ == "__main__":
    (HERE / "cli.md").write_text(page())
