# SPDX-License-Identifier: GPL-2.0-only
"""How far a long command is: a bar on a terminal, a line now and then on a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from tqdm import tqdm

LINE_S = 15.0
"""Seconds between two lines on a pipe, and before the first."""


class _Lines(tqdm):  # type: ignore[misc]
    """tqdm that ends each report with a line end."""

    @staticmethod
    def status_printer(file: Any) -> Callable[[str], None]:
        def write(text: str) -> None:
            if text.strip():
                print(text.strip(), file=file, flush=True)

        return write


def bar(total: int, unit: str, quiet: bool, **more: Any) -> Any:
    """A tqdm bar on standard error, whatever that is.

    Args:
        total: steps in all.
        unit: of a step.
        quiet: show nothing.
        more: of tqdm.
    """
    if sys.stderr.isatty():
        return tqdm(total=total, unit=unit, disable=quiet, mininterval=0.5, **more)
    pipe = {"mininterval": LINE_S, "maxinterval": LINE_S, "delay": LINE_S, "ascii": True}
    return _Lines(total=total, unit=unit, disable=quiet, **pipe, **more)
