# SPDX-License-Identifier: GPL-2.0-only
"""A network in integers with all that follows from them: proof, bound, golden vectors."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from ndm_tcp import contract as c
from ndm_tcp import core, model_json
from ndm_tcp.export.integers import golden, quantize
from ndm_tcp.export.integers.quantize import Floats
from ndm_tcp.export.proof import certificate
from ndm_tcp.fixedpoint import Layer
from ndm_tcp.model_json import Model

PROOFS: dict[str, certificate.Proof] = {}
"""of this process, by the model's hash: an export and the check after it prove one network"""
TRACES: dict[str, golden.Vectors] = {}
"""likewise, of the last network alone, since traces are large"""


@dataclass(frozen=True)
class IntegerNetwork:
    """The exported network; each part is computed once, at its first use."""

    model: Model
    """its layers, and the facts for header and card"""

    @classmethod
    def of(cls, layers: list[Layer], **notes: str) -> IntegerNetwork:
        """A network of these layers."""
        return cls(Model(layers, notes))

    @classmethod
    def read(cls, folder: Path) -> IntegerNetwork:
        """The network of a folder of generated files.

        Raises:
            NdmError: see `model_json.from_json`.
        """
        return cls(model_json.from_json(folder / model_json.NAME))

    @property
    def layers(self) -> list[Layer]:
        """Hidden layers and the output layer."""
        return self.model.layers

    @property
    def proof(self) -> certificate.Proof:
        """Bounds for every input in the box.

        Raises:
            NdmError: see `certificate.prove`.
        """
        integers = self.model.hash()
        if integers not in PROOFS:
            PROOFS[integers] = certificate.prove(self.layers)
        return PROOFS[integers]

    @cached_property
    def bound(self) -> Floats:
        """[2] proved bound on |integer network - the same weights in real arithmetic|."""
        return quantize.error_bound(self.layers)

    @cached_property
    def trace(self) -> golden.Vectors:
        """Every layer's integers on the golden inputs: those of all networks, then its own."""
        integers = self.model.hash()
        if integers not in TRACES:
            inputs = golden.for_model(self.layers, self.proof.inputs())
            TRACES.clear()
            TRACES[integers] = golden.compute(self.layers, inputs)
        return TRACES[integers]

    @cached_property
    def inputs(self) -> Floats:
        """[n, dense] the golden inputs as real numbers."""
        return self.trace.x.astype(np.float64) / (1 << c.Q_INPUT)

    @cached_property
    def outputs(self) -> Floats:
        """[n, 2] outputs on the golden inputs, in units of the outputs."""
        outputs: Floats = self.trace.out / float(1 << c.Q_PRE)
        return outputs

    @cached_property
    def error(self) -> Floats:
        """[n, 2] integer minus real outputs on the golden inputs, with the same weights."""
        return self.outputs - quantize.real_forward(quantize.dequantize(self.layers), self.inputs)

    def same_in_c(self) -> bool:
        """Whether the module's C computes every integer of `trace`."""
        out, pre = core.infer(self.layers, self.trace.x)
        return np.array_equal(out, self.trace.out) and np.array_equal(pre, self.trace.pre)

    @property
    def parameters(self) -> int:
        """Weights and biases."""
        return sum(layer.weight.size + layer.bias.size for layer in self.layers)

    @property
    def bytes_in_c(self) -> int:
        """Of the arrays in ndm_model.h."""
        return sum(layer.bytes_in_c for layer in self.layers)


def shape_of(layers: list[Layer]) -> str:
    """Widths and kinds of units, in words."""
    widths = "-".join(str(w) for w in [layers[0].n_in, *(layer.n_out for layer in layers)])
    return f"{widths} {_units(layers)}, s16 weights, Q16 outputs"


def _units(layers: list[Layer]) -> str:
    """Kinds of the hidden units."""
    clamped = [layer.clamped for layer in layers[:-1]]
    if not any(clamped):
        return "tanh"
    bent = [layer.n_out - layer.clamped for layer in layers[:-1]]
    return "clamped" if not any(bent) else f"tanh, the last {'-'.join(map(str, clamped))} clamped"
