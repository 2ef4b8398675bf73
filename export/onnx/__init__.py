# SPDX-License-Identifier: GPL-2.0-only
"""ONNX files: written, read back, and refused where the integers cannot follow."""
