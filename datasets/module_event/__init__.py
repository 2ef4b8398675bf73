# SPDX-License-Identifier: GPL-2.0-only
"""The loaded module's own event: what it saw and decided in every round."""
