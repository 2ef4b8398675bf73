# SPDX-License-Identifier: GPL-2.0-only
"""How far a long command is: a bar on a terminal, a line now and then on a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from tqdm import tqdm

LINE_S = 15.0
"""Seconds between two lines on a pipe, and before the first."""
LINE = "{percentage:.0f}%, {n_fmt}/{total_fmt} after {elapsed}, {rate_fmt}{postfix}"


class _Stream:
    """Standard error without the empty line with which tqdm ends."""

    def write(self, text: str) -> None:
        if text.strip():
            sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


class _Lines(tqdm):  # type: ignore[misc]
    """tqdm that ends each report with a line end."""

    @staticmethod
    def status_printer(file: Any) -> Callable[[str], None]:
        last = ""

        def write(text: str) -> None:
            nonlocal last
            done = text.partition(" after ")[0]
            if done != last:  # tqdm repeats the last one when it closes
                file.write(f"{text.strip()}\n")
                file.flush()
            last = done

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
    every: dict[str, Any] = {"mininterval": LINE_S, "maxinterval": LINE_S, "delay": LINE_S}
    line = f"{{desc}}: {LINE}" if more.get("desc") else LINE
    to: dict[str, Any] = {"bar_format": line, "file": _Stream()}
    return _Lines(total=total, unit=unit, disable=quiet, **every, **to, **more)
