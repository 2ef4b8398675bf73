# SPDX-License-Identifier: GPL-2.0-only
"""Work on the Ray cluster that is running: a function on each of many tasks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ndm_tcp.errors import NdmError

ENGINES = ("local", "ray")
RETRIES = 5
"""attempts after the first, for a task whose worker or machine was lost"""


def _connect() -> Any:
    """Ray, connected.

    Raises:
        NdmError: it is not installed, or no cluster runs.
    """
    try:
        import ray
    except ImportError:
        raise NdmError("ray is not installed; run: pip install 'ndm-tcp[ray]'") from None
    if not ray.is_initialized():
        try:
            ray.init(address="auto", log_to_driver=False, logging_level=logging.ERROR)
        except ConnectionError:
            raise NdmError("no Ray cluster here; run: ray start --head") from None
    return ray


def each(function: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterator[tuple[int, Any]]:
    """Call a function on every task, each on one CPU of the cluster.

    A task whose worker is lost runs again on another. Closing the iterator abandons what has not
    begun.

    Args:
        function: of a module that the workers have; its errors come back as they are.
        tasks: what it takes; they travel to the workers.

    Yields:
        number of the task and its result, in any order; an NdmError where all attempts lost
        their worker.

    Raises:
        NdmError: Ray is not installed, or no cluster runs.
    """
    ray = _connect()
    remote = ray.remote(max_retries=RETRIES)(function)
    numbers = {remote.remote(task): number for number, task in enumerate(tasks)}
    waiting = list(numbers)
    try:
        while waiting:
            done, waiting = ray.wait(waiting)
            for reference in done:
                # Popped: else the cluster keeps every result until the end.
                yield numbers.pop(reference), _result(ray, reference)
    finally:
        for reference in waiting:
            ray.cancel(reference)


def _result(ray: Any, reference: Any) -> Any:
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError:
        raise
    except ray.exceptions.RayError as error:
        said = str(error).strip().splitlines()
        why = said[0] if said else type(error).__name__
        return NdmError(f"lost {RETRIES + 1} workers: {why}; run it again, what is done stays")
