# SPDX-License-Identifier: GPL-2.0-only
"""The pages and the texts in code: links, the glossary's words, pages that scripts write."""

from __future__ import annotations

import ast
import io
import os
import re
import runpy
import subprocess
import sys
import tokenize
from pathlib import Path
from typing import Any

import pytest

from ndm_tcp.export.proof import law

from .conftest import ROOT

README_WORDS = 900


def project_files(*patterns: str) -> list[Path]:
    """Files of the project of these patterns, new ones too; no links to files elsewhere."""
    words = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    paths = map(Path, done.stdout.split())
    return sorted(p for p in paths if (ROOT / p).is_file() and not (ROOT / p).is_symlink())


PAGES = project_files("*.md")
# Not the headers of the control law: the certificate holds their SHA-256.
SOURCES = [
    path
    for path in project_files("*.py", "*.c", "*.h")
    if "generated" not in path.parts and path.name not in law.HEADERS
]
LINK = re.compile(r"(?<!`)\[[^\]]*\]\(([^)\s]+)\)")
# Expressions that the glossary replaces, with the word to use.
REPLACED = {
    r"\bsen[dt]s? again\b(?! after a silence)": "retransmit, retransmitted",
    r"\bresen[dt]s?\b": "retransmitted; retransmission rate",
    r"\bright windows?\b": "target window",
    r"\b(beyond|by more than) chance\b": "significant, significantly",
    r"\bstates? (that )?do(es)? not tell\b": "ambiguous state",
    r"\bwindows? (that (is|are)|which (is|are)) not used\b": "window-limited, application-limited",
    r"\bof now\b": "present, current",
    r"\ba queue that stays\b": "standing queue",
    r"\bjudged on\b": "measured on; development suite, held-out suite",
    r"\bof before\b": "older, earlier",
    r"\bholding the window still\b": "a constant window",
    r"\blost to (congestion|noise)\b": "overflow loss, random loss",
    r"\bwould have been right\b": "target window",
    r"\bnetworks? (\w+ )?(says?|said|tells?|told|asks?|asked|wants?)\b": "predicts, outputs",
    r"\b[Ww]hoever\b": "name the actor",
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


def replaced(text: str) -> dict[str, str]:
    """Expressions in a text that the glossary replaces, with the words to use."""
    flat = " ".join(text.split())
    return {m[0]: use for old, use in REPLACED.items() for m in re.finditer(old, flat)}


def texts_in_code(source: Path) -> str:
    """Comments and docstrings of a Python or C file."""
    code = (ROOT / source).read_text()
    if source.suffix != ".py":
        comments = re.findall(r"/\*.*?\*/|//[^\n]*", code, flags=re.DOTALL)
        return " ".join(comments).replace("\n *", " ").replace("\n\t *", " ")
    tokens = tokenize.generate_tokens(io.StringIO(code).readline)
    found = [t.string.lstrip("# ") for t in tokens if t.type == tokenize.COMMENT]
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            found.append(str(node.value.value))
    return " ".join(found)


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_pages_use_the_words_of_the_glossary(page: Path) -> None:
    found = replaced(prose(page))
    assert not found, f"{page}: write instead: {found}"


def test_texts_in_code_use_the_words_of_the_glossary() -> None:
    assert len(SOURCES) > 200
    found = {str(source): replaced(texts_in_code(source)) for source in SOURCES}
    wrong = {source: words for source, words in found.items() if words}
    assert not wrong, f"write instead: {wrong}"


def test_old_words_are_found_in_comments_and_docstrings(tmp_path: Path) -> None:
    python = tmp_path / "a.py"
    python.write_text('"""Segments sent\n    again."""\nx = 1  # a file of\n# before\n')
    assert set(replaced(texts_in_code(python))) == {"sent again", "of before"}
    header = tmp_path / "a.h"
    header.write_text("/* The right\n * window. */\nint resent;\t// whoever\n")
    assert set(replaced(texts_in_code(header))) == {"right window", "whoever"}


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


@pytest.mark.parametrize("cpus", [None, 1, 3, 30])
def test_the_page_of_the_command_line_is_current(
    cpus: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On every machine: defaults of options may equal its number of processors."""
    if cpus:
        monkeypatch.setattr(os, "cpu_count", lambda: cpus)
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
