# SPDX-License-Identifier: GPL-2.0-only
"""A quantised network and its golden vectors as C headers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ndm_tcp import contract as c
from ndm_tcp.export.integers import golden, quantize
from ndm_tcp.export.integers.contract_c import preamble
from ndm_tcp.export.integers.golden import Vectors
from ndm_tcp.export.proof.certificate import Proof, clamping, gain_range
from ndm_tcp.model_json import Model, from_json, to_json

__all__ = ["Model", "from_json", "to_json", "upward"]


def _lines(parts: list[str], indent: str) -> str:
    lines, line = [], indent
    for part in parts:
        if len(line.expandtabs(8)) + len(part) + 2 > 96:
            lines.append(line.rstrip())
            line = indent
        line += part + ", "
    lines.append(line.rstrip())
    return "\n".join(lines)


def _rows(values: npt.NDArray[Any], indent: str = "\t") -> str:
    if values.ndim == 1:
        return _lines([str(v) for v in values.tolist()], indent)
    return "\n".join(f"{indent}{{\n{_rows(row, indent + chr(9))}\n{indent}}}," for row in values)


def _pairs(rows: npt.NDArray[Any]) -> str:
    """An even number of rows as `NDM_PAIR`s, [rows / 2, ...]."""
    pairs = zip(rows[::2].ravel().tolist(), rows[1::2].ravel().tolist(), strict=True)
    return _lines([f"NDM_PAIR({even}, {odd})" for even, odd in pairs], "\t")


def _array(
    ctype: str, name: str, dims: str, values: npt.NDArray[Any] | str, comment: Sequence[str] = ()
) -> str:
    head = "".join(f" * {line}\n" for line in comment)
    if comment:
        head = f"/*\n{head} */\n" if len(comment) > 1 else f"/* {comment[0]} */\n"
    text = values if isinstance(values, str) else _rows(values)
    return f"{head}static const {ctype} {name}{dims} = {{\n{text}\n}};\n"


def upward(value: float) -> float:
    """Three significant digits, never less than the value."""
    if not value:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(abs(value))) - 2)
    text = float(f"{math.ceil(value / unit) * unit:.3g}")
    return text if text >= value else float(f"{(math.ceil(value / unit) + 1) * unit:.3g}")


def model_header(model: Model, proof: Proof) -> str:
    """`ndm_model.h`: the weights, nothing computed; its comments list the claims of `proof`."""
    notes = [f"{name}: {text}" for name, text in model.notes.items()]
    notes += ["Proved for every input in the box (ndm_certificate.json):"]
    for number, o in enumerate(c.OUTPUTS):
        bound = upward(proof.bound(number))
        notes.append(f"{o.name}: |fixed - real| <= {bound}; clamped: {clamping(proof, number)}")
    low, high = (gain / (1 << c.Q_PRE) for gain in gain_range(proof))
    notes.append(f"cwnd_gain within [{-upward(-low)}, {upward(high)}]")
    guard = "_NDM_MODEL_H"
    parts = [preamble(["the checkpoint named below, by ndm export"], notes)]
    trace = sum(layer.n_out for layer in model.layers)
    parts.append(
        f'#ifndef {guard}\n#define {guard}\n\n#include "../ndm_infer.h"\n\n'
        f'#define NDM_MODEL_HASH\t"{model.hash()}"\n'
        f"#define NDM_MODEL_TRACE\t{trace}\t/* pre-activations of all layers */\n\n"
        f"static_assert(NDM_CONTRACT_ID == 0x{c.HASH}ULL,\n"
        '\t      "this model was made for another contract: run ndm export");\n'
    )
    for number, layer in enumerate(model.layers):
        _, _, q_in = quantize.input_box(number)
        bits = layer.shift.astype(int) + c.Q_PRE - q_in
        norm = int(np.abs(layer.weight.astype(np.int64)).sum(axis=1).max())
        low = min(row.accumulator[0] for row in proof.rows[number])
        high = max(row.accumulator[1] for row in proof.rows[number])
        even = layer.even()
        parts.append(
            _array(
                "u64",
                f"ndm_weight{number}",
                f"[{even.n_out // 2} * {layer.n_in}]",
                _pairs(even.weight),
                [
                    f"Layer {number}, [out / 2][in], two rows each: inputs Q{q_in}, weights "
                    f"Q{bits.min()} to Q{bits.max()} by row, largest row norm {norm}.",
                    f"Accumulators within [{low}, {high}] for every input in the box.",
                ],
            )
        )
        bias, half = _pairs(even.rounding_bias()), ["Biases, and the half by which a shift rounds."]
        parts.append(_array("u64", f"ndm_bias{number}", f"[{even.n_out // 2}]", bias, half))
        parts.append(_array("u8", f"ndm_shift{number}", f"[{even.n_out}]", even.shift))
    rows = "\n".join(
        "\t{\n"
        f"\t\t.weight = ndm_weight{i}, .bias = ndm_bias{i}, .shift = ndm_shift{i},\n"
        f"\t\t.n_in = {layer.n_in}, .n_out = {layer.n_out},"
        f"{f' .n_clamped = {layer.clamped},' if layer.clamped else ''}\n"
        "\t},"
        for i, layer in enumerate(model.layers)
    )
    parts.append(f"static const struct ndm_layer ndm_model_layer[] = {{\n{rows}\n}};\n")
    parts.append(
        "static const struct ndm_model ndm_model = {\n"
        "\t.layer = ndm_model_layer,\n"
        f"\t.n_layers = {len(model.layers)},\n}};\n"
    )
    parts.append(f"#endif /* {guard} */\n")
    return "\n".join(parts)


def vectors_header(model: Model, vectors: Vectors) -> str:
    """`ndm_vectors.h`: the vectors that the module checks before it loads."""
    parts = [
        preamble(
            ["kmod/generated/ndm_model.json, by ndm export"],
            [f"model {model.hash()}: inputs, pre-activations of every layer, outputs"],
        ),
        '#ifndef _NDM_VECTORS_H\n#define _NDM_VECTORS_H\n\n#include "ndm_model.h"\n',
        f"#define NDM_VECTORS\t{len(vectors.x)}\n",
    ]
    for ctype, name, dim, values in (
        ("s16", "x", "NDM_N_DENSE", vectors.x),
        ("s32", "pre", "NDM_MODEL_TRACE", vectors.pre),
        ("s32", "out", "NDM_N_OUTPUTS", vectors.out),
    ):
        dims = f"[NDM_VECTORS][{dim}] NDM_INITCONST"
        parts.append(_array(ctype, f"ndm_vector_{name}", dims, values))
    parts.append("#endif /* _NDM_VECTORS_H */\n")
    return "\n".join(parts)


def digests_header(model: Model, edges: npt.NDArray[np.int16], digests: Sequence[int]) -> str:
    """`ndm_digests.h`: all golden vectors, for a kernel that computes the inputs itself.

    Args:
        model: the network.
        edges: [n, dense] those inputs that depend on the network.
        digests: `golden.digests` of all vectors.
    """
    box = np.array([[i.lo_q, i.hi_q] for i in c.DENSE])
    rows = "\n".join(f"\t0x{value:016x}ULL," for value in digests)
    return "\n".join(
        [
            preamble(
                ["kmod/generated/ndm_model.json, by ndm export"],
                [f"model {model.hash()}: all golden vectors, by digest"],
            ),
            '#ifndef _NDM_DIGESTS_H\n#define _NDM_DIGESTS_H\n\n#include "ndm_model.h"\n',
            f"#define NDM_ALL_SEED\t{golden.SEED}\n"
            f"#define NDM_ALL_RANDOM\t{golden.RANDOM_VECTORS}\n"
            f"#define NDM_ALL_CORNER_BITS\t{golden.CORNER_BITS}\n"
            f"#define NDM_ALL_EDGES\t{len(edges)}\n"
            f"#define NDM_ALL_BLOCK\t{golden.BLOCK}\t/* vectors in a digest */\n"
            f"#define NDM_ALL_DIGESTS\t{len(digests)}\n",
            _array(
                "s16",
                "ndm_all_box",
                "[NDM_N_DENSE][2] NDM_INITCONST",
                box,
                ["Lowest and highest value of every input."],
            ),
            _array(
                "s16",
                "ndm_all_edge",
                "[NDM_ALL_EDGES][NDM_N_DENSE] NDM_INITCONST",
                edges,
                ["Rounding ties, break points of the table, witnesses of the certificate."],
            ),
            "/* FNV-1a over inputs, pre-activations and outputs as 32-bit words */\n"
            f"static const u64 ndm_all_digest[NDM_ALL_DIGESTS] NDM_INITCONST = {{\n{rows}\n}};\n",
            "#endif /* _NDM_DIGESTS_H */\n",
        ]
    )


def stream_header(acks: npt.NDArray[Any], x: npt.NDArray[np.int16], source: str) -> str:
    """`ndm_stream.h`: ACKs of a real transfer and the inputs they must give.

    Args:
        acks: [n] records of `contract.ACK_DTYPE`.
        x: [m, dense] inputs of the dense layers in the valid rounds, in order.
        source: the trace they come from.
    """
    rows = "\n".join("\t{ " + ", ".join(str(v) for v in row) + " }," for row in acks.tolist())
    fields = ", ".join(f.name for f in c.ACK_FIELDS)
    return "\n".join(
        [
            preamble([f"{source}, by ndm export"], [f"struct ndm_ack: {fields}"]),
            '#ifndef _NDM_STREAM_H\n#define _NDM_STREAM_H\n\n#include "ndm_contract.h"\n',
            f"#define NDM_STREAM_ACKS\t{len(acks)}\n#define NDM_STREAM_ROUNDS\t{len(x)}\n",
            "static const struct ndm_ack ndm_stream_ack[NDM_STREAM_ACKS] NDM_INITCONST = {\n"
            f"{rows}\n}};\n",
            _array("s16", "ndm_stream_x", "[NDM_STREAM_ROUNDS][NDM_N_DENSE] NDM_INITCONST", x),
            "#endif /* _NDM_STREAM_H */\n",
        ]
    )
