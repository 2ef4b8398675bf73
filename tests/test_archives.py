# SPDX-License-Identifier: GPL-2.0-only
"""Archives of logs, file by file."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from pathlib import Path

import pytest
import zstandard

from ndm_tcp.datasets.readers import flent, ndt7, sources
from ndm_tcp.errors import NdmError

from .conftest import TRACES
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
    results = [json.dumps({"UUID": str(k), **result()}).encode() for k in range(3)]
    members = {f"2022/{k}.json.gz": gzip.compress(data) for k, data in enumerate(results)}
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


@pytest.mark.parametrize("damage", ["a byte of a header", "cut in a header", "cut before it"])
def test_a_damaged_header_is_not_the_end(damage: str, tmp_path: Path) -> None:
    """Of the second of three logs: two thirds of an archive must not pass for all of it."""
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for k in range(3):
            about = tarfile.TarInfo(f"{k}.log")
            data = LOG.replace(b":40000", b":%d" % (40_000 + k))
            about.size = len(data)
            archive.addfile(about, io.BytesIO(data))
    whole = bytearray((tmp_path / "a.tar").read_bytes())
    at = whole.index(b"1.log\0")
    if damage == "a byte of a header":
        whole[at + 100] ^= 1
    else:
        del whole[at + 200 * ("in" in damage) :]
    (tmp_path / "a.tar").write_bytes(whole)
    with pytest.raises(NdmError, match=rf"a.tar: damaged archive \(.* at byte {at}\); fetch it"):
        sources.read_rounds(tmp_path / "a.tar", "0" * 64)


def test_a_flow_that_an_archive_has_twice_is_used_once(tmp_path: Path) -> None:
    """The same log under two names; a capture, and the same one compressed."""
    (sender,) = (TRACES / "lab" / "train-00-clean--cubic--1").glob("sender.pcap.zst")
    plain = zstandard.ZstdDecompressor().decompressobj().decompress(sender.read_bytes())
    members = {"a.log": LOG, "b.log": LOG, "x.pcap": plain, "x.pcap.zst": sender.read_bytes()}
    found = sources.read_rounds(tar(tmp_path / "a.tgz", members), "0" * 64)
    assert [flow.format for flow in found.flows] == ["ss", "pcap"] and found.numbers == [0, 1]
    assert "2 flows are in another file of the archive, too; used once" in found.warnings


def test_flent_results_share_the_warning(tmp_path: Path) -> None:
    entries = [{"t": 1.0 + k // 4, "val": 1, "dur": 0.2, "tcp_cwnd": 10 + k, "tcp_rtt": 40}
               for k in range(20)]  # fmt: skip
    document = {"metadata": {"BATCH_UUID": 1}, "version": 4, "raw_values": {"TCP": entries}}
    path, warnings = tmp_path / "x.flent", list[str]()
    path.write_text(json.dumps(document))
    assert len(flent.read(path, warn=warnings.append)) == 1
    assert warnings[0].startswith("15 of 20 polls") and ndt7.DIRECTIONS
