# SPDX-License-Identifier: GPL-2.0-only
"""Rounds: what readers deliver of a flow, the features computed from it, the columns of a table."""
