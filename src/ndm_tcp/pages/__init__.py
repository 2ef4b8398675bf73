# SPDX-License-Identifier: GPL-2.0-only
"""Pages from the Jinja2 templates beside this module: HTML of one file, and Markdown."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


def image(data: bytes, kind: str = "png") -> str:
    """A picture as the value of an `src`."""
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


def render(template: str, **values: Any) -> str:
    """A page; in HTML every value is escaped unless it is markupsafe's Markup.

    Args:
        template: file beside this module, such as board.html.j2 or dataset_card.md.j2.
        values: the values of its names; a name without a value is an error.
    """
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        autoescape=jinja2.select_autoescape(["html.j2"]),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(template).render(**values)
