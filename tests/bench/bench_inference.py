# SPDX-License-Identifier: GPL-2.0-only
"""How long one inference takes: the module's integers, the same network in float C, onnxruntime.

    python tests/bench/bench_inference.py [--json]

All three run in turn within one process tree, several times; the figures are medians in
nanoseconds per inference, and ratios to the integer network, which are what to compare between
machines. With valgrind, callgrind counts the instructions of the integer network exactly.
User space, warm caches: in the kernel, where a round trip lies between two inferences, the
weights come from memory and the first inference of a flow is slower.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
import torch

from ndm_tcp import contract as c
from ndm_tcp.errors import NdmError
from ndm_tcp.export import generated, golden, model_c, onnx_graph, quantize
from ndm_tcp.fixedpoint import Layer
from ndm_tcp.training.model import Policy

KMOD = generated.GENERATED.parent
VECTORS = 1024
ROUNDS = 9

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
			b[r] = l + 1 < LAYERS ? tanhf(sum) : sum;
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


def c_array(values: npt.NDArray[Any], ctype: str) -> str:
    suffix = "f" if ctype == "float" else ""
    return ", ".join(f"{float(v):.9e}f" if suffix else str(int(v)) for v in values.ravel())


def source(layers: list[Layer], x: npt.NDArray[Any]) -> str:
    """The benchmark with the network's dequantised weights and some vectors."""
    real = quantize.dequantize(layers)
    widths = [layers[0].n_in, *(layer.n_out for layer in layers)]
    data = [f"#define LAYERS {len(layers)}", f"#define VECTORS {len(x)}"]
    data.append(f"static const int width[] = {{ {', '.join(map(str, widths))} }};")
    for name, index in (("weight", 0), ("bias", 1)):
        for number, pair in enumerate(real):
            text = c_array(pair[index], "float")
            data.append(f"static const float {name}_{number}[] = {{ {text} }};")
        names = ", ".join(f"{name}_{number}" for number in range(len(real)))
        data.append(f"static const float *const {name}[] = {{ {names} }};")
    for ctype, name, values in (
        ("s16", "vector", x),
        ("float", "float_vector", x / float(1 << c.Q_INPUT)),
    ):
        rows = ",\n".join("{ " + c_array(row, ctype) + " }" for row in values)
        data.append(f"static const {ctype} {name}[][{c.N_INPUTS}] = {{\n{rows}\n}};")
    return (
        PROGRAM.replace("@DATA@", "\n".join(data))
        .replace("@LO@", ", ".join(f"{float(o.lo)}f" for o in c.OUTPUTS))
        .replace("@HI@", ", ".join(f"{float(o.hi)}f" for o in c.OUTPUTS))
    )


def build(layers: list[Layer], x: npt.NDArray[Any], folder: Path) -> Path:
    """Compile the benchmark.

    Raises:
        NdmError: no compiler, or it does not compile.
    """
    if shutil.which("gcc") is None:
        raise NdmError("gcc: not found; run: apt-get install gcc")
    path, program = folder / "bench.c", folder / "bench"
    path.write_text(source(layers, x))
    command = ["gcc", "-std=gnu11", "-O2", f"-I{KMOD}", "-o", str(program), str(path), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NdmError(f"the benchmark does not compile: {done.stderr.splitlines()[0]}")
    return program


def run(program: Path, kind: str, count: int) -> float:
    """Nanoseconds per inference."""
    done = subprocess.run(
        [str(program), kind, str(count)], capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def session(layers: list[Layer], folder: Path) -> onnxruntime.InferenceSession:
    """onnxruntime on the same network, one thread."""
    policy = Policy([layer.n_out for layer in layers[:-1]])
    linear = [layer for layer in policy.layers if isinstance(layer, torch.nn.Linear)]
    with torch.no_grad():
        for module, (weight, bias) in zip(linear, quantize.dequantize(layers), strict=True):
            module.weight.copy_(torch.from_numpy(weight))
            module.bias.copy_(torch.from_numpy(bias))
    onnx_graph.write(policy, folder / "bench.onnx", {})
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(
        str(folder / "bench.onnx"), options, providers=["CPUExecutionProvider"]
    )


def instructions(program: Path, folder: Path) -> float | None:
    """Instructions per inference by callgrind, or None without valgrind."""
    if shutil.which("valgrind") is None:
        return None
    totals = []
    for count in (VECTORS, 3 * VECTORS):
        done = subprocess.run(
            ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/callgrind",
             str(program), "i", str(count)],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        found = re.search(r"Collected : (\d+)", done.stderr)
        if found is None:
            return None
        totals.append(int(found[1]))
    return (totals[1] - totals[0]) / (2 * VECTORS)


def measure() -> dict[str, float | None]:
    """All figures; the competitors take turns, so that a busy machine hits all alike."""
    layers = model_c.from_json(KMOD / "generated" / "ndm_model.json").layers
    x = golden.inputs()[:VECTORS]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program, engine = build(layers, x, folder), session(layers, folder)
        real = (x / float(1 << c.Q_INPUT)).astype(np.float32)
        single = [{onnx_graph.INPUT: row[None]} for row in real]
        times: dict[str, list[float]] = {
            "integer_ns": [], "float_c_ns": [], "onnxruntime_ns": [], "onnxruntime_batch_ns": []
        }  # fmt: skip
        for _ in range(ROUNDS):
            times["integer_ns"].append(run(program, "i", 200_000))
            times["float_c_ns"].append(run(program, "f", 200_000))
            start = time.perf_counter_ns()
            for feed in single:
                engine.run(None, feed)
            times["onnxruntime_ns"].append((time.perf_counter_ns() - start) / VECTORS)
            start = time.perf_counter_ns()
            for _ in range(20):
                engine.run(None, {onnx_graph.INPUT: real})
            times["onnxruntime_batch_ns"].append((time.perf_counter_ns() - start) / 20 / VECTORS)
        counted = instructions(program, folder)
    result: dict[str, float | None] = {k: statistics.median(v) for k, v in times.items()}
    result["instructions"] = counted
    return result


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description="Time the integer network against float ones.")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    try:
        found = measure()
    except NdmError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    if args.json:
        print(json.dumps(found, indent=2))
        return 0
    base = found["integer_ns"]
    assert base
    for key, label in (
        ("integer_ns", "integers, as in the module"),
        ("float_c_ns", "the same network in float C (gcc -O2, tanhf)"),
        ("onnxruntime_ns", "onnxruntime from Python, one input a call"),
        ("onnxruntime_batch_ns", f"onnxruntime, {VECTORS} inputs a call"),
    ):
        value = found[key]
        assert value is not None
        print(f"{label:48}{value:10.0f} ns   x {value / base:.2f}")
    count = found["instructions"]
    print(
        f"{'instructions per inference (callgrind)':48}{count:10.0f}"
        if count
        else "no instruction count: apt-get install valgrind"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
