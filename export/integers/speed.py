# SPDX-License-Identifier: GPL-2.0-only
"""How long one inference takes: the module's integers, the same network in float C, onnxruntime.

All run in turn, several times; the figures are medians in nanoseconds per inference, and their
ratios to the integer network are what to compare between machines. callgrind counts the
instructions of the C programs exactly. User space, warm caches: in the kernel, where a round trip
lies between two inferences, the weights come from memory and the first of a flow is slower.
"""

from __future__ import annotations

import re
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime

from ndm_tcp import contract as c
from ndm_tcp.errors import NdmError
from ndm_tcp.export.integers import generated, golden, quantize
from ndm_tcp.export.integers.network import IntegerNetwork
from ndm_tcp.export.onnx import memory, writer
from ndm_tcp.fixedpoint import Layer

VECTORS = 1024
HEADERS = ("ndm_infer.h", "ndm_types.h")

PROGRAM = r"""
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "generated/ndm_model.h"

@DATA@

static void float_infer(const float *x, float *out)
{
	static const float lo[2] = { @LO@ }, hi[2] = { @HI@ };
	float a[64], b[64];
	const float *in = x;
	int l, r, i;

	for (l = 0; l < LAYERS; l++) {
		const float *w = weight[l];

		for (r = 0; r < width[l + 1]; r++) {
			float sum = bias[l][r];

			for (i = 0; i < width[l]; i++)
				sum += *w++ * in[i];
			if (l + 1 == LAYERS)
				b[r] = sum;
			else if (r < width[l + 1] - clamped[l])
				b[r] = tanhf(sum);
			else
				b[r] = sum < -1 ? -1 : sum > 1 ? 1 : sum;
		}
		memcpy(a, b, sizeof(a));
		in = a;
	}
	for (i = 0; i < 2; i++)
		out[i] = b[i] < lo[i] ? lo[i] : b[i] > hi[i] ? hi[i] : b[i];
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

int main(int argc, char **argv)
{
	long n = argc > 2 ? atol(argv[2]) : 0, i;
	int integers = argc > 1 && argv[1][0] == 'i';
	volatile s32 sink = 0;
	volatile float float_sink = 0;
	double start = now();

	for (i = 0; i < n; i++) {
		if (integers) {
			s32 out[2];

			ndm_infer(&ndm_model, vector[i % VECTORS], out, NULL);
			sink = sink ^ out[0] ^ out[1];
		} else {
			float out[2];

			float_infer(float_vector[i % VECTORS], out);
			float_sink = float_sink + out[0] + out[1];
		}
	}
	printf("%.3f\n", n ? (now() - start) / (double)n : 0.0);
	return 0;
}
"""


@dataclass(frozen=True)
class Speed:
    """Medians per inference; None: not measured, the tool is not there."""

    integer_ns: float
    float_c_ns: float
    onnxruntime_ns: float
    """from Python, one input a call"""
    onnxruntime_batch_ns: float
    """from Python, `VECTORS` inputs a call"""
    integer_instructions: float | None
    float_c_instructions: float | None

    def rows(self) -> list[tuple[str, str, str, str]]:
        """Name, nanoseconds, their ratio to the integers', instructions."""
        every = (
            ("integers, as in the module", self.integer_ns, self.integer_instructions),
            ("the same network in float C", self.float_c_ns, self.float_c_instructions),
            ("onnxruntime from Python, one input a call", self.onnxruntime_ns, None),
            (f"onnxruntime, {VECTORS} inputs a call", self.onnxruntime_batch_ns, None),
        )
        return [
            (what, f"{ns:.0f}", f"{ns / self.integer_ns:.2f}", f"{n:.0f}" if n else "")
            for what, ns, n in every
        ]

    def note(self) -> str:
        """The missing tool, if any."""
        if self.integer_instructions is not None:
            return ""
        return "instructions not measured: install valgrind (apt-get install valgrind)"

    def text(self) -> str:
        """A table for a terminal."""
        head = ("an inference takes", "ns", "ratio", "instructions")
        lines = [f"{a:44}{b:>9}{r:>9}{n:>14}" for a, b, r, n in (head, *self.rows())]
        return "\n".join([*lines, *([self.note()] if self.note() else [])])


def _c_array(values: npt.NDArray[Any], ctype: str) -> str:
    suffix = "f" if ctype == "float" else ""
    return ", ".join(f"{float(v):.9e}f" if suffix else str(int(v)) for v in values.ravel())


def source(layers: Sequence[Layer], x: npt.NDArray[Any]) -> str:
    """The benchmark's C with the network's dequantised weights and some vectors [n, dense]."""
    real = quantize.dequantize(list(layers))
    widths = [layers[0].n_in, *(layer.n_out for layer in layers)]
    clamped = ", ".join(str(layer.clamped) for layer in layers)
    data = [f"#define LAYERS {len(layers)}", f"#define VECTORS {len(x)}"]
    data.append(f"static const int width[] = {{ {', '.join(map(str, widths))} }};")
    data.append(f"static const int clamped[] = {{ {clamped} }};")
    for name in ("weight", "bias"):
        for number, layer in enumerate(real):
            text = _c_array(getattr(layer, name), "float")
            data.append(f"static const float {name}_{number}[] = {{ {text} }};")
        names = ", ".join(f"{name}_{number}" for number in range(len(real)))
        data.append(f"static const float *const {name}[] = {{ {names} }};")
    for ctype, name, values in (
        ("s16", "vector", x),
        ("float", "float_vector", x / float(1 << c.Q_INPUT)),
    ):
        rows = ",\n".join("{ " + _c_array(row, ctype) + " }" for row in values)
        data.append(f"static const {ctype} {name}[][{c.N_DENSE}] = {{\n{rows}\n}};")
    return (
        PROGRAM.replace("@DATA@", "\n".join(data))
        .replace("@LO@", ", ".join(f"{float(o.lo)}f" for o in c.OUTPUTS))
        .replace("@HI@", ", ".join(f"{float(o.hi)}f" for o in c.OUTPUTS))
    )


def build(layers: Sequence[Layer], x: npt.NDArray[Any], headers: Path, folder: Path) -> Path:
    """Compile the benchmark in a folder.

    Args:
        layers: the network of `headers`.
        x: [n, dense], Q12.
        headers: the folder of generated headers.
        folder: an empty one.

    Raises:
        NdmError: no compiler, or it does not compile.
    """
    if shutil.which("gcc") is None:
        raise NdmError("gcc: not found; run: apt-get install gcc")
    shutil.copytree(headers, folder / "generated")
    for name in HEADERS:
        shutil.copy(generated.GENERATED.parent / name, folder)
    path, program = folder / "bench.c", folder / "bench"
    path.write_text(source(layers, x))
    command = ["gcc", "-std=gnu11", "-O2", "-o", str(program), str(path), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        first = next((line for line in done.stderr.splitlines() if "error" in line), "failed")
        raise NdmError(f"the benchmark does not compile: {first}")
    return program


def _run(program: Path, kind: str, count: int) -> float:
    """Nanoseconds per inference."""
    done = subprocess.run(
        [str(program), kind, str(count)], capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def _session(path: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _instructions(program: Path, kind: str, folder: Path) -> float | None:
    """Instructions per inference by callgrind, or None without valgrind."""
    if shutil.which("valgrind") is None:
        return None
    totals = []
    for count in (VECTORS, 3 * VECTORS):
        done = subprocess.run(
            ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/callgrind",
             str(program), kind, str(count)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        found = re.search(r"Collected : (\d+)", done.stderr)
        if found is None:
            return None
        totals.append(int(found[1]))
    return (totals[1] - totals[0]) / (2 * VECTORS)


def measure(network: IntegerNetwork, headers: Path, rounds: int = 9, count: int = 200_000) -> Speed:
    """All figures; the competitors take turns, so that a busy machine hits all alike.

    Args:
        network: the network to time.
        headers: the folder of generated headers that hold it.
        rounds: turns.
        count: inferences of the C programs in a turn.

    Raises:
        NdmError: no compiler.
    """
    x = golden.inputs()[:VECTORS]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = build(network.layers, x, headers, folder)
        writer.write_layers(quantize.dequantize(network.layers), folder / "bench.onnx", {}, False)
        engine = _session(folder / "bench.onnx")
        real = (x / float(1 << c.Q_INPUT)).astype(np.float32)
        single = [{memory.DENSE: row[None]} for row in real]
        times: list[list[float]] = [[], [], [], []]
        for _ in range(rounds):
            times[0].append(_run(program, "i", count))
            times[1].append(_run(program, "f", count))
            start = time.perf_counter_ns()
            for feed in single:
                engine.run(None, feed)
            times[2].append((time.perf_counter_ns() - start) / VECTORS)
            start = time.perf_counter_ns()
            for _ in range(20):
                engine.run(None, {memory.DENSE: real})
            times[3].append((time.perf_counter_ns() - start) / 20 / VECTORS)
        counted = [_instructions(program, kind, folder) for kind in "if"]
    medians = [statistics.median(found) for found in times]
    return Speed(medians[0], medians[1], medians[2], medians[3], counted[0], counted[1])
