# SPDX-License-Identifier: GPL-2.0-only
"""libFuzzer over hostile ACK records, with every sanitizer; NDM_FUZZ_S=3600 for an hour."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from ..kernel.kbuild import KMOD, copy_kmod


def fuzz(kmod: Path, work: Path, seconds: int) -> subprocess.CompletedProcess[str]:
    """Compile and run the fuzzer for a while, from the golden stream's size of records up."""
    if shutil.which("clang") is None:
        pytest.skip("clang is missing: apt-get install clang")
    program = work / "fuzz"
    sanitizers = "-fsanitize=fuzzer,undefined,address,integer"
    # Unsigned arithmetic modulo 2^32 is meant; so are the casts that say so.
    meant = "unsigned-integer-overflow,unsigned-shift-base,implicit-conversion"
    words = ["clang", "-O1", "-g", sanitizers, f"-fno-sanitize={meant}"]
    words += ["-fno-sanitize-recover=all", f"-I{kmod}", "-o", str(program)]
    built = subprocess.run(
        [*words, str(Path(__file__).with_name("fuzz.c"))], capture_output=True, text=True
    )
    if "clang_rt.fuzzer" in built.stderr:
        pytest.skip("clang has no libFuzzer: apt-get install libclang-rt-14-dev")
    assert built.returncode == 0, built.stderr
    corpus = work / "corpus"
    corpus.mkdir()
    limits = [f"-max_total_time={seconds}", "-max_len=4096", "-len_control=0", "-seed=1"]
    limits += ["-use_value_profile=1", f"-artifact_prefix={work}/"]
    return subprocess.run(
        [str(program), *limits, str(corpus)],
        capture_output=True,
        text=True,
        check=False,
    )


def test_no_record_is_too_hostile(tmp_path: Path) -> None:
    done = fuzz(KMOD, tmp_path, int(os.environ.get("NDM_FUZZ_S", "10")))
    print(done.stderr[-300:])
    assert done.returncode == 0, done.stderr[-3000:]


def test_a_missing_limit_is_found(tmp_path: Path) -> None:
    sources = copy_kmod(tmp_path / "kmod")
    header = sources / "ndm_features.h"
    text = header.read_text()
    limited = "return ratio < limit ? (u32)ratio : limit;"
    assert text.count(limited) == 1
    header.write_text(text.replace(limited, "return (u32)ratio;"))
    assert fuzz(sources, tmp_path, 60).returncode != 0
