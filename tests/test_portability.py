# SPDX-License-Identifier: GPL-2.0-only
"""The same integers from every compiler, optimisation, word size and byte order; tanh whole."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from ndm_tcp import contract as c
from ndm_tcp import fixedpoint
from ndm_tcp.export.integers import generated, golden, model_c
from ndm_tcp.export.proof import certificate, enclosure
from ndm_tcp.fixedpoint import Layer

KMOD = generated.GENERATED.parent
SANITIZE = ("-fsanitize=undefined,address", "-fno-sanitize-recover=all")


@dataclass(frozen=True)
class Target:
    """A way to compile and run a C program."""

    compiler: str
    flags: tuple[str, ...]
    package: str
    runner: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "".join((self.compiler, *self.flags))


TARGETS = [
    *(Target("gcc", (f"-O{level}",), "gcc") for level in "0123"),
    *(Target("clang", (f"-O{level}",), "clang") for level in "0123"),
    Target("gcc", ("-O2", *SANITIZE), "gcc"),
    Target("clang", ("-O2", *SANITIZE), "clang libclang-rt-14-dev"),
    Target("gcc", ("-O2", "-ftrapv"), "gcc"),
    Target("i686-linux-gnu-gcc", ("-O2", "-static"), "gcc-i686-linux-gnu libc6-dev-i386-cross"),
    Target("i686-linux-gnu-gcc", ("-O0", "-static"), "gcc-i686-linux-gnu libc6-dev-i386-cross"),
    Target(
        "s390x-linux-gnu-gcc",
        ("-O2", "-static"),
        "gcc-s390x-linux-gnu libc6-dev-s390x-cross qemu-user-static",
        ("qemu-s390x-static",),
    ),
]

# Every s32 against the specification of the table, written out with s64 and no shift of a
# negative number; prints the number of differing values and the extremes.
TANH = r"""
#include <stdio.h>
#include "ndm_infer.h"

int main(void)
{
	u64 wrong = 0, falls = 0;
	s32 before = -32768;
	s64 pre;

	for (pre = -2147483648LL; pre <= 2147483647LL; pre++) {
		s64 m = pre < 0 ? -pre : pre, i = m / 256, f = m % 256, want;
		s32 got = ndm_tanh((s32)pre);

		if (i >= 2048)
			want = ndm_tanh_table[2048];
		else
			want = (ndm_tanh_table[i] * (256 - f) + ndm_tanh_table[i + 1] * f + 128) / 256;
		wrong += got != (pre < 0 ? -want : want);
		falls += got < before;
		before = got;
	}
	printf("%llu %llu\n", (unsigned long long)wrong, (unsigned long long)falls);
	return wrong || falls;
}
"""


def compile_and_run(target: Target, source: Path, folder: Path, kmod: Path = KMOD) -> str:
    """Output of the program; skips, naming the package, where a tool is missing."""
    for tool in (target.compiler, *target.runner[:1]):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is missing: apt-get install {target.package}")
    program = folder / "program"
    command = [target.compiler, "-std=gnu11", "-Wall", "-Wextra", "-Werror", *target.flags]
    built = subprocess.run(
        [*command, f"-I{kmod}", "-o", str(program), str(source)],
        capture_output=True,
        text=True,
        check=False,
    )
    if "cannot find" in built.stderr and "clang_rt" in built.stderr:
        pytest.skip(f"the sanitizer's library is missing: apt-get install {target.package}")
    assert built.returncode == 0, built.stderr
    done = subprocess.run(
        [*target.runner, str(program)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr or done.stdout
    return done.stdout


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_golden_vectors(target: Target, tmp_path: Path) -> None:
    said = compile_and_run(target, KMOD / "ndm_selftest.c", tmp_path)
    assert re.search(r"256 vectors, [1-9]\d{4} by digest", said)


@pytest.mark.parametrize("target", TARGETS[-2:], ids=str)
def test_the_cross_compiled_test_can_fail(target: Target, tmp_path: Path) -> None:
    kmod = tmp_path / "kmod"
    shutil.copytree(KMOD, kmod, ignore=shutil.ignore_patterns("*.ko", "*.o", ".*"))
    path = kmod / "generated" / "ndm_tables.h"
    path.write_text(path.read_text().replace("0, 128, 256", "0, 128, 257", 1))
    with pytest.raises(AssertionError, match="golden vector"):
        compile_and_run(target, kmod / "ndm_selftest.c", tmp_path)


def test_big_endian_is_big_endian(tmp_path: Path) -> None:
    source = tmp_path / "order.c"
    source.write_text(
        '#include <stdio.h>\nint main(void) { int x = 1; printf("%d", *(char *)&x); return 0; }\n'
    )
    assert compile_and_run(TARGETS[-1], source, tmp_path) == "0"


def test_tanh_is_the_table_for_all_inputs_of_32_bits(tmp_path: Path) -> None:
    source = tmp_path / "tanh.c"
    source.write_text(TANH)
    target = Target("gcc", ("-O3",), "gcc")
    assert compile_and_run(target, source, tmp_path).split() == ["0", "0"]


def test_the_exhaustive_tanh_test_can_fail(tmp_path: Path) -> None:
    source = tmp_path / "tanh.c"
    # A part of all s32 shows it: 251 is prime to the table's step.
    few = TANH.replace("pre++", "pre += 251")
    source.write_text(few)
    compile_and_run(Target("gcc", ("-O3",), "gcc"), source, tmp_path)
    source.write_text(few.replace("+ 128) / 256", "+ 127) / 256"))
    with pytest.raises(AssertionError):
        compile_and_run(Target("gcc", ("-O3",), "gcc"), source, tmp_path)


# --- the vectors -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def layers() -> list[Layer]:
    return model_c.from_json(KMOD / "generated" / "ndm_model.json").layers


@pytest.fixture(scope="module")
def proof(layers: list[Layer]) -> certificate.Proof:
    return certificate.prove(layers)


def test_the_fixed_part_comes_first(layers: list[Layer], proof: certificate.Proof) -> None:
    fixed = golden.inputs()
    x = golden.for_model(layers, proof.inputs())
    assert np.array_equal(x[: len(fixed)], fixed)
    lo, hi = (np.array(side) for side in zip(*enclosure.box(), strict=True))
    assert ((lo <= x) & (x <= hi)).all()


def test_rounding_ties_break_points_and_witnesses_are_among_the_vectors(
    layers: list[Layer], proof: certificate.Proof
) -> None:
    x = golden.edges(layers, proof.inputs()).astype(np.int64)
    trace = fixedpoint.forward(layers, x)
    step = 1 << enclosure.STEP_BITS
    for number, layer in enumerate(layers):
        for row in range(layer.n_out):
            half = 1 << (int(layer.shift[row]) - 1)
            rest = trace.accumulators[number][:, row] & (2 * half - 1)
            assert (rest == half).any(), f"no tie in layer {number}, row {row}"
            if number + 1 < len(layers):
                at = trace.pre[number][:, row] & (step - 1)
                for near in (0, 1, step - 1):
                    assert (at == near).any(), f"no break point in layer {number}, row {row}"
    present = {tuple(row) for row in x.tolist()}
    assert all(tuple(witness) in present for witness in proof.inputs())


def test_the_module_carries_some_of_each_kind(
    layers: list[Layer], proof: certificate.Proof
) -> None:
    fixed = golden.compute(layers, golden.inputs())
    extra = golden.compute(layers, golden.edges(layers, proof.inputs()))
    chosen = golden.for_kernel(fixed, extra)
    assert len(chosen.x) == golden.IN_KERNEL
    edges = {tuple(row) for row in extra.x.tolist()}
    assert sum(tuple(row) in edges for row in chosen.x.tolist()) >= golden.IN_KERNEL_EDGES
    corner = np.ones(len(chosen.x), dtype=bool)
    for number, i in enumerate(c.DENSE):
        corner &= np.isin(chosen.x[:, number], (i.lo_q, i.hi_q))
    assert corner.sum() >= 90 and (~corner).sum() >= 90
    few = golden.Vectors(extra.x[:5], extra.pre[:5], extra.out[:5])
    assert len(golden.for_kernel(fixed, few).x) == golden.IN_KERNEL
