# SPDX-License-Identifier: GPL-2.0-only
"""The loaded module's own event: inputs and decision of every round."""
