# SPDX-License-Identifier: GPL-2.0-only
"""`ndm export`: checkpoint -> ONNX -> integers -> C header, golden vectors, model card.

A training run or an ONNX file of another framework; from ONNX on the way is the same.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import orjson

from ndm_tcp import contract as c
from ndm_tcp import core, files
from ndm_tcp.datasets.disk import store
from ndm_tcp.errors import NdmError
from ndm_tcp.export import judge
from ndm_tcp.export.integers import generated, golden, model_c, qat, quantize, speed
from ndm_tcp.export.integers.sensitivity import LayerCost, require_alive, sensitivity
from ndm_tcp.export.onnx import reader, writer
from ndm_tcp.export.proof import certificate, law, properties
from ndm_tcp.export.report import chosen, page, screen
from ndm_tcp.fixedpoint import Layer
from ndm_tcp.training import derived
from ndm_tcp.training.checkpoint import MODEL, load_policy

EXAMPLE = """example:
  ndm export out/run                       # headers in out/run/generated, reports in out/run
  ndm export policy.onnx                   # of any framework; everything in policy.export
  cp -r kmod out/kmod && ndm export out/run -o out/kmod/generated   # a module with that network
  ndm export out/run --shipped             # replace the network of this checkout
  ndm export out/run --measure             # nanoseconds and instructions into the report"""

QAT_ROUNDS = 20_000
"""Rounds of a dataset that fine-tuning looks at, at most."""
NOT_MEASURED = "not measured: ndm export --measure does"
MEASURED_ROUNDS, MEASURED = 5, 100_000
"""Turns, and inferences in a turn, of a measurement that takes a few seconds."""


@dataclass(frozen=True)
class Report:
    """What an export measured; all errors in units of the output."""

    model: str
    network: str
    onnx_sha256: str
    parameters: int
    weight_bytes: int
    vectors: int
    compared: str
    """what onnxruntime was compared with"""
    onnx_vs_torch: float
    """largest difference"""
    bound: tuple[float, ...]
    """per output, on |fixed - real arithmetic with the same weights|, whole box"""
    observed: tuple[float, ...]
    """per output, the same on the golden vectors"""
    rms: tuple[float, ...]
    drift: tuple[float, ...]
    """per output, |integer network - float32 PyTorch| on the golden vectors"""
    vectors_sha256: str
    held_out: str
    """what rounds that it never saw say of it"""
    fine_tuning: str | None = None
    """what it did to |fixed - float| on inputs that it did not learn from"""
    layers: tuple[LayerCost, ...] = ()
    claims: dict[str, str] = field(default_factory=dict)
    """name and verdict of every property of the network"""
    law: dict[str, str] = field(default_factory=dict)
    """the same of the claims about its control law, which hold for any network"""
    cost: speed.Speed | None = None
    """of an inference, if it was measured"""
    no_cost: str = ""
    """why it was not"""


@dataclass(frozen=True)
class Source:
    """A network in real numbers, and where it comes from."""

    what: Path
    graph: reader.Graph
    notes: dict[str, str]
    compare: Callable[[npt.NDArray[np.float32]], float]
    """onnxruntime on the ONNX file against ... on inputs [n, dense]"""
    compared: str
    """... in words"""
    folder: Path
    """where the reports go"""
    held_out: judge.Judgement


def from_run(run: Path, even_if_worse: bool) -> Source:
    """The network of a training run, by way of ONNX.

    Raises:
        NdmError: bad run, or not fit; see `judge`.
    """
    policy, checkpoint = load_policy(run)
    held_out = judge.require(run, even_if_worse)
    path = run / "model.onnx"
    writer.write(policy, path, {"dataset_sha256": checkpoint.dataset_sha256})
    graph = writer.read(path)
    config = checkpoint.config
    notes = {
        "checkpoint": f"sha256 {files.sha256(run / MODEL)}",
        "dataset": f"sha256 {checkpoint.dataset_sha256}",
        "onnx": f"sha256 {graph.sha256}",
        "objective": f"{config.objective}, seed {config.seed}"
        + (", split by path" if config.split_by == "path" else "")
        + (f", inputs {list(config.mask)} masked" if config.mask else ""),
    }
    if config.freeze:
        notes["frozen"] = f"{', '.join(config.freeze)} of {config.init}"
    if not held_out.fit:
        notes["held out"] = held_out.text
    return Source(
        run,
        graph,
        notes,
        lambda x: writer.check_against(policy, path, x),
        "PyTorch",
        run,
        held_out,
    )


def from_file(path: Path) -> Source:
    """The network of an ONNX file that anything may have made.

    Raises:
        NdmError: it cannot be carried into the integer core.
    """
    graph = reader.read(path, "ndm export FILE.onnx")
    notes = {
        "onnx": f"sha256 {graph.sha256}",
        "made by": graph.producer,
        "contract": "named in the file"
        if graph.contract
        else "not named in the file, taken on trust",
    }
    return Source(
        path,
        graph,
        notes,
        lambda x: writer.compare(graph, path, x),
        "the layers read from the file",
        path.with_suffix(".export"),
        judge.Judgement("not judged: an ONNX file carries no metrics", True),
    )


def dataset_inputs(folder: Path) -> npt.NDArray[np.int16]:
    """[n, dense]: at most `QAT_ROUNDS` inputs of a dataset, evenly spread.

    Raises:
        NdmError: not a dataset of this contract.
    """
    x = derived.dense(store.load(folder).rounds)
    return x[:: max(1, len(x) // QAT_ROUNDS)]


def folder_of(what: Path) -> Path:
    """Where the reports of an export go: into the run, or beside the ONNX file."""
    return what.with_suffix(".export") if _is_onnx(what) else what


def _is_onnx(what: Path) -> bool:
    return what.suffix == ".onnx" or what.is_file()


def export(
    what: Path,
    out: Path,
    qat_data: Path | None = None,
    measure: bool = False,
    even_if_worse: bool = True,
) -> Report:
    """Write header, twin, vectors and stream to `out`, the full vectors and reports beside `what`.

    Args:
        what: folder of a training run, or an ONNX file.
        out: the folder of the generated files, such as `generated` of a copy of kmod.
        qat_data: a dataset on whose inputs, beside golden ones, to try fine-tuning in integers.
        measure: time an inference, too; the report is then another one every time.
        even_if_worse: export a run that on held-out paths does not beat holding the window still,
            and say so in card and report; the command line refuses it by default.

    Raises:
        NdmError: bad run or file, a run that is not fit (`judge`), a network that cannot be
            quantised, or any check that fails.
    """
    source = from_file(what) if _is_onnx(what) else from_run(what, even_if_worse)
    graph, folder = source.graph, source.folder
    try:
        layers = quantize.quantize(graph.layers)
    except NdmError as reason:
        raise NdmError(f"{what}: {reason}") from None
    notes = dict(source.notes)
    choice = None
    if qat_data is not None:
        inputs = np.concatenate([golden.inputs(), dataset_inputs(qat_data)])
        # Corners lie in order: of every second one the last input would be at one end.
        inputs = np.random.default_rng(qat.SEED).permutation(inputs)
        choice = qat.fine_tune(layers, graph.layers, inputs[::2], inputs[1::2])
        layers = choice.layers
        if choice.tuned:
            notes["quantisation"] = "fine-tuned in integers"
    try:
        proof = certificate.prove(layers)
        certificate.require_open(proof, graph.open)
    except NdmError as reason:
        raise NdmError(f"{what}: {reason}") from None
    x = golden.for_model(layers, proof.inputs())
    real = x.astype(np.float64) / (1 << c.Q_INPUT)
    onnx_error = source.compare(real.astype(np.float32))
    vectors = golden.compute(layers, x)
    _check_c(layers, vectors)
    fixed = vectors.out / float(1 << c.Q_PRE)
    require_alive(fixed, str(what))
    signed = fixed - quantize.real_forward(quantize.dequantize(layers), real)
    error = np.abs(signed)
    bound = quantize.error_bound(layers)
    if (error.max(axis=0) > bound).any():
        raise NdmError(
            f"{what}: the integers are off by {error.max(axis=0)}, more than the bound {bound}"
        )
    drift = np.abs(quantize.real_forward(graph.layers, real) - fixed).max(axis=0)
    widths = [layers[0].n_in, *(layer.n_out for layer in layers)]
    network = f"{'-'.join(str(w) for w in widths)} {_units(layers)}, s16 weights, Q16 outputs"
    model = model_c.Model(layers, {"network": network, **notes})
    write_model(model, vectors, out, proof)
    files.write_text(folder / "vectors.json", _vectors_json(model, vectors))
    costs = sensitivity(graph.layers, layers, real)
    cost, no_cost = _cost(layers, out) if measure else (None, NOT_MEASURED)
    report = Report(
        model=model.hash(),
        network=network,
        onnx_sha256=graph.sha256,
        parameters=sum(layer.weight.size + layer.bias.size for layer in layers),
        weight_bytes=sum(layer.bytes_in_c for layer in layers),
        vectors=len(x),
        compared=source.compared,
        onnx_vs_torch=onnx_error,
        bound=tuple(bound.tolist()),
        observed=tuple(error.max(axis=0).tolist()),
        rms=tuple(np.sqrt((error**2).mean(axis=0)).tolist()),
        drift=tuple(drift.tolist()),
        vectors_sha256=vectors.digest(),
        held_out=source.held_out.text,
        fine_tuning=choice.text() if choice else None,
        layers=tuple(costs),
        claims={str(row[0]): str(row[2]).split()[0] for row in page.property_rows(proof)},
        law={claim.name: "proved" for claim in law.CLAIMS},
        cost=cost,
        no_cost=no_cost,
    )
    files.write_text(
        folder / "export.json",
        orjson.dumps(asdict(report), option=orjson.OPT_INDENT_2).decode() + "\n",
    )
    card = model_card(report, model, proof, costs) + chosen.text(folder)
    files.write_text(folder / "MODEL_CARD.md", card)
    files.write_text(folder / "report.html", page.page(report, model, proof, costs, signed))
    return report


def _cost(layers: list[Layer], headers: Path) -> tuple[speed.Speed | None, str]:
    """What an inference costs, or why nobody knows."""
    try:
        return speed.measure(layers, headers, MEASURED_ROUNDS, MEASURED), ""
    except NdmError as error:
        return None, f"not measured: {error}"


def _units(layers: list[Layer]) -> str:
    """What the hidden units are."""
    clamped = [layer.clamped for layer in layers[:-1]]
    if not any(clamped):
        return "tanh"
    bent = [layer.n_out - layer.clamped for layer in layers[:-1]]
    return "clamped" if not any(bent) else f"tanh, the last {'-'.join(map(str, clamped))} clamped"


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
    layers = "\n".join(
        f"| {x.layer} | {x.bits[0]} to {x.bits[1]} | "
        + " | ".join(f"{value:.3g}" for value in x.largest)
        + " |"
        for x in costs
    )
    names = " | ".join(o.name for o in c.OUTPUTS)
    tuning = f"- fine-tuning in integers: {report.fine_tuning}\n" if report.fine_tuning else ""
    cost = f"The cost of an inference is {report.no_cost}."
    if report.cost is not None:
        cost = "\n".join(
            [
                "| an inference takes | ns | ratio | instructions |",
                "|---|---|---|---|",
                *(f"| {' | '.join(row)} |" for row in report.cost.rows()),
                *(["", report.cost.note()] if report.cost.note() else []),
            ]
        )
    return f"""# Model {report.model}

{notes}
- {report.parameters} parameters, {report.weight_bytes} bytes of weights, biases and shifts
- contract {c.HASH}, {report.vectors} golden vectors (sha256 {report.vectors_sha256})
- onnxruntime against {report.compared}: at most {report.onnx_vs_torch:.3g}
- on held-out paths: {report.held_out}
{tuning}
| output | bound over the whole box | worst seen | RMS | against the float32 network |
|---|---|---|---|---|
{rows}

The bound compares the integers with real arithmetic on the same (quantised) weights and is proved
for every input (`ndm_certificate.json`); the last column adds what quantising the weights changed.

{claims_text(proof)}
| only this layer quantised | fractional bits | {names} |
|---|---|---|---|
{layers}

{cost}

Intended use: the ndm_tcp kernel module and research on it. Out of scope: any claim about
throughput, which only a closed loop can make.
"""


def claims_text(proof: certificate.Proof) -> str:
    """The part of the card about what is proved, of the network with its law and by itself."""
    bounded = "\n".join(f"| `{row[0]}` | {' | '.join(row[1:])} |" for row in page.law_rows())
    claims = "\n".join(
        f"| {claim} | {verdict} | {proved} | {seen:.4f} | {example} |"
        for _, claim, verdict, proved, seen, example in page.property_rows(proof)
    )
    return f"""The network's outputs reach the window through the control law (`{law.HEADERS[0]}`).
Proved of both together, for any network and in every round in which its outputs count, by
`{law.COMMAND}`:

| name | claim | gone through | cases |
|---|---|---|---|
{bounded}

The network by itself:

| claim, for every input it speaks of | verdict | proved | worst seen | at |
|---|---|---|---|---|
{claims}

Inputs in the order of the contract, outputs clamped; `docs/export.md` has the boxes. Refuted: the
example, computed by the integer core, breaks the claim, and the claims about the law that are
named bound what the window then does. Unknown: neither proved nor refuted with
{properties.BOXES} sub-boxes.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `ndm export`."""
    parser.add_argument(
        "what", metavar="RUN", type=Path, help="folder of a training run, or an ONNX file"
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "-o",
        "--out",
        type=Path,
        help="folder of headers and vectors (default: RUN/generated, or FILE.export/generated)",
    )
    where.add_argument(
        "--shipped",
        dest="out",
        action="store_const",
        const=generated.GENERATED,
        help="replace the network of this checkout: -o kmod/generated",
    )
    parser.add_argument(
        judge.OVERRIDE,
        action="store_true",
        help="export a run that on held-out paths does not beat holding the window still",
    )
    parser.add_argument(
        "--qat",
        metavar="DATASET",
        type=Path,
        help="try fine-tuning in integers on the inputs of a dataset; the better network counts",
    )
    parser.add_argument(
        "--measure",
        action="store_true",
        help="time an inference beside float C and onnxruntime, count instructions (seconds)",
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")


def main(args: argparse.Namespace) -> int:
    """Run `ndm export`."""
    if args.out == generated.GENERATED and not (generated.ROOT / "Makefile").is_file():
        raise NdmError(
            "--shipped: this is no checkout, but an installed package; name a folder: -o"
        )
    out = args.out or folder_of(args.what) / "generated"
    report = export(args.what, out, args.qat, args.measure, args.even_if_worse)
    if args.json:
        print(json.dumps(asdict(report), indent=2))
        return 0
    print(screen.screen(report))
    print(
        f"wrote {out / 'ndm_model.h'} and {folder_of(args.what) / 'report.html'}", file=sys.stderr
    )
    return 0
