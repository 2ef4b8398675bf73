# SPDX-License-Identifier: GPL-2.0-only
"""A short smoke of the fuzzers, always with the same inputs; `make fuzz` runs them for longer."""

from __future__ import annotations

import io
import random
import shutil
import subprocess
import time
from pathlib import Path

import pytest
import zstandard

from ndm_tcp.datasets.builder import command
from ndm_tcp.datasets.readers import sources, streams
from ndm_tcp.errors import NdmError

from .conftest import ROOT
from .fuzz import corpus, fuzz_readers

SANITIZERS = "-fsanitize=fuzzer,address,undefined"
SECONDS_EACH = 5.0


def test_bent_files_are_read_or_refused(tmp_path: Path) -> None:
    """Nothing but NdmError, and no file takes long."""
    draw, read, slowest = random.Random(7), 0, 0.0
    seeds = list(corpus.texts(step=5))
    assert len(seeds) > 30
    for number in range(1500):
        kind, data = seeds[number % len(seeds)]
        first = kind + 16 * draw.randrange(len(fuzz_readers.PACKS))
        bent = bytes([first]) + fuzz_readers.bend(data, draw)
        start = time.process_time()
        try:
            read += fuzz_readers.try_one(bent, tmp_path)
        except Exception as error:
            kept = tmp_path / "finding"
            kept.write_bytes(bent)
            raise AssertionError(f"input {number}, kept in {kept}") from error
        slowest = max(slowest, time.process_time() - start)
    assert read > 200 and slowest < SECONDS_EACH


def test_every_format_has_a_seed_and_is_named_to_users(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what ships. A format that a refusal does not name is one that nobody finds."""
    monkeypatch.setattr(corpus, "FOLDERS", (ROOT / "datasets" / "traces",))
    seeds = [data for _, data in corpus.texts()]
    texts = {
        "docs/datasets.md": (ROOT / "docs" / "datasets.md").read_text(),
        "ndm dataset build --help": command.EXAMPLE,
        "sources.UNKNOWN": sources.UNKNOWN,
    }
    for name, sniff, _ in sources.POLL_READERS:
        assert any(sniff(seed) for seed in seeds), f"{name}: no seed in tests/fuzz/corpus.py"
        for where, text in texts.items():
            assert name in text.lower().replace("m-lab", "mlab"), f"{name}: not named in {where}"


@pytest.mark.skipif(shutil.which("clang") is None, reason="no clang")
def test_the_c_readers_under_sanitizers(tmp_path: Path) -> None:
    program = tmp_path / "fuzz_native"
    sources_c = [*sorted((ROOT / "datasets" / "native").glob("*.c"))]
    words = ["clang", "-g", "-O1", SANITIZERS, "-fno-sanitize-recover=undefined", f"-I{ROOT}"]
    words += [str(ROOT / "tests" / "fuzz" / "fuzz_native.c"), *map(str, sources_c)]
    subprocess.run([*words, "-lm", "-o", str(program)], check=True)
    assert corpus.write(tmp_path / "seeds", step=6) > 30
    run = [str(program), str(tmp_path / "seeds"), "-runs=6000", "-seed=1", "-max_len=8000"]
    run += ["-rss_limit_mb=2048", "-timeout=20", f"-artifact_prefix={tmp_path}/"]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Done 6000 runs" in done.stderr


@pytest.mark.skipif(shutil.which("clang") is None, reason="no clang")
@pytest.mark.parametrize("bound", [True, False], ids=["as it is", "without its bound"])
def test_the_parser_of_networks_under_sanitizers(bound: bool, tmp_path: Path) -> None:
    """And the fuzzer finds a parser that accepts a network whose accumulators overflow."""
    shutil.copytree(ROOT / "kmod", tmp_path / "kmod")
    header = tmp_path / "kmod" / "ndm_blob.h"
    text, proof = header.read_text(), "return -low <= 0x7fffffff &&"
    assert text.count(proof) == 1
    header.write_text(text if bound else text.replace(proof, "return 1 ||"))
    program = tmp_path / "fuzz_blob"
    words = ["clang", "-g", "-O1", SANITIZERS, "-fno-sanitize-recover=undefined", f"-I{tmp_path}"]
    source = str(ROOT / "tests" / "fuzz" / "fuzz_blob.c")
    subprocess.run([*words, source, "-o", str(program)], check=True)
    assert corpus.write_blobs(tmp_path / "seeds") == 3
    run = [str(program), str(tmp_path / "seeds"), "-runs=6000", "-seed=1", "-max_len=20000"]
    run += ["-timeout=20", f"-artifact_prefix={tmp_path}/"]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == bound, done.stderr[-3000:]
    assert ("Done 6000 runs" in done.stderr) == bound


@pytest.mark.parametrize("name", ["bomb.json.gz", "bomb.log.zst", "bomb.pcap.zst"])
def test_decompression_bombs_take_bounded_memory(tmp_path: Path, name: str) -> None:
    """4 GB out of less than a megabyte: read on or refused, but not held."""
    import resource

    path, block = tmp_path / name, bytes(1 << 20)
    head = {"bomb.json.gz": b'{"start": {"version": "', "bomb.log.zst": b"ESTAB 0 0 rto:1 cwnd:5 "}
    begin = head.get(name, bytes.fromhex("d4c3b2a1020004000000000000000000ffff000065000000"))
    blocks = {"bomb.json.gz": 400, "bomb.pcap.zst": 300}.get(name, 4000)
    with path.open("wb") as raw:
        if name.endswith("gz"):
            import gzip

            with gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=1) as out:
                out.write(begin)
                for _ in range(blocks):
                    out.write(block)
        else:
            with zstandard.ZstdCompressor().stream_writer(raw, closefd=False) as packed:
                packed.write(begin)
                for _ in range(blocks):
                    packed.write(block)
    assert path.stat().st_size < 5 << 20
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        sources.read_rounds(path, "0" * 64)
    except NdmError as error:
        assert "\n" not in str(error)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 700 * 1024


def test_zstd_gives_what_a_frame_holds(tmp_path: Path) -> None:
    data = random.Random(1).randbytes(300_000)
    path = tmp_path / "x"
    path.write_bytes(zstandard.ZstdCompressor().compress(data) * 2)
    with streams.open_bytes(path) as stream:
        assert stream.read() == data * 2
    assert isinstance(stream, io.BufferedReader)
