# SPDX-License-Identifier: GPL-2.0-only
"""Checks ndm_certificate.json against the C headers beside it. Standard library only.

    python check_certificate.py kmod/generated

Reads the header texts with its own grammar and derives every statement again: intervals
in exact integers, tanh from continued fractions and its addition theorem, |fixed - real| in
rationals, properties by walking the tree of sub-boxes. Shares no code with what wrote the
certificate. Claims about the control law are proved by running tests/law.c: here their list is
compared, and the law's headers if they lie one folder up, as in kmod. Prints one line; exit
status 1 and the reason if anything does not hold.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
import sys
from fractions import Fraction as Q
from pathlib import Path
from typing import Any

# The other half of this program lies beside it; neither is imported as a package.
from bounds import Box, Clamp, Layers, Relaxation, Tanh, dot, require  # type: ignore

HEADERS = ("ndm_contract.h", "ndm_tables.h", "ndm_model.h")
N = 18  # inputs of the first dense layer: ten inputs of a round, the means of eight
# Claims about the law: the cases that tests/law.c goes through.
ONE, FLAGS, ROUNDS = 1 << 12, 1 << 5, 8 << 20  # ROUNDS: eight phases for each window of 20 bits
LAW = {
    "gain_never_falls": 1 << 17,
    "at_most_double": FLAGS * ROUNDS,
    "at_least_half": FLAGS * ROUNDS,
    "flood_falls_to_what_arrived": (ONE - ONE // 5 + 1) << 20,
    "only_scatter_excuses_a_flood": FLAGS * (2 * ONE + 1) * (ONE + 1) * 2,
    "one_packet_after_a_mark": FLAGS * ROUNDS // 2,
    "unused_window_does_not_grow": FLAGS * ROUNDS // 2,
    "ceiling_holds": FLAGS * ROUNDS,
    "loss_takes_at_most_half": (1 << 20) + (2 << 20),
}
LAW_HEADERS = ("ndm_control.h", "ndm_infer.h")
# name: output, sign (1 at most, -1 at least), limit in Q16, inputs held (1-based: Q12 from, to),
# claims about the law that bound the window where the network breaks it
Property = tuple[int, int, int | None, dict[int, tuple[int, int]], list[str]]
LOSSY = {5: (0, 0), 6: (4096, 4096), 14: (256, 4096)}
LOSSLESS = {2: (0, 0), 6: (0, 0), 12: (0, 64), 14: (0, 64)}
STEADY = {7: (0, 512), 8: (-256, 256), 12: (0, 256), 15: (0, 512), 16: (-256, 256)}
QUEUE = {1: (1792, 2304), 2: (0, 256), 3: (1792, 2304), 9: (3584, 4096), 10: (3072, 4096)}
QUEUE |= {11: (1792, 2304), 13: (1792, 2304), 17: (3584, 4096), 18: (3072, 4096)}
QUEUE = {**QUEUE, **LOSSY, **STEADY}
IDLE = {1: (3584, 4096), 3: (5120, 8192), 5: (0, 0), 9: (2048, 4096), 10: (0, 512)}
IDLE |= {11: (3584, 4096), 13: (5120, 8192), 17: (2048, 4096), 18: (0, 512)}
IDLE = {**IDLE, **STEADY}
PROPERTIES: dict[str, Property] = {
    "gain_at_most": (0, 1, None, {}, []),
    "gain_at_least": (0, -1, None, {}, []),
    "no_growth_behind_its_own_queue": (
        0, 1, 0, QUEUE, ["at_most_double", "flood_falls_to_what_arrived"],
    ),
    "no_shrinking_below_the_bdp": (0, -1, 0, {**IDLE, **LOSSLESS}, ["at_least_half"]),
    "bursts_behind_its_own_queue_are_overflow": (
        1, -1, 0, {**QUEUE, 4: (0, 1024)},
        ["flood_falls_to_what_arrived", "only_scatter_excuses_a_flood"],
    ),
    "scattered_loss_on_an_idle_path_is_random": (
        1, 1, 0, {**IDLE, **LOSSY, 2: (0, 256), 4: (2048, 4096)}, ["loss_takes_at_most_half"],
    ),
}  # fmt: skip
ITEM = re.compile(
    r"\s+|#ifndef \w+|#define \w+[ \t]*\n|#endif|#include \"[\w./]+\""
    r"|#define (?P<name>NDM_\w+)[ \t]+(?P<value>\(-?\d+\)|-?\d+|0x[0-9a-f]+ULL|\"[0-9a-f]+\""
    r"|\(1 << NDM_Q_INPUT\))[ \t]*(?=\n)"
    r"|static_assert\([^;]*\);|enum \w+ \{[\w\s,]*\};|struct \w+ \{[\w\s;]*\};"
    r"|static const (?:s16|s32|u32|u8) (?P<array>\w+)\[(?P<size>\d+)\] = \{"
    r"(?P<numbers>[-\d\s,]*)\};"
    r"|static const u64 (?P<pairs>\w+)\[(?P<rows>\d+)(?: \* (?P<columns>\d+))?\] = \{"
    r"(?P<both>(?:\s*NDM_PAIR\(-?\d+, -?\d+\),)*)\s*\};"
    r"|static const struct ndm_layer ndm_model_layer\[\] = \{(?P<layers>[\w\s,{}.=]*)\};"
    r"|static const struct ndm_model ndm_model = \{\s*\.layer = ndm_model_layer,"
    r"\s*\.n_layers = (?P<count>\d+),\s*\};"
)

LAYER = re.compile(
    r"\{\s*\.weight = (\w+), \.bias = (\w+), \.shift = (\w+),\s*"
    r"\.n_in = (\d+), \.n_out = (\d+)(?:, \.n_clamped = (\d+))?,\s*\},"
)


def integer(text: str) -> int:
    """A number as C reads it: one that begins with 0 would be octal there."""
    require(re.fullmatch(r"-?(0|[1-9]\d*)", text), f"{text!r} is no decimal number")
    return int(text)


def parse(text: str, name: str) -> dict[str, Any]:
    """Defines, arrays and the layer list of a header; anything else in it is refused."""
    found: dict[str, Any] = {}
    text, at = re.sub(r"/\*.*?\*/", "", text, flags=re.S), 0
    while at < len(text):
        m = ITEM.match(text, at)
        if m is None or m.end() == at:
            raise ValueError(f"{name}: unexpected text {text[at : at + 40].splitlines()[0]!r}")
        at = m.end()
        key = m["name"] or m["array"] or m["pairs"]
        key = key or (m["layers"] and "layers") or (m["count"] and "count")
        require(not key or key not in found, f"{name}: {key} is there twice")
        if m["name"]:
            value = m["value"].strip("()")
            plain = re.fullmatch(r"-?\d+", value)
            found[key] = integer(value) if plain else value.strip('"')
        elif m["array"]:
            found[key] = [integer(v.strip()) for v in m["numbers"].split(",") if v.strip()]
            require(
                len(found[key]) == integer(m["size"]),
                f"{name}: {key} has {len(found[key])} entries",
            )
        elif m["pairs"]:
            size = integer(m["rows"]) * integer(m["columns"] or "1")
            both = re.findall(r"\((-?\d+), (-?\d+)\)", m["both"])
            found[key] = [(integer(a), integer(b)) for a, b in both]
            require(len(both) == size, f"{name}: {key} has {len(both)} entries")
        elif key:
            found[key] = m[key]
    return found


def rows_of(pairs: list[tuple[int, int]], columns: int) -> list[int]:
    """Rows one after the other, from the pairs of rows that C walks through."""
    return [
        pair[half]
        for at in range(0, len(pairs), columns)
        for half in (0, 1)
        for pair in pairs[at : at + columns]
    ]


def network(h: dict[str, Any]) -> Layers:
    """Layers as rows of (weights, bias, shift, clamped), from the parsed ndm_model.h."""
    rows = LAYER.findall(h["layers"])
    require(not LAYER.sub("", h["layers"]).strip(), "ndm_model.h: a layer of another form")
    require(len(rows) == integer(h["count"]) and rows, "ndm_model.h: number of layers")
    layers, width = [], N
    for n, (w, b, s, n_in, n_out, n_clamped) in enumerate(rows):
        names = [f"ndm_weight{n}", f"ndm_bias{n}", f"ndm_shift{n}"]
        i, o, clamped = (integer(v) for v in (n_in, n_out, n_clamped or "0"))
        bent = o - clamped
        require([w, b, s] == names and i == width, f"ndm_model.h: layer {n} out of order")
        ends = bent == o if n + 1 == len(rows) else bent >= 0
        require(ends, f"ndm_model.h: layer {n}: {n_clamped} clamped units")
        even = o + o % 2  # in pairs; the partner of an odd last row is not used
        weight, bias = rows_of(h[w], i), rows_of(h[b], 1)
        require(len(weight) == i * even, f"ndm_model.h: layer {n}: size")
        require(len(bias) == len(h[s]) == even, f"ndm_model.h: layer {n}: size")
        require(all(-(2**15) <= v < 2**15 for v in weight), f"ndm_model.h: {w} leaves s16")
        require(all(-(2**31) <= v < 2**31 for v in bias), f"ndm_model.h: {b} leaves s32")
        require(all(1 <= v <= 31 for v in h[s]), f"ndm_model.h: {s} leaves 1 .. 31")
        plain = [b - (1 << (shift - 1)) for b, shift in zip(bias, h[s], strict=True)]
        layers.append([(weight[r * i : r * i + i], plain[r], h[s][r], r >= bent) for r in range(o)])
        width = o
    require(width == 2, "ndm_model.h: not two outputs")
    return layers


def product(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
    every = [x * y for x in a for y in b]
    return min(every), max(every)


def infer(layers: Layers, tanh: Tanh, x: list[Any]) -> list[Any]:
    """Accumulators per layer, then the last pre-activations, of the integer network."""
    result = []
    for layer in layers:
        acc = [sum(w * v for w, v in zip(ws, x, strict=True)) + b for ws, b, _, _ in layer]
        pre = [(a + (1 << (s - 1))) >> s for a, (_, _, s, _) in zip(acc, layer, strict=True)]
        result.append(acc)
        acts = [Clamp() if clamped else tanh for *_, clamped in layer]
        x = [act(p) for act, p in zip(acts, pre, strict=True)]
    return [*result, pre]


def check_rows(cert: dict[str, Any], layers: Layers, tanh: Tanh, box: Box) -> list[Any]:
    """Ranges, witnesses and error terms of every row; returns |fixed - real| per output."""
    unit, slack, half = Q(1, 2 ** cert["unit_bits"]), Q(1, 2**20), Q(1, 2**17)
    inputs, errors, bits_in = box, [(Q(0), Q(0))] * N, 12
    require(len(cert["layers"]) == len(layers), "layers: another number of them")
    for n, (layer, claims) in enumerate(zip(layers, cert["layers"], strict=True)):
        last, nexts, next_errors = n + 1 == len(layers), [], []
        require(len(claims) == len(layer), f"layer {n}: another number of rows")
        for r, ((ws, bias, s, clamped), claim) in enumerate(zip(layer, claims, strict=True)):
            act, where = Clamp() if clamped else tanh, f"layer {n}, row {r}"
            low, high = (v + bias for v in dot(ws, inputs))
            parts = [sorted((w * a, w * b)) for w, (a, b) in zip(ws, inputs, strict=True)] + [
                (bias, bias)
            ]
            partial = [sum(min(a, 0) for a, _ in parts), sum(max(b, 0) for _, b in parts)]
            pre = [(low + (1 << (s - 1))) >> s, (high + (1 << (s - 1))) >> s]
            require([low, high] == claim["accumulator"], f"{where}: accumulator")
            require(partial == claim["partial"], f"{where}: partial sums")
            room = 2**31 - (1 << (s - 1))
            require(partial[0] >= -(2**31) and partial[1] < room, f"{where}: leaves s32")
            require(low >= -(2**31) and high < room, f"{where}: leaves s32")
            require(
                s == claim["shift"] and pre == claim["pre"], f"{where}: shift or pre-activation"
            )
            for end, x in enumerate(claim["witness"]):
                inside = len(x) == N and all(a <= v <= b for v, (a, b) in zip(x, box, strict=True))
                require(inside, f"{where}: witness outside the box")
                value = infer(layers, tanh, x)[n + last][r]
                require(value == claim["attained"][end], f"{where}: witness does not attain")
                exact = n or value == claim["pre" if last else "accumulator"][end]
                require(exact, f"{where}: the first layer's ends must be attained")
            if last:
                continue
            require([act(p) for p in pre] == claim["activation"], f"{where}: activation")
            e = dot(ws, errors)
            scale = 1 << (s + 16 - bits_in)
            d = (e[0] / scale - half, e[1] / scale + half)
            own = (
                act.slope(Q(pre[0], 2**16) - max(d[1], 0), Q(pre[1], 2**16) - min(d[0], 0)),
                act.off(tuple(pre)),
            )
            for name, (a, b) in zip(("slope", "table"), own, strict=True):
                c, d2 = (v * unit for v in claim[name])
                require(a - slack <= c <= a and b <= d2 <= b + slack, f"{where}: {name}")
            s_range, t_range = ([v * unit for v in claim[name]] for name in ("slope", "table"))
            through = product(tuple(s_range), d)
            nexts.append(tuple(claim["activation"]))
            next_errors.append((through[0] + t_range[0], through[1] + t_range[1]))
        inputs, errors, bits_in = nexts, next_errors, 15
    return [backward(cert, layers, o, unit, half) for o in range(2)]


def backward(
    cert: dict[str, Any], layers: Layers, output: int, unit: Q, half: Q
) -> tuple[Any, ...]:
    """Integer minus real output: every rounding and table error times its way to the output."""
    ws, _, s, _ = layers[-1][output]
    q_in = 15 if len(layers) > 1 else 12
    coefficients = [(Q(w, 1 << (s + 16 - q_in)),) * 2 for w in ws]
    low, high = -half, half
    for n in range(len(layers) - 2, -1, -1):
        q_in = 15 if n else 12
        sums = [(Q(0), Q(0))] * len(layers[n][0][0])
        for (ws, _, s, _), claim, coef in zip(
            layers[n], cert["layers"][n], coefficients, strict=True
        ):
            through = product(coef, tuple(v * unit for v in claim["slope"]))
            for term in (
                product(coef, tuple(v * unit for v in claim["table"])),
                product(through, (-half, half)),
            ):
                low, high = low + term[0], high + term[1]
            scale = 1 << (s + 16 - q_in)
            step = [product(through, (Q(w, scale),)) for w in ws]
            sums = [(a + c, b + d) for (a, b), (c, d) in zip(sums, step, strict=True)]
        coefficients = sums
    return low, high


def check_properties(
    cert: dict[str, Any], layers: Layers, tanh: Tanh, box: Box, errors: list[Any]
) -> list[Any]:
    """Verdicts, and [lowest, highest] output each that is thereby proved for the whole box."""
    relaxation = Relaxation(layers, tanh)
    whole = [list(cert["layers"][-1][o]["pre"]) for o in range(2)]
    require([p["name"] for p in cert["properties"]] == list(PROPERTIES), "properties: the list")
    for p in cert["properties"]:
        output, sign, limit, held, contained = PROPERTIES[p["name"]]
        part = [held.get(i + 1, side) for i, side in enumerate(box)]
        same = (p["output"], p["sign"], p["limit"]) == (output, sign, limit)
        require(same and p["box"] == [list(v) for v in part], f"{p['name']}: another statement")
        require(p["contained_by"] == contained, f"{p['name']}: contained by other claims")
        epsilon = -(-max(-errors[output][0], errors[output][1]) * 2**16 // 1)
        own = relaxation.worst(p["tree"], part, output, sign, epsilon)
        require(own <= sign * p["bound"], f"{p['name']}: bound {p['bound']} is not proved")
        inside = (
            all(a <= v <= b for v, (a, b) in zip(p["witness"], part, strict=True))
            and len(p["witness"]) == N
        )
        value = infer(layers, tanh, p["witness"])[-1][output]
        require(inside and value == p["attained"], f"{p['name']}: witness does not attain")
        if limit is None:
            verdict = "bounded"
            whole[output][sign > 0] = sign * min(sign * whole[output][sign > 0], sign * p["bound"])
        elif sign * value > sign * limit:
            verdict = "refuted"
        else:
            verdict = "proved" if sign * p["bound"] <= sign * limit else "unknown"
        require(p["verdict"] == verdict, f"{p['name']}: {p['verdict']}, found {verdict}")
    return whole


def check_law(law: dict[str, Any], folder: Path) -> str:
    """Check the claims about the law and the law beside them; returns the comparison made."""
    found = {p["name"]: (p["cases"], p["verdict"]) for p in law["claims"]}
    require(len(found) == len(law["claims"]), "law: a claim is there twice")
    require(list(found) == list(LAW), "law: another list of claims")
    for name, cases in LAW.items():
        require(found[name] == (cases, "proved"), f"{name}: not what tests/law.c goes through")
    require(tuple(law["headers"]) == LAW_HEADERS, "law: another set of headers")
    paths = [folder.resolve().parent / name for name in LAW_HEADERS]
    for path in paths:
        if path.is_file():
            same = hashlib.sha256(path.read_bytes()).hexdigest() == law["headers"][path.name]
            require(same, f"{path.name}: not the control law that was certified")
    beside = "is" if all(path.is_file() for path in paths) else "is not"
    return f"{len(LAW)} claims about the control law, whose text {beside} beside"


def check(folder: Path) -> str:
    """All of it; returns what holds, in one line."""
    cert = json.loads((folder / "ndm_certificate.json").read_bytes())
    require(cert["format"] == "ndm-tcp-certificate-2", "another format")
    texts, h = {name: (folder / name).read_text(encoding="utf-8") for name in HEADERS}, {}
    require(set(cert["headers"]) == set(HEADERS), "another set of headers")
    for name, text in texts.items():
        same = hashlib.sha256(text.encode()).hexdigest() == cert["headers"][name]
        require(same, f"{name}: not the text that was certified")
        h.update(parse(text, name))
    fixed = {"Q_INPUT": 12, "Q_ACT": 15, "Q_PRE": 16, "TANH_RANGE_LOG2": 3, "TANH_STEPS_LOG2": 11}
    require(all(h[f"NDM_{k}"] == v for k, v in fixed.items()), "ndm_contract.h: Q formats")
    require(h["NDM_CONTRACT_HASH"] == cert["contract"], "another contract")
    ranges = re.findall(r"/\* \d+: .*; \[(-?\d+), (-?\d+)\] \*/\s+NDM_IN_", texts[HEADERS[0]])
    box = [(int(a) << 12, int(b) << 12) for a, b in ranges]
    require(len(box) == N, f"{len(box)} inputs; N and the regions below it here are for {N}")
    require(cert["box"] == [list(v) for v in box], "the box of the inputs")
    layers = network(h)
    digest = hashlib.sha256(cert["contract"].encode())
    for layer in layers:
        digest.update(bytes([len(layer[0][0]), len(layer)]))
        for ws, *_ in layer:
            digest.update(struct.pack(f"<{len(ws)}h", *ws))
        digest.update(struct.pack(f"<{len(layer)}i", *(b for _, b, _, _ in layer)))
        digest.update(bytes(s for _, _, s, _ in layer))
    counts = bytes(sum(clamped for *_, clamped in layer) for layer in layers)
    digest.update(b"clamped" + counts if any(counts) else b"")
    model = digest.hexdigest()[:16]
    require(cert["model"] == model == h["NDM_MODEL_HASH"], "integers do not match the model's hash")
    tanh = Tanh(h["ndm_tanh_table"])
    errors = check_rows(cert, layers, tanh, box)
    whole = check_properties(cert, layers, tanh, box, errors)
    unit, bounds = Q(1, 2 ** cert["unit_bits"]), []
    for o, (claim, own) in enumerate(zip(cert["outputs"], errors, strict=True)):
        low, high = (v * unit for v in claim["error"])
        require(low <= own[0] and own[1] <= high, f"{claim['name']}: error is not proved")
        require(claim["bound"] == max(-claim["error"][0], claim["error"][1]), "bound of an error")
        ends = [h[f"NDM_OUT_{claim['name'].upper()}_{side}"] for side in ("LO", "HI")]
        seen = cert["layers"][-1][o]["attained"]
        never = ends[0] <= whole[o][0] and whole[o][1] <= ends[1]
        reached = seen[0] < ends[0] or seen[1] > ends[1]
        acts = "never" if never else "reached" if reached else "not excluded"
        require(claim["clamp"] == ends and claim["clamps"] == acts, f"{claim['name']}: clamp")
        whole[o] = [max(ends[0], whole[o][0]), min(ends[1], whole[o][1])]
        bounds.append(f"{claim['name']} {float(claim['bound'] * unit):.7f}")
    table, factors = h["ndm_exp2_table"], []
    require(len(table) == 33 and table == sorted(table), "ndm_tables.h: ndm_exp2_table")
    for gain in whole[0]:
        i, rest = (gain & 0xFFFF) >> 11, gain & 0x7FF
        value = table[i] + (((table[min(i + 1, 32)] - table[i]) * rest + 1024) >> 11)
        factors.append((value + 1) >> 1 if gain < 0 else value << (gain >> 16))
    require(factors == cert["window_factor"], "window_factor")
    cuts = [2**15 + tanh(abs(v) // 2 * (1 if v > 0 else -1)) for v in whole[1]]
    require(cuts == cert["loss_cut"], "loss_cut")
    verdicts = [p["verdict"] for p in cert["properties"]]
    tally = ", ".join(f"{verdicts.count(v)} {v}" for v in dict.fromkeys(verdicts))
    rows = sum(len(layer) for layer in layers)
    law = check_law(cert["law"], folder)
    head = f"certificate of {model} holds: {rows} rows, error {', '.join(bounds)}"
    return f"{head}, {tally}; {law}"


def main(arguments: list[Any]) -> int:
    if len(arguments) != 1:
        print("usage: check_certificate.py kmod/generated", file=sys.stderr)
        return 1
    try:
        print(check(Path(arguments[0])))
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, OSError) as error:
        plain = isinstance(error, (ValueError, OSError))
        what = str(error) if plain else f"{type(error).__name__} {error}"
        line = " ".join(f"check_certificate: {arguments[0]}: refused: {what}".split())
        print(line, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
