# SPDX-License-Identifier: GPL-2.0-only
"""The Debian package: its versions, its files, and installed over this system's own root."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import ndm_tcp

from .conftest import ROOT

NEXT = "0.2.0~test"
# A throw-away copy of this system: what is installed in it lies in a tmpfs.
OVERLAY = """
mkdir -p "$1/tmpfs" "$1/system"
mount -t tmpfs tmpfs "$1/tmpfs"
mkdir "$1/tmpfs/up" "$1/tmpfs/work"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/tmpfs/up,workdir=$1/tmpfs/work" "$1/system"
mount -t proc proc "$1/system/proc"
mount --bind /dev "$1/system/dev"
mkdir "$1/system/debs"
cp "$1"/debs/*.deb "$1/system/debs/"
exec chroot "$1/system" sh -ec "$2"
"""
STATE = """
echo "== $1"
dkms status ndm-tcp
find /lib/modules /usr/src /var/lib/dkms -name 'ndm[_-]tcp*' -prune
"""
PLAN = f"""
state() {{ {STATE} }}
dpkg -i /debs/ndm-tcp-dkms_{ndm_tcp.__version__}_all.deb
state installed
modinfo -F description /lib/modules/*/updates/dkms/ndm_tcp.ko*
dpkg -i /debs/ndm-tcp-dkms_{NEXT}_all.deb
state upgraded
dpkg -r ndm-tcp-dkms
state removed
dpkg --purge ndm-tcp-dkms 2>&1
state purged
"""


def test_versions_agree() -> None:
    """Of the Python package, the module for DKMS and the first entry of the changelog."""
    conf = (ROOT / "kmod" / "dkms.conf").read_text()
    first = (ROOT / "packaging/debian/changelog").read_text().splitlines()[0]
    assert f'PACKAGE_VERSION="{ndm_tcp.__version__}"' in conf
    assert first.startswith(f"ndm-tcp ({ndm_tcp.__version__}) ")


def make_deb(out: Path, version: str, root: Path = ROOT) -> Path:
    words = ["make", "-s", "-C", str(root), "deb", f"DEB_VERSION={version}", f"DEB_OUT={out}"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return out / f"ndm-tcp-dkms_{version}_all.deb"


@pytest.fixture(scope="module")
def debs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the package, and one of a later version, made without git as of an archive;
    lintian has looked at both."""
    for tool in ("dpkg-buildpackage", "dh_dkms", "lintian"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is missing: make deb installs it")
    folder = tmp_path_factory.mktemp("package")
    for name in ("kmod", "packaging"):
        shutil.copytree(ROOT / name, folder / "later" / name)
    shutil.copy2(ROOT / "Makefile", folder / "later")
    (folder / "later" / "kmod" / "ndm_tcp.mod.c").touch()  # of a build
    assert make_deb(folder / "debs", ndm_tcp.__version__).is_file()
    assert make_deb(folder / "debs", NEXT, folder / "later").is_file()
    yield folder


@pytest.mark.long
@pytest.mark.parametrize("version", [ndm_tcp.__version__, NEXT])
def test_it_holds_the_module_and_nothing_that_was_built(debs: Path, version: str) -> None:
    listed = subprocess.run(["git", "ls-files", "kmod"], cwd=ROOT, capture_output=True, text=True)
    wanted = {name.removeprefix("kmod/") for name in listed.stdout.split()}
    deb = debs / "debs" / f"ndm-tcp-dkms_{version}_all.deb"
    files = subprocess.run(["dpkg", "-c", deb], capture_output=True, text=True, check=True).stdout
    place = f"./usr/src/ndm-tcp-{version}/"
    held = {line.split()[-1].removeprefix(place) for line in files.splitlines() if place in line}
    held = {name for name in held if name and not name.endswith("/")}
    # dh_installdocs takes it
    assert held == wanted - {"README.md"}
    assert "./usr/share/doc/ndm-tcp-dkms/README.md.gz" in files


@pytest.mark.long
def test_install_upgrade_remove(debs: Path) -> None:
    if os.geteuid():
        pytest.skip("not root: no chroot")
    if not [path for path in Path("/lib/modules").glob("*/build") if path.exists()]:
        pytest.skip("no kernel headers: make test-packages")
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-ec", OVERLAY, "sh", debs, PLAN],
        capture_output=True,
        text=True,
        check=False,
    )
    if "mount: " in done.stderr:
        pytest.skip(f"no overlay of this system: {done.stderr.strip()[-200:]}")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    parts = re.split(r"^== (\w+)$", done.stdout, flags=re.MULTILINE)
    after = dict(zip(parts[1::2], parts[2::2], strict=True))
    version = ndm_tcp.__version__
    first = re.findall(r"^ndm-tcp/(\S+), (\S+), \w+: installed$", after["installed"], re.MULTILINE)
    assert first and {v for v, _ in first} == {version}
    assert f"/usr/src/ndm-tcp-{version}" in after["installed"]
    assert after["installed"].count("/updates/dkms/ndm_tcp.ko") >= len(first)
    assert "congestion control" in after["installed"]
    then = re.findall(r"^ndm-tcp/(\S+), (\S+), \w+: installed$", after["upgraded"], re.MULTILINE)
    assert then == [(NEXT, kernel) for _, kernel in first]
    assert f"/usr/src/ndm-tcp-{version}\n" not in after["upgraded"]
    for state in ("removed", "purged"):
        assert not re.search(r"ndm-tcp/|ndm_tcp\.ko|/ndm-tcp", after[state].split("\n(")[0]), state
    # Nothing of it reached this system.
    assert not list(Path("/usr/src").glob("ndm-tcp-*"))
