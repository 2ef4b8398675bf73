# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's events of TCP sockets, recorded in a tracing instance of our own."""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from ndm_tcp.errors import NdmError

TRACING = Path("/sys/kernel/tracing")
EVENTS = ("tcp/tcp_probe", "tcp/tcp_cong_state_set", "tcp/tcp_retransmit_skb")
BUFFER_KB = 16_384
POINTERS = re.compile(r" (?:skbaddr|skaddr)=\S+")
"""kernel addresses in the text of an event: nobody's business"""


class NoEventsError(NdmError):
    """This kernel, or this user, cannot record events."""

    def __init__(self, message: str, short: str) -> None:
        super().__init__(message)
        self.short = short
        """why, for a recording that does without"""


@contextlib.contextmanager
def recorded(name: str, sockets: str | None) -> Iterator[Path]:
    """A tracing instance that records; it is gone with the block.

    Args:
        name: of the instance.
        sockets: the filter of the events; None: all.

    Raises:
        NoEventsError: tracefs or an event is missing.
    """
    instances = TRACING / "instances"
    if not instances.is_dir():
        words = ["mount", "-t", "tracefs", "nodev", str(TRACING)]
        subprocess.run(words, capture_output=True, check=False)
    instance = instances / name
    try:
        instance.mkdir()
    except OSError as error:
        raise NoEventsError(
            f"{instances}: {error.strerror}; a kernel with tracefs is needed",
            f"no tracefs ({error.strerror})",
        ) from None
    try:
        try:
            (instance / "buffer_size_kb").write_text(str(BUFFER_KB))
            (instance / "trace_clock").write_text("mono")
            for event in EVENTS:
                folder = instance / "events" / event
                if sockets is not None:
                    (folder / "filter").write_text(sockets)
                (folder / "enable").write_text("1")
        except OSError as error:
            raise NoEventsError(
                f"{error.filename}: {error.strerror}; not in this kernel",
                f"no tcp events in this kernel ({error.strerror})",
            ) from None
        yield instance
    finally:
        for event in EVENTS:
            with contextlib.suppress(OSError):
                (instance / "events" / event / "enable").write_text("0")
        instance.rmdir()


def lost(instance: Path) -> int:
    """How many events found the buffer full."""
    total = 0
    for stats in sorted(instance.glob("per_cpu/cpu*/stats")):
        overrun = re.search(r"overrun: (\d+)", stats.read_text())
        total += int(overrun[1]) if overrun else 0
    return total
