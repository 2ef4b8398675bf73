# SPDX-License-Identifier: GPL-2.0-only
"""The pages: links that lead somewhere, the glossary's words, an index of what was decided."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .conftest import ROOT

README_WORDS = 900
PAGES = sorted(
    path
    for path in map(
        Path,
        subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split(),
    )
    if (ROOT / path).is_file()
)
LINK = re.compile(r"(?<!`)\[[^\]]*\]\(([^)\s]+)\)")
# Expressions that the glossary replaces, with the word to use.
REPLACED = {
    r"\bsen[dt]s? again\b": "retransmit, retransmitted",
    r"\bresen[dt]s?\b": "retransmitted; retransmission rate",
    r"\bright windows?\b": "target window",
    r"\b(beyond|by more than) chance\b": "significant, significantly",
    r"\bstates? (that )?do(es)? not tell\b": "ambiguous state",
    r"\bwindows? (that (is|are)|which (is|are)) not used\b": "window-limited, application-limited",
    r"\bof now\b": "present, current",
    r"\ba queue that stays\b": "standing queue",
    r"\bjudged on\b": "measured on; development suite, held-out suite",
}


def prose(page: Path) -> str:
    """Text of a page without code."""
    text = re.sub(r"```.*?```", "", (ROOT / page).read_text(), flags=re.DOTALL)
    return re.sub(r"`[^`\n]*`", "", text)


def anchors(page: Path) -> set[str]:
    """Names of a page's headings, as links spell them."""
    heads = re.findall(r"^#+ (.+)$", page.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).strip().replace(" ", "-") for h in heads}


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(prose(page)):
        if link.startswith(("http://", "https://", "mailto:")):
            continue
        name, _, anchor = link.partition("#")
        target = (ROOT / page).parent / name if name else ROOT / page
        assert target.exists(), f"{page}: {link}"
        if anchor:
            assert anchor in anchors(target), f"{page}: {link}"


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_pages_use_the_words_of_the_glossary(page: Path) -> None:
    text = prose(page)
    found = {m[0]: say for old, say in REPLACED.items() for m in re.finditer(old, text)}
    assert not found, f"{page}: say instead: {found}"


def test_the_readme_is_short_and_shows_two_pictures() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.split()) <= README_WORDS
    assert len(re.findall(r"!\[[^\]]+\]\(docs/pictures/", text)) == 2


def load(script: Path) -> dict[str, Any]:
    """Names of a script that writes pages."""
    return runpy.run_path(str(ROOT / "docs" / script))


def test_the_index_of_decisions_is_current() -> None:
    index = load(Path("decisions/index.py"))["index"]()
    written = (ROOT / "docs/decisions/README.md").read_text()
    assert index == written, "run: python docs/decisions/index.py"


def test_the_page_of_the_command_line_is_current() -> None:
    page = load(Path("cli.py"))["page"]()
    assert page == (ROOT / "docs/cli.md").read_text(), "run: python docs/cli.py"


def test_the_tutorial_is_current() -> None:
    page = load(Path("tutorial.py"))["page"]()
    assert page == (ROOT / "docs/tutorial.md").read_text(), "run: python docs/tutorial.py"


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "-q", "-d", str(tmp_path / "site")],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "site" / "tutorial.html").is_file()
