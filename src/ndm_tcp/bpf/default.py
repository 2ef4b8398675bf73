# SPDX-License-Identifier: GPL-2.0-only
"""The algorithm of new connections: set, and put back as it was."""

from __future__ import annotations

import os
from pathlib import Path

from ndm_tcp import files
from ndm_tcp.bpf.loader import NAME
from ndm_tcp.errors import NdmError

SYSCTL = Path("/proc/sys/net/ipv4/tcp_congestion_control")
AVAILABLE = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
ALLOWED = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
"""what other namespaces may choose; written only in the host's"""
PREVIOUS = Path("/run/ndm_tcp_bpf.previous")
"""gone after a reboot, as is the setting"""


def remember() -> None:
    """Keep what new connections use now, for `restore`: a sysctl may change it later."""
    now = SYSCTL.read_text()
    if now.strip() != NAME:
        PREVIOUS.write_text(now)


def require_choice() -> None:
    """Refuse what `make_default` could not do, before anything is loaded.

    A kernel that refuses the sysctl keeps a reference to the algorithm for good (seen on 6.18).

    Raises:
        NdmError: another network namespace than the host's, or sysctls are read-only.
    """
    if not os.access(SYSCTL, os.W_OK):
        raise NdmError(f"{SYSCTL}: not writable here; load without --default")
    if not _may_choose(NAME):
        raise NdmError(
            f"{SYSCTL}: not the host's network namespace, which must allow {NAME} first; load "
            "without --default, then the two commands of docs/recipes.md: One container"
        )


def _may_choose(name: str) -> bool:
    """In this namespace, if it is loaded."""
    return os.access(ALLOWED, os.W_OK) or name in ALLOWED.read_text().split()


def make_default() -> None:
    """New connections use it.

    Raises:
        NdmError: the kernel refuses.
    """
    try:
        SYSCTL.write_text(NAME)
    except OSError as error:
        raise NdmError(
            f"{SYSCTL}: {files.why(error)}; {NAME} is loaded, but not the default"
        ) from None


def available() -> list[str]:
    """The algorithms that are loaded."""
    return AVAILABLE.read_text().split()


def restore() -> str | None:
    """If it is the default: make the one before the default again, and return its name."""
    if SYSCTL.read_text().strip() != NAME:
        return None
    before = PREVIOUS.read_text().strip() if PREVIOUS.is_file() else "cubic"
    if before not in available() or not _may_choose(before):
        before = "reno"
    SYSCTL.write_text(before)
    return before


def forget() -> None:
    """It is unloaded: what was kept is of no use."""
    PREVIOUS.unlink(missing_ok=True)
