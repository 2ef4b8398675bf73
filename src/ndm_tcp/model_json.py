# SPDX-License-Identifier: GPL-2.0-only
"""A quantised network and `ndm_model.json`, its twin for tools.

    ndm convert OLD.json -o NEW.json

gives an older model, from before the memory was a layer of the network, the present contract.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from ndm_tcp import contract as c
from ndm_tcp.errors import NdmError
from ndm_tcp.fixedpoint import Layer

JSON_FORMAT = "ndm-tcp-model-1"
NAME = "ndm_model.json"
BEFORE_MEMORY = "9df114664027fb9a"
"""Contract of the models whose memory was part of the features; the same integers are today's."""
NO_NOTE = ("*/", "\n")
"""notes stand in a comment of the header"""
SHIPPED = (Path(__file__).resolve().parent / "kmod" / "generated" / NAME).resolve()
"""the committed network; a wheel has a copy of kmod, a checkout a link to it"""

Floats = npt.NDArray[np.float64]


def number(path: Path = SHIPPED) -> str:
    """A model's hash as its file has it: the model may be of an older contract.

    Raises:
        NdmError: the file is damaged.
    """
    try:
        return str(orjson.loads(path.read_bytes())["model"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        raise NdmError(
            f"{path}: not a model written by ndm export; run: ndm export RUN -o {path.parent}"
        ) from None


@dataclass(frozen=True)
class Model:
    """A network ready for the kernel."""

    layers: list[Layer]
    notes: dict[str, str]
    """facts for the header's comment, in order"""

    def hash(self, contract: str = c.HASH) -> str:
        """First 64 bits, in hex, of the SHA-256 over contract, shapes and integers."""
        h = hashlib.sha256(contract.encode())
        for layer in self.layers:
            h.update(bytes([layer.n_in, layer.n_out]))
            h.update(np.ascontiguousarray(layer.weight, dtype="<i2").tobytes())
            h.update(np.ascontiguousarray(layer.bias, dtype="<i4").tobytes())
            h.update(np.ascontiguousarray(layer.shift, dtype="u1").tobytes())
        if any(layer.clamped for layer in self.layers):
            h.update(b"clamped" + bytes(layer.clamped for layer in self.layers))
        return h.hexdigest()[:16]


def to_json(model: Model) -> str:
    """The model's twin for tools; `from_json` reads it."""
    data = {
        "format": JSON_FORMAT,
        "contract": c.HASH,
        "model": model.hash(),
        "notes": model.notes,
        "layers": [
            {
                "weight": layer.weight.tolist(),
                "bias": layer.bias.tolist(),
                "shift": layer.shift.tolist(),
                **({"clamped": layer.clamped} if layer.clamped else {}),
            }
            for layer in model.layers
        ],
    }
    return orjson.dumps(data, option=orjson.OPT_INDENT_2).decode() + "\n"


def _check(layers: list[Layer]) -> None:
    """Raises ValueError: layers that do not fit one another, or the contract's limits."""
    if not 1 <= len(layers) <= c.MAX_LAYERS:
        raise ValueError(f"{len(layers)} layers")
    n_in, q_in = c.N_DENSE, c.Q_INPUT
    for layer in layers:
        n_out = len(layer.bias)
        if not 1 <= n_out <= c.MAX_WIDTH or layer.bias.shape != layer.shift.shape:
            raise ValueError(f"biases of shape {layer.bias.shape}")
        if layer.weight.shape != (n_out, n_in):
            raise ValueError(f"weights of shape {layer.weight.shape}, not {(n_out, n_in)}")
        bits = layer.shift.astype(int) + c.Q_PRE - q_in
        low, high = max(c.WEIGHT_SHIFT_MIN, c.Q_PRE - q_in + 1), c.WEIGHT_SHIFT_MAX
        if bits.min() < low or bits.max() > high:
            raise ValueError(f"shifts of {layer.shift.min()} to {layer.shift.max()}")
        if not 0 <= layer.clamped <= n_out:
            raise ValueError(f"{layer.clamped} clamped units of {n_out}")
        n_in, q_in = n_out, c.Q_ACT
    if n_in != c.N_OUTPUTS or layers[-1].clamped:
        raise ValueError(f"{n_in} outputs, {layers[-1].clamped} clamped")


def from_json(path: Path, ours: str = c.HASH) -> Model:
    """Read a model's twin.

    Args:
        path: the file.
        ours: the contract that it should be of.

    Raises:
        NdmError: missing, damaged, changed by hand, or made under another contract.
    """
    remedy = f"ndm export RUN -o {path.parent}"
    if not path.is_file():
        raise NdmError(f"{path}: no exported model here; run: {remedy}")
    try:
        data: dict[str, Any] = orjson.loads(path.read_bytes())
        if data["format"] != JSON_FORMAT:
            raise KeyError("format")
        contract_hash, model_hash = data["contract"], data["model"]
        layers = [
            Layer(
                np.array(layer["weight"], dtype=np.int16),
                np.array(layer["bias"], dtype=np.int32),
                np.array(layer["shift"], dtype=np.uint8),
                int(layer.get("clamped", 0)),
            )
            for layer in data["layers"]
        ]
        _check(layers)
        notes = {str(k): str(v) for k, v in dict(data["notes"]).items()}
        if any(mark in text for note in notes.items() for text in note for mark in NO_NOTE):
            raise ValueError("a note that ends a comment in C")
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise NdmError(
            f"{path}: not a model written by ndm export ({error}); run: {remedy}"
        ) from None
    if contract_hash == BEFORE_MEMORY:
        remedy = f"ndm convert {path} -o NEW.json"
    c.require(contract_hash, str(path), remedy, ours)
    model = Model(layers, notes)
    if model.hash(ours) != model_hash:
        raise NdmError(f"{path}: its integers do not match its hash; run: {remedy}")
    return model


def real_weights(layers: list[Layer]) -> list[tuple[Floats, Floats]]:
    """([out, in] weights, [out] biases) per layer: the real numbers that the integers stand for."""
    result = []
    for number, layer in enumerate(layers):
        q_in = c.Q_ACT if number else c.Q_INPUT
        bits = layer.shift.astype(np.int64) + c.Q_PRE - q_in
        result.append((layer.weight / 2.0 ** bits[:, None], layer.bias / 2.0 ** (bits + q_in)))
    return result
