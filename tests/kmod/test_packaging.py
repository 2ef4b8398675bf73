# SPDX-License-Identifier: GPL-2.0-only
"""`ndm kmod status`, DKMS in a tree of its own, and targets of make that load nothing."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from ndm_tcp import contract, kmod_status
from ndm_tcp.cli import run_command
from ndm_tcp.lab.guest import uml_build

from ..kernel.kbuild import KERNELS, KMOD, Unavailable, copy_kmod, find_headers
from .lab import boot, need_kernel


def fake(root: Path, **parameters: str) -> Path:
    """A /proc and a /sys with the module in them."""
    (root / "proc/sys/net/ipv4").mkdir(parents=True)
    (root / "proc/sys/kernel").mkdir()
    (root / "proc/sys/kernel/osrelease").write_text("6.12.0\n")
    (root / "proc/sys/net/ipv4/tcp_congestion_control").write_text("cubic\n")
    if parameters:
        folder = root / "sys/module/ndm_tcp/parameters"
        folder.mkdir(parents=True)
        for name, value in parameters.items():
            (folder / name).write_text(value + "\n")
    return root


def test_without_the_module(tmp_path: Path) -> None:
    facts = kmod_status.read(fake(tmp_path))
    assert facts["loaded"] is False and facts["kernel"] == "6.12.0"
    assert kmod_status.text(facts).splitlines()[-1].startswith("ndm_tcp    not loaded; run: ")


def test_with_the_module(tmp_path: Path) -> None:
    parameters = {"model_hash": "m", "contract_hash": contract.HASH, "flows": "3", "rounds": "70"}
    facts = kmod_status.read(fake(tmp_path, **parameters))
    assert (facts["loaded"], facts["flows"], facts["fallbacks"]) == (True, 3, None)
    text = kmod_status.text(facts)
    assert "flows      3 sockets" in text and "fallbacks  unknown" in text and "but" not in text
    facts = kmod_status.read(fake(tmp_path / "other", **(parameters | {"contract_hash": "x"})))
    assert f"x, but this program's is {contract.HASH}" in kmod_status.text(facts)


def test_this_kernel(capsys: pytest.CaptureFixture[str]) -> None:
    loaded = Path("/sys/module/ndm_tcp").is_dir()
    assert run_command(["kmod", "status", "--json"]) == (0 if loaded else 1)
    assert json.loads(capsys.readouterr().out)["loaded"] is loaded


def test_make_status_in_the_lab(tmp_path: Path) -> None:
    """`make status` and the read-only parameters, where the module can be loaded."""
    need_kernel()
    # make and the checkout are the host's.
    plan = f"""
mkdir /run/all
guest hostfs / /run/all
for folder in dev proc sys; do mount --rbind /$folder /run/all/$folder; done
status() {{ PATH=/usr/sbin:/usr/bin chroot /run/all make -s -C {KMOD} status; }}
status
insmod /run/host/ndm_tcp.ko
status
! insmod /run/host/ndm_tcp.ko
for name in flows rounds fallbacks guarded no_memory; do
	echo $name=$(cat /sys/module/ndm_tcp/parameters/$name)
	! echo 1 2>/dev/null >/sys/module/ndm_tcp/parameters/$name || exit 1
done
rmmod ndm_tcp
! insmod /run/host/ndm_tcp.ko fallbacks=7
"""
    log = boot(tmp_path / "work", plan, [uml_build.build_module()])
    assert re.search(r"^not loaded$", log, re.MULTILINE)
    assert re.search(rf"^loaded, 0 users, model \w+, contract {contract.HASH}$", log, re.MULTILINE)
    assert log.count("File exists") == 1
    assert re.findall(r"^(\w+)=0$", log, re.MULTILINE) == [
        *("flows", "rounds", "fallbacks", "guarded", "no_memory")
    ]


def test_help_lists_the_targets() -> None:
    done = subprocess.run(
        ["make", "-s", "-C", str(KMOD), "help"], capture_output=True, text=True, check=True
    )
    targets = [line.split()[0] for line in done.stdout.splitlines()]
    wanted = {
        "module",
        "sign",
        "install",
        "load",
        "unload",
        "enable",
        "disable",
        "status",
        "selftest",
    }
    assert wanted <= set(targets)


@pytest.mark.parametrize("series", KERNELS)
def test_dkms_builds_it(series: str, tmp_path: Path) -> None:
    if shutil.which("dkms") is None:
        pytest.skip("dkms is missing: apt-get install dkms")
    try:
        headers = find_headers(series)
    except Unavailable as error:
        pytest.skip(str(error))
    copy_kmod(tmp_path / "src" / "ndm-tcp-0.1.0")
    (tmp_path / "tree").mkdir()
    words = ["--dkmstree", str(tmp_path / "tree"), "--sourcetree", str(tmp_path / "src")]
    words += ["-k", headers.release, "--kernelsourcedir", str(headers.path)]
    words += ["-m", "ndm-tcp", "-v", "0.1.0"]
    done = subprocess.run(["dkms", "build", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    status = subprocess.run(["dkms", "status", *words[:4]], capture_output=True, text=True)
    assert f"ndm-tcp/0.1.0, {headers.release}, x86_64: built" in status.stdout
    found = [path.name for path in (tmp_path / "tree").rglob("ndm_tcp.ko*")]
    assert found, done.stdout


def test_it_can_be_signed(tmp_path: Path) -> None:
    """The commands of docs/kmod.md, as far as they need no reboot."""
    for tool in ("openssl", "modinfo"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is missing: apt-get install openssl kmod")
    try:
        headers = find_headers(KERNELS[-1])
    except Unavailable as error:
        pytest.skip(str(error))
    sources = copy_kmod(tmp_path / "kmod")
    subprocess.run(["make", "-C", str(sources), f"KDIR={headers.path}"], check=True)
    text = (KMOD.parent / "docs" / "kmod.md").read_text()
    commands = text[text.index("openssl req") : text.index("Sign last")].replace("\\\n", " ")
    commands = commands.replace("make -C", f"make -s KDIR={headers.path} -C").split("```")[0]
    unsigned = (sources / "ndm_tcp.ko").read_bytes()
    done = subprocess.run(
        ["sh", "-ec", commands], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "ndm_tcp"
    signed = (sources / "ndm_tcp.ko").read_bytes()
    assert signed.startswith(unsigned) and signed.endswith(b"~Module signature appended~\n")
    for words, text in (([], "name a private key"), (commands_keys(tmp_path), "has a signature")):
        again = ["make", "-s", "-C", str(sources), f"KDIR={headers.path}", "sign", *words]
        refused = subprocess.run(again, capture_output=True, text=True, check=False)
        assert refused.returncode and text in refused.stderr
    assert (sources / "ndm_tcp.ko").read_bytes() == signed


def commands_keys(folder: Path) -> list[str]:
    return [f"KEY={folder / 'mok.key'}", f"CERT={folder / 'mok.der'}"]


def test_the_page_of_rules_names_what_there_is() -> None:
    """Every function and constant of docs/control.md, and every test file."""
    page = (KMOD.parent / "docs" / "control.md").read_text()
    head = "| rule | why | code | test | without it |\n|---|---|---|---|---|\n"
    tables = [text.split("\n\n")[0] for text in page.split(head)[1:]]
    rows = [row for table in tables for row in table.splitlines()]
    assert len(tables) == page.count("| rule |") and len(rows) > 40
    assert {row.count("|") for row in rows} == {6}
    assert all(cell.strip() for row in rows for cell in row.split("|")[1:-1])
    sources = "".join(path.read_text() for path in KMOD.glob("*.[ch]"))
    names = set(re.findall(r"`((?:ndm|NDM)_\w+)`", page)) - {"ndm_tcp"}
    assert not {name for name in names if not re.search(rf"\b{name}\b", sources)}
    files = set(re.findall(r"`(?:tests/(?:\w+/)?)?(test_\w+\.py)`", page))
    assert not {name for name in files if not list(KMOD.parent.glob(f"tests/**/{name}"))}
