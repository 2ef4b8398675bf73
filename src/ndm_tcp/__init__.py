# SPDX-License-Identifier: GPL-2.0-only
"""NDM-TCP: offline training and export of a neural TCP congestion control for Linux.

`datasets`, `training`, `export` and `lab` beside this file are symbolic links to the
top-level folders of the repository, so that the code lives where a reader looks for it
and still installs as one package.
"""

__version__ = "0.1.0"
