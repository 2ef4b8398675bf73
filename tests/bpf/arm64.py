# SPDX-License-Identifier: GPL-2.0-only
"""Another machine: Debian's kernel for arm64, with the loader compiled for it, in QEMU.

The packages are downloaded and unpacked, not installed; apt works in a folder of its own.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from pathlib import Path

from ..conftest import ROOT
from ..kernel import boot
from ..kernel.kbuild import Unavailable, find_headers

TRIPLET = "aarch64-linux-gnu"
MACHINE = boot.Qemu(
    "qemu-system-aarch64",
    "qemu-system-arm",
    ("-machine", "virt", "-cpu", "cortex-a57"),
    "ttyAMA0",
)
COMPILED = ("libc6-dev", "libc6", "linux-libc-dev", "libbpf-dev", "libelf-dev", "zlib1g-dev")
"""what the loader is compiled with"""
RUN = ("busybox-static", "iproute2", "libbpf1", "libelf1", "libmnl0", "libbsd0", "libmd0",
       "libcap2", "libxtables12", "zlib1g")  # fmt: skip
"""what runs in the guest, with its libraries"""
SOURCES = Path("/etc/apt/sources.list.d/debian.sources")


def _apt(folder: Path, *words: str) -> str:
    """apt-get or apt-cache for arm64, without touching this machine's lists."""
    for name in ("lists/partial", "cache/archives/partial", "none"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "status").touch()
    sources = SOURCES if SOURCES.exists() else Path("/etc/apt/sources.list")
    options = {
        "APT::Architecture": "arm64",
        "APT::Architectures": "arm64",
        "APT::Sandbox::User": "root",
        "Dir::State::lists": folder / "lists",
        "Dir::State::status": folder / "status",
        "Dir::Cache": folder / "cache",
        "Dir::Etc::sourcelist": sources,
        "Dir::Etc::sourceparts": folder / "none",
    }
    command = [f"-o{name}={value}" for name, value in options.items()]
    return boot.run([boot.need("apt-get", "apt"), "-q", *command, *words], cwd=folder)


def _fill(target: Path, folder: Path, release: str) -> None:
    """The kernel, its netem, and a root of the other packages."""
    print(f"fetching Debian's kernel {release} and its libraries", flush=True)
    _apt(folder, "update")
    image = f"linux-image-{release}"
    _apt(folder, "download", image, *COMPILED, *RUN)
    (target / "root").mkdir(parents=True)
    for package in sorted(folder.glob("*.deb")):
        if package.name.startswith("linux-image-"):
            boot.unpack(package, target)
        else:
            boot.run(["dpkg-deb", "-x", str(package), str(target / "root")])


def fetch() -> tuple[boot.Kernel, Path]:
    """The kernel, and a root with what runs beside it; from the cache or Debian's archive.

    Raises:
        Unavailable: one of the tools or packages cannot be had.
    """
    boot.need(MACHINE.program, MACHINE.package)
    boot.need(f"{TRIPLET}-gcc", "gcc-aarch64-linux-gnu")
    boot.need("dpkg-deb", "dpkg")
    release = find_headers("6.12").release.replace("amd64", "arm64")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ndm-tcp/kernels"
    target = cache / release
    if not target.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as name:
            folder = Path(name)
            _fill(folder / "filled", folder, release)
            try:
                (folder / "filled").rename(target)
            except OSError:
                if not target.is_dir():  # else another process was faster
                    raise
    netem = next(target.glob("sch_netem.ko*"), None)
    return boot.Kernel(release, target / f"vmlinuz-{release}", netem, MACHINE), target / "root"


def compile_static(root: Path, out: Path, sources: list[Path], *libraries: str) -> Path:
    """A program for the machine, with nothing but the kernel to ask for."""
    words = [f"{TRIPLET}-gcc", f"--sysroot={root}", "-static", "-O2", f"-I{ROOT}", f"-I{ROOT}/bpf"]
    boot.run([*words, *map(str, sources), "-o", str(out), *libraries])
    return out


def _libraries(root: Path, program: Path) -> set[Path]:
    """The libraries that a program is linked to, and those that they are linked to."""
    found, left = set[Path](), [program]
    while left:
        words = [f"{TRIPLET}-readelf", "-d", str(left.pop())]
        said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        for name in re.findall(r"\(NEEDED\).*\[(.+)\]", said):
            places = ("lib", f"lib/{TRIPLET}", f"usr/lib/{TRIPLET}")
            paths = (root / at / name for at in places)
            path = next((path for path in paths if path.exists()), None)
            if path is None:
                raise Unavailable(f"{program.name} needs {name}, which is in none of the packages")
            if path not in found:
                found.add(path)
                left.append(path)
    return found


def initramfs(kernel: boot.Kernel, root: Path, objects: dict[str, Path], scratch: Path) -> bytes:
    """The programs for the machine and the objects, which are the same for all machines.

    Args:
        kernel: to boot.
        root: of the machine's programs.
        objects: by name in the guest.
        scratch: folder for what is compiled.
    """
    archive = boot.Initramfs()
    for name in ("bin", "dev", "proc", "sys", "tmp"):
        archive.folder(name)
    archive.console()
    steps = [ROOT / "tests/kernel/guest_begin.sh", ROOT / "tests/bpf/guest.sh"]
    archive.file("init", b"".join(path.read_bytes() for path in steps))
    archive.file("bin/busybox", (root / "bin/busybox").read_bytes())
    sources = sorted((ROOT / "bpf").glob("loader*.c"))
    loader = compile_static(root, scratch / "ndm_bpf", sources, "-lbpf", "-lelf", "-lz")
    sources = [ROOT / "tests/kernel/tcp_transfer.c"]
    for program in (loader, compile_static(root, scratch / "tcp_transfer", sources)):
        archive.file(f"bin/{program.name}", program.read_bytes())
    for name, path in objects.items():
        archive.file(name, path.read_bytes())
    netem = boot.netem_module(kernel)
    if netem is not None:
        archive.file("sch_netem.ko", netem)
        tc = root / "sbin/tc"
        archive.file("usr/sbin/tc", tc.read_bytes())
        for path in sorted(_libraries(root, tc)):
            at = "lib" if path.name.startswith("ld-") else f"lib/{TRIPLET}"
            archive.file(f"{at}/{path.name}", path.read_bytes())
    return archive.image()
