# SPDX-License-Identifier: GPL-2.0-only
"""Coverage-guided fuzzing of the readers; `make fuzz` runs it for longer."""
