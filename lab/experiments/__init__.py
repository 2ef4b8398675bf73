# SPDX-License-Identifier: GPL-2.0-only
"""Recordings of this host's kernel over emulated paths, beside the lab."""
