# SPDX-License-Identifier: GPL-2.0-only
"""Kernel trees for other machines, prepared for building modules; kept in the cache.

A folder in `${XDG_CACHE_HOME:-~/.cache}/ndm-tcp/cross` holds one source, of which only what a
module's build reads is left, and a folder per architecture that its build system writes to.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from ndm_tcp import files
from ndm_tcp.errors import NdmError
from ndm_tcp.lab.guest import uml_build

from .kbuild import BuildFailed, Unavailable

KEEP = ("Makefile", "Kbuild", "Kconfig", "arch", "include", "scripts")


@dataclass(frozen=True)
class Machine:
    """An architecture, as the kernel's build system names things."""

    arch: str
    triplet: str
    config: str
    package: str
    keep: str
    """the folder below arch/"""
    bits: int


MACHINES = (
    Machine("arm64", "aarch64-linux-gnu", "defconfig", "gcc-aarch64-linux-gnu", "arm64", 64),
    Machine(
        "arm", "arm-linux-gnueabihf", "multi_v7_defconfig", "gcc-arm-linux-gnueabihf", "arm", 32
    ),
    Machine("i386", "i686-linux-gnu", "defconfig", "gcc-i686-linux-gnu", "x86", 32),
)


def _words(machine: Machine, out: Path) -> list[str]:
    cross = f"CROSS_COMPILE={machine.triplet}-"
    return ["nice", "make", f"O={out}", f"ARCH={machine.arch}", cross]


def _prune(source: Path) -> None:
    for entry in source.iterdir():
        if entry.name not in KEEP and entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
    for entry in (source / "arch").iterdir():
        if entry.is_dir() and entry.name not in {machine.keep for machine in MACHINES}:
            shutil.rmtree(entry)
    for pattern in ("*.c", "*.S", "*.dts", "*.dtsi"):
        for path in (source / "arch").rglob(pattern):
            path.unlink()


def _make(folder: Path, phases: uml_build.Phases) -> None:
    source = folder / "source"
    source.mkdir()
    archive, version = uml_build.source_tar(folder, phases)
    excluded = [f"--exclude=*/{pattern}" for pattern in uml_build.UNPACK_NOT]
    words = ["tar", "-xJf", str(archive), "-C", str(source), "--strip-components=1"]
    phases.run(f"unpacking the source of {version}", *words, *excluded, cwd=folder)
    for machine in MACHINES:
        words = _words(machine, folder / machine.arch)
        phases.run(f"configuring for {machine.arch}", *words, machine.config, cwd=source)
        jobs = f"-j{len(os.sched_getaffinity(0))}"
        phases.run(
            f"preparing {machine.arch} for modules", *words, jobs, "modules_prepare", cwd=source
        )
    _prune(source)
    shutil.rmtree(folder / "package", ignore_errors=True)
    (folder / "version").write_text(version + "\n", encoding="ascii")


def trees() -> Path:
    """The prepared trees, made if they are not in the cache.

    Raises:
        Unavailable: a compiler or the kernel's source cannot be had.
    """
    for machine in MACHINES:
        if shutil.which(f"{machine.triplet}-gcc") is None:
            raise Unavailable(
                f"{machine.triplet}-gcc is missing: apt-get install {machine.package}"
            )
    said = [
        subprocess.run([f"{m.triplet}-gcc", "-dumpfullversion"], capture_output=True).stdout
        for m in MACHINES
    ]
    folder = uml_build.cache().parent / "cross" / files.digest(repr(MACHINES).encode(), *said)
    with uml_build.locked("cross"):
        # Their names are in the trees: they cannot be moved, the file "version" comes last.
        if not (folder / "version").is_file():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            try:
                uml_build.need(uml_build.TOOLS)
                _make(folder, uml_build.Phases(folder / "log", quiet=False))
            except NdmError as error:
                raise Unavailable(str(error)) from None
    return folder


def build(machine: Machine, sources: Path) -> Path:
    """ndm_tcp.ko for another machine, with W=1 and with warnings as errors.

    What it takes from the kernel is not checked: there is no kernel, only its headers.
    """
    out = trees() / machine.arch
    words = [*_words(machine, out)[1:], "-C", str(out), f"M={sources}"]
    words = [*words, "W=1", "KCFLAGS=-Werror", "KBUILD_MODPOST_WARN=1", "modules"]
    done = subprocess.run(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        raise BuildFailed(done.stdout)
    return sources / "ndm_tcp.ko"
