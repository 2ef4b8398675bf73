# SPDX-License-Identifier: GPL-2.0-only
"""The C that reads ss logs and tcp_probe traces against the Python in tests/reference."""

from __future__ import annotations

import dataclasses
import random
import tarfile
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from ndm_tcp.datasets.readers import mlab, ss, streams, tcp_probe, text_chunks
from ndm_tcp.datasets.rounds.flow import FlowRecords
from ndm_tcp.errors import NdmError

from .conftest import TRACES
from .reference import mlab as mlab_twin
from .reference import ss as ss_twin
from .reference import tcp_probe as probe_twin

TWINS = {"ss": (ss, ss_twin), "tcp_probe": (tcp_probe, probe_twin), "mlab": (mlab, mlab_twin)}
TCP_INFO = "third_party/mlab_tcpinfo_jdczh_00183.jsonl.zst"
SAMPLES = {kind: f"reno-03-lossy/{kind}.txt.zst" for kind in ("ss", "tcp_probe")}
SAMPLES["mlab"] = TCP_INFO
LOGS = sorted(
    str(path.relative_to(TRACES))
    for path in TRACES.rglob("*.txt.zst")
    if path.name.startswith(tuple(TWINS))
)


def outcome(reader: ModuleType, path: Path) -> list[FlowRecords] | str:
    try:
        return list(reader.read(path))
    except NdmError as error:
        return str(error)


def compare(path: Path, kind: str) -> bool:
    """Read with both; true if there were flows."""
    ours, theirs = (outcome(reader, path) for reader in TWINS[kind])
    if isinstance(ours, str) or isinstance(theirs, str):
        assert isinstance(ours, str) and isinstance(theirs, str)
        # Of two mistakes in one file each may name another.
        assert ours.partition(" (")[0] == theirs.partition(" (")[0]
        return False
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs, strict=True):
        for field in dataclasses.fields(mine):
            a, b = getattr(mine, field.name), getattr(other, field.name)
            if isinstance(a, np.ndarray):
                assert np.array_equal(a, b), field.name
            else:
                assert a == b, field.name
    return bool(ours)


@pytest.mark.parametrize("name", LOGS)
def test_every_shipped_log(name: str) -> None:
    assert compare(TRACES / name, Path(name).name.removesuffix(".txt.zst"))


def test_the_shipped_archive() -> None:
    assert compare(TRACES / TCP_INFO, "mlab")


def test_archives_beside_the_tree(realdata: Path, tmp_path: Path) -> None:
    with tarfile.open(realdata / "mlab_tcpinfo_20190516_arn02_364flows.tgz") as archive:
        archive.extractall(tmp_path, filter="data")
    assert sum(compare(path, "mlab") for path in sorted(tmp_path.rglob("*.zst"))) == 362


def test_logs_beside_the_tree(realdata: Path) -> None:
    assert compare(realdata / "ss_public_records_dev.txt", "ss")
    for folder in sorted((realdata / "paired").iterdir()):
        assert compare(folder / "ss.txt.gz", "ss")
        assert compare(folder / "trace.txt.gz", "tcp_probe")


def mutated(text: str, draw: random.Random) -> str:
    """The text with some of its lines bent, doubled, swapped, cut or spoiled."""
    lines = text.splitlines()
    words = ("", " ", "users:((\"a b\",pid=1))", "novelty:3", "shiny", "cwnd:", "rtt:1e3/2", "é",
             "Time: 1700000000.5", "time:1700000000000000000 ", "SYN-SENT", "-1", "app_limited",
             "0x", "srtt=99999999999", "1700000123.25", "# x", "\t", "State Recv-Q",
             "retrans:1/2", "delivery_rate 1.5Gbps", "bytes_acked:0", "sock_cookie=", '"', "AAAA",
             "2019-02-29T00:00:00Z", "null", "=",
             "cong_state=300")  # fmt: skip
    for _ in range(draw.randrange(1, 6)):
        at = draw.randrange(len(lines))
        separator = draw.choice((" ", " ", ",", '"'))
        tokens = lines[at].split(separator)
        spot = draw.randrange(len(tokens))
        choice = draw.randrange(6)
        if choice == 0:
            tokens.insert(spot, draw.choice(words))
        elif choice == 1:
            tokens[spot] = draw.choice(words)
        elif choice == 2:
            del tokens[spot:]
        elif choice == 3:
            tokens[spot] = tokens[spot][: draw.randrange(len(tokens[spot]) + 1)]
        elif choice == 4:
            tokens = ["\t" + separator.join(tokens)]
        else:
            tokens[spot] += "\n\t" + draw.choice(words)
        lines[at] = separator.join(tokens)
    return "\n".join(lines) + "\n" * draw.randrange(2)


@pytest.mark.parametrize("kind", TWINS)
def test_bent_logs(tmp_path: Path, kind: str) -> None:
    """C takes a line only if it understands it as Python does; the messages are equal too."""
    with streams.open_text(TRACES / SAMPLES[kind]) as stream:
        lines = stream.read().splitlines(keepends=True)
    draw, good = random.Random(11), 0
    for number in range(400):
        start = draw.randrange(len(lines) - 60)
        path = tmp_path / "log"
        path.write_text(mutated("".join(lines[start : start + 60]), draw), encoding="utf-8")
        try:
            good += compare(path, kind)
        except AssertionError as error:
            raise AssertionError(f"number {number}: {path}\n{error}") from None
    assert good > 30


def test_pieces_end_where_records_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in TWINS:
        source = TRACES / SAMPLES[kind]
        whole = TWINS[kind][0].read(source)
        monkeypatch.setattr(text_chunks, "CHUNK_BYTES", 1000)
        pieces = TWINS[kind][0].read(source)
        monkeypatch.undo()
        assert all(np.array_equal(a.acks, b.acks) for a, b in zip(whole, pieces, strict=True))


def test_a_file_without_lines_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"cwnd:1 " * (1 << 20))
    with pytest.raises(NdmError, match=":1: line of over"):
        ss.read(path)
