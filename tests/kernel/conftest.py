# SPDX-License-Identifier: GPL-2.0-only
"""The module as it is in the checkout, built once for all tests that only look at it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ..conftest import once
from .kbuild import Headers, Unavailable, build, copy_kmod, find_headers

Built = Callable[[str], tuple[Headers, Path]]


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Of a series of kernels: its headers, and ndm_tcp.ko between its sources.

    A kernel without headers is a skipped test that says what to install.
    """

    def of(series: str) -> tuple[Headers, Path]:
        try:
            headers = find_headers(series)
        except Unavailable as error:
            pytest.skip(str(error))
        name = f"module-{headers.release}"
        sources = once(tmp_path_factory, name, lambda to: build(headers, copy_kmod(to)))
        return headers, sources / "ndm_tcp.ko"

    return of
