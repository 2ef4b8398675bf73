# SPDX-License-Identifier: GPL-2.0-only
"""Networks in files: the kernel's parser takes what the exporter writes, and names every fault."""

from __future__ import annotations

import random
import struct
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ndm_tcp import contract as c
from ndm_tcp.export.integers import blob, golden, quantize
from ndm_tcp.export.integers.network import IntegerNetwork
from ndm_tcp.model_json import Model

from . import blobs
from .conftest import ROOT

SANITIZE = ("-fsanitize=undefined,address", "-fno-sanitize-recover=all")
LAYERS = blobs.shipped().layers
VECTOR_BYTES = 2 * c.N_DENSE + 4 * len(c.OUTPUTS)
VECTORS_AT = sum(blobs.where(LAYERS, len(LAYERS) - 1)[2:]) + LAYERS[-1].n_out


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("blob") / "blob"
    words = ["gcc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", *SANITIZE, f"-I{ROOT}"]
    subprocess.run([*words, str(ROOT / "tests" / "blob.c"), "-o", str(out)], check=True)
    return out


@pytest.fixture(scope="module")
def good() -> bytes:
    return blobs.of(blobs.shipped())


def said(program: Path, data: bytes) -> str:
    """What the parser says of a file: the network's hash, or fault, index and element."""
    path = program.with_name("file.blob")
    path.write_bytes(data)
    done = subprocess.run([program, path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


def test_shipped_and_other_networks_are_taken(program: Path, good: bytes) -> None:
    assert said(program, good) == blobs.shipped().hash()
    for seed in range(5):
        other = blobs.other(seed)
        assert said(program, blobs.of(other)) == other.hash() != blobs.shipped().hash()


def test_the_exporters_own_blob_has_the_vectors_of_the_module(program: Path) -> None:
    network = IntegerNetwork.read(ROOT / "kmod" / "generated")
    data = blob.of(network)
    assert said(program, data) == network.model.hash()
    assert (len(data) - VECTORS_AT - 8) // VECTOR_BYTES == golden.IN_KERNEL


def put(at: int, form: str, value: int) -> tuple[int, bytes]:
    return at, struct.pack(f"<{form}", value)


WEIGHTS, BIASES, SHIFTS = blobs.where(LAYERS, 1)
FAULTS = {
    "another magic": (put(0, "I", 0), "no network: another magic: 0, 0"),
    "another version": (put(4, "I", 2), "another version of the format: 0, 0"),
    "another contract": (put(16, "Q", int(c.HASH, 16) ^ 1), "made for another contract: 0, 0"),
    "layers more": (put(32, "I", 4), "another number of layers: 0, 0"),
    "layers beyond all": (put(32, "I", 1 << 31), "another number of layers: 0, 0"),
    "wider input": (put(36, "B", 19), "other dimensions: 0, 0"),
    "wider layer": (put(41, "B", 64), "other dimensions: 1, 0"),
    "clamped units": (put(42, "B", 1), "other dimensions: 1, 0"),
    "the zero of a shape": (put(47, "B", 1), "other dimensions: 2, 0"),
    "shift 0": (put(SHIFTS + 3, "B", 0), "shift out of range: 1, 3"),
    "shift 3, for later layers": (put(SHIFTS + 3, "B", 3), "shift out of range: 1, 3"),
    "shift 15": (put(SHIFTS + 3, "B", 15), "shift out of range: 1, 3"),
    "shift 255": (put(SHIFTS + 3, "B", 255), "shift out of range: 1, 3"),
    "shift 12, for the first layer": (
        put(blobs.where(LAYERS, 0)[2], "B", 12),
        "shift out of range: 0, 0",
    ),
    "bias": (put(BIASES + 4 * 5, "i", (1 << 31) - 1), "accumulator may leave s32: 1, 5"),
    "lowest bias": (put(BIASES, "i", -(1 << 31)), "accumulator may leave s32: 1, 0"),
    "no vectors": (put(12, "I", 0), "too few or too many vectors: 0, 0"),
    "63 vectors": (put(12, "I", 63), "too few or too many vectors: 0, 0"),
    "vectors beyond all": (put(12, "I", 0xFFFFFFFF), "too few or too many vectors: 0, 0"),
    "one vector more": (put(12, "I", 257), "length differs from its parts': 0, 0"),
    "one vector less": (put(12, "I", 255), "length differs from its parts': 0, 0"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_every_fault_is_named(name: str, program: Path, good: bytes) -> None:
    (at, what), fault = FAULTS[name]
    assert said(program, blobs.changed(good, at, what)) == fault


def test_damage_is_noticed_before_anything_is_used(program: Path, good: bytes) -> None:
    draw = random.Random(3)
    for _ in range(60):
        at = draw.randrange(16, len(good))
        bent = good[:at] + bytes([good[at] ^ 1 << draw.randrange(8)]) + good[at + 1 :]
        assert said(program, bent) == "damaged: checksum differs: 0, 0"


def test_every_length_is_checked(program: Path, good: bytes) -> None:
    """As sent, with another length; then with the length and checksum of what is left."""
    assert said(program, b"") == "too short for a header: 0, 0"
    assert said(program, good[:-1]) == said(program, good + b"\0")
    assert said(program, good[:-1]) == "length differs from the header's: 0, 0"
    begins = [
        ("too short for a header: 0, 0", 0, 36),
        ("length differs from the header's: 0, 0", 36, 44),
        *((f"too short for its shapes: {n}, 0", 44 + 4 * n, 48 + 4 * n) for n in range(3)),
    ]
    for number in range(3):
        start = blobs.where(LAYERS, number)[0] + 8
        end = start + 2 * LAYERS[number].weight.size + 5 * LAYERS[number].n_out
        begins.append((f"too short for its layers: {number}, 0", start, end))
    begins.append(("length differs from its parts': 0, 0", VECTORS_AT + 8, len(good)))
    for fault, start, end in begins:
        for length in {start, (start + end) // 2, end - 1}:
            cut = blobs.signed(good[: length - 8] + bytes(8)) if length >= 20 else good[:length]
            assert said(program, cut) == fault, length


@pytest.mark.parametrize("number", range(len(LAYERS)))
def test_the_bounds_are_the_exporters(number: int, program: Path) -> None:
    """The largest bias that the exporter accepts is taken, the next one is refused."""
    layer = LAYERS[number]
    row = 1
    weight = layer.weight[row : row + 1].astype(np.int64)
    zero = np.zeros(1, dtype=np.int64)
    low, high = quantize.accumulator_bounds(weight, zero, number)
    half = 1 << (int(layer.shift[row]) - 1)
    for last, step in ((quantize.S32 - half - int(high[0]), 1), (-quantize.S32 - int(low[0]), -1)):
        for bias, taken in ((last, True), (last + step, False)):
            biases = layer.bias.copy()
            biases[row] = bias
            layers = [*LAYERS]
            layers[number] = replace(layer, bias=biases)
            model = Model(layers, {})
            fault = f"accumulator may leave s32: {number}, {row}"
            assert said(program, blobs.of(model)) == (model.hash() if taken else fault)


@pytest.mark.parametrize("output", range(2))
@pytest.mark.parametrize("vector", [0, 100, 255])
def test_one_wrong_bit_of_a_vector_is_refused(
    vector: int, output: int, program: Path, good: bytes
) -> None:
    at = VECTORS_AT + vector * VECTOR_BYTES + 2 * c.N_DENSE + 4 * output
    bent = blobs.changed(good, at, bytes([good[at] ^ 1]))
    assert said(program, bent) == f"vector: output differs: {vector}, {output}"


def test_one_changed_weight_is_refused(program: Path, good: bytes) -> None:
    bent = blobs.changed(good, WEIGHTS, bytes([good[WEIGHTS] ^ 64]))
    assert said(program, bent).startswith("vector: output differs: ")


@pytest.mark.parametrize("number", range(c.N_DENSE))
def test_the_box_is_the_contracts(number: int, program: Path) -> None:
    """A vector on a face of the box is taken, one step outside refused."""
    model, inputs = blobs.shipped(), golden.inputs()[::200][: blobs.VECTORS].copy()
    field = c.DENSE[number]
    for value, step in ((field.lo_q, -1), (field.hi_q, 1)):
        for at, taken in ((value, True), (value + step, False)):
            inputs[7, number] = at
            data = blob.blob(model, golden.compute(model.layers, inputs))
            fault = f"vector outside the box: 7, {number}"
            assert said(program, data) == (model.hash() if taken else fault)
