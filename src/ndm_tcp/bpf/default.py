# SPDX-License-Identifier: GPL-2.0-only
"""The algorithm of new connections: set, and put back as it was."""

from __future__ import annotations

from pathlib import Path

from ndm_tcp import files
from ndm_tcp.bpf.loader import NAME
from ndm_tcp.errors import NdmError

SYSCTL = Path("/proc/sys/net/ipv4/tcp_congestion_control")
AVAILABLE = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
PREVIOUS = Path("/run/ndm_tcp_bpf.previous")
"""gone after a reboot, as is the setting"""


def remember() -> None:
    """Keep what new connections use now, for `restore`: a sysctl may change it later."""
    now = SYSCTL.read_text()
    if now.strip() != NAME:
        PREVIOUS.write_text(now)


def make_default() -> None:
    """New connections use it.

    Raises:
        NdmError: the kernel refuses, as in a network namespace that may not choose it.
    """
    try:
        SYSCTL.write_text(NAME)
    except OSError as error:
        raise NdmError(
            f"{SYSCTL}: {files.why(error)}; {NAME} is loaded, but not the default of this network "
            "namespace; docs/recipes.md has the two commands for that: One container"
        ) from None


def available() -> list[str]:
    """The algorithms that are loaded."""
    return AVAILABLE.read_text().split()


def restore() -> str | None:
    """If it is the default: make the one before the default again, and return its name."""
    if SYSCTL.read_text().strip() != NAME:
        return None
    before = PREVIOUS.read_text().strip() if PREVIOUS.is_file() else "cubic"
    if before not in available():
        before = "reno"
    SYSCTL.write_text(before)
    return before


def forget() -> None:
    """It is unloaded: what was kept is of no use."""
    PREVIOUS.unlink(missing_ok=True)
