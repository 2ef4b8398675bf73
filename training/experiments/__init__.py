# SPDX-License-Identifier: GPL-2.0-only
"""Trainings that answer a question and ship nothing."""
