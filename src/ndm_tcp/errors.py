# SPDX-License-Identifier: GPL-2.0-only
"""The one exception for bad input. Its message is one line: the error, where it is, the remedy."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NoReturn

BAD_INPUT = 2
"""exit code"""


class NdmError(Exception):
    """Bad input or environment; the command line prints the message and exits with 2."""


def exit_with(main: Callable[[], int]) -> NoReturn:
    """End the program with the code of `main`; after bad input with its line and `BAD_INPUT`."""
    try:
        sys.exit(main())
    except NdmError as error:
        print(f"ndm: {error}", file=sys.stderr)
        sys.exit(BAD_INPUT)
