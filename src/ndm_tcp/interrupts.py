# SPDX-License-Identifier: GPL-2.0-only
"""Ctrl-C where Python would lose it, and other signals that end a command."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from types import FrameType
from typing import TypeVar

Result = TypeVar("Result")
TICK_S = 0.2
PR_SET_PDEATHSIG = 1
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def _handled(
    numbers: Sequence[int], handler: Callable[[int, FrameType | None], None]
) -> Iterator[None]:
    """Another handler of these signals; one that is ignored stays so: nohup, or `&` in a script."""
    before = {}
    if threading.current_thread() is threading.main_thread():
        for number in numbers:
            if signal.getsignal(number) != signal.SIG_IGN:
                before[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Around a fork: a signal that ends the command does so when the block ends.

    Within the hooks of a fork Python prints its exception and goes on. A process that the block
    started ends at the signal, without a word: its parent reports it.
    """
    parent, came = os.getpid(), list[int]()

    def note(number: int, _frame: FrameType | None) -> None:
        if os.getpid() != parent:
            os._exit(128 + number)
        came.append(number)

    try:
        with _handled(ENDING, note):
            yield
    finally:
        if came:
            signal.raise_signal(came[0])


def first_done(
    waiting: Iterable[Future[Result]],
) -> tuple[set[Future[Result]], set[Future[Result]]]:
    """Those that have ended, none perhaps, and the others, after a moment at most.

    While `wait` holds the locks of all, no exception of a signal may come: nobody would release
    them.
    """
    with deferred():
        return wait(waiting, TICK_S, FIRST_COMPLETED)


def end_with(parent: int) -> None:
    """In a process that `parent` has just forked: end when it does, however it ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it was over before the call
        os._exit(1)


@contextlib.contextmanager
def signals_as_exit() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into SystemExit, so that context managers clean up.

    A second signal, Ctrl-C too, ends the process at once: an exception in the middle of cleaning up
    could leave a lock held for good. So does the first in a process that the block started.
    """
    parent, seen = os.getpid(), False

    def leave(number: int, _frame: FrameType | None) -> None:
        nonlocal seen
        if seen or os.getpid() != parent:
            os._exit(128 + number)
        seen = True
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + number)

    with _handled(ENDING, leave):
        yield
