# SPDX-License-Identifier: GPL-2.0-only
"""Runs the tasks of a build: here, in processes of this machine, or on a Ray cluster."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from ndm_tcp import cluster, interrupts
from ndm_tcp.datasets.builder import parts
from ndm_tcp.datasets.builder.parts import CannotWriteError, Task
from ndm_tcp.datasets.readers import streams
from ndm_tcp.errors import NdmError

Outcome = tuple[int, dict[str, Any] | NdmError]
"""Number of the task, and its facts or why there are none."""
Progress = Callable[[int], None]
"""Receives the number of bytes read since the last call."""


class KilledError(NdmError):
    """A process of the build was killed, as one is that takes too much memory."""


def _begin(counter: Any, parent: int) -> None:
    """In a new process: count the bytes read, end with the process that started this one."""

    def advance(n: int) -> None:
        with counter.get_lock():
            counter.value += n

    streams.on_read(advance)
    interrupts.end_with(parent)


def run(tasks: list[Task], engine: str, jobs: int, progress: Progress) -> Iterator[Outcome]:
    """Make the parts of all tasks, in any order.

    Closing the iterator abandons work that has not begun.

    Raises:
        NdmError: the engine is not installed or not there.
    """
    if engine == cluster.RAY:
        yield from cluster.each(attempt, tasks)
    elif jobs == 1:
        yield from _here(tasks, progress)
    else:
        yield from _processes(tasks, jobs, progress)


def attempt(task: Task) -> dict[str, Any] | NdmError:
    """`parts.make`, with its error as a value."""
    try:
        return parts.make(task)
    except CannotWriteError as error:
        return CannotWriteError(str(error))
    except NdmError as error:
        return NdmError(str(error))


def _here(tasks: list[Task], progress: Progress) -> Iterator[Outcome]:
    streams.on_read(progress)
    try:
        for number, task in enumerate(tasks):
            yield number, attempt(task)
    finally:
        streams.on_read(None)


def _processes(tasks: list[Task], jobs: int, progress: Progress) -> Iterator[Outcome]:
    context = multiprocessing.get_context("fork")
    counter = context.Value("q", 0)
    seen = 0
    pool = ProcessPoolExecutor(jobs, context, _begin, (counter, os.getpid()))
    try:
        with interrupts.deferred():
            numbers: dict[Future[Any], int] = {
                pool.submit(attempt, task): number for number, task in enumerate(tasks)
            }
        waiting = set(numbers)
        while waiting:
            done, waiting = interrupts.first_done(waiting)
            now = counter.value
            progress(now - seen)
            seen = now
            for future in done:
                yield numbers[future], future.result()
    except BrokenProcessPool:
        raise KilledError(
            "a reading process was ended, by a full memory perhaps; run the same command again to "
            "carry on, with --jobs 1"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)
