# SPDX-License-Identifier: GPL-2.0-only
"""The one exception for bad input. Its message is one line: the error, where it is, the remedy."""

from __future__ import annotations

BAD_INPUT = 2
"""exit code"""


class NdmError(Exception):
    """Bad input or environment; the command line prints the message and exits with 2."""
