# SPDX-License-Identifier: GPL-2.0-only
"""The module builds, without a warning, against every kernel whose headers are here."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from .conftest import Built
from .kbuild import (
    KERNELS,
    KMOD,
    STRICT,
    BuildFailed,
    Headers,
    Unavailable,
    build,
    change_one_weight,
    copy_kmod,
    find_headers,
    make,
)

# net/tcp.h as three generations of kernels have it, and what Kbuild must find there.
CONG_CONTROL_2 = "void (*cong_control)(struct sock *sk, const struct rate_sample *rs);"
CONG_CONTROL_4 = (
    "void (*cong_control)(struct sock *sk, u32 ack, int flag, const struct rate_sample *rs);"
)
TX_START = "void (*cwnd_event_tx_start)(struct sock *sk);"
HEADERS = {
    "6.1": (CONG_CONTROL_2, set[str]()),
    "6.10": (CONG_CONTROL_4, {"CONG_CONTROL_ACK"}),
    "7.1": (CONG_CONTROL_4 + TX_START, {"CONG_CONTROL_ACK", "CWND_EVENT_TX_START"}),
}


def headers(series: str) -> Headers:
    """Installed headers, or a skipped test that says what to install."""
    try:
        return find_headers(series)
    except Unavailable as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("series", KERNELS)
def test_builds_without_warnings(series: str, built: Built) -> None:
    """`kbuild.build` makes every warning an error."""
    _, module = built(series)
    assert module.stat().st_size > 0


@pytest.mark.parametrize("series", KERNELS)
def test_sparse_finds_nothing(series: str, built: Built) -> None:
    if shutil.which("sparse") is None:
        pytest.skip("sparse is missing: apt-get install sparse")
    of, module = built(series)
    # C=2 checks sources whose objects are there, which C=1 does not.
    printed = make(of, module.parent, "C=2", *STRICT)
    assert re.search(r"CHECK .*ndm_tcp\.c", printed), printed
    assert not re.findall(r"^.*(?:ndm_\w+|compat)\.[ch]:\d+:.*$", printed, re.MULTILINE)


def test_a_warning_fails_the_build(tmp_path: Path) -> None:
    sources = copy_kmod(tmp_path / "kmod")
    with (sources / "ndm_tcp.c").open("a") as file:
        file.write("static int ndm_unused;\n")
    with pytest.raises(BuildFailed, match="ndm_unused"):
        build(headers(KERNELS[-1]), sources)


@pytest.mark.parametrize("series", KERNELS)
def test_installed_elsewhere_and_removed(series: str, built: Built, tmp_path: Path) -> None:
    """As packagers do it, under DESTDIR; this system's modules stay as they are."""
    of, module = built(series)
    index = Path(f"/lib/modules/{of.release}/modules.dep")
    before = index.stat().st_mtime_ns if index.exists() else None
    make(of, module.parent, "install", f"DESTDIR={tmp_path}")
    (found,) = tmp_path.glob(f"lib/modules/{of.release}/*/*")
    assert found.name.removesuffix(".xz") == module.name
    assert module.name in (tmp_path / f"lib/modules/{of.release}/modules.dep").read_text()
    make(of, module.parent, "uninstall", f"DESTDIR={tmp_path}")
    assert not list(tmp_path.rglob(f"{module.name}*"))
    assert module.name not in (tmp_path / f"lib/modules/{of.release}/modules.dep").read_text()
    assert (index.stat().st_mtime_ns if index.exists() else None) == before


@pytest.mark.parametrize("series", KERNELS)
def test_nothing_of_a_build_is_left(series: str, built: Built, tmp_path: Path) -> None:
    """Without headers, too: they may have been removed since."""
    of, module = built(series)
    sources = tmp_path / "kmod"
    shutil.copytree(module.parent, sources)
    make(Headers(of.release, tmp_path / "none"), sources, "clean")
    left = {path.relative_to(sources) for path in sources.rglob("*")}
    clean = copy_kmod(tmp_path / "clean")
    assert left == {path.relative_to(clean) for path in clean.rglob("*")}


def test_golden_vectors_are_freed_after_loading(built: Built) -> None:
    if shutil.which("objdump") is None:
        pytest.skip("objdump is missing: apt-get install binutils")
    _, module = built(KERNELS[-1])
    table = subprocess.run(
        ["objdump", "-t", str(module)], capture_output=True, text=True, check=True
    ).stdout
    sections = dict(re.findall(r" O (\S+)\s+\S+ (ndm_(?:vector|stream)_\w+)$", table, re.MULTILINE))
    assert set(sections) == {".init.rodata"}, table


def test_missing_headers_are_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(BuildFailed, match="install linux-headers-") as error:
        make(Headers("none", tmp_path / "none"), copy_kmod(tmp_path / "kmod"))
    said = [line for line in str(error.value).splitlines() if not line.startswith("make")]
    assert len(said) == 1


@pytest.mark.parametrize("version", HEADERS)
def test_probes(version: str, tmp_path: Path) -> None:
    text, wanted = HEADERS[version]
    header = tmp_path / "include" / "net" / "tcp.h"
    header.parent.mkdir(parents=True)
    header.write_text("struct tcp_congestion_ops {\n\t" + text.replace(";", ";\n") + "};\n")
    probe = tmp_path / "probe.mk"
    probe.write_text(f"include {KMOD}/Kbuild\nprobe:\n\t@echo $(ccflags-y)\n")
    done = subprocess.run(
        ["make", "-f", str(probe), f"srctree={tmp_path}", "probe"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert set(re.findall(r"-DNDM_HAVE_(\w+)", done.stdout)) == wanted


def test_nothing_asks_for_the_version_of_the_kernel() -> None:
    sources = [*KMOD.glob("*.[ch]"), KMOD / "Kbuild", KMOD / "Makefile"]
    asked = re.compile(
        r"LINUX_VERSION_CODE|KERNEL_VERSION|UTS_RELEASE|\$\((?:VERSION|PATCHLEVEL)\)"
    )
    assert not [path.name for path in sources if asked.search(path.read_text())]
    outside = [path.name for path in sources if "NDM_HAVE" in path.read_text()]
    assert set(outside) == {"compat.h", "Kbuild"}


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_golden_vectors_in_user_space(compiler: str, tmp_path: Path) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is missing: apt-get install {compiler}")
    sources = copy_kmod(tmp_path / "kmod")
    command = ["make", "-C", str(sources), "selftest", f"CC_USER={compiler}"]
    subprocess.run(command, check=True)
    change_one_weight(sources)
    failed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert failed.returncode != 0
    assert "golden vector" in failed.stderr


def test_dkms_knows_the_version_of_the_module() -> None:
    module = re.search(r'MODULE_VERSION\("([^"]+)"\)', (KMOD / "ndm_tcp.c").read_text())
    dkms = re.search(r'PACKAGE_VERSION="([^"]+)"', (KMOD / "dkms.conf").read_text())
    assert module and dkms
    assert module[1] == dkms[1]
