# SPDX-License-Identifier: GPL-2.0-only
"""Paths and their traffic: scenarios, those to train on, and the target window of each."""
