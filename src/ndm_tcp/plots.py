# SPDX-License-Identifier: GPL-2.0-only
"""Pictures that depend on what they show, not on the style of who draws them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

NO_VERSION = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}
"""format to metadata with which the same numbers give the same bytes"""


@contextlib.contextmanager
def plain(settings: dict[str, Any] | None = None) -> Iterator[None]:
    """Draw inside with matplotlib's defaults and `settings`; also decorates a function.

    A notebook, or a matplotlibrc, may have a style of its own; it is as before afterwards.
    """
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        values: Any = settings or {}
        matplotlib.rcParams.update(values)
        yield
