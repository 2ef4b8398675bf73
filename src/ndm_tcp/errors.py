# SPDX-License-Identifier: GPL-2.0-only
"""The one exception for bad input. Its message is one line: the error, where it is, the remedy."""

from __future__ import annotations

BAD_INPUT = 2
"""exit code"""


class NdmError(Exception):
    """Bad input or environment; the command line prints the message and exits with 2."""


def require_above_zero(option: str, value: float | None) -> None:
    """Refuse a number of an option that must be finite and above 0; None: it was not given.

    Raises:
        NdmError: naming the option.
    """
    if value is not None and not 0 < value < float("inf"):
        raise NdmError(f"{option} {value:g}: must be above 0")
