# SPDX-License-Identifier: GPL-2.0-only
"""Scores of runs: metrics, the board as text and HTML, the bars."""
