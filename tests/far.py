# SPDX-License-Identifier: GPL-2.0-only
"""A cluster of one machine that shares nothing with this one, without Ray: all is pickled."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from ndm_tcp import cluster


def pretend(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Put it in the cluster's place; returns the tasks that it gets, as they come."""
    seen: list[Any] = []

    def each(
        function: Callable[..., Any], tasks: Sequence[Any], *common: Any
    ) -> Iterator[tuple[int, Any]]:
        for number, task in enumerate(tasks):
            seen.append(task)
            yield number, copy(function(copy(task), *copy(common)))

    monkeypatch.setattr(cluster, "connect", lambda: None)
    monkeypatch.setattr(cluster, "each", each)
    return seen


def copy(of: Any) -> Any:
    """As it arrives on another machine."""
    return pickle.loads(pickle.dumps(of))
