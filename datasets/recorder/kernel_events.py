# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's events of TCP sockets, recorded in a tracing instance of our own."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from ndm_tcp import files
from ndm_tcp.errors import NdmError

TRACING = Path("/sys/kernel/tracing")
PROBE = "tcp/tcp_probe"
MORE = ("tcp/tcp_cong_state_set", "tcp/tcp_retransmit_skb")
"""events that old kernels lack, and that a recording can do without"""
PREFIX = "ndm-"
"""of our instances"""
BUFFER_KB = 16_384
ATTEMPTS, PAUSE_S = 20, 0.05
"""to remove an instance that somebody reads"""
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

    Nothing outside of it is touched, but for instances that killed recorders have left.

    Args:
        name: part of the instance's name.
        sockets: the filter of the events; None: all.

    Raises:
        NoEventsError: tracefs or tcp_probe is missing.
    """
    instances = TRACING / "instances"
    if not instances.is_dir():
        words = ["mount", "-t", "tracefs", "nodev", str(TRACING)]
        subprocess.run(words, capture_output=True, check=False)
    with contextlib.ExitStack() as stack:
        try:
            with files.locked(instances, wait=True):
                _remove_left(instances)
                made = tempfile.mkdtemp(prefix=f"{PREFIX}{name}-", dir=instances)
                instance = Path(made)
                stack.enter_context(files.locked(instance))
                stack.callback(_remove, instance)
        except OSError as error:
            raise NoEventsError(
                f"{instances}: {error.strerror}; a kernel with tracefs is needed",
                f"no tracefs ({error.strerror})",
            ) from None
        try:
            (instance / "buffer_size_kb").write_text(str(BUFFER_KB))
            (instance / "trace_clock").write_text("mono")
            for event in (PROBE, *(e for e in MORE if (instance / "events" / e).is_dir())):
                folder = instance / "events" / event
                if sockets is not None:
                    (folder / "filter").write_text(sockets)
                (folder / "enable").write_text("1")
        except OSError as error:
            raise NoEventsError(
                f"{error.filename}: {error.strerror}; not in this kernel",
                f"no tcp_probe in this kernel ({error.strerror})",
            ) from None
        yield instance


def stop(instance: Path) -> None:
    """Record no more: later events would take the place of the first ones."""
    (instance / "tracing_on").write_text("0")


def _remove_left(instances: Path) -> None:
    """The instances whose recorder was killed: nobody holds their lock."""
    for left in instances.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError), files.locked(left):
            _remove(left)


def _remove(instance: Path) -> None:
    """End an instance; a recording is worth more than the memory of one that stays."""
    with contextlib.suppress(OSError):
        stop(instance)
    for _ in range(ATTEMPTS):
        try:
            instance.rmdir()
            return
        except OSError as error:
            why = error.strerror
        time.sleep(PAUSE_S)
    with contextlib.suppress(OSError):
        (instance / "buffer_size_kb").write_text("1")
    print(f"ndm: {instance}: still there ({why}); remove it with rmdir", file=sys.stderr)


def lost(instance: Path) -> int:
    """How many events found the buffer full."""
    total = 0
    for stats in sorted(instance.glob("per_cpu/cpu*/stats")):
        overrun = re.search(r"overrun: (\d+)", stats.read_text())
        total += int(overrun[1]) if overrun else 0
    return total
