# SPDX-License-Identifier: GPL-2.0-only
"""Write docs/cli.md: exit codes, and the help of every verb.

python docs/cli.py
"""

from __future__ import annotations

import os
from pathlib import Path

HERE = Path(__file__).resolve().parent
WIDTH = "100"


def page() -> str:
    """The page; the same for every width of the terminal and number of processors."""
    os.environ["COLUMNS"] = WIDTH
    from ndm_tcp import cli

    parsers = cli.verb_parsers(cli.parser())
    parts = [(HERE / "cli.md.in").read_text(), f"```\n{cli.listed()}\n```\n"]
    for words, parser in parsers.items():
        text = parser.format_help().replace(f"(default: {os.cpu_count()})", "(default: one a CPU)")
        parts.append(f"\n### ndm {' '.join(words)}\n\n```\n{text.rstrip()}\n```\n")
    return "".join(parts)


if __name__ == "__main__":
    (HERE / "cli.md").write_text(page())
