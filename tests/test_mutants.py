# SPDX-License-Identifier: GPL-2.0-only
"""Are the golden vectors worth their name? Every small defect must make one of them fail.

Three places are damaged: the integers of the generated headers (every single one, in turn), the
inference in C, and its specification in Python. A mutant that survives fails the test unless it
stands in a list here with the reason why it computes the same.
"""

from __future__ import annotations

import random
import shutil
import types
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from ndm_tcp import contract, core, fixedpoint
from ndm_tcp.errors import NdmError
from ndm_tcp.export import check
from ndm_tcp.export.integers import generated, golden, model_c, quantize
from ndm_tcp.export.integers.golden import Vectors
from ndm_tcp.export.integers.network import IntegerNetwork
from ndm_tcp.export.proof import certificate, enclosure
from ndm_tcp.fixedpoint import Layer
from ndm_tcp.training.model import Policy

KMOD = generated.GENERATED.parent
FLAGS = ("-O0", "-Wno-error")  # mutants leave variables unused
SEED = 5
SAMPLE = 24
"""Mutants of the headers that are compiled, not only computed in Python."""


@pytest.fixture(scope="module")
def layers() -> list[Layer]:
    return model_c.from_json(KMOD / "generated" / "ndm_model.json").layers


@pytest.fixture(scope="module")
def proof(layers: list[Layer]) -> certificate.Proof:
    return certificate.prove(layers)


@pytest.fixture(scope="module")
def vectors(layers: list[Layer], proof: certificate.Proof) -> Vectors:
    """All of them, and what C computes for them."""
    x = golden.for_model(layers, proof.inputs())
    out, pre = core.infer(layers, x)
    return Vectors(x, pre.astype(np.int64), out.astype(np.int64))


def report(what: str, tried: int, killed: int, spared: int = 0, why: str = "") -> None:
    """One line about a group."""
    rest = f"; {spared} more spared: {why}" if spared else ""
    print(f"{what}: {killed} of {tried - spared} mutants killed{rest}")


def killed(layers: list[Layer], vectors: Vectors) -> bool:
    """Does a pre-activation or an output differ? A few vectors first, all only if need be."""
    for part in (slice(-300, None), slice(None)):
        found = golden.compute(layers, vectors.x[part])
        if not (
            np.array_equal(found.pre, vectors.pre[part])
            and np.array_equal(found.out, vectors.out[part])
        ):
            return True
    return False


def with_layer(layers: list[Layer], number: int, layer: Layer) -> list[Layer]:
    return [*layers[:number], layer, *layers[number + 1 :]]


def header_mutants(layers: list[Layer]) -> Iterator[tuple[str, list[Layer]]]:
    """Every weight and bias one up or down, every shift one off, rows swapped, signs flipped."""
    for number, layer in enumerate(layers):
        for index in np.ndindex(*layer.weight.shape):
            for by in (1, -1):
                weight = layer.weight.copy()
                weight[index] += by
                yield (
                    f"weight{number}{index} {by:+}",
                    with_layer(layers, number, replace(layer, weight=weight)),
                )
            if not layer.weight[index]:
                continue  # nothing to negate
            weight = layer.weight.copy()
            weight[index] = -weight[index]
            yield (
                f"weight{number}{index} negated",
                with_layer(layers, number, replace(layer, weight=weight)),
            )
        for row in range(layer.n_out):
            for by in (1, -1):
                bias = layer.bias.copy()
                bias[row] += by
                yield (
                    f"bias{number}[{row}] {by:+}",
                    with_layer(layers, number, replace(layer, bias=bias)),
                )
                shift = layer.shift.astype(np.int64)
                shift[row] += by
                yield (
                    f"shift{number}[{row}] {by:+}",
                    with_layer(layers, number, replace(layer, shift=shift.astype(np.uint8))),
                )
            other = (row + 1) % layer.n_out
            order = np.arange(layer.n_out)
            order[[row, other]] = other, row
            yield (
                f"rows{number} {row} and {other} swapped",
                with_layer(
                    layers,
                    number,
                    replace(
                        layer,
                        weight=layer.weight[order],
                        bias=layer.bias[order],
                        shift=layer.shift[order],
                    ),
                ),
            )


EVERY = [3, pytest.param(1, marks=pytest.mark.long)]
"""Of so many mutants one is tried."""


def test_every_integer_of_the_model_matters(layers: list[Layer], vectors: Vectors) -> None:
    tried, survivors = 0, []
    for name, mutant in header_mutants(layers):
        tried += 1
        if not killed(mutant, vectors):
            survivors.append(name)
    report("ndm_model.h", tried, tried - len(survivors))
    assert tried > 3 * sum(layer.weight.size for layer in layers) and not survivors


def test_every_entry_of_the_tanh_table_in_reach_matters(
    proof: certificate.Proof, layers: list[Layer], vectors: Vectors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries that no input found leads to are spared; that they are what they should be is for
    the exhaustive test of tanh and the checker, which knows the text of the tables."""
    trace = fixedpoint.forward(layers, vectors.x.astype(np.int64))
    pres = trace.pre[:-1]
    found = max(int(np.abs(pre).max()) for pre in pres) >> enclosure.STEP_BITS
    ranges = [row.pre for rows in proof.rows[:-1] for row in rows]
    proved = max(max(-low, high) for low, high in ranges) >> enclosure.STEP_BITS
    assert 0 < found <= proved
    reach, never = min(found, enclosure.STEPS), min(proved, enclosure.STEPS)  # level beyond
    steps = np.minimum(np.abs(np.concatenate(pres, axis=1)) >> enclosure.STEP_BITS, enclosure.STEPS)
    order = np.argsort(steps, axis=None, kind="stable")
    first = np.searchsorted(steps.ravel()[order], np.arange(enclosure.STEPS + 2))
    tried, spared, survivors = 0, 0, []
    whole = fixedpoint.TANH
    monkeypatch.setattr(fixedpoint, "tanh", fixedpoint.interpolate)  # not looked up
    for index in range(1, len(whole)):
        # Only vectors that lead into the step below an entry or above it read the entry.
        reading = np.unique(order[first[index - 1] : first[index + 1]] // steps.shape[1])
        readers = Vectors(vectors.x[reading], vectors.pre[reading], vectors.out[reading])
        for by in (1, -1):
            tried += 1
            table = whole.copy()
            table[index] += by
            monkeypatch.setattr(fixedpoint, "TANH", table)
            if killed(layers, readers):
                continue
            if index > reach:
                spared += 1
            else:
                survivors.append((index, by))
    print(f"entries up to {reach} are reached, no input reaches one above {never + 1} (proved)")
    report("ndm_tanh_table", tried, tried - spared - len(survivors), spared, "entries out of reach")
    assert not survivors


def test_the_order_of_equal_layers_matters() -> None:
    torch.manual_seed(3)
    pairs = Policy((8, 8, 8)).linear_layers()
    layers = quantize.quantize([(w.numpy(), b.numpy()) for w, b in pairs])
    x = golden.inputs()
    out, pre = core.infer(layers, x)
    swapped = [layers[0], layers[2], layers[1], layers[3]]
    assert killed(swapped, Vectors(x, pre.astype(np.int64), out.astype(np.int64)))


# --- compiled --------------------------------------------------------------------------------


def survives(folder: Path, files: dict[str, str], of: Path = KMOD) -> bool:
    """Does the module's self-test pass with these files in place of the originals?"""
    kmod = folder / "kmod"
    shutil.copytree(of, kmod, ignore=shutil.ignore_patterns("*.ko", "*.o", ".*"))
    for name, text in files.items():
        assert (kmod / name).read_text() != text, "this mutation changes nothing"
        (kmod / name).write_text(text)
    try:
        check.run_selftest(kmod, "gcc", FLAGS)
    except NdmError as error:
        assert "golden vectors" in str(error), error
        return False
    finally:
        shutil.rmtree(kmod)
    return True


def run_all(tmp_path: Path, mutants: dict[str, dict[str, str]], of: Path = KMOD) -> list[str]:
    """Names of the survivors."""
    with ThreadPoolExecutor(2) as pool:
        jobs = {
            name: pool.submit(survives, tmp_path / str(number), files, of)
            for number, (name, files) in enumerate(mutants.items())
        }
        return [name for name, job in jobs.items() if job.result()]


def test_a_sample_of_compiled_headers(
    layers: list[Layer], proof: certificate.Proof, tmp_path: Path
) -> None:
    """What Python says of a mutant, the compiled module says too, with the vectors it carries.

    Biases off by one are left to the full set: the module has no room for a tie of every row.
    """
    names = dict(header_mutants(layers))
    chosen = np.random.default_rng(SEED).permutation([n for n in names if not n.startswith("bias")])
    model = model_c.from_json(KMOD / "generated" / "ndm_model.json")
    mutants = {}
    for name in chosen[:SAMPLE]:
        text = model_c.model_header(replace(model, layers=names[str(name)]), proof)
        mutants[str(name)] = {"generated/ndm_model.h": text}
    survivors = run_all(tmp_path, mutants)
    report("compiled ndm_model.h", len(mutants), len(mutants) - len(survivors))
    assert not survivors


INFER = [
    ("(acc + (1 << (n - 1))) >> n", "acc >> n"),
    ("(acc + (1 << (n - 1))) >> n", "(acc + (1 << n)) >> n"),
    ("(acc + (1 << (n - 1))) >> n", "(acc + (1 << (n - 1)) - 1) >> n"),
    ("NDM_Q_PRE + NDM_TANH_RANGE_LOG2 - NDM_TANH_STEPS_LOG2)", "NDM_Q_PRE - 7)"),
    ("pre < 0 ? 0U - (u32)pre : (u32)pre", "(u32)pre"),
    ("pre < 0 ? 0U - (u32)pre : (u32)pre", "pre < 0 ? ~(u32)pre : (u32)pre"),
    ("pre < 0 ? 0U - (u32)pre", "pre <= 0 ? 0U - (u32)pre"),
    ("[magnitude >> NDM_TANH_BITS]", "[(magnitude >> NDM_TANH_BITS) + 1]"),
    ("(at[1] - at[0]) *", "(at[0] - at[1]) *"),
    ("(at[1] - at[0]) *", "(at[1] - at[1]) *"),
    ("(at[1] - at[0]) *", "(at[2] - at[1]) *"),
    ("(1U << NDM_TANH_BITS) - 1)", "(1U << NDM_TANH_BITS) - 2)"),
    ("value = at[0] + ndm", "value = at[0] - ndm"),
    ("value = at[0] + ndm", "value = at[1] + ndm"),
    ("ndm_round_shift(value, NDM_TANH_BITS)", "(value >> NDM_TANH_BITS)"),
    ("(s16)(pre < 0 ? -value : value)", "(s16)value"),
    ("(s16)(pre < 0 ? -value : value)", "(s16)(pre > 0 ? -value : value)"),
    ("(s16)(pre < 0 ? -value : value)", "(s16)(pre <= 0 ? -value : value)"),
    ("(u64)(even) + ((u64)(odd) << 32)", "(u64)(u32)(even) + ((u64)(odd) << 32)"),
    ("(u64)(even) + ((u64)(odd) << 32)", "(u64)(odd) + ((u64)(even) << 32)"),
    ("ndm_dot2(*bias++,", "ndm_dot2(0,"),
    ("ndm_dot2(*bias++,", "ndm_dot2(*bias,"),
    ("pairs = (layer->n_out + 1U) / 2", "pairs = layer->n_out / 2"),
    ("pairs = (layer->n_out + 1U) / 2", "pairs = (layer->n_out - 1U) / 2"),
    ("weight += n_in)", "weight += n_in - 1)"),
    ("even >> *shift++", "even >> *shift"),
    ("even >> *shift++", "(even - 1) >> *shift++"),
    (">> 32) >> *shift++", ">> 32) >> *shift"),
    ("(sum - (u64)even) >> 32", "sum >> 32"),
    ("(sum - (u64)even) >> 32", "(sum + (u64)even) >> 32"),
    ("n >= 16;", "n > 16;"),
    ("n >= 16;", "n >= 32;"),
    ("n -= 16,", "n -= 15,"),
    ("w += 16, in += 16)", "w += 15, in += 16)"),
    ("w += 16, in += 16)", "w += 16, in += 15)"),
    *((f"w += {n};", f"w += {n - 1};") for n in (8, 4, 2)),
    *((f"in += {n};", f"in += {n - 1};") for n in (8, 4, 2)),
    *((f"n & {n}", f"n & {2 * n}") for n in (8, 4, 2, 1)),
    *((f"(sum, w + {at}, in + {at})", f"(sum, w + {at}, in)") for at in (2, 4, 8)),
    *((f"(sum, w + {at}, in + {at})", f"(sum, w, in + {at})") for at in (2, 4, 8)),
    ("*w * *in", "*w * -*in"),
    ("*w * *in", "w[1] * *in"),
    ("w[1] * in[1]", "w[1] * in[0]"),
    *((f"w[{i}] * in[{i}]", f"w[{i}] * -in[{i}]") for i in range(2)),
    ("ndm_rows(layer, in, pre, NDM_N_DENSE)", "ndm_rows(layer, in, pre, NDM_N_DENSE - 1)"),
    ("ndm_rows(layer, in, pre, layer->n_in)", "ndm_rows(layer, in, pre, layer->n_in - 1)"),
    ("in[i] = (u64)x[i];", "in[i] = (u64)x[0];"),
    ("in[i] = (u64)x[i];", "in[i] = (u16)x[i];"),
    ("i < NDM_N_DENSE; i++", "i + 1 < NDM_N_DENSE; i++"),
    ("out[i] = (u64)ndm_tanh(pre[i]);", "out[i] = (u64)(s16)pre[i];"),
    ("out[i] = (u64)ndm_tanh(pre[i]);", "out[i] = (u64)ndm_tanh(pre[0]);"),
    ("out[i] = (u64)ndm_tanh(pre[i]);", "out[i] = (u16)ndm_tanh(pre[i]);"),
    ("out[i] = (u64)ndm_tanh", "out[layer->n_out - 1 - i] = (u64)ndm_tanh"),
    ("i < n_tanh; i++", "i + 1 < n_tanh; i++"),
    (
        "out[NDM_OUT_CWND_GAIN] = ndm_clamp(pre[NDM_OUT_CWND_GAIN]",
        "out[NDM_OUT_CWND_GAIN] = ndm_clamp(pre[NDM_OUT_CONGESTION]",
    ),
    ("value < lo ? lo : value > hi ? hi : value", "value > lo ? lo : value"),
    ("value < lo ? lo : value > hi ? hi : value", "value < lo ? lo : value < hi ? hi : value"),
    ("value < lo ? lo : value > hi ? hi : value", "lo < hi ? value : value"),
    ("magnitude >= NDM_TANH_LIMIT", "magnitude > NDM_TANH_LIMIT"),
]
CLAMP = "value < lo ? lo : value > hi ? hi : value"
SAME = {
    "pre < 0 ? 0U - (u32)pre -> pre <= 0 ? 0U - (u32)pre": "-0 is 0",
    "(s16)(pre < 0 ? -value : value) -> (s16)(pre <= 0 ? -value : value)": "tanh 0 is 0",
    # No output of this network reaches its range's end (certificate); test_clamps kills it.
    f"{CLAMP} -> lo < hi ? value : value": "clamps never",
    # No pre-activation of this network is 8 (certificate); the exhaustive test of tanh kills it.
    "magnitude >= NDM_TANH_LIMIT -> magnitude > NDM_TANH_LIMIT": "out of reach",
}


@pytest.fixture
def narrow(tmp_path: Path) -> Path:
    """The module with a network whose widths, unlike 18 and 8, need all of `ndm_dot2()`."""
    torch.manual_seed(4)
    pairs = Policy((31, 16)).linear_layers()
    layers = quantize.quantize([(w.numpy(), b.numpy()) for w, b in pairs])
    kmod = tmp_path / "narrow" / "kmod"
    shutil.copytree(KMOD, kmod, ignore=shutil.ignore_patterns("*.ko", "*.o", ".*"))
    model = model_c.Model(layers, {"network": "a test"})
    generated.write(IntegerNetwork(model), kmod / "generated")
    return kmod


@pytest.mark.parametrize("every", EVERY)
def test_every_defect_of_the_inference_is_found(every: int, tmp_path: Path, narrow: Path) -> None:
    text = (KMOD / "ndm_infer.h").read_text()
    assert all(old in text for old, _ in INFER)
    mutants = {}
    for old, new in random.Random(SEED).sample(INFER, len(INFER) // every):
        mutants[f"{old} -> {new}"] = {"ndm_infer.h": text.replace(old, new, 1)}
    survivors = run_all(tmp_path, mutants)
    survivors = run_all(tmp_path, {name: mutants[name] for name in survivors}, narrow)
    report("ndm_infer.h", len(mutants), len(mutants) - len(survivors), len(survivors), "see SAME")
    assert set(survivors) <= set(SAME)


def saturating() -> list[Layer]:
    """A network whose outputs pass both ends of their ranges."""
    weight = np.zeros((2, contract.N_DENSE), dtype=np.int16)
    weight[0, 7], weight[1, 7] = 32767, 32767
    return [Layer(weight, np.zeros(2, dtype=np.int32), np.array([9, 6], dtype=np.uint8))]


def test_clamps(tmp_path: Path) -> None:
    """The mutant without a clamp, on a network that needs it."""
    layers = saturating()
    assert enclosure.rows(layers)[0][1].pre[1] > 8 << 16
    text = (KMOD / "ndm_infer.h").read_text()
    kmod = tmp_path / "kmod"
    shutil.copytree(KMOD, kmod, ignore=shutil.ignore_patterns("*.ko", "*.o", ".*"))
    model = model_c.Model(layers, {"network": "a test"})
    generated.write(IntegerNetwork(model), kmod / "generated")
    check.run_selftest(kmod)
    clamps = [new for old, new in INFER if old == CLAMP]
    assert len(clamps) == 3
    for new in clamps:
        (kmod / "ndm_infer.h").write_text(text.replace(CLAMP, new, 1))
        with pytest.raises(NdmError, match="golden vectors"):
            check.run_selftest(kmod, "gcc", FLAGS)


# --- the specification -----------------------------------------------------------------------

SPEC = [
    ("(acc + (np.int64(1) << (n - 1))) >> n", "acc >> n"),
    ("(acc + (np.int64(1) << (n - 1))) >> n", "(acc + (np.int64(1) << (n - 1)) - 1) >> n"),
    ("(acc + (np.int64(1) << (n - 1))) >> n", "(acc + (np.int64(1) << n)) >> n"),
    ("(acc + (np.int64(1) << (n - 1))) >> n", "np.rint(acc / 2.0**n).astype(np.int64)"),
    ("(acc + (np.int64(1) << (n - 1))) >> n", "np.trunc(acc / 2.0**n).astype(np.int64)"),
    (
        "min(one - 1, math.floor(math.tanh(i * span / steps) * one + 0.5))",
        "math.floor(math.tanh(i * span / steps) * (one - 1) + 0.5)",
    ),
    (
        "min(one - 1, math.floor(math.tanh(i * span / steps) * one + 0.5))",
        "min(one - 1, math.floor(math.tanh(i * span / steps) * one))",
    ),
    ("c.Q_PRE + c.TANH_RANGE_LOG2 - c.TANH_STEPS_LOG2", "c.Q_PRE + c.TANH_RANGE_LOG2 - 8"),
    (
        "magnitude = np.abs(np.asarray(pre, dtype=np.int64))",
        "magnitude = np.asarray(pre, dtype=np.int64)",
    ),
    ("fraction = inside & ((1 << step_bits) - 1)", "fraction = 0"),
    ("high = TANH.take(index), TANH.take(index + 1)", "high = TANH.take(index), TANH.take(index)"),
    ("low, high = TANH.take(index), TANH", "high, low = TANH.take(index), TANH"),
    (
        "value = low + round_shift((high - low) * fraction, step_bits)",
        "value = low + ((high - low) * fraction >> step_bits)",
    ),
    ("np.where(pre < 0, -value, value)", "value"),
    ("np.where(pre < 0, -value, value)", "np.where(pre > 0, -value, value)"),
    ("+ (len(known) >> 1)", "+ (len(known) + 1 >> 1)"),
    ("+ layer.bias\n", "- layer.bias\n"),
    ("+ layer.bias\n", "\n"),
    ("h.astype(np.float64) @ layer", "h.astype(np.float64)[:, ::-1] @ layer"),
    ("layer.shift.astype(np.int64))\n", "layer.shift.astype(np.int64)[0])\n"),
    ("if number + 1 < len(layers):", "if number + 2 < len(layers):"),
    ("h = activate(layer, pre)", "h = activate(layer, acc)"),
    ("np.clip(pres[-1], lo, hi)", "np.clip(pres[-1], hi, lo)"),
    ("np.clip(pres[-1], lo, hi)", "np.clip(pres[-1], 0, hi)"),
    ("np.clip(pres[-1], lo, hi)", "pres[-1]"),
    ("np.where(magnitude >= limit, TANH[-1], value)", "value"),
]
SPEC_SAME = {
    "np.clip(pres[-1], lo, hi) -> pres[-1]": "no output reaches its clamp, as above",
    "np.where(magnitude >= limit, TANH[-1], value) -> value": "no pre-activation reaches 8",
}


def test_every_defect_of_the_specification_is_found(layers: list[Layer], vectors: Vectors) -> None:
    """The mutated file against what C computed."""
    assert fixedpoint.__file__
    text = Path(fixedpoint.__file__).read_text()
    survivors = []
    for old, new in SPEC:
        assert old in text, old
        module = types.ModuleType("mutant")
        import sys

        sys.modules["mutant"] = module
        exec(compile(text.replace(old, new, 1), "mutant", "exec"), module.__dict__)
        try:
            trace = module.forward(layers, vectors.x.astype(np.int64))
            same = np.array_equal(np.concatenate(trace.pre, axis=1), vectors.pre)
            if same and np.array_equal(trace.outputs, vectors.out):
                survivors.append(f"{old} -> {new}")
        except (IndexError, ValueError):
            pass
        finally:
            del sys.modules["mutant"]
    report("fixedpoint.py", len(SPEC), len(SPEC) - len(survivors), len(survivors), "see SPEC_SAME")
    assert set(survivors) <= set(SPEC_SAME)
