# SPDX-License-Identifier: GPL-2.0-only
"""The lab's kernel: User Mode Linux from the distribution's kernel source.

Built once for a recipe (configuration, patches, compiler) and kept in
`${XDG_CACHE_HOME:-~/.cache}/ndm-tcp/uml`; so are the modules and programs for it, each under a
hash of its sources. Nothing here needs root once the packages that it names are installed.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ndm_tcp.errors import NdmError
from ndm_tcp.files import digest
from ndm_tcp.lab.guest import kernel_patches

EXAMPLE = """example:
  ndm lab build             # the kernel and ndm_tcp.ko for it; at once if they are there
  ndm lab build --update    # from the newest source package of the distribution
  ndm lab build --debug     # a second kernel: KASAN, UBSAN, lockdep, kmemleak
  ndm lab build --kernel-patch ~/my.patch    # one more, for lab run|record|board --kernel-patch"""

SOURCE_PACKAGE = "linux-source-6.12"
MEASURED = "6.12.117-1~deb12u1"
"""the version that boards and recordings are of; another one draws other random numbers"""
LAB = Path(__file__).resolve().parents[1]
RECIPE = LAB / "uml"
KMOD = LAB.parent / "kmod"
FIXED_CWND = LAB / "fixed_cwnd"
WATCH = RECIPE / "watch"

TOOLS = {"make": "make", "gcc": "gcc", "flex": "flex", "bison": "bison", "bc": "bc"}
TOOLS |= {"patch": "patch", "xz": "xz-utils", "nice": "coreutils", "dpkg-deb": "dpkg"}
"""program: Debian package that has it"""

# The files that an external module's build reads. The rest of the tree is 600 MB.
KEEP = ("Makefile", ".config", "Module.symvers", "vmlinux", "arch", "include", "scripts")
KEEP_ARCH = ("um", "x86")
UNPACK_NOT = (
    *("Documentation/*/*", "tools/testing/*", "*.dts", "*.dtsi"),
    *(f"{name}/*.[ch]" for name in ("drivers/gpu", "drivers/media", "drivers/net/ethernet")),
    *(f"{name}/*.[ch]" for name in ("drivers/net/wireless", "drivers/scsi", "drivers/staging")),
    *("drivers/infiniband/*.[ch]", "sound/*.[ch]"),
)
# The kernel's version string enters its random numbers: no dates, no names of machines.
BUILD_NAMES = (
    *("KBUILD_BUILD_TIMESTAMP=1970-01-01 00:00:00 UTC", "KBUILD_BUILD_VERSION=1"),
    *("KBUILD_BUILD_USER=ndm", "KBUILD_BUILD_HOST=lab"),
)
BUILT_FILES = (
    *("*.o", "*.ko", "*.mod", "*.mod.c", ".*", "Module.symvers", "modules.order"),
    "st[!.][!.][!.][!.][!.][!.]",  # of strip, while another build runs in the folder
)


@dataclass(frozen=True)
class UmlKernel:
    """A built kernel."""

    dir: Path
    """its tree, for building modules"""
    vmlinux: Path
    """the program that is the kernel"""
    release: str
    """as `uname -r` prints it inside"""


@dataclass(frozen=True)
class Programs:
    """Our own programs that a run needs."""

    guest: Path
    """lab/uml/guest.c, static"""
    getrandom: Path
    """lab/uml/getrandom.c, to preload into the kernel"""
    patience: Path
    """lab/uml/patience.c, to preload into iperf3"""


def cache() -> Path:
    """Where everything built is kept."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home) / "ndm-tcp" / "uml"


def last_lines(text: str, count: int = 1) -> str:
    """The last lines that are not empty, joined to one."""
    return " | ".join([line.strip() for line in text.splitlines() if line.strip()][-count:])


@functools.cache
def _compiler() -> bytes:
    try:
        words = ["gcc", "-dumpfullversion", "-dumpmachine"]
        return subprocess.run(words, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        raise NdmError("gcc: command not found; install gcc") from None


@contextlib.contextmanager
def locked(name: str) -> Iterator[None]:
    """One builder at a time; the others wait."""
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


class Phases:
    """Reports on stderr each step and its time, and logs the output of the commands."""

    def __init__(self, log: Path, quiet: bool) -> None:
        self.log = log
        self.quiet = quiet
        self.start_s = time.monotonic()

    def _say(self, text: str, end: str = "\n") -> None:
        if not self.quiet:
            at_s = int(time.monotonic() - self.start_s)
            print(f"[{at_s // 60}:{at_s % 60:02d}] {text}", end=end, file=sys.stderr, flush=True)

    def run(self, title: str, *words: str, cwd: Path, env: dict[str, str] | None = None) -> None:
        """Run one command.

        Raises:
            NdmError: it fails; the message holds its last words and the log's name.
        """
        live = sys.stderr.isatty() and not self.quiet
        if not live:
            self._say(title)
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                words,
                cwd=cwd,
                env={**os.environ, "LC_ALL": "C", **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            try:
                while process.poll() is None:
                    if live:
                        self._say(title, end="\r")
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(1)
            finally:
                if process.poll() is None:
                    process.kill()
                    process.wait()
        if live:
            self._say(title)
        if process.returncode:
            said = self.log.read_text(errors="replace").splitlines()
            errors = [line for line in said[-60:] if "rror" in line and "make" not in line[:6]]
            line = errors[0].strip() if errors else last_lines("\n".join(said))
            raise NdmError(f"{title} failed: {line} (all of it: {self.log})")


def need(programs: dict[str, str], quiet: bool = False) -> None:
    """Make sure that programs are there; as root, install the Debian packages that have them.

    Raises:
        NdmError: some are missing and cannot be installed.
    """
    missing = sorted({package for name, package in programs.items() if shutil.which(name) is None})
    if not missing:
        return
    words = ["apt-get", "install", "-qq", "-y", "--no-install-recommends", *missing]
    if os.geteuid() == 0 and shutil.which("apt-get"):
        if not quiet:
            print(f"installing system packages: {' '.join(missing)}", file=sys.stderr)
        env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for command in (words, ["apt-get", "update", "-qq"], words):
            done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
            if command is words and done.returncode == 0:
                return
        raise NdmError(
            f"apt-get install {' '.join(missing)}: {last_lines(done.stderr)}; install them by hand"
        )
    raise NdmError(
        f"missing: {' '.join(missing)}; run: sudo apt-get install --no-install-recommends "
        + " ".join(missing)
    )


def source_tar(work: Path, phases: Phases) -> tuple[Path, str]:
    """The kernel source and its version: an installed package, or one that is fetched."""
    installed = Path("/usr/src") / f"{SOURCE_PACKAGE}.tar.xz"
    if installed.is_file():
        query = ["dpkg-query", "-W", "-f", "${Version}", SOURCE_PACKAGE]
        found = subprocess.run(query, capture_output=True, text=True, check=False)
        return installed, found.stdout.strip() or "local"
    if shutil.which("apt-get") is None:
        raise NdmError(f"{installed}: not there; install the package {SOURCE_PACKAGE}")
    exact = f"{SOURCE_PACKAGE}={MEASURED}"
    try:
        with contextlib.suppress(NdmError):  # Debian keeps a version for some weeks
            phases.run(f"downloading {exact}", "apt-get", "download", exact, cwd=work)
        if not any(work.glob(f"{SOURCE_PACKAGE}_*.deb")):
            phases.run("downloading the newest", "apt-get", "download", SOURCE_PACKAGE, cwd=work)
    except NdmError as error:
        raise NdmError(f"{error}; try: sudo apt-get update") from None
    (package,) = work.glob(f"{SOURCE_PACKAGE}_*.deb")
    phases.run("unpacking the package", "dpkg-deb", "-x", str(package), "package", cwd=work)
    version = package.name.split("_")[1].replace("%3a", ":")
    package.unlink()
    return work / "package" / "usr" / "src" / f"{SOURCE_PACKAGE}.tar.xz", version


def _prune(tree: Path) -> None:
    """Leave what building modules needs."""
    for entry in tree.iterdir():
        if entry.name not in KEEP:
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()
    for entry in (tree / "arch").iterdir():
        if entry.is_dir() and entry.name not in KEEP_ARCH:
            shutil.rmtree(entry)
    for pattern in ("*.o", "*.a", "*.c", "*.S", ".*.cmd", "*.dtb"):
        for path in (tree / "arch").rglob(pattern):
            path.unlink()


def _configs(debug: bool) -> list[Path]:
    """Configuration files of a kernel; later files add to earlier ones."""
    return [RECIPE / "kernel.config", *([RECIPE / "debug.config"] if debug else [])]


def _compile(
    work: Path, phases: Phases, debug: bool, patches: tuple[Path, ...]
) -> tuple[Path, str]:
    """A pruned, built tree, and the version of its source."""
    archive, version = source_tar(work, phases)
    tree = work / "tree"
    tree.mkdir()
    # A patch may touch any file.
    excluded = [f"--exclude=*/{pattern}" for pattern in UNPACK_NOT if not patches]
    words = ["tar", "-xJf", str(archive), "-C", str(tree), "--strip-components=1"]
    phases.run(f"unpacking the source of {version}", *words, *excluded, cwd=work)
    patch = ["patch", "-p1", "--fuzz=0", "-i", str(RECIPE / "kernel.patch")]
    phases.run("patching", *patch, cwd=tree)
    for path in patches:
        kernel_patches.apply(path, tree, version, phases.log)
    make = ["nice", "make", "ARCH=um", *BUILD_NAMES]
    wanted = "".join(path.read_text(encoding="utf-8") for path in _configs(debug))
    wanted += kernel_patches.options(patches)
    (work / "all.config").write_text(wanted, encoding="utf-8")
    config = {"KCONFIG_ALLCONFIG": str(work / "all.config")}
    phases.run("configuring", *make, "allnoconfig", cwd=tree, env=config)
    have = set((tree / ".config").read_text(encoding="utf-8").splitlines())
    for line in wanted.splitlines():
        if line.startswith("CONFIG_") and line not in have:
            if line in kernel_patches.options(patches).splitlines():
                raise NdmError(
                    f"{line}: of a patch, and it depends on what the lab's kernel leaves out; "
                    f"patch its `depends on`, or {RECIPE}/kernel.config, too"
                )
            raise NdmError(
                f"{RECIPE}/*.config: {line}: this source cannot have it; "
                "take a newer one: ndm lab build --update"
            )
    jobs = str(len(os.sched_getaffinity(0)))
    phases.run(
        f"compiling the {'debugging ' if debug else ''}kernel (about 4 minutes on 2 cores)",
        *(*make, "-j", jobs, "vmlinux", "modules"),
        cwd=tree,
    )
    _prune(tree)
    return tree, version


def _kernel(folder: Path) -> UmlKernel:
    release = (folder / "include" / "config" / "kernel.release").read_text(encoding="ascii")
    return UmlKernel(folder, folder / "vmlinux", release.strip())


def built(debug: bool = False, patches: tuple[Path, ...] = ()) -> UmlKernel | None:
    """The newest kernel of the present recipe, if one is in the cache."""
    if not (RECIPE / "kernel.config").is_file():
        raise NdmError(f"{RECIPE}: not there; the lab runs from a checkout of the project")
    found = (cache() / "kernels").glob(f"*-{_key(debug, patches)}")
    there = [path for path in found if (path / "vmlinux").is_file()]
    newest = max(there, key=lambda path: path.stat().st_mtime, default=None)
    return _kernel(newest) if newest else None


def _key(debug: bool, patches: tuple[Path, ...]) -> str:
    """The hash of a kernel's recipe."""
    files = [*_configs(debug), RECIPE / "kernel.patch"]
    parts = [path.read_bytes() for path in files]
    parts += [kernel_patches.content(path) for path in patches]
    return digest(*parts, _compiler())


def build(
    quiet: bool = False,
    update: bool = False,
    debug: bool = False,
    patches: tuple[Path, ...] = (),
) -> UmlKernel:
    """The lab's kernel, from the cache if its recipe has not changed.

    Args:
        quiet: say nothing.
        update: take the newest source, though a kernel of an older one is there.
        debug: the one that watches over memory, arithmetic and locks; several times slower.
        patches: files to apply one after the other, after the lab's own patch. Algorithms that
            they add to the configuration (TCP_CONG_*) are built in.

    Raises:
        NdmError: a tool or the source package is missing, a patch does not apply, or the build
            fails.
    """
    if (there := built(debug, patches)) and not update:
        return there
    need(TOOLS, quiet)
    kernels = cache() / "kernels"
    kernels.mkdir(parents=True, exist_ok=True)
    with locked("kernel"):
        if (there := built(debug, patches)) and not update:
            return there
        log = cache() / "build.log"
        log.write_bytes(b"")
        phases = Phases(log, quiet)
        with tempfile.TemporaryDirectory(prefix=".build.", dir=cache()) as name:
            tree, version = _compile(Path(name), phases, debug, patches)
            target = kernels / f"{version}-{_key(debug, patches)}"
            if not target.exists():
                tree.rename(target)
            os.utime(target)
        return _kernel(target)


def module_files(folder: Path) -> list[Path]:
    """The files that a module is made of, in a fixed order."""
    return sorted(
        path
        for path in folder.rglob("*")
        if path.is_file()
        and not any(path.match(pattern) for pattern in BUILT_FILES)
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )


def sources_digest(folder: Path) -> str:
    """SHA-256 of a module's sources: C, headers, Kbuild."""
    total = hashlib.sha256()
    for path in module_files(folder):
        if path.suffix in (".c", ".h") or path.name == "Kbuild":
            total.update(f"{path.relative_to(folder)} {len(path.read_bytes())}\n".encode())
            total.update(path.read_bytes())
    return total.hexdigest()


def build_module(
    kmod_dir: Path = KMOD,
    quiet: bool = True,
    debug: bool = False,
    patches: tuple[Path, ...] = (),
) -> Path:
    """A module for the lab's kernel, out of a copy of its sources; cached by their hash.

    Args:
        kmod_dir: a folder with a Kbuild, or a Makefile like one, that makes one module.
        quiet: say nothing.
        debug: for the debugging kernel.
        patches: for the kernel with these.

    Raises:
        NdmError: no such folder, or it does not compile.
    """
    if not any((kmod_dir / name).is_file() for name in ("Kbuild", "Makefile")):
        raise NdmError(f"{kmod_dir}: no Kbuild; name the folder of a kernel module's sources")
    kernel = build(quiet, debug=debug, patches=patches)
    sources = module_files(kmod_dir)
    named = [str(path.relative_to(kmod_dir)).encode() for path in sources]
    key = digest(kernel.dir.name.encode(), *named, *(path.read_bytes() for path in sources))
    target = cache() / "modules" / key
    if not target.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        # Guests that start together need the same module: the first one compiles it.
        with locked(f"module-{key[0]}"):
            if not target.is_dir():
                _compile_module(kmod_dir, kernel, target, quiet)
    (module,) = target.glob("*.ko")
    return module


def _compile_module(kmod_dir: Path, kernel: UmlKernel, target: Path, quiet: bool) -> None:
    """Compile a module, and leave it in a folder."""
    with tempfile.TemporaryDirectory(prefix=".build.", dir=target.parent) as name:
        copy, result = Path(name) / "sources", Path(name) / "result"
        shutil.copytree(kmod_dir, copy, ignore=shutil.ignore_patterns(*BUILT_FILES))
        # In the way until the build succeeds; a failed one stays to be read.
        phases = Phases(cache() / "module.log", quiet)
        phases.log.write_bytes(b"")
        need({"make": "make", "gcc": "gcc"}, quiet)
        words = ("make", "-C", str(kernel.dir), "ARCH=um", f"M={copy}", "modules")
        try:
            phases.run(f"compiling {kmod_dir.name}", *words, cwd=copy)
        except NdmError as error:
            raise NdmError(str(error).replace(str(copy), str(kmod_dir))) from None
        modules = list(copy.glob("*.ko"))
        if len(modules) != 1:
            raise NdmError(f"{kmod_dir}: its Kbuild made {len(modules)} modules, expected one")
        result.mkdir()
        shutil.copy(modules[0], result)
        with contextlib.suppress(OSError):  # another version's process was faster
            result.rename(target)


def build_programs() -> Programs:
    """Our own programs, compiled; cached by the hash of their sources."""
    options = {"guest": ["-static"]} | {n: ["-shared", "-fPIC"] for n in ("getrandom", "patience")}
    sources = [(RECIPE / f"{name}.c").read_bytes() for name in options]
    target = cache() / "programs" / digest(*sources, _compiler())
    if not target.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".build.", dir=target.parent) as folder:
            result = Path(folder) / "result"
            result.mkdir()
            for name, words in options.items():
                source, program = RECIPE / f"{name}.c", result / name
                command = ["gcc", "-O2", "-Wall", "-Wextra", *words, "-o", str(program)]
                command += [str(source), "-ldl"]
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                if done.returncode:
                    raise NdmError(f"{source}: does not compile: {last_lines(done.stderr)}")
            with contextlib.suppress(OSError):
                result.rename(target)
    return Programs(*(target / name for name in options))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `ndm lab build`."""
    parser.add_argument("--update", action="store_true", help="take the newest source package")
    parser.add_argument("--debug", action="store_true", help="the kernel that finds mistakes")
    kernel_patches.add_argument(parser, "another kernel: with this patch of its source")
    parser.add_argument("--check", action="store_true", help="build nothing; is it built?")
    parser.add_argument("-q", "--quiet", action="store_true", help="print only errors")


def main(args: argparse.Namespace) -> int:
    """`ndm lab build`; with --check, exit code 1 if the kernel is not in the cache."""
    patches = tuple(args.kernel_patch)
    if args.check:
        found = built(args.debug, patches)
        if not args.quiet:
            print("built" if found else "not built; run the same command without --check")
        return 0 if found else 1
    kernel = build(args.quiet, args.update, args.debug, patches)
    build_programs()
    folders = (KMOD, FIXED_CWND, WATCH)
    modules = [build_module(folder, args.quiet, args.debug, patches) for folder in folders]
    if not args.quiet:
        print(f"Linux {kernel.release} in {kernel.dir}")
        print("\n".join(str(module) for module in modules))
    return 0
