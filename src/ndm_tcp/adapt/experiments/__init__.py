# SPDX-License-Identifier: GPL-2.0-only
"""Experiments with adaptation: what it is worth on paths whose truth is known."""
