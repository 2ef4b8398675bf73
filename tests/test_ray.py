# SPDX-License-Identifier: GPL-2.0-only
"""`--engine ray` on a Ray cluster of two workers; where ray is installed (`make test-ray`)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ndm_tcp.cli import run_command
from ndm_tcp.datasets.builder import build, remote
from ndm_tcp.datasets.readers import sources
from ndm_tcp.errors import NdmError

from .conftest import TRACES

pytestmark = pytest.mark.pictures
NAMES = ("cubic-00-clean", "reno-03-lossy", "bbr-01-clean")
FILES = ("rounds.parquet", "dataset.json", "DATASET_CARD.md", "inputs.png", "paths.png")


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """Two workers on this machine."""
    ray = pytest.importorskip("ray", reason="no ray; make test-ray installs it")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=40)
    yield
    ray.shutdown()


def test_ray_gives_the_same_bytes(cluster: None, tmp_path: Path) -> None:
    paths = [TRACES / name for name in NAMES]
    build.build(paths, tmp_path / "local", quiet=True)
    build.build(paths, tmp_path / "ray", quiet=True, engine="ray")
    for name in FILES:
        assert (tmp_path / "local" / name).read_bytes() == (tmp_path / "ray" / name).read_bytes()


def test_errors_come_back(cluster: None, tmp_path: Path) -> None:
    bad = tmp_path / "bad.pcap"
    bad.write_bytes(b"no capture at all, but long enough to look at")
    with pytest.raises(NdmError, match="neither a packet capture"):
        build.build([TRACES / NAMES[0], bad], tmp_path / "out", quiet=True, engine="ray")
    assert not (tmp_path / "out").exists()


def test_sources_and_parts_behind_urls(cluster: None, tmp_path: Path) -> None:
    path = TRACES / "third_party" / "mlab_tcpinfo_jdczh_00183.jsonl.zst"
    build.build([path], tmp_path / "local", quiet=True)
    build.build(
        [f"file://{path}"],
        tmp_path / "ray",
        quiet=True,
        engine="ray",
        parts_url=f"file://{tmp_path}/parts",
    )
    assert not (tmp_path / "parts").exists()
    for name in FILES:
        assert (tmp_path / "local" / name).read_bytes() == (tmp_path / "ray" / name).read_bytes()


# --- URLs without Ray ------------------------------------------------------------------------
def test_urls_with_the_local_engine(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    path = TRACES / "third_party" / "mlab_tcpinfo_jdczh_00183.jsonl.zst"
    (folder / path.name).write_bytes(path.read_bytes())
    url = f"file://{folder}"
    assert remote.find(url) == [f"{url}/{path.name}"]
    build.build([url], tmp_path / "a", jobs=2, quiet=True, parts_url=f"file://{tmp_path}/parts")
    build.build([path], tmp_path / "b", quiet=True)
    for name in FILES:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    with remote.local(f"{url}/{path.name}") as copy:
        assert sources.digest(copy) == sources.digest(path)


@pytest.mark.parametrize("url", ["file:///nowhere/at/all", "nonsense://x/y"])
def test_bad_urls_are_one_line(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["dataset", "build", url, "-o", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"ndm: {url}: ") and error.count("\n") == 1
    assert not list(tmp_path.iterdir())
