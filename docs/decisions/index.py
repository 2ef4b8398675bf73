# SPDX-License-Identifier: GPL-2.0-only
"""Write docs/decisions/README.md, the index of the decisions, newest first.

python docs/decisions/index.py            # writes it
"""

import re
from pathlib import Path

HERE = Path(__file__).resolve().parent
OUTCOMES = ("shipped", "negative", "measured")
HEAD = re.compile(
    r"# (?P<title>.+)\n\n- Date: (?P<date>\d{4}-\d\d-\d\d)\n"
    r"- Outcome: (?P<outcome>\w+)\n- Claim: (?P<claim>.+)\n"
)
TOP = (HERE / "index.md.in").read_text()


def entries() -> list[dict[str, str]]:
    """Head of every page, newest first. ValueError names a page without one."""
    found = []
    for page in sorted(HERE.glob("2*.md"), reverse=True):
        head = HEAD.match(page.read_text())
        if not head or head["outcome"] not in OUTCOMES:
            known = ", ".join(OUTCOMES)
            raise ValueError(f"{page}: begin with '# Title', Date, Outcome ({known}) and Claim")
        found.append({"page": page.name, **head.groupdict()})
    return found


def index() -> str:
    """The page."""
    row = "| {date} | [{title}]({page}) | {outcome} | {claim} |\n"
    return TOP + "".join(row.format(**entry) for entry in entries())


if __name__ == "__main__":
    (HERE / "README.md").write_text(index())
