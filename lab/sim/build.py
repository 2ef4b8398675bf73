# SPDX-License-Identifier: GPL-2.0-only
"""The simulator's program, out of its sources, Linux's algorithms and a module; cached."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
from pathlib import Path

from ndm_tcp import files
from ndm_tcp.errors import NdmError
from ndm_tcp.lab.guest import explore, uml_build
from ndm_tcp.lab.guest.uml_build import KMOD, Phases

SOURCES = Path(__file__).resolve().parent
FIXED_CWND = uml_build.FIXED_CWND / "fixed_cwnd.c"
"""the lab's own algorithm, as it is, too"""
ALGORITHMS = ("net/ipv4/tcp_bbr.c", "net/ipv4/tcp_cubic.c", "lib/win_minmax.c")
"""of Linux, as they are"""
OPTIONS = ("-std=gnu11", "-O2", f"-I{SOURCES / 'include'}")
STRICT = ("-Wall", "-Wextra", "-Wno-unused-parameter", "-Wno-missing-field-initializers")
MODULE = "ndm.c"
"""the one file that includes a module's headers"""


def algorithms() -> Path:
    """A folder with Linux's algorithms; the first time they are taken from its source package.

    Raises:
        NdmError: the package is not there and cannot be fetched.
    """
    target = uml_build.cache() / "algorithms"
    with uml_build.locked("algorithms"):
        if target.is_dir():
            return target
        with tempfile.TemporaryDirectory(prefix=".algorithms.", dir=uml_build.cache()) as name:
            work = Path(name)
            phases = Phases(uml_build.cache() / "algorithms.log", quiet=False)
            archive, version = uml_build.source_tar(work, phases)
            tree = work / "tree"
            tree.mkdir()
            words = ["tar", "-xJf", str(archive), "-C", str(tree), "--strip-components=1"]
            wanted = [f"*/{path}" for path in ALGORITHMS]
            phases.run(
                f"unpacking CUBIC and BBR of {version}", *words, "--wildcards", *wanted, cwd=work
            )
            tree.rename(target)
    return target


def _run(*words: str | Path) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NdmError(f"the simulator does not compile: {uml_build.last_lines(done.stderr)}")


def _objects() -> Path:
    """A folder with all of the simulator that is the same for every module, compiled."""
    linux = algorithms()
    own_code = sorted(SOURCES.glob("*.c"))
    mine = [path for path in own_code if path.name != MODULE]
    unchanged = [*(linux / path for path in ALGORITHMS), FIXED_CWND]
    # Not only what is compiled: `folder` keeps results apart by this.
    read = [*own_code, *sorted(SOURCES.rglob("*.h")), *unchanged, SOURCES / "simulate.py"]
    read += [KMOD / "ndm_types.h", KMOD / "generated" / "ndm_contract.h"]
    read += [KMOD.parent / "datasets" / "native" / "peaks.h"]
    key = files.digest(" ".join(OPTIONS).encode(), *(path.read_bytes() for path in read))
    target = uml_build.cache() / "simulators" / key
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".build.", dir=target.parent) as name:
        result = Path(name) / "result"
        result.mkdir()
        own = ("gcc", *OPTIONS, f"-I{KMOD.parent}")
        for path in mine:
            _run(*own, *STRICT, "-c", path, "-o", result / f"{path.stem}.o")
        kernels = ("-w", "-include", str(SOURCES / "include" / "kernel.h"))
        for source in unchanged:
            _run(*own, *kernels, "-c", source, "-o", result / f"{source.stem}.o")
        with contextlib.suppress(OSError):  # another process was faster
            result.rename(target)
    return target


def folder(out: Path) -> Path:
    """Where results of this simulator are kept: another one does not take them for its own."""
    return out / f"simulated-{_objects().name[:8]}"


def build(kmod: Path = KMOD) -> Path:
    """The program, with a module's code.

    Args:
        kmod: the sources of ndm_tcp, such as a copy of `kmod/` with another network.

    Raises:
        NdmError: they do not compile, or Linux's source package cannot be fetched.
    """
    uml_build.need({"gcc": "gcc"})
    objects = _objects()
    headers = [path for path in uml_build.module_files(kmod) if path.suffix == ".h"]
    named = [str(path.relative_to(kmod)).encode() for path in headers]
    contents = [path.read_bytes() for path in headers]
    contents += [(SOURCES / MODULE).read_bytes(), str(explore.explores(kmod)).encode()]
    key = files.digest(objects.name.encode(), *named, *contents)
    target = objects / f"simulate-{key}"
    if target.is_file():
        return target
    with tempfile.TemporaryDirectory(prefix=".build.", dir=objects) as name:
        program = Path(name) / "simulate"
        link(SOURCES / MODULE, kmod, program)
        shutil.move(program, target)
    return target


def link(module: Path, kmod: Path, program: Path) -> None:
    """Compile the file that includes a module's headers, and link the program with it.

    Args:
        module: a C file such as `ndm.c`.
        kmod: the sources of ndm_tcp.
        program: to write.

    Raises:
        NdmError: see `build`.
    """
    with tempfile.TemporaryDirectory(prefix="ndm-simulator-") as name:
        work = Path(name)
        (work / "kmod").symlink_to(kmod.resolve(), target_is_directory=True)
        compiled = work / "ndm.o"
        more = ["-DNDM_EXPLORE"] if explore.explores(kmod) else []
        _run("gcc", *OPTIONS, *more, f"-I{work}", "-w", "-c", module, "-o", compiled)
        _run("gcc", *sorted(_objects().glob("*.o")), compiled, "-lm", "-o", program)
