# SPDX-License-Identifier: GPL-2.0-only
"""`ndm export RUN`: checkpoint -> ONNX -> integers -> C header, golden vectors, model card."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import orjson

from ndm_tcp import contract as c
from ndm_tcp import core, files
from ndm_tcp.errors import NdmError
from ndm_tcp.export import (
    certificate,
    generated,
    golden,
    model_c,
    onnx_graph,
    properties,
    quantize,
    report_html,
)
from ndm_tcp.export.sensitivity import LayerCost, require_alive, sensitivity
from ndm_tcp.fixedpoint import Layer
from ndm_tcp.training.checkpoint import MODEL, load_policy

EXAMPLE = """example:
  ndm export out/run                       # into the checkout's kmod/generated
  ndm export out/run -o out/kmod/generated"""


@dataclass(frozen=True)
class Report:
    """What an export measured; all errors in units of the output."""

    model: str
    onnx_sha256: str
    parameters: int
    weight_bytes: int
    vectors: int
    onnx_vs_torch: float
    """largest difference, both float32"""
    bound: tuple[float, ...]
    """per output, on |fixed - real arithmetic with the same weights|, whole box"""
    observed: tuple[float, ...]
    """per output, the same on the golden vectors"""
    rms: tuple[float, ...]
    drift: tuple[float, ...]
    """per output, |integer network - float32 PyTorch| on the golden vectors"""
    vectors_sha256: str


def export(run: Path, out: Path) -> Report:
    """Write header, twin, vectors and stream to `out`, ONNX and the full vectors to `run`.

    Raises:
        NdmError: bad run, a network that cannot be quantised, or any check that fails.
    """
    policy, checkpoint = load_policy(run)
    onnx_path = run / "model.onnx"
    onnx_graph.write(policy, onnx_path, {"dataset_sha256": checkpoint.dataset_sha256})
    graph = onnx_graph.read(onnx_path)
    layers = quantize.quantize(graph.layers)
    proof = certificate.prove(layers)
    x = golden.for_model(layers, proof.inputs())
    real = x.astype(np.float64) / (1 << c.Q_INPUT)
    onnx_error = onnx_graph.check_against(policy, onnx_path, real.astype(np.float32))
    vectors = golden.compute(layers, x)
    _check_c(layers, vectors)
    fixed = vectors.out / float(1 << c.Q_PRE)
    require_alive(fixed, str(run))
    signed = fixed - quantize.real_forward(quantize.dequantize(layers), real)
    error = np.abs(signed)
    bound = quantize.error_bound(layers)
    if (error.max(axis=0) > bound).any():
        raise NdmError(
            f"{run}: the integer network is off by {error.max(axis=0)}, more than the bound {bound}"
        )
    trained = [(w.astype(np.float64), b.astype(np.float64)) for w, b in graph.layers]
    drift = np.abs(quantize.real_forward(trained, real) - fixed).max(axis=0)
    widths = [layers[0].n_in, *(layer.n_out for layer in layers)]
    config = checkpoint.config
    model = model_c.Model(
        layers,
        {
            "network": "-".join(str(w) for w in widths) + " tanh, s16 weights, Q16 outputs",
            "checkpoint": f"sha256 {files.sha256(run / MODEL)}",
            "dataset": f"sha256 {checkpoint.dataset_sha256}",
            "onnx": f"sha256 {graph.sha256}",
            "objective": f"{config.objective}, seed {config.seed}"
            + (f", inputs {list(config.mask)} masked" if config.mask else ""),
        },
    )
    write_model(model, vectors, out, proof)
    files.write_text(run / "vectors.json", _vectors_json(model, vectors))
    report = Report(
        model=model.hash(),
        onnx_sha256=graph.sha256,
        parameters=sum(layer.weight.size + layer.bias.size for layer in layers),
        weight_bytes=sum(
            layer.weight.nbytes + layer.bias.nbytes + layer.shift.nbytes for layer in layers
        ),
        vectors=len(x),
        onnx_vs_torch=onnx_error,
        bound=tuple(bound.tolist()),
        observed=tuple(error.max(axis=0).tolist()),
        rms=tuple(np.sqrt((error**2).mean(axis=0)).tolist()),
        drift=tuple(drift.tolist()),
        vectors_sha256=vectors.digest(),
    )
    files.write_text(
        run / "export.json",
        orjson.dumps(asdict(report), option=orjson.OPT_INDENT_2).decode() + "\n",
    )
    costs = sensitivity(trained, layers, real)
    files.write_text(run / "MODEL_CARD.md", model_card(report, model, proof, costs))
    files.write_text(run / "report.html", report_html.page(report, model, proof, costs, signed))
    return report


def _check_c(layers: list[Layer], vectors: golden.Vectors) -> None:
    out, pre = core.infer(layers, vectors.x)
    if not (np.array_equal(out, vectors.out) and np.array_equal(pre, vectors.pre)):
        raise NdmError("the C inference differs from fixedpoint.py: this is a defect, report it")


def write_model(
    model: model_c.Model,
    vectors: golden.Vectors,
    out: Path,
    proof: certificate.Proof | None = None,
) -> None:
    """Everything generated that the module builds from; the model's header last."""
    proof = proof or certificate.prove(model.layers)
    for name, text in generated.model_files(model, proof, vectors).items():
        files.write_text(out / name, text)


def _vectors_json(model: model_c.Model, vectors: golden.Vectors) -> str:
    data = {
        "contract": c.HASH,
        "model": model.hash(),
        "sha256": vectors.digest(),
        "inputs": vectors.x.tolist(),
        "pre": vectors.pre.tolist(),
        "outputs": vectors.out.tolist(),
    }
    return orjson.dumps(data).decode() + "\n"


def model_card(
    report: Report,
    model: model_c.Model,
    proof: certificate.Proof,
    costs: Sequence[LayerCost],
) -> str:
    """A page for whoever meets the model without its makers."""
    rows = "\n".join(
        f"| {o.name} | {model_c.upward(bound)} | {seen:.3g} | {rms:.3g} | {drift:.3g} |"
        for o, bound, seen, rms, drift in zip(
            c.OUTPUTS, report.bound, report.observed, report.rms, report.drift, strict=True
        )
    )
    notes = "\n".join(f"- {name}: {text}" for name, text in model.notes.items())
    claims = "\n".join(
        f"| {claim} | {verdict} | {proved} | {seen:.4f} | {example} |"
        for _, claim, verdict, proved, seen, example in report_html.property_rows(proof)
    )
    layers = "\n".join(
        f"| {x.layer} | {x.bits[0]} to {x.bits[1]} | "
        + " | ".join(f"{value:.3g}" for value in x.largest)
        + " |"
        for x in costs
    )
    names = " | ".join(o.name for o in c.OUTPUTS)
    return f"""# Model {report.model}

{notes}
- {report.parameters} parameters, {report.weight_bytes} bytes of weights, biases and shifts
- contract {c.HASH}, {report.vectors} golden vectors (sha256 {report.vectors_sha256})
- onnxruntime against PyTorch: at most {report.onnx_vs_torch:.3g}

| output | bound over the whole box | worst seen | RMS | against the float32 network |
|---|---|---|---|---|
{rows}

The bound compares the integers with real arithmetic on the same (quantised) weights and is proved
for every input (`ndm_certificate.json`); the last column adds what quantising the weights changed.

| claim, for every input it speaks of | verdict | proved | worst seen | at |
|---|---|---|---|---|
{claims}

Inputs in the order of the contract. Refuted: the example breaks the claim. Unknown: neither proved
nor refuted with {properties.BOXES} sub-boxes.

| only this layer quantised | fractional bits | {names} |
|---|---|---|---|
{layers}

Intended use: the ndm_tcp kernel module and research on it. Out of scope: any claim about
throughput, which only a closed loop can make.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `ndm export`."""
    parser.add_argument("run", type=Path, help="folder of a training run")
    parser.add_argument(
        "-o", "--out", type=Path, default=generated.GENERATED, help="kmod/generated"
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")


def main(args: argparse.Namespace) -> int:
    """Run `ndm export`."""
    report = export(args.run, args.out)
    if args.json:
        print(json.dumps(asdict(report), indent=2))
        return 0
    print(f"model {report.model}: {report.parameters} parameters, {report.weight_bytes} bytes")
    print(f"onnxruntime against PyTorch: at most {report.onnx_vs_torch:.2g}")
    print(f"C against specification: {report.vectors} vectors, every layer, bit for bit")
    for o, bound, seen, drift in zip(
        c.OUTPUTS, report.bound, report.observed, report.drift, strict=True
    ):
        share = 100 * bound / (o.hi - o.lo)
        print(
            f"{o.name}: |fixed - real| <= {model_c.upward(bound)} ({share:.3f} % of range), "
            f"seen {seen:.2g}; with quantised weights against float {drift:.2g}"
        )
    print(f"wrote {args.out / 'ndm_model.h'} and {args.run / 'report.html'}", file=sys.stderr)
    return 0
