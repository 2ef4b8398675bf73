# SPDX-License-Identifier: GPL-2.0-only
"""The object and its loader, built once; skips where they cannot be built or loaded."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from filelock import FileLock

from ndm_tcp.bpf import default, loader

from .. import namespaces
from ..conftest import ROOT

BPF = ROOT / "bpf"
MISSING = ("has no BTF", "has no BPF struct_ops", "Operation not permitted")
"""what the loader says of kernels that are not to blame"""


def build(out: Path, root: Path = ROOT, *targets: str, clang: str = "clang") -> Path:
    """`make -C bpf` into a folder, with the kmod/ of another root; returns the folder."""
    for tool in (clang, "make", "cc"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is missing: make test-packages, or apt-get install {tool}")
    out.mkdir(exist_ok=True)
    words = ["make", "-s", "-C", str(BPF), f"ROOT={root}", f"OUT={out}"]
    words.append(f"CLANG={clang}")
    done = subprocess.run(
        [*words, *(str(out / name) for name in targets)],
        capture_output=True,
        text=True,
        check=False,
    )
    if "libbpf.h: not found" in done.stderr:
        pytest.skip("libbpf-dev is missing: make test-packages")
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr, done.stderr
    return out


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ndm_tcp.bpf.o and ndm_bpf."""
    return build(tmp_path_factory.mktemp("bpf"))


@pytest.fixture(scope="session")
def loadable(built: Path) -> Path:
    """The same, where this kernel takes it."""
    if os.geteuid():
        pytest.skip("not root: BPF cannot be loaded")
    done = subprocess.run([built / "ndm_bpf", "check"], capture_output=True, text=True, check=False)
    if any(words in done.stderr for words in MISSING):
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    return built


@pytest.fixture(scope="module")
def alone() -> Iterator[None]:
    """One file of tests at a time: the kernel has one ndm_tcp_bpf for all processes."""
    with FileLock(Path(tempfile.gettempdir()) / "ndm-tcp-tests-bpf.lock"):
        yield


@pytest.fixture(scope="module")
def path() -> Iterator[str]:
    """The prefix of three network namespaces."""
    with namespaces.three() as prefix:
        yield prefix


@pytest.fixture(scope="module")
def loaded(loadable: Path, alone: None) -> Iterator[Path]:
    """The same folder, with the algorithm registered."""
    if loader.NAME in default.available():
        pytest.skip("somebody uses ndm_tcp_bpf on this host")
    subprocess.run([loadable / "ndm_bpf", "load"], check=True)
    yield loadable
    subprocess.run([loadable / "ndm_bpf", "unload"], check=True)
