# SPDX-License-Identifier: GPL-2.0-only
"""What the compiler made of the module: no floating point, no division helper, its model named."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from .conftest import Built
from .kbuild import KERNELS, build, copy_kmod

FLOAT = re.compile(
    r"%(?:[xyz]mm\d+|mm\d|st\b)|\t(?:f(?:ld|st|add|sub|mul|div|ild|ist)\w*|cvt\w+|emms)\b"
)
HELPERS = re.compile(
    r"^__(?:u?div[dst]i3|u?mod[dst]i3|u?divmod\w+|float\w+|fix\w+|(?:add|sub|mul|div)[sdx]f3)$"
)
"""Registers and instructions of x87, MMX and SSE; functions of libgcc."""


@pytest.fixture(autouse=True)
def tools() -> None:
    """Skips what needs a tool that is not here."""
    for tool in ("objdump", "nm"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is missing: apt-get install binutils")


def output(*command: str | Path) -> str:
    return subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=True
    ).stdout


def float_instructions(path: Path) -> list[str]:
    code = output("objdump", "-d", "--no-show-raw-insn", path)
    assert "ndm_" in code and len(code.splitlines()) > 500, "nothing was disassembled"
    return [line.strip() for line in code.splitlines() if FLOAT.search(line)]


def helpers(path: Path) -> list[str]:
    return [name for name in output("nm", "-u", path).split() if HELPERS.match(name)]


@pytest.mark.parametrize("series", KERNELS)
def test_neither_floating_point_nor_division_helpers(series: str, built: Built) -> None:
    _, path = built(series)
    assert float_instructions(path) == []
    assert helpers(path) == []


FRAME_BYTES = 512
"""of the function that ends a round, beside the inference's: stacks of a kernel are small"""


def frame_bytes(path: Path, function: str) -> int:
    """What a function takes of the stack for itself."""
    code = output("objdump", "-d", "--no-show-raw-insn", path)
    (body,) = re.findall(rf"<{function}>:\n(.*?)(?:\n\n|\Z)", code, re.DOTALL)
    found = re.search(r"\tsub +\$0x([0-9a-f]+),%rsp", body)
    return int(found[1], 16) if found else 0


@pytest.mark.parametrize("series", KERNELS)
def test_the_stack_frame_of_a_round_is_small(series: str, built: Built) -> None:
    _, path = built(series)
    assert 0 < frame_bytes(path, "ndm_end_round") <= FRAME_BYTES


def test_a_float_is_noticed(built: Built, tmp_path: Path) -> None:
    """The module built once more, with a function that the test must object to."""
    extra = """
__attribute__((target("sse2"), used)) static int ndm_bad(int x)
{
	int y;

	asm("cvtsi2sd %1, %%xmm0\\n\\tcvttsd2si %%xmm0, %0" : "=r"(y) : "r"(x));
	return y;
}
"""
    headers, _ = built(KERNELS[-1])
    sources = copy_kmod(tmp_path / "kmod")
    with (sources / "ndm_tcp.c").open("a") as file:
        file.write(extra)
    assert len(float_instructions(build(headers, sources))) == 2
    for name in ("__divdi3", "__udivti3", "__floatsidf", "__adddf3", "__udivmoddi4", "__fixdfsi"):
        assert HELPERS.match(name)
    for name in ("__x86_return_thunk", "__fentry__", "div64_u64", "__stack_chk_fail"):
        assert not HELPERS.match(name)


@pytest.mark.parametrize("series", KERNELS)
def test_modinfo_names_the_model_of_the_header(series: str, built: Built) -> None:
    modinfo = shutil.which("modinfo") or shutil.which("/sbin/modinfo")
    if modinfo is None:
        pytest.skip("modinfo is missing: apt-get install kmod")
    _, path = built(series)
    header = (path.parent / "generated" / "ndm_model.h").read_text()
    found = re.search(r'#define NDM_MODEL_HASH\t"([0-9a-f]{16})"', header)
    assert found and output(modinfo, "-F", "model", path).strip() == found[1]
