# SPDX-License-Identifier: GPL-2.0-only
"""The report of an export: on screen, as a model card and as HTML."""
