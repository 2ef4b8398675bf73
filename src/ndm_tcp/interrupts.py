# SPDX-License-Identifier: GPL-2.0-only
"""Ctrl-C where Python would lose it, and other signals that end a command."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Around a fork: Ctrl-C raises KeyboardInterrupt when the block ends.

    Within the hooks of a fork Python prints the exception and goes on. A process that the block
    started ends at Ctrl-C, without a word: its parent reports it.
    """
    parent, came = os.getpid(), False

    def note(_number: int, _frame: FrameType | None) -> None:
        nonlocal came
        if os.getpid() != parent:
            os._exit(128 + signal.SIGINT)
        came = True

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came:
            signal.raise_signal(signal.SIGINT)


@contextlib.contextmanager
def signals_as_exit() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into SystemExit, so that context managers clean up.

    One that is ignored stays so: nohup. A process that the block started ends at once.
    """
    parent, before = os.getpid(), {}

    def leave(number: int, _frame: FrameType | None) -> None:
        if os.getpid() != parent:
            os._exit(128 + number)
        raise SystemExit(128 + number)

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) != signal.SIG_IGN:
                before[number] = signal.signal(number, leave)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
