# SPDX-License-Identifier: GPL-2.0-only
"""Which layer's quantisation costs how much: one layer quantised, the others left real."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ndm_tcp import contract as c
from ndm_tcp.errors import NdmError
from ndm_tcp.export.integers import quantize
from ndm_tcp.export.integers.quantize import Dense, Floats
from ndm_tcp.fixedpoint import Layer


@dataclass(frozen=True)
class LayerCost:
    """The network with only one layer's weights quantised, against the real network."""

    layer: int
    bits: tuple[int, int]
    """fewest and most fractional bits of its rows"""
    largest: tuple[float, ...]
    """per output, in its unit"""
    rms: tuple[float, ...]


def sensitivity(trained: list[Dense], layers: list[Layer], real: Floats) -> list[LayerCost]:
    """Cost of each layer's quantisation alone.

    Args:
        trained: the network in real numbers.
        layers: the same, quantised.
        real: [n, dense] inputs in real numbers.
    """
    reference = quantize.real_forward(trained, real)
    quantised = quantize.dequantize(layers)
    result = []
    for number, layer in enumerate(layers):
        mixed = [*trained[:number], quantised[number], *trained[number + 1 :]]
        error = np.abs(quantize.real_forward(mixed, real) - reference)
        _, _, q_in = quantize.input_box(number)
        bits = layer.shift.astype(int) + c.Q_PRE - q_in
        result.append(
            LayerCost(
                number,
                (int(bits.min()), int(bits.max())),
                tuple(error.max(axis=0).tolist()),
                tuple(np.sqrt((error**2).mean(axis=0)).tolist()),
            )
        )
    return result


def require_alive(outputs: Floats, what: str) -> None:
    """Refuse a network with a constant output.

    Args:
        outputs: [n, 2] on the golden vectors, in units of the outputs.
        what: the network, for the message.

    Raises:
        NdmError: an output that stays within a thousandth of its range.
    """
    for number, o in enumerate(c.OUTPUTS):
        spread = float(np.ptp(outputs[:, number]))
        if spread <= (o.hi - o.lo) / 1000:
            raise NdmError(
                f"{what}: {o.name} varies by {spread:.2g} over {len(outputs)} inputs, a collapsed "
                "policy; train again (lower --lr, more data)"
            )
