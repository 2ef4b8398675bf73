# SPDX-License-Identifier: GPL-2.0-only
"""Recordings to train on: made, made again, converted, locked."""
