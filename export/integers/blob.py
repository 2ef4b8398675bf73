# SPDX-License-Identifier: GPL-2.0-only
"""A network in a file that a running kernel takes: `kmod/ndm_blob.h` reads it, here it is written.

docs/export.md has the format.
"""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ndm_tcp import contract as c
from ndm_tcp import files
from ndm_tcp.export.integers import golden
from ndm_tcp.export.integers.golden import Vectors
from ndm_tcp.export.integers.network import IntegerNetwork
from ndm_tcp.model_json import Model

NAME = "ndm_model.blob"
MAGIC, VERSION = b"NDMB", 1
HEAD = struct.Struct("<4sIIIQQI")
"""magic, version, length of the file, vectors, contract, model, layers"""
CHECKSUM = struct.Struct("<Q")


def checksum(data: bytes) -> int:
    """FNV-1a over bytes, 64 bits."""
    state = 0xCBF29CE484222325
    for byte in data:
        state = ((state ^ byte) * 0x100000001B3) & ((1 << 64) - 1)
    return state


def _plain(values: npt.ArrayLike, dtype: str) -> bytes:
    return np.ascontiguousarray(values, dtype=dtype).tobytes()


def blob(model: Model, vectors: Vectors) -> bytes:
    """The content of a blob.

    Args:
        model: the network.
        vectors: golden vectors of it, 64 to 4,096; their pre-activations are left out.
    """
    body = b"".join(bytes((m.n_in, m.n_out, m.clamped, 0)) for m in model.layers)
    for layer in model.layers:
        body += _plain(layer.weight, "<i2") + _plain(layer.bias, "<i4") + _plain(layer.shift, "u1")
    for x, out in zip(vectors.x, vectors.out, strict=True):
        body += _plain(x, "<i2") + _plain(out, "<i4")
    numbers = (len(vectors.x), int(c.HASH, 16), int(model.hash(), 16), len(model.layers))
    length = HEAD.size + len(body) + CHECKSUM.size
    data = HEAD.pack(MAGIC, VERSION, length, *numbers) + body
    return data + CHECKSUM.pack(checksum(data))


def of(network: IntegerNetwork) -> bytes:
    """The blob of a network, with the vectors that the module checks when it is loaded."""
    extra = network.trace.part(slice(len(golden.inputs()), None))
    return blob(network.model, golden.for_kernel(network.trace, extra))


def write(network: IntegerNetwork, path: Path) -> None:
    """Write the blob of a network."""
    with files.replacing(path) as temporary:
        temporary.write_bytes(of(network))
