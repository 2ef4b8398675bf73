#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Load the module into a stock Debian kernel in QEMU, send data through it, unload it.

The kernel image is downloaded and unpacked, not installed. Everything runs in an initramfs;
what happened comes back as marked lines on the serial console.

Example: python tests/kernel/boot.py --kernel 6.12
"""

from __future__ import annotations

import argparse
import gzip
import lzma
import os
import platform
import re
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # for use as a program

from tests import blobs
from tests.kernel.kbuild import (
    KERNELS,
    BuildFailed,
    Headers,
    Unavailable,
    build,
    change_one_weight,
    copy_kmod,
    find_headers,
)

HERE = Path(__file__).resolve().parent
MARK = "NDM-PROOF"
OTHER = blobs.other()
"""the network that the guest swaps in"""
# What guest.sh reports, and what in addition where tc and sch_netem can be had.
STEPS = (
    "parameter-refused",
    "load",
    "ipv4",
    "ipv6",
    "switch",
    "swap",
    "swap-refused",
    "busy",
    "unload",
    "corrupt-refused",
    "begin-swapped",
    "begin-refused",
    "begin-leaves-nothing",
    "reload",
    "small-window",
    "final-unload",
)
NETEM_STEPS = ("netem", "delay", "loss", "trace", "swapped-trace", "ecn", "outage")
# Words that a sound kernel does not write to its log.
_TROUBLE = re.compile(
    r"WARNING:|BUG:|Oops|Call Trace|general protection|UBSAN|KASAN|refcount_t|"
    r"suspicious RCU|sleeping function|blocked for more than|Kernel panic"
)


@dataclass(frozen=True)
class Qemu:
    """A machine that QEMU emulates."""

    program: str
    package: str
    words: tuple[str, ...]
    console: str


X86 = Qemu("qemu-system-x86_64", "qemu-system-x86", (), "ttyS0")


@dataclass(frozen=True)
class Kernel:
    """A stock kernel image and the modules that the proof can use."""

    release: str
    vmlinuz: Path
    netem: Path | None  # sch_netem.ko, perhaps compressed
    machine: Qemu = X86


@dataclass(frozen=True)
class Step:
    """One thing that was tried in the guest."""

    name: str
    passed: bool
    detail: str


@dataclass(frozen=True)
class Report:
    """What the guest said."""

    steps: tuple[Step, ...]
    trouble: tuple[str, ...]  # lines of the kernel log, from the first load on
    finished: bool  # the guest reached its end
    console: str = field(repr=False)

    def step(self, name: str) -> Step:
        """The step of that name; a failed one if the guest did not get there."""
        for step in self.steps:
            if step.name == name:
                return step
        return Step(name, False, "not reached")

    def problems(self, expected: tuple[str, ...]) -> list[str]:
        """Everything that is wrong, one line each; empty if all is well."""
        steps = [self.step(name) for name in expected]
        wrong = [f"{step.name}: {step.detail}" for step in steps if not step.passed]
        wrong += [f"kernel log: {line}" for line in self.trouble]
        if not self.finished:
            wrong.append("the guest did not reach its end; its console:\n" + self.console[-3000:])
        return wrong


def module_release(module: Path) -> str:
    """The kernel release that a .ko was built for, from its vermagic."""
    match = re.search(rb"vermagic=([^ \0]+)", module.read_bytes())
    if match is None:
        raise BuildFailed(f"{module}: no vermagic: not a kernel module")
    return match[1].decode()


def run(command: list[str], cwd: Path | None = None) -> str:
    """What a command prints; raises Unavailable with its complaint."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unavailable(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def need(program: str, package: str) -> str:
    """The path of a program; raises Unavailable."""
    path = shutil.which(program) or shutil.which(program, path="/usr/sbin:/sbin")
    if path is None:
        raise Unavailable(f"{program} is missing: apt-get install {package}")
    return path


def _download(release: str, folder: Path) -> Path:
    """The linux-image package of a release, of the version of the headers if it can be had."""
    package = f"linux-image-{release}"
    need("apt-get", "apt")
    version = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Version}", f"linux-headers-{release}"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    print(f"fetching {package} {version}", file=sys.stderr)
    try:
        run(["apt-get", "download", f"{package}={version}"], cwd=folder)
    except Unavailable:
        try:
            run(["apt-get", "download", package], cwd=folder)
        except Unavailable as error:
            raise Unavailable(f"cannot fetch {package}: {error}; try apt-get update") from None
    return next(folder.glob("*.deb"))


def unpack(package: Path, folder: Path) -> None:
    """Only the image and sch_netem: the rest of the package is 400 MB of drivers."""
    wanted = re.compile(r"\./boot/vmlinuz-|.*/net/sched/sch_netem\.ko")
    command = ["dpkg-deb", "--fsys-tarfile", str(package)]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE) as unpacker,
        tarfile.open(fileobj=unpacker.stdout, mode="r|") as archive,
    ):
        for member in archive:
            source = archive.extractfile(member) if wanted.match(member.name) else None
            if source is not None:
                (folder / Path(member.name).name).write_bytes(source.read())
    if unpacker.returncode:
        raise Unavailable(f"dpkg-deb cannot unpack {package.name}")


def fetch_kernel(release: str) -> Kernel:
    """A stock kernel, from the cache or from Debian's archive; raises Unavailable."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ndm-tcp/kernels"
    folder = cache / release
    if not folder.is_dir():
        need("dpkg-deb", "dpkg")
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as name:
            package = _download(release, Path(name))
            unpacked = Path(name) / "kernel"
            unpacked.mkdir()
            unpack(package, unpacked)
            try:
                unpacked.rename(folder)
            except OSError:
                if not folder.is_dir():  # else another process was faster
                    raise
    vmlinuz = folder / f"vmlinuz-{release}"
    if not vmlinuz.exists():
        raise Unavailable(f"{folder} has no {vmlinuz.name}: remove the folder and try again")
    return Kernel(release, vmlinuz, next(folder.glob("sch_netem.ko*"), None))


class Initramfs:
    """A cpio archive in the "newc" format of the kernel's initramfs."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._names: set[str] = set()

    def _entry(
        self, name: str, mode: int, data: bytes = b"", rdev: tuple[int, int] = (0, 0)
    ) -> None:
        if name in self._names:
            return
        self._names.add(name)
        encoded = name.encode() + b"\0"
        fields = (len(self._names), mode, 0, 0, 1, 0, len(data), 0, 0, *rdev, len(encoded), 0)
        self._data += b"070701" + b"".join(b"%08x" % number for number in fields)
        for part in (encoded, data):
            self._data += part
            self._data += bytes(-len(self._data) % 4)

    def folder(self, name: str) -> None:
        """A folder and those above it."""
        for parent in [*reversed(Path(name).parents), Path(name)]:
            if str(parent) != ".":
                self._entry(str(parent), stat.S_IFDIR | 0o755)

    def file(self, name: str, data: bytes, mode: int = 0o755) -> None:
        """A regular file; name without a leading slash."""
        self.folder(str(Path(name).parent))
        self._entry(name, stat.S_IFREG | mode, data)

    def tree(self, root: Path, left_out: Collection[str] = ()) -> None:
        """All folders, files and links below root; those left out are empty folders."""
        for above, folders, files in os.walk(root):
            for path in sorted(Path(above) / name for name in (*folders, *files)):
                name, mode = str(path.relative_to(root)), path.lstat().st_mode
                if stat.S_ISLNK(mode):
                    self._entry(name, mode, os.fsencode(path.readlink()))
                elif stat.S_ISREG(mode) or stat.S_ISDIR(mode):
                    self._entry(name, mode, path.read_bytes() if stat.S_ISREG(mode) else b"")
            folders[:] = [
                name
                for name in folders
                if str((Path(above) / name).relative_to(root)) not in left_out
            ]

    def console(self) -> None:
        """/dev/console, without which init would have no output."""
        self.folder("dev")
        self._entry("dev/console", stat.S_IFCHR | 0o600, rdev=(5, 1))

    def program(self, path: str, name: str) -> None:
        """A program of this machine with the libraries that it is linked to."""
        self.file(name, Path(path).read_bytes())
        listing = subprocess.run(["ldd", path], capture_output=True, text=True, check=False)
        for library in re.findall(r"(/\S+) \(0x", listing.stdout):
            self.file(library.lstrip("/"), Path(library).read_bytes())

    def image(self) -> bytes:
        """The archive, compressed as every kernel can read it."""
        self._entry("TRAILER!!!", 0)
        return gzip.compress(bytes(self._data), compresslevel=1)


def netem_module(kernel: Kernel) -> bytes | None:
    if kernel.netem is None:
        return None
    data = kernel.netem.read_bytes()
    if kernel.netem.suffix == ".xz":
        data = lzma.decompress(data)
    elif kernel.netem.suffix != ".ko":
        return None
    # One that depends on further modules would need them all.
    return data if re.search(rb"\0depends=\0|^depends=\0", data) else None


def has_netem(kernel: Kernel) -> bool:
    """Whether the guest can delay, mark and lose packets."""
    tc = shutil.which("tc", path="/usr/sbin:/sbin:/usr/bin")
    return tc is not None and netem_module(kernel) is not None


def begin_initramfs(kernel: Kernel, steps: Path, scratch: Path) -> Initramfs:
    """What every guest needs: init, busybox, what sends data, and netem if it can be had.

    Args:
        kernel: to boot.
        steps: shell script that init runs after guest_begin.sh.
        scratch: folder for what is compiled.
    """
    if platform.machine() != "x86_64":
        raise Unavailable(f"the proof needs an x86-64 machine, this is {platform.machine()}")
    transfer = scratch / "tcp_transfer"
    compiler = need("cc", "gcc libc6-dev")
    warnings = ["-Wall", "-Wextra", "-Werror"]
    source = str(HERE / "tcp_transfer.c")
    run([compiler, "-static", "-O2", *warnings, "-o", str(transfer), source])
    archive = Initramfs()
    for name in ("bin", "dev", "proc", "sys", "tmp"):
        archive.folder(name)
    archive.console()
    archive.file("init", (HERE / "guest_begin.sh").read_bytes() + steps.read_bytes())
    archive.file("bin/tcp_transfer", transfer.read_bytes())
    archive.program(need("busybox", "busybox-static"), "bin/busybox")
    netem = netem_module(kernel)
    if netem is not None and has_netem(kernel):
        archive.file("sch_netem.ko", netem)
        archive.program(need("tc", "iproute2"), "usr/sbin/tc")
    return archive


def make_initramfs(kernel: Kernel, module: Path, corrupt: Path, scratch: Path) -> bytes:
    """Everything that the guest needs, as a compressed archive."""
    archive = begin_initramfs(kernel, HERE / "guest.sh", scratch)
    archive.file("ndm_tcp.ko", module.read_bytes())
    archive.file("corrupt.ko", corrupt.read_bytes())
    good = blobs.of(OTHER)
    archive.file("lib/firmware/ndm_tcp/other.blob", good)
    wrong = blobs.changed(good, len(good) - 12, bytes([good[-12] ^ 1]))
    archive.file("lib/firmware/ndm_tcp/bad.blob", wrong)
    archive.file("other.hash", OTHER.hash().encode())
    return archive.image()


def parse_console(console: str) -> Report:
    """The guest's marked lines, from all that the serial console printed."""
    console = re.sub(r"\x1b(\[[0-9;?=]*[A-Za-z]|c)|\r", "", console)  # the firmware's colours
    steps = tuple(
        Step(name, verdict == "pass", detail.strip())
        for verdict, name, detail in re.findall(
            rf"^{MARK} (pass|fail) (\S+)(.*)$", console, re.MULTILINE
        )
    )
    # A kernel that dies prints to the console and reaches neither log nor end.
    _, _, log = console.partition(f"{MARK} first load")
    trouble = [line.strip() for line in console.splitlines() if "Kernel panic" in line]
    trouble += [line.strip() for line in log.splitlines() if _TROUBLE.search(line)]
    finished = re.search(rf"^{MARK} end$", console, re.MULTILINE) is not None
    return Report(steps, tuple(dict.fromkeys(trouble)), finished, console)


def run_qemu(
    kernel: Kernel, initramfs: bytes, *, limit_s: int, memory_MB: int = 512, words: str = ""
) -> Report:
    """Boot an initramfs once, with more words for the kernel; raises Unavailable without QEMU."""
    machine = kernel.machine
    qemu = need(machine.program, machine.package)
    with tempfile.TemporaryDirectory() as name:
        initrd = Path(name) / "initrd.gz"
        initrd.write_bytes(initramfs)
        command = [qemu, *machine.words, "-accel", "tcg", "-m", str(memory_MB)]
        command += ["-nographic", "-no-reboot", "-nic", "none"]
        command += ["-kernel", str(kernel.vmlinuz), "-initrd", str(initrd), "-append"]
        command += [
            f"console={machine.console} loglevel=1 oops=panic panic=-1 mitigations=off {words}",
        ]
        try:
            console = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=limit_s,
                check=False,
            ).stdout
        except subprocess.TimeoutExpired as error:
            console = (error.output or b"") + f"\nno end within {limit_s} s".encode()
    return parse_console(console.decode(errors="replace"))


def boot(kernel: Kernel, module: Path, corrupt: Path, *, limit_s: int = 240) -> Report:
    """Boot once and do all steps; raises Unavailable without QEMU."""
    with tempfile.TemporaryDirectory() as name:
        image = make_initramfs(kernel, module, corrupt, Path(name))
    return run_qemu(kernel, image, limit_s=limit_s)


def prove(
    headers: Headers, scratch: Path, module: Path | None = None
) -> tuple[Report, tuple[str, ...]]:
    """Build (unless given a module), fetch, boot; the report and the steps it must have."""
    kernel = fetch_kernel(headers.release)
    if module is None:
        module = build(headers, copy_kmod(scratch / "good"))
    corrupt_sources = copy_kmod(scratch / "corrupt")
    change_one_weight(corrupt_sources)
    corrupt = build(headers, corrupt_sources)
    steps = STEPS + (NETEM_STEPS if has_netem(kernel) else ())
    return boot(kernel, module, corrupt), steps


def main() -> int:
    """The command line; exit status 0: all as it should be, 1: not, 2: could not try."""
    parser = argparse.ArgumentParser(
        description="Load the module into a stock Debian kernel in QEMU, send data, unload it.",
        epilog="Example: python tests/kernel/boot.py --kernel 6.12",
    )
    parser.add_argument("--kernel", metavar="SERIES", help=f"one of {', '.join(KERNELS)}")
    parser.add_argument("--module", type=Path, metavar="KO", help="default: build one")
    parser.add_argument("--console", action="store_true", help="print all that the guest printed")
    arguments = parser.parse_args()
    start = time.monotonic()
    try:
        series: str = arguments.kernel or KERNELS[-1]
        module: Path | None = arguments.module
        if module is not None:
            release = module_release(module)
            if arguments.kernel and not release.startswith(arguments.kernel + "."):
                parser.error(f"{module} is for {release}, not for {arguments.kernel}")
            headers = Headers(release, Path(f"/usr/src/linux-headers-{release}"))
        else:
            headers = find_headers(series)
        with tempfile.TemporaryDirectory() as scratch:
            report, steps = prove(headers, Path(scratch), module)
    except (Unavailable, BuildFailed, OSError) as error:
        print(f"boot.py: {error}", file=sys.stderr)
        return 2
    if arguments.console:
        print(report.console)
    for step in report.steps:
        print(f"{'pass' if step.passed else 'FAIL'}  {step.name:18} {step.detail}")
    problems = report.problems(steps)
    for problem in problems:
        print(f"boot.py: {problem}", file=sys.stderr)
    print(
        f"{headers.release}: {len(steps)} steps, {len(problems)} problems, "
        f"{time.monotonic() - start:.0f} s"
    )
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
