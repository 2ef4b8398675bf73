# SPDX-License-Identifier: GPL-2.0-only
"""Builds a dataset of sources: in parts, here or on a cluster."""
