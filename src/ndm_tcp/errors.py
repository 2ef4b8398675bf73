# SPDX-License-Identifier: GPL-2.0-only
"""The one exception for bad input: its message is one line saying what, where, what to do."""


class NdmError(Exception):
    """Bad input or environment; the command line prints the message and exits with 2."""
