# SPDX-License-Identifier: GPL-2.0-only
"""Archives of logs, file by file."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from pathlib import Path

import pytest

from ndm_tcp.datasets.readers import flent, ndt7, sources
from ndm_tcp.errors import NdmError

from .test_field_logs import result, timed


# --- archives --------------------------------------------------------------------------------
def tar(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        archive.add(path.parent, "folder", recursive=False)
        for name, data in members.items():
            about = tarfile.TarInfo(name)
            about.size = len(data)
            archive.addfile(about, io.BytesIO(data))
    return path


LOG = "".join(timed(k) for k in range(40)).encode()


def test_logs_in_an_archive_are_read(tmp_path: Path) -> None:
    members = {f"2022/{k}.json.gz": gzip.compress(json.dumps(result()).encode()) for k in range(3)}
    members |= {"ss.log": LOG, "notes.txt": b"nothing", "empty.json": b"", "x.json": b'{"Key":"'}
    path = tar(tmp_path / "a.tgz", members)
    assert sources._kind(path) == "tar"
    found = sources.read_rounds(path, "0" * 64)
    assert [flow.format for flow in found.flows] == ["ndt7"] * 3 + ["ss"]
    assert found.numbers == [0, 1, 2, 3]
    assert found.warnings == [
        "3 files of the archive were left out, first notes.txt: expected a capture or a log"
    ]


def test_archives_without_a_log_or_of_a_run_are_refused(tmp_path: Path) -> None:
    for members, message in (
        ({"notes.txt": b"nothing"}, "nothing to read in this archive"),
        ({"run/sender.pcap.zst": b"x", "run/ss.txt": LOG}, "unpack it first: tar xf"),
        ({"inner.tgz": tar(tmp_path / "i.tgz", {"a": LOG}).read_bytes()}, "nothing to read"),
    ):
        with pytest.raises(NdmError, match=message):
            sources.read_rounds(tar(tmp_path / "a.tgz", members), "0" * 64)
    whole = tar(tmp_path / "a.tgz", {"ss.log": LOG * 30}).read_bytes()
    (tmp_path / "a.tgz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(NdmError, match="compressed data ends or breaks|damaged archive"):
        sources.read_rounds(tmp_path / "a.tgz", "0" * 64)


def test_flent_results_share_the_warning(tmp_path: Path) -> None:
    entries = [{"t": 1.0 + k // 4, "val": 1, "dur": 0.2, "tcp_cwnd": 10 + k, "tcp_rtt": 40}
               for k in range(20)]  # fmt: skip
    document = {"metadata": {"BATCH_UUID": 1}, "version": 4, "raw_values": {"TCP": entries}}
    path, warnings = tmp_path / "x.flent", list[str]()
    path.write_text(json.dumps(document))
    assert len(flent.read(path, warn=warnings.append)) == 1
    assert warnings[0].startswith("15 of 20 polls") and ndt7.DIRECTIONS
