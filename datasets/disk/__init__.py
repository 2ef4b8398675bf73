# SPDX-License-Identifier: GPL-2.0-only
"""A dataset on disk, its card, and the lock of the recordings that train the network."""
