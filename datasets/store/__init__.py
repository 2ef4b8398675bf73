# SPDX-License-Identifier: GPL-2.0-only
"""A stored dataset: its files, its card, and the lock of the recordings that train the network."""
