# SPDX-License-Identifier: GPL-2.0-only
"""Compare algorithms by the flows of one's own host: `ndm ab`."""
