# SPDX-License-Identifier: GPL-2.0-only
"""`ndm_certificate.json`: the proofs about the exported integers, with all a checker needs.

Three kinds of statement about the network, each over every input in the contract's box:

- ranges: every accumulator of every row, with inputs that attain the first layer's ends
  exactly and the best found ones of later layers;
- error: a bound on |integer network - the same weights in real arithmetic|;
- properties of the network: proved by a tree of sub-boxes, refuted by a counter-example, or
  unknown, each with the claims about the control law that bound the window where it is broken.

And of the network together with its control law, for any network: the claims of `law`, which a
program goes through exhaustively.

The file names the headers by their SHA-256. `checker/check_certificate.py` reads those headers
and repeats every statement without this package.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ndm_tcp import contract as c
from ndm_tcp import fixedpoint
from ndm_tcp.errors import NdmError
from ndm_tcp.export.proof import enclosure, law, properties, witness
from ndm_tcp.export.proof.enclosure import UNIT_BITS, Interval, Row
from ndm_tcp.export.proof.properties import Verdict
from ndm_tcp.fixedpoint import Layer

FORMAT = "ndm-tcp-certificate-2"
NAME = "ndm_certificate.json"
HEADERS = ("ndm_contract.h", "ndm_tables.h", "ndm_model.h")
S32 = (1 << 31) - 1


@dataclass(frozen=True)
class Proof:
    """Bounds of a network, before they are tied to header texts."""

    rows: list[list[Row]]
    attained: list[list[tuple[witness.Found, witness.Found]]]
    """[layer][row]: the lowest and the highest accumulator found (output layer: pre-activation)"""
    errors: list[Interval]
    """[2] integer minus real output, in units"""
    verdicts: list[Verdict]

    def bound(self, output: int) -> float:
        """Bound on |fixed - real| of an output, in its own unit."""
        return max(-self.errors[output][0], self.errors[output][1]) / (1 << UNIT_BITS)

    def inputs(self) -> list[list[int]]:
        """Every witness of a later layer and of a property, [n][dense]."""
        pairs = [pair for layer in self.attained[1:] for pair in layer]
        return [f.x for pair in pairs for f in pair] + [v.witness for v in self.verdicts]


def prove(layers: list[Layer]) -> Proof:
    """Content of the certificate.

    Raises:
        NdmError: an accumulator could leave s32, which quantisation rules out.
    """
    rows = enclosure.rows(layers)
    for number, layer in enumerate(rows):
        for r, row in enumerate(layer):
            half = 1 << (row.shift - 1)
            low = min(row.accumulator[0], row.partial[0])
            high = max(row.accumulator[1], row.partial[1]) + half
            if low < -S32 - 1 or high > S32 or not 1 <= row.shift <= 31:
                raise NdmError(
                    f"layer {number}, row {r}: accumulator up to {max(-low, high)} leaves s32; "
                    "train with more --weight-decay"
                )
    box = tuple(enclosure.box())
    targets = [
        witness.Target(number, r, sign, box)
        for number, layer in enumerate(rows)
        if number
        for r in range(len(layer))
        for sign in (-1, 1)
    ]
    last = len(layers) - 1
    asked = [witness.Target(last, p.output, p.sign, tuple(p.box())) for p in properties.PROPERTIES]
    found = witness.drive(layers, targets + asked)
    attained = [_first_layer(layers[0], last == 0)]
    at = 0
    for layer in rows[1:]:
        attained.append([(found[at + 2 * r], found[at + 2 * r + 1]) for r in range(len(layer))])
        at += 2 * len(layer)
    verdicts = [
        properties.decide(layers, p, (seen.value, seen.x))
        for p, seen in zip(properties.PROPERTIES, found[at:], strict=True)
    ]
    return Proof(rows, attained, enclosure.output_errors(layers, rows), verdicts)


def require_open(proof: Proof, ends: list[npt.NDArray[np.bool_]]) -> None:
    """Refuse a network in which a clamp acts where the real one has none.

    Args:
        proof: of the network.
        ends: `reader.Graph.open`.

    Raises:
        NdmError: a unit that may pass the end that stands for infinity.
    """
    one = 1 << c.Q_PRE
    for number, (rows, layer) in enumerate(zip(proof.rows, ends, strict=False)):
        first = len(rows) - len(layer)
        for r, (row, (low, high)) in enumerate(zip(rows[first:], layer, strict=True), first):
            if (low and row.pre[0] <= -one) or (high and row.pre[1] >= one - 1):
                raise NdmError(
                    f"layer {number}, row {r}: quantised, it may pass the range of its Relu "
                    f"({row.pre[0] / one:.4f} to {row.pre[1] / one:.4f} of it); train with more "
                    "--weight-decay"
                )


def _first_layer(layer: Layer, last: bool) -> list[tuple[witness.Found, witness.Found]]:
    """The corners at which each row is least and greatest, with the accumulators there.

    last: there is no other; then with the pre-activations, as of any last layer.
    """
    lo, hi = (np.array(side, dtype=np.int64) for side in zip(*enclosure.box(), strict=True))
    weight, bias = layer.weight.astype(np.int64), layer.bias.astype(np.int64)
    result = []
    for r in range(layer.n_out):
        pair = []
        for low, high in ((hi, lo), (lo, hi)):
            x = np.where(weight[r] >= 0, high, low)
            value = int(weight[r] @ x + bias[r])
            if last:
                value = int(fixedpoint.round_shift(np.array(value), int(layer.shift[r])))
            pair.append(witness.Found(value, x.tolist()))
        result.append((pair[0], pair[1]))
    return result


def _row(row: Row, pair: tuple[witness.Found, witness.Found]) -> dict[str, Any]:
    data = {key: value for key, value in asdict(row).items() if value is not None}
    return {**data, "attained": [f.value for f in pair], "witness": [f.x for f in pair]}


def ranges(proof: Proof) -> list[Interval]:
    """[2] outputs before the clamp, Q16: the better of intervals and branch and bound."""
    result = [list(row.pre) for row in proof.rows[-1]]
    for p, v in zip(properties.PROPERTIES, proof.verdicts, strict=True):
        if p.limit is None and p.sign > 0:
            result[p.output][1] = min(result[p.output][1], v.bound)
        elif p.limit is None:
            result[p.output][0] = max(result[p.output][0], v.bound)
    return [(low, high) for low, high in result]


def clamping(proof: Proof, output: int) -> str:
    """Can the output's clamp act? never, reached (a witness shows it) or not excluded."""
    (low, high), o = ranges(proof)[output], c.OUTPUTS[output]
    if o.lo_q <= low and high <= o.hi_q:
        return "never"
    least, most = proof.attained[-1][output]
    return "reached" if least.value < o.lo_q or most.value > o.hi_q else "not excluded"


def gain_range(proof: Proof) -> Interval:
    """[Q16] what cwnd_gain can be, clamped."""
    (low, high), gain = ranges(proof)[0], c.OUTPUTS[0]
    return max(gain.lo_q, low), min(gain.hi_q, high)


def cut_share(logit: int) -> int:
    """[Q17] share of the window that a loss takes, by the congestion logit in Q16 (`ndm_cut`)."""
    half = (abs(logit) >> 1) * (1 if logit > 0 else -1)  # as C divides
    return (1 << c.Q_ACT) + enclosure.tanh_integer(half)


def loss_cut(proof: Proof) -> Interval:
    """[Q17] least and largest share of the window that a loss takes."""
    (low, high), o = ranges(proof)[1], c.OUTPUTS[1]
    return cut_share(max(o.lo_q, low)), cut_share(min(o.hi_q, high))


def to_json(proof: Proof, model: str, headers: dict[str, str]) -> str:
    """The certificate as text; the same proof and headers give the same bytes.

    Args:
        proof: the result of `prove`.
        model: the model's hash.
        headers: the text of every file of `HEADERS`.
    """
    outputs = []
    for number, o in enumerate(c.OUTPUTS):
        outputs.append(
            {
                "name": o.name,
                "clamp": [o.lo_q, o.hi_q],
                "clamps": clamping(proof, number),
                "error": proof.errors[number],
                "bound": max(-proof.errors[number][0], proof.errors[number][1]),
            }
        )
    gain = np.array(gain_range(proof), dtype=np.int64)
    data = {
        "format": FORMAT,
        "contract": c.HASH,
        "model": model,
        "headers": {name: hashlib.sha256(headers[name].encode()).hexdigest() for name in HEADERS},
        "unit_bits": UNIT_BITS,
        "box": enclosure.box(),
        "layers": [
            [_row(row, pair) for row, pair in zip(rows, pairs, strict=True)]
            for rows, pairs in zip(proof.rows, proof.attained, strict=True)
        ],
        "outputs": outputs,
        "properties": [
            {
                "name": p.name,
                "claim": p.claim,
                "output": p.output,
                "sign": p.sign,
                "limit": p.limit,
                "box": p.box(),
                "boxes": properties.BOXES,
                "contained_by": list(p.contained_by),
                **asdict(v),
            }
            for p, v in zip(properties.PROPERTIES, proof.verdicts, strict=True)
        ],
        "window_factor": fixedpoint.exp2(gain).tolist(),
        "loss_cut": list(loss_cut(proof)),
        "law": law.to_json(),
    }
    return _dump(data) + "\n"


def _dump(value: Any, indent: str = "") -> str:
    """JSON with one line for each list of plain numbers, to keep it readable."""
    inner = indent + "  "
    if isinstance(value, dict):
        rows = [f"{inner}{json.dumps(key)}: {_dump(item, inner)}" for key, item in value.items()]
        return "{\n" + ",\n".join(rows) + f"\n{indent}}}"
    if isinstance(value, list) and any(isinstance(item, dict) or _deep(item) for item in value):
        rows = [f"{inner}{_dump(item, inner)}" for item in value]
        return "[\n" + ",\n".join(rows) + f"\n{indent}]"
    return json.dumps(value)


def _deep(value: Any) -> bool:
    return isinstance(value, list) and any(isinstance(item, list | dict) for item in value)
