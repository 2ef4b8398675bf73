# SPDX-License-Identifier: GPL-2.0-only
"""What the network, the luck of its training and each fixed rule are worth in the closed loop."""
