# SPDX-License-Identifier: GPL-2.0-only
"""The algorithm of new connections: set, and put back as it was."""

from __future__ import annotations

from pathlib import Path

from ndm_tcp.bpf.loader import NAME

SYSCTL = Path("/proc/sys/net/ipv4/tcp_congestion_control")
AVAILABLE = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
PREVIOUS = Path("/run/ndm_tcp_bpf.previous")
"""gone after a reboot, as is the setting"""


def make_default() -> None:
    """New connections use it; remembers what they used before."""
    PREVIOUS.write_text(SYSCTL.read_text())
    SYSCTL.write_text(NAME)


def restore() -> str | None:
    """If it is the default: make the one before the default again, and return its name."""
    if SYSCTL.read_text().strip() != NAME:
        return None
    before = PREVIOUS.read_text().strip() if PREVIOUS.is_file() else "cubic"
    if before not in AVAILABLE.read_text().split():
        before = "reno"
    SYSCTL.write_text(before)
    PREVIOUS.unlink(missing_ok=True)
    return before
