# SPDX-License-Identifier: GPL-2.0-only
"""The BPF form in the running kernel: what loads, what is refused, and what unloading leaves."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ndm_tcp import contract, model_json
from ndm_tcp.bpf import default, loader
from ndm_tcp.cli import run_command
from ndm_tcp.export.integers import generated, model_c
from ndm_tcp.export.integers.network import IntegerNetwork

from .. import namespaces
from ..conftest import ROOT
from ..kernel.kbuild import change_one_weight
from .conftest import build

PINS = Path("/sys/fs/bpf/ndm_tcp_bpf")


def ndm_bpf(folder: Path, *words: object) -> subprocess.CompletedProcess[str]:
    command = [str(folder / "ndm_bpf"), *(str(word) for word in words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def unloaded(loadable: Path, alone: None) -> Iterator[Path]:
    """Nothing loaded, before and after."""
    if PINS.exists():
        pytest.skip(f"{PINS} exists: somebody uses ndm_tcp_bpf on this host")
    before = default.SYSCTL.read_text()
    with namespaces.making():
        yield loadable
        default.SYSCTL.write_text(before)
        default.forget()
        if PINS.exists():
            done = ndm_bpf(loadable, "unload")
            assert done.returncode == 0, done.stderr


def refused(folder: Path, *words: object) -> str:
    """The one line with which `load` refuses; nothing is registered or pinned."""
    done = ndm_bpf(folder, *words)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert loader.NAME not in default.available() and not PINS.exists()
    return done.stderr


def test_the_golden_vectors_pass_in_the_kernel(loadable: Path) -> None:
    done = ndm_bpf(loadable, "check")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("clang", "divisor"), [("clang-14", 1), ("clang-16", 1), ("clang-16", 64), ("clang-19", 1)]
)
def test_the_kernel_takes_the_object_of(
    clang: str, divisor: int, loadable: Path, tmp_path: Path
) -> None:
    """The verifier may refuse what a compiler does not inline. clang 16 left out comparisons, too,
    of sums that a network's weights bound, the more of them the smaller the weights."""
    shutil.copytree(ROOT / "kmod", tmp_path / "kmod")
    model = model_json.from_json(ROOT / "kmod" / "generated" / model_json.NAME)
    layers = [
        replace(layer, weight=layer.weight // divisor, bias=layer.bias // divisor)
        for layer in model.layers
    ]
    generated.write(IntegerNetwork(replace(model, layers=layers)), tmp_path / "kmod" / "generated")
    done = ndm_bpf(build(tmp_path / "bpf", tmp_path, clang=clang), "check")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_one_changed_weight_is_refused(unloaded: Path, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "kmod", tmp_path / "kmod")
    change_one_weight(tmp_path / "kmod")
    other = build(tmp_path / "other", tmp_path, "ndm_tcp.bpf.o")
    assert "golden vector" in refused(unloaded, "load", other / "ndm_tcp.bpf.o")


@pytest.mark.parametrize(
    ("name", "array"),
    [("ndm_vectors.h", "ndm_vector_out"), ("ndm_stream.h", "ndm_stream_x"),
     ("ndm_digests.h", "ndm_all_digest")],
)  # fmt: skip
def test_one_differing_bit_is_refused(
    name: str, array: str, unloaded: Path, tmp_path: Path
) -> None:
    shutil.copytree(ROOT / "kmod", tmp_path / "kmod")
    header = tmp_path / "kmod" / "generated" / name
    text = header.read_text()
    at = text.index(f" {array}[")
    number = re.compile(r"(?<=[{\s])-?(?:0x[0-9a-f]+|\d+)(?=U?L*,)").search(
        text, text.index("{", at)
    )
    assert number
    changed = int(number[0], 0) ^ 1
    header.write_text(f"{text[: number.start()]}{changed}{text[number.end() :]}")
    other = build(tmp_path / "other", tmp_path, "ndm_bpf")
    assert "golden" in refused(other, "load", unloaded / "ndm_tcp.bpf.o")


def test_it_stays_without_its_loader_until_it_is_unloaded(
    unloaded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = default.SYSCTL.read_text()
    words = ["--folder", str(unloaded)]
    assert run_command(["bpf", "status", *words]) == 1
    assert run_command(["bpf", "load", *words, "--default"]) == 0
    assert loader.NAME in default.available()
    assert default.SYSCTL.read_text().strip() == loader.NAME
    capsys.readouterr()
    assert run_command(["bpf", "status", *words]) == 0
    said = capsys.readouterr().out
    model = model_c.from_json(generated.GENERATED / "ndm_model.json")
    assert model.hash() in said and contract.HASH in said and str(PINS) in said
    assert run_command(["bpf", "load", *words]) == 2
    assert "loaded already" in capsys.readouterr().err
    assert "is the default" in ndm_bpf(unloaded, "unload").stderr
    assert run_command(["bpf", "unload", *words]) == 0
    assert loader.NAME not in default.available() and not PINS.exists()
    assert default.SYSCTL.read_text() == before
    assert run_command(["bpf", "unload", *words]) == 2
    assert capsys.readouterr().err == "ndm: ndm_tcp_bpf is not loaded\n"


def test_without_a_loader_the_line_says_how_to_build_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for verb in ("load", "status", "events", "unload"):
        assert run_command(["bpf", verb, "--folder", str(tmp_path)]) == 2
        said = capsys.readouterr().err
        remedy = f"in a checkout run: make -C bpf OUT={tmp_path}"
        assert said == f"ndm: {tmp_path}/ndm_bpf: not built; {remedy}\n"
    (tmp_path / "Makefile").touch()  # the sources are there
    assert run_command(["bpf", "load", "--folder", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert said == f"ndm: {tmp_path}/ndm_bpf: not built; run: make -C {tmp_path}\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="not root: cannot become somebody else")
@pytest.mark.parametrize(
    "verb", ["load", "check", "status", "events", "unload", "replay", "swap --built-in"]
)
def test_only_root_may(verb: str, built: Path, tmp_path: Path) -> None:
    program = Path("/tmp") / f"ndm_bpf.{os.getpid()}"
    shutil.copy(built / "ndm_bpf", program)
    try:
        done = subprocess.run(
            [program, *verb.split()],
            capture_output=True,
            text=True,
            check=False,
            user=65534,
            group=65534,
        )
    finally:
        program.unlink()
    assert done.returncode == 1
    assert done.stderr.startswith("ndm_bpf: not root:") and done.stderr.count("\n") == 1


def test_a_file_that_is_no_object_is_refused(unloaded: Path, tmp_path: Path) -> None:
    path = tmp_path / "text.o"
    path.write_text("no ELF")
    assert "build it: make -C bpf" in refused(unloaded, "load", path)


NEWER = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>

static int made = -1;

int bpf_link__fd(const struct bpf_link *link)
{
	int (*fd)(const struct bpf_link *) = dlsym(RTLD_NEXT, "bpf_link__fd");

	return made < 0 ? fd(link) : made;
}

struct bpf_link *bpf_map__attach_struct_ops(const struct bpf_map *map)
{
	struct bpf_link *(*attach)(const struct bpf_map *) =
		dlsym(RTLD_NEXT, "bpf_map__attach_struct_ops");
	struct bpf_link *link = attach(map);

	if (link && bpf_map__map_flags(map) & 1U << 13 && bpf_link__fd(link) == bpf_map__fd(map))
		made = bpf_link_create(bpf_map__fd(map), 0, 44, NULL);
	return link;
}
"""
"""libbpf makes the link itself from version 1.2 on, where BPF_F_LINK is set"""


def test_it_registers_once_whatever_libbpf_does(unloaded: Path, tmp_path: Path) -> None:
    (tmp_path / "newer.c").write_text(NEWER)
    shim = tmp_path / "newer.so"
    words = ["cc", "-shared", "-fPIC", "-o", shim, tmp_path / "newer.c", "-ldl"]
    subprocess.run(words, check=True)
    for preload in ({}, {"LD_PRELOAD": str(shim)}):
        done = subprocess.run(
            [unloaded / "ndm_bpf", "load"],
            env=os.environ | preload,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert loader.NAME in default.available()
        assert ndm_bpf(unloaded, "unload").stdout == "flows=0\n"
        assert loader.NAME not in default.available()


def test_a_folder_of_somebody_else_is_refused(unloaded: Path) -> None:
    """Its owner could unregister the algorithm, and hold the lock."""
    for owner, mode in ((65534, 0o755), (0, 0o777)):
        PINS.mkdir()
        try:
            PINS.chmod(mode)
            os.chown(PINS, owner, 0)
            done = ndm_bpf(unloaded, "load")
            assert done.returncode == 1 and done.stderr.count("\n") == 1
            assert "not a folder that only root may change" in done.stderr
        finally:
            PINS.rmdir()
        assert loader.NAME not in default.available()
