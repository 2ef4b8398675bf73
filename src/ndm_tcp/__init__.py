# SPDX-License-Identifier: GPL-2.0-only
"""NDM-TCP: offline training and export of a neural TCP congestion control for Linux.

`datasets`, `training`, `export`, `lab`, `paths` and `kmod` beside this file are symbolic
links to the top-level folders of the repository. So the code lives where a reader looks for
it and still installs as one package. A package without the links was tried, too:
docs/decisions/2026-11-26-06-keep-the-symbolic-links-of-the-rooms.md.
"""

__version__ = "0.1.0"
