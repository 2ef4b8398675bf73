# SPDX-License-Identifier: GPL-2.0-only
"""Build copies of kmod/ against installed kernel headers."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

KMOD = Path(__file__).resolve().parents[2] / "kmod"
KERNELS = ("6.1", "6.12")  # the series that Debian 12 ships
STRICT = ("W=1", "KCFLAGS=-Werror")
_WEIGHTS = re.compile(r"(static const u64 \w*[^{;]*\{\s*NDM_PAIR\()(-?\d+)")


class Unavailable(RuntimeError):
    """Something that is not part of the project is missing; says which package has it."""


class BuildFailed(RuntimeError):
    """The module did not build; the message is the compiler's output."""


@dataclass(frozen=True)
class Headers:
    """An installed kernel header package."""

    release: str  # as `uname -r` prints it
    path: Path  # what KDIR wants


@functools.cache
def _has_image(release: str) -> bool:
    """Can the kernel of these headers be fetched? Debian signs its images after the headers."""
    words = ["apt-cache", "policy", f"linux-image-{release}"]
    if shutil.which(words[0]) is None:
        return False
    said = subprocess.run(words, capture_output=True, text=True, check=False).stdout
    return bool(re.search(r"^ +Candidate: [^(]", said, re.M))


def find_headers(series: str) -> Headers:
    """The newest installed headers of a series such as "6.1", of a kernel that can be fetched if
    there are some; raises Unavailable.
    """
    pattern = re.compile(rf"linux-headers-({re.escape(series)}\.\d.*-amd64)$")
    found = [
        (match[1], path)
        for path in sorted(Path("/usr/src").glob("linux-headers-*"))
        if (match := pattern.match(path.name)) and (path / "Makefile").exists()
    ]
    if not found:
        raise Unavailable(
            f"no kernel {series} headers in /usr/src: apt-get install "
            f"linux-headers-amd64 (or the linux-headers-{series}* of bookworm-security)"
        )
    found.sort(key=lambda item: [int(n) for n in re.findall(r"\d+", item[0])])
    release, path = next((one for one in found[::-1] if _has_image(one[0])), found[-1])
    return Headers(release, path)


def copy_kmod(destination: Path) -> Path:
    """The sources of the module, without what earlier builds left; returns destination."""
    shutil.copytree(
        KMOD,
        destination,
        ignore=shutil.ignore_patterns("*.o", "*.ko", "*.mod", "*.mod.c", ".*", "Module.symvers"),
    )
    return destination


def change_one_weight(sources: Path) -> None:
    """Make the model one that the golden vectors do not belong to."""
    model = sources / "generated" / "ndm_model.h"
    text, n = _WEIGHTS.subn(
        lambda match: match[1] + str(int(match[2]) + (1 if int(match[2]) <= 0 else -1)),
        model.read_text(),
        count=1,
    )
    if n != 1:
        raise BuildFailed(f"{model.name}: no array of weights")
    model.write_text(text)


def make(headers: Headers, sources: Path, *arguments: str) -> str:
    """`make` in a copy of kmod/; returns what it printed, raises BuildFailed."""
    if shutil.which("make") is None:
        raise Unavailable("make is missing: apt-get install make")
    done = subprocess.run(
        ["make", "-C", str(sources), f"KDIR={headers.path}", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise BuildFailed(done.stdout)
    return done.stdout


def build(headers: Headers, sources: Path) -> Path:
    """ndm_tcp.ko, built with W=1 and with warnings as errors."""
    make(headers, sources, *STRICT)
    return sources / "ndm_tcp.ko"
