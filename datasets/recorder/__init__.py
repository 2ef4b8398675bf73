# SPDX-License-Identifier: GPL-2.0-only
"""Records transfers of this host's own TCP."""
