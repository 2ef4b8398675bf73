# SPDX-License-Identifier: GPL-2.0-only
"""The module as it is in the checkout, built once for all tests that only look at it."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from .kbuild import Headers, Unavailable, build, copy_kmod, find_headers

Built = Callable[[str], tuple[Headers, Path]]


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Of a series of kernels: its headers, and ndm_tcp.ko between its sources.

    The workers of one run of the tests share the builds: the first that needs one makes it. A
    kernel without headers is a skipped test that says what to install.
    """
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "modules"
    folder.mkdir(exist_ok=True)

    def of(series: str) -> tuple[Headers, Path]:
        try:
            headers = find_headers(series)
        except Unavailable as error:
            pytest.skip(str(error))
        sources = folder / headers.release
        with (folder / f"{headers.release}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (sources / "ndm_tcp.ko").is_file():
                shutil.rmtree(sources, ignore_errors=True)  # of a build that failed
                build(headers, copy_kmod(sources))
        return headers, sources / "ndm_tcp.ko"

    return of
