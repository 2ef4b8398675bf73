# SPDX-License-Identifier: GPL-2.0-only
"""The guest's root folder: our programs, copies of the host's, and the libraries they need.

What the guest reads moves its clock and its random numbers. So it sees these files and nothing
else of the host: an installed package changes no run, a new version of one of these files does.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from ndm_tcp.errors import NdmError
from ndm_tcp.lab.guest import uml_build

ROOT = "root"
"""its name in the folder of a run, which lab/uml/guest.c knows, too"""
PROGRAMS = (
    *("sh", "awk", "cat", "chroot", "cp", "env", "grep", "mkdir", "mount", "rm", "sleep", "true"),
    *("insmod", "lsmod", "rmmod", "ip", "tc", "iperf3"),
)
"""what plans use"""
DATA = ("/usr/lib/tc/*.dist", "/usr/lib/*/tc/*.dist")
"""and what the programs read: netem's distributions of delays"""
SEARCH = "/usr/sbin:/usr/bin:/sbin:/bin"
FOLDERS = ("dev", "etc", "proc", "run", "sys", "usr/bin")
MERGED = {"bin": "usr/bin", "sbin": "usr/bin", "usr/sbin": "bin"}


def _libraries(programs: list[Path]) -> set[Path]:
    """The shared libraries of programs, the dynamic linker among them."""
    done = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=False)
    if done.returncode:
        raise NdmError(f"ldd: {uml_build.last_lines(done.stderr)}; install libc-bin")
    return {Path(name) for name in re.findall(r"(?:=> |^\t)(/\S+) \(", done.stdout, re.MULTILINE)}


def _files() -> dict[str, Path]:
    """Name below the root to the host's file, in a fixed order."""
    found = {name: shutil.which(name, path=SEARCH) for name in PROGRAMS}
    if missing := [name for name, path in found.items() if path is None]:
        raise NdmError(f"{', '.join(missing)}: command not found in {SEARCH}; install what has it")
    programs = {name: Path(path) for name, path in found.items() if path}
    files = {f"usr/bin/{name}": path for name, path in programs.items()}
    # The libraries keep their folders, where the linker looks for them.
    files |= {str(path)[1:]: path for path in _libraries(list(programs.values()))}
    files |= {str(path)[1:]: path for pattern in DATA for path in Path("/").glob(pattern[1:])}
    ours = uml_build.build_programs()
    files |= {"usr/bin/guest": ours.guest, "usr/lib/patience": ours.patience}
    files["init.sh"] = uml_build.RECIPE / "init.sh"
    return dict(sorted(files.items()))


@functools.cache
def guest_root() -> Path:
    """The folder, from the cache if the host's files have not changed; its name is their hash.

    Raises:
        NdmError: a program is missing.
    """
    files = _files()
    total = hashlib.sha256(repr((FOLDERS, MERGED)).encode())
    for name, path in files.items():
        total.update(f"{name} {path.stat().st_size}\n".encode() + path.read_bytes())
    target = uml_build.cache() / "roots" / total.hexdigest()[:16]
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".build.", dir=target.parent) as folder:
        root = Path(folder) / "root"
        for name in FOLDERS:
            (root / name).mkdir(parents=True)
        for name, to in MERGED.items():
            (root / name).symlink_to(to)
        for name, path in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, root / name)
        # Without it the linker tries folders whose number depends on the processor.
        words = [shutil.which("ldconfig", path=SEARCH) or "ldconfig", "-X", "-r", str(root)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode or not (root / "etc" / "ld.so.cache").is_file():
            raise NdmError(f"ldconfig: {uml_build.last_lines(done.stderr)}; install libc-bin")
        with contextlib.suppress(OSError):  # another process was faster
            root.rename(target)
    return target
