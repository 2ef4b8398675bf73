# SPDX-License-Identifier: GPL-2.0-only
"""The network in integers: quantised, checked by golden vectors, written as C."""
