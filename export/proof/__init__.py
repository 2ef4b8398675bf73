# SPDX-License-Identifier: GPL-2.0-only
"""Proofs: about the integers for every input, about the control law for any network."""
