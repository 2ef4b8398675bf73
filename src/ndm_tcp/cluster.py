# SPDX-License-Identifier: GPL-2.0-only
"""Work on the Ray cluster that is running: a function on each of many tasks.

Its machines share no folder: files travel as bytes.
"""

from __future__ import annotations

import argparse
import logging
import shutil
import socket
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ndm_tcp import files
from ndm_tcp.errors import NdmError

ENGINES = LOCAL, RAY = ("local", "ray")
RETRIES = 5
"""attempts after the first, for a task whose worker or machine was lost"""
Content = dict[str, bytes]
"""names in a folder to their bytes; a file has the name "" """


def add_engine(parser: argparse.ArgumentParser, what: str) -> None:
    """The option of all verbs that work on a cluster, too.

    Args:
        parser: of the verb.
        what: as in "where guests run".
    """
    parser.add_argument(
        "--engine",
        choices=ENGINES,
        default=LOCAL,
        help=f"{what}; ray: on the Ray cluster that is running",
    )


def require_same(what: str, here: Any, asked: Any) -> None:
    """Refuse work that would leave other bytes here.

    Args:
        what: that the machine has, as in "its lab".
        here: what bytes depend on, of this machine.
        asked: the same of the machine that asks.

    Raises:
        NdmError: they differ.
    """
    if here != asked:
        raise NdmError(
            f"{socket.gethostname()}: {what} is not that of the machine that asks "
            f"({here} and {asked}); install the same packages and project on both"
        )


def pack(folder: Path) -> Content:
    """All files of a folder; of one that is not there, none."""
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def unpack(content: Content, to: Path) -> Path:
    """Write what was packed; returns `to`."""
    for name, data in content.items():
        path = to / name if name else to
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return to


def keep(content: Content, out: Path) -> None:
    """Put a folder that came back in the place of the older one: whole, or not at all."""
    with files.scratch(out) as scratch:
        folder = unpack(content, scratch / "new")
        if out.exists():
            shutil.rmtree(out)
        folder.rename(out)


def connect() -> Any:
    """Ray, connected; before long work, so that a cluster that is not there costs nothing.

    Raises:
        NdmError: it is not installed, no cluster runs, or one of another version.
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
        except RuntimeError as error:  # the cluster has another Ray, or another Python
            why = " ".join(str(error).split())
            raise NdmError(f"ray: {why}; install what the cluster has") from None
    return ray


def each(
    function: Callable[..., Any], tasks: Sequence[Any], *common: Any
) -> Iterator[tuple[int, Any]]:
    """Call a function on every task, each on one CPU of the cluster.

    A task whose worker is lost runs again on another. Closing the iterator abandons what has not
    begun.

    Args:
        function: of a module that the workers have; its errors come back as they are.
        tasks: what it takes; they travel to the workers.
        *common: what it takes beside each task; travels to a machine once.

    Yields:
        number of the task and its result, in any order; an NdmError where all attempts lost
        their worker.

    Raises:
        NdmError: Ray is not installed, or no cluster runs.
    """
    ray = connect()
    remote = ray.remote(max_retries=RETRIES)(function)
    shared = [ray.put(one) for one in common]
    numbers = {remote.remote(task, *shared): number for number, task in enumerate(tasks)}
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
