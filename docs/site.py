# SPDX-License-Identifier: GPL-2.0-only
"""Hook of mkdocs: pages that lie outside docs/, and links to what the site does not show."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parent.parent
OUTSIDE = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "kmod/README.md": "kmod-readme.md",
    "datasets/traces/README.md": "traces.md",
    "datasets/lab-rounds/README.md": "lab-rounds.md",
}
ORIGIN = {page: Path(source) for source, page in OUTSIDE.items()}
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


def on_files(files: Any, config: Any) -> Any:
    """Add the pages from outside docs/."""
    for source, page in OUTSIDE.items():
        text = (ROOT / source).read_text()
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let links lead to pages of the site; what it does not show stays as text."""
    here = page.file.src_uri
    source = ORIGIN.get(here, Path("docs") / here)

    def link(found: re.Match[str]) -> str:
        picture, text, target = found.groups()
        name, _, anchor = target.partition("#")
        if not name or "://" in target:
            return found[0]
        path = os.path.normpath(source.parent / name)
        shown = OUTSIDE.get(path) or OUTSIDE.get(f"{path}/README.md")
        if shown is None and path.startswith("docs/") and (ROOT / path).is_file():
            shown = path.removeprefix("docs/")
        if shown is None:
            return text if text else f"`{path}`"
        relative = os.path.relpath(shown, Path(here).parent)
        return f"{picture}[{text}]({relative}{'#' + anchor if anchor else ''})"

    return LINK.sub(link, markdown)
