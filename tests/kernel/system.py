# SPDX-License-Identifier: GPL-2.0-only
"""A small Debian with systemd as init, made by debootstrap, that boots in QEMU from memory.

An archive in `${XDG_CACHE_HOME:-~/.cache}/ndm-tcp/systems` holds it for all boots. The kernel
unpacks a second archive over it, with what a boot is about.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from ndm_tcp import files
from ndm_tcp.lab.guest import uml_build

from . import boot
from .kbuild import Unavailable, find_headers

HERE = Path(__file__).resolve().parent
PACKAGES = ("systemd-sysv", "kmod", "procps", "libbpf1")
LEFT_OUT = (
    *("dev", "proc", "sys", "usr/share/doc", "usr/share/info", "usr/share/locale"),
    *("usr/share/man", "var/cache/apt", "var/lib/apt/lists"),
)
# Of a system that has booted before: at a first boot, systemd enables every unit.
IDENTITY = {"etc/machine-id": b"0" * 31 + b"1\n", "etc/hostname": b"guest\n"}
REPORT = """
[Unit]
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/report
"""
UNITS = Path("etc/systemd/system")
# Without udev, no device of a terminal appears, and logins would wait for one.
WORDS = "systemd.mask=getty.target systemd.show_status=0"


def _suite() -> str:
    """The Debian release of this machine, whose libraries the loader is linked to."""
    found = platform.freedesktop_os_release()
    if found.get("ID") != "debian" or "VERSION_CODENAME" not in found:
        raise Unavailable("the guest is the Debian release of its host, and this is another system")
    return found["VERSION_CODENAME"]


def _bootstrap(suite: str, root: Path) -> None:
    """Fill a folder with a Debian; what it mounts on the way ends with it."""
    print(f"fetching Debian {suite}: a minute or two, once", file=sys.stderr, flush=True)
    command = [boot.need("unshare", "util-linux"), "--mount"]
    command += [boot.need("debootstrap", "debootstrap"), "--variant=minbase"]
    command += [f"--include={','.join(PACKAGES)}", suite, str(root)]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        last = (done.stdout.strip() or "no message").splitlines()[-1]
        raise Unavailable(f"debootstrap {suite}: {last}; see whether its archive can be reached")


def base() -> bytes:
    """The archive of the system; raises Unavailable where it cannot be made."""
    suite = _suite()
    boot.need("debootstrap", "debootstrap")
    key = files.digest(repr((PACKAGES, LEFT_OUT, IDENTITY)).encode())
    archive = uml_build.cache().parent / "systems" / f"{suite}-{key}.cpio.gz"
    with uml_build.locked("systems"):
        if not archive.is_file():
            if os.geteuid():
                raise Unavailable("not root: debootstrap needs it")
            archive.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=archive.parent) as name:
                root = Path(name) / "root"
                _bootstrap(suite, root)
                made = boot.Initramfs()
                made.console()
                for path, data in IDENTITY.items():
                    made.file(path, data, 0o644)
                made.tree(root, LEFT_OUT)
                (Path(name) / "made").write_bytes(made.image())
                (Path(name) / "made").rename(archive)
    return archive.read_bytes()


def stage(folder: Path) -> Path:
    """A folder for what is laid over the system, with its link from /lib; returns it."""
    (folder / "usr/lib").mkdir(parents=True)
    (folder / "lib").symlink_to("usr/lib")
    (folder / UNITS / "graphical.target.wants").mkdir(parents=True)
    (folder / UNITS / "ndm-report.service").write_text(REPORT)
    (folder / UNITS / "graphical.target.wants/ndm-report.service").symlink_to(
        "../ndm-report.service"
    )
    (folder / "report").write_bytes((HERE / "guest_systemd.sh").read_bytes())
    (folder / "report").chmod(0o755)
    (folder / "init").symlink_to("usr/lib/systemd/systemd")
    return folder


def start(overlay: Path, *, limit_s: int = 600) -> tuple[boot.Report, dict[str, str]]:
    """Boot once with a folder laid over the system; the report, and the guest's facts."""
    kernel = boot.fetch_kernel(find_headers("6.12").release)
    archive = boot.Initramfs()
    archive.tree(overlay)
    image = base() + archive.image()
    report = boot.run_qemu(kernel, image, limit_s=limit_s, memory_MB=1024, words=WORDS)
    facts = re.findall(r"^NDM-FACT (\S+) ?(.*)$", report.console, flags=re.MULTILINE)
    return report, {name: said.strip() for name, said in facts}
