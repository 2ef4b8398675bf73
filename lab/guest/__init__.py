# SPDX-License-Identifier: GPL-2.0-only
"""Runs of scenarios in the lab's kernel: build it, plan, boot, collect."""
