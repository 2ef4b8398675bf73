# SPDX-License-Identifier: GPL-2.0-only
"""Blobs for tests: of the shipped network, of others with its dimensions, and bent ones."""

from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np

from ndm_tcp import model_json
from ndm_tcp.export.integers import blob, golden
from ndm_tcp.fixedpoint import Layer
from ndm_tcp.model_json import Model

VECTORS = 256


def shipped() -> Model:
    return model_json.from_json(model_json.SHIPPED)


def other(seed: int = 1) -> Model:
    """A network of the shipped one's dimensions whose outputs differ: weights halved at random."""
    draw = np.random.default_rng(seed)
    layers = []
    for layer in shipped().layers:
        halved = (layer.weight / (1 + draw.integers(0, 2, layer.weight.shape))).astype(np.int16)
        layers.append(replace(layer, weight=halved))
    return Model(layers, {})


def of(model: Model) -> bytes:
    """A blob with vectors from all over the box: random ones, corners, faces, zero."""
    inputs = golden.inputs()
    x = inputs[:: len(inputs) // VECTORS][:VECTORS]
    return blob.blob(model, golden.compute(model.layers, x))


def signed(data: bytes) -> bytes:
    """The same with the length and the checksum that belong to it."""
    head = data[:8] + struct.pack("<I", len(data)) + data[12 : -blob.CHECKSUM.size]
    return head + blob.CHECKSUM.pack(blob.checksum(head))


def changed(data: bytes, at: int, what: bytes) -> bytes:
    """Some bytes replaced, with the checksum that belongs to the result."""
    return signed(data[:at] + what + data[at + len(what) :])


def where(layers: list[Layer], number: int) -> tuple[int, int, int]:
    """Offsets of a layer's weights, biases and shifts in a blob."""
    at = blob.HEAD.size + 4 * len(layers)
    for layer in layers[:number]:
        at += 2 * layer.weight.size + 5 * layer.n_out
    bias = at + 2 * layers[number].weight.size
    return at, bias, bias + 4 * layers[number].n_out
