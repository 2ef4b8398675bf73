# SPDX-License-Identifier: GPL-2.0-only
"""Captures and logs to the records of their flows: one module a format, `sources` finds which."""
