# SPDX-License-Identifier: GPL-2.0-only
"""The command that scenarios name; recordings hold their text byte for byte, so it stays."""

from ndm_tcp.lab.paths.lan_paths import main

if __name__ == "__main__":
    main()
