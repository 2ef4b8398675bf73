# SPDX-License-Identifier: GPL-2.0-only
"""Kernels and modules that a user brings by path: found, named, refused, and put beside ours."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ndm_tcp.cli import run_command
from ndm_tcp.errors import NdmError
from ndm_tcp.lab.guest import boot, externals, kernel_patches, uml_build
from ndm_tcp.lab.guest import run as lab_run
from ndm_tcp.lab.guest.externals import Externals
from ndm_tcp.lab.score import board, control
from ndm_tcp.lab.score.metrics import MEASURES, Cell

from ..kmod.lab import need_kernel, scenario
from ..test_lab_cli import refused

HERE = Path(__file__).resolve().parent
SEVEN = HERE / "seven"
REORDERING = HERE / "reordering.patch"
PATH = """
seconds = 2
topology = "path"
[link]
rate_bps = 8_000_000
rtt_us = 30_000
queue_packets = 40
"""
NEW_ALGORITHM = """
--- a/net/ipv4/Kconfig
+++ b/net/ipv4/Kconfig
@@ -700,0 +701,2 @@
+config TCP_CONG_MINE
+	tristate "mine"
--- /dev/null
+++ b/net/ipv4/tcp_mine.c
@@ -0,0 +1 @@
+	.name		= "mine",
--- a/net/ipv4/tcp_bbr.c
+++ b/net/ipv4/tcp_bbr.c
@@ -1 +1 @@
-a
+b
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "made-up.toml").write_text(PATH)
    return tmp_path / "made-up.toml"


# --- kernels -----------------------------------------------------------------------------------
def test_a_kernel_has_a_name_of_its_own_for_each_content_of_its_patches(tmp_path: Path) -> None:
    first, same, other = (tmp_path / name for name in ("a.patch", "b.patch", "c.patch"))
    first.write_text("one")
    same.write_text("one")
    other.write_text("two")
    keys = {
        uml_build._key(False, patches)
        for patches in ((), (first,), (other,), (first, other), (other, first))
    }
    assert len(keys) == 5
    assert uml_build._key(False, (first,)) == uml_build._key(False, (same,))
    assert uml_build._key(True, (first,)) not in keys


def test_a_patch_applies_whole_or_is_one_clear_line(tmp_path: Path) -> None:
    log = tmp_path / "log"
    source = tmp_path / "net" / "ipv4" / "tcp_ipv4.c"
    source.parent.mkdir(parents=True)
    lines = REORDERING.read_text().splitlines()
    before = "\n".join(line[1:] for line in lines if line[:1] in (" ", "-") and line[:3] != "---")
    source.write_text("\n" * 3592 + before + "\n")
    kernel_patches.apply(REORDERING, tmp_path, "6.12", log)
    assert "sysctl_tcp_reordering = 9;" in source.read_text()
    for name, text, why in (
        ("twice", REORDERING.read_text(), "tcp_ipv4.c.*previously applied"),
        ("hunk", REORDERING.read_text().replace("retries1", "x"), "tcp_ipv4.c.*FAILED"),
        ("file", REORDERING.read_text().replace("tcp_ipv4", "none"), "can't find file"),
        ("text", "no patch at all\n", "garbage"),
    ):
        bad = tmp_path / f"{name}.patch"
        bad.write_text(text)
        with pytest.raises(NdmError, match=f"{name}.patch: does not apply to Linux 6.12") as error:
            kernel_patches.apply(bad, tmp_path, "6.12", log)
        assert error.match(why) and "\n" not in str(error.value)


def test_algorithms_that_a_patch_adds_are_built_in_and_known(tmp_path: Path) -> None:
    patch = tmp_path / "mine.patch"
    patch.write_text(NEW_ALGORITHM)
    assert kernel_patches.options((REORDERING, patch)) == "CONFIG_TCP_CONG_MINE=y\n"
    assert Externals(patches=(patch,)).algorithms() == ["mine"]
    assert kernel_patches.change((REORDERING, patch), board.BBR_SOURCE) == [patch]


def test_the_board_names_the_version_of_bbr(tmp_path: Path) -> None:
    patch = tmp_path / "mine.patch"
    patch.write_text(NEW_ALGORITHM)
    assert board.remarks(["cubic"], externals.NONE) == []
    assert board.remarks(["bbr"], externals.NONE) == ["`bbr` is the one in Linux: BBR version 1."]
    changed, parts = board.remarks(["bbr"], Externals((patch,), (SEVEN,)))
    assert "as mine.patch changed it" in changed
    assert "mine.patch (" in parts and "seven (" in parts


@pytest.mark.long
def test_a_guest_of_the_patched_kernel_shows_the_patch(tmp_path: Path, path: Path) -> None:
    need_kernel()
    patches = (REORDERING,)
    uml_build.build(patches=patches)
    for number, (given, expected) in enumerate((((), "3"), (patches, "9"))):
        work = tmp_path / str(number)
        work.mkdir()
        (work / "plan.sh").write_text("echo sees $(cat /proc/sys/net/ipv4/tcp_reordering)\n")
        assert f"sees {expected}\n" in boot.boot(work, 1, None, 60, patches=given)
    words = ["lab", "board", path, "--cc", "reno", "--seeds", 1, "-o", tmp_path / "out"]
    words += ["--kernel-patch", REORDERING]
    assert run_command([str(word) for word in words]) == 0
    page = (tmp_path / "out" / "board.md").read_text()
    assert "A/A control" in page and "reordering.patch (" in page


def seven(to: Path, edit: Callable[[str], str]) -> Path:
    """A copy of that module with another source."""
    shutil.copytree(SEVEN, to / "seven")
    (source,) = (to / "seven").glob("*.c")
    text = source.read_text()
    assert text.count('"seven"') == 1
    source.write_text(edit(text))
    return to / "seven"


# --- modules -----------------------------------------------------------------------------------
@pytest.mark.parametrize("verb", ["run", "record", "board"])
def test_what_is_not_there_is_refused(verb: str, path: Path, capsys: Any) -> None:
    words = ["lab", verb, path, "-o", path.parent / "out"]
    nothing = path.parent / "nothing"
    said = refused([*words, "--cc", "seven", "--cc-module", nothing], capsys)
    assert f"--cc-module {nothing}: no Kbuild and no Makefile" in said
    assert "No such file" in refused([*words, "--cc", "reno", "--kernel-patch", nothing], capsys)
    said = refused([*words, "--cc", "eight", "--cc-module", SEVEN], capsys)
    assert "no algorithm eight, there are: reno" in said and "seven" in said


def test_a_mistake_in_a_module_is_named_before_any_run(
    path: Path, tmp_path: Path, capsys: Any
) -> None:
    """In the user's file, not in the copy that the lab compiles, and once."""
    need_kernel()
    copy = seven(tmp_path, lambda text: text + "int mistake = ;\n")
    (source,) = copy.glob("*.c")
    words = ["lab", "board", path, "--cc", "seven", "--cc-module", copy, "-o", tmp_path / "out"]
    said = refused(words, capsys)
    assert f"failed: {source}:" in said and not (tmp_path / "out").exists()


def test_a_name_that_is_a_macro_is_left_to_the_guest(tmp_path: Path) -> None:
    copy = seven(tmp_path, lambda text: '#define MINE "macro"\n' + text.replace('"seven"', "MINE"))
    loaded = [scenario(PATH)]
    lab_run.require_known(loaded, ["macro"], None, Externals(modules=(copy,)))
    with pytest.raises(NdmError, match="no algorithm macro"):
        lab_run.require_known(loaded, ["macro"], None, Externals(modules=(SEVEN,)))


def test_a_name_in_two_parts_is_left_to_the_guest(tmp_path: Path) -> None:
    copy = seven(
        tmp_path, lambda text: '#define TAIL "en"\n' + text.replace('"seven"', '"sev" TAIL')
    )
    lab_run.require_known([scenario(PATH)], ["seven"], None, Externals(modules=(copy,)))


def test_a_board_with_externals_takes_no_other_results(path: Path, capsys: Any) -> None:
    words = ["lab", "board", path, "--cc", "seven", "--cc-module", SEVEN, "-o", path.parent / "out"]
    said = refused([*words, "--beside", path], capsys)
    assert said.startswith("ndm: --beside: those results are of the lab's own kernel")


def test_a_module_is_known_by_its_sources_not_by_what_was_built(tmp_path: Path) -> None:
    copy = tmp_path / "seven"
    copy.mkdir()
    for file in SEVEN.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    before = Externals(modules=(copy,)).digests()
    (copy / "tcp_seven.o").write_bytes(b"built")
    (copy / ".git").mkdir()
    (copy / ".git" / "index").write_bytes(b"changes often")
    assert Externals(modules=(copy,)).digests() == before
    (copy / "tcp_seven.c").write_text("/* nothing */")
    assert Externals(modules=(copy,)).digests() != before


def test_a_module_from_outside_runs_by_its_name(tmp_path: Path) -> None:
    need_kernel()
    others = Externals(modules=(SEVEN,))
    result = lab_run.run(scenario(PATH), "seven", 1, tmp_path / "run", light=True, others=others)
    (flow,) = result["flows"]
    assert (flow["cc"], flow["cwnd_mean"]) == ("seven", 7)
    assert result["externals"][0][0] == "seven"


def test_a_module_of_ours_is_not_from_outside(tmp_path: Path) -> None:
    need_kernel()
    others = Externals(modules=(uml_build.FIXED_CWND,))
    with pytest.raises(NdmError, match="fixed_cwnd.ko, which the lab has itself.*--kmod"):
        lab_run.run(scenario(PATH), "reno", 1, tmp_path / "run", others=others)


def test_a_board_with_a_module_has_a_control(path: Path, capsys: Any) -> None:
    need_kernel()
    out = path.parent / "out"
    words = ["lab", "board", path, "--cc", "seven,bbr", "--seeds", 1, "-o", out, "--json"]
    assert run_command([str(word) for word in (*words, "--cc-module", SEVEN)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {cell["cc"] for cell in told["cells"]} == {"seven", "bbr", "cubic", "ndm_tcp"}
    assert [row[:2] for row in sorted(told["control"]["rows"])] == [
        ["made-up", "cubic"],
        ["made-up", "ndm_tcp"],
    ]
    assert len(list((out / "runs").iterdir())) == 6, "four algorithms, two of them twice"
    for name in ("board.md", "board.html"):
        page = (out / name).read_text()
        assert "BBR version 1" in page and "in the median scenario" in page


def test_the_control_tells_how_far_apart_the_guests_are() -> None:
    def cell(name: str, cc: str, mbps: float) -> Cell:
        zero = dict.fromkeys(MEASURES, 0.0)
        return Cell(name, cc, 1, {**zero, "goodput_mbps": mbps}, zero)

    own = [cell("a", "cubic", 10), cell("b", "cubic", 10), cell("c", "cubic", 0)]
    own += [cell("a", "ndm_tcp", 8)]
    theirs = [cell("a", "cubic", 9), cell("b", "cubic", 10.2), cell("c", "cubic", 0)]
    theirs += [cell("a", "ndm_tcp", 8), cell("a", "mine", 20)]
    found = control.compare(own, theirs)
    assert [row[4] for row in found.rows] == ["-10.0", "+2.0", "+0.0", "+0.0"]
    assert found.summary == [
        "cubic: goodput 2.0 % apart in the median scenario, 10.0 % at most.",
        "ndm_tcp: goodput 0.0 % apart in the median scenario, 0.0 % at most.",
    ]
