# SPDX-License-Identifier: GPL-2.0-only
"""What the C in datasets/native computes, written a second time in plain Python, for tests."""
