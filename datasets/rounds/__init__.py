# SPDX-License-Identifier: GPL-2.0-only
"""Rounds: a flow as readers deliver it, the features computed from it, the columns of a table."""
