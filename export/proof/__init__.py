# SPDX-License-Identifier: GPL-2.0-only
"""What is proved of the integers for every input, and of the control law for any network."""
