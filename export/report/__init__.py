# SPDX-License-Identifier: GPL-2.0-only
"""What an export reports: on screen, as a model card and as HTML."""
