# SPDX-License-Identifier: GPL-2.0-only
"""Checkpoint -> ONNX -> integers -> C header, golden vectors, model card.

A training run or an ONNX file of another framework; from ONNX on the way is the same.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import numpy as np
import numpy.typing as npt
import orjson

from ndm_tcp import contract as c
from ndm_tcp import files
from ndm_tcp.datasets.store import store
from ndm_tcp.errors import NdmError
from ndm_tcp.export import source
from ndm_tcp.export.integers import blob, generated, golden, qat, quantize, speed
from ndm_tcp.export.integers.network import IntegerNetwork, shape_of
from ndm_tcp.export.integers.sensitivity import require_alive, sensitivity
from ndm_tcp.export.proof import certificate, law
from ndm_tcp.export.report import card, chosen, page
from ndm_tcp.export.report.claim_rows import property_rows
from ndm_tcp.export.report.facts import Report
from ndm_tcp.export.source import Source
from ndm_tcp.training import derived

QAT_ROUNDS = 20_000
"""Rounds of a dataset that fine-tuning looks at, at most."""
NOT_MEASURED = "not measured: ndm export --measure does"
MEASURED_ROUNDS, MEASURED = 5, 100_000
"""Turns, and inferences in a turn, of a measurement that takes a few seconds."""


def dataset_inputs(folder: Path) -> npt.NDArray[np.int16]:
    """[n, dense]: at most `QAT_ROUNDS` inputs of a dataset, evenly spread.

    Raises:
        NdmError: not a dataset of this contract.
    """
    x = derived.dense(store.load(folder).rounds)
    return x[:: max(1, -(-len(x) // QAT_ROUNDS))]


def export(
    what: Path,
    out: Path,
    qat_data: Path | None = None,
    measure: bool = False,
    even_if_worse: bool = True,
    reports: bool = True,
) -> Report:
    """Write header, twin, vectors and stream to `out`; blob, all vectors, reports beside `what`.

    Args:
        what: folder of a training run, or an ONNX file.
        out: the folder of the generated files, such as `generated` of a copy of kmod.
        qat_data: a dataset on whose inputs, beside golden ones, to try fine-tuning in integers.
        measure: time an inference, too; the report is then another one every time.
        even_if_worse: export a run that on held-out paths does not beat a constant window,
            and state that in card and report; the command line refuses it by default.
        reports: write blob, vectors and reports, too.

    Raises:
        NdmError: bad run or file, a run that is not fit (`judge`), a network that cannot be
            quantised, or any check that fails.
    """
    given = source.read(what, even_if_worse)
    network, choice = integers(given, qat_data)
    onnx_error = given.compare(network.inputs.astype(np.float32))
    require_sound(network, what)
    generated.write(network, out)
    cost, no_cost = _cost(network, out) if measure else (None, NOT_MEASURED)
    report = Report(
        model=network.model.hash(),
        network=network.model.notes["network"],
        onnx_sha256=given.graph.sha256,
        parameters=network.parameters,
        weight_bytes=network.bytes_in_c,
        vectors=len(network.trace.x),
        compared=given.compared,
        onnx_vs_torch=onnx_error,
        bound=tuple(network.bound.tolist()),
        **_errors(network, given),
        vectors_sha256=network.trace.digest(),
        held_out=given.held_out.text,
        metrics=given.metrics,
        fine_tuning=choice.text() if choice else None,
        layers=tuple(sensitivity(given.graph.layers, network.layers, network.inputs)),
        claims={row.name: row.verdict for row in property_rows(network.proof)},
        law={claim.name: "proved" for claim in law.CLAIMS},
        cost=cost,
        no_cost=no_cost,
    )
    if reports:
        blob.write(network, given.folder / blob.NAME)
        files.write_text(given.folder / "vectors.json", _vectors_json(network))
        write_reports(report, network, given.folder)
    return report


def integers(given: Source, qat_data: Path | None) -> tuple[IntegerNetwork, qat.Choice | None]:
    """A network in integers, proved, and what fine-tuning did if a dataset for it is named.

    Raises:
        NdmError: it cannot be quantised, or nothing can be proved of it.
    """
    real, choice = given.graph.layers, None
    try:
        layers = quantize.quantize(real)
    except NdmError as reason:
        raise NdmError(f"{given.what}: {reason}") from None
    notes = dict(given.notes)
    if qat_data is not None:
        inputs = np.concatenate([golden.inputs(), dataset_inputs(qat_data)])
        # Corners lie in order: of every second one the last input would be at one end.
        inputs = np.random.default_rng(qat.SEED).permutation(inputs)
        choice = qat.fine_tune(layers, real, inputs[::2], inputs[1::2])
        layers = choice.layers
        if choice.tuned:
            notes["quantisation"] = "fine-tuned in integers"
    network = IntegerNetwork.of(layers, **{"network": shape_of(layers), **notes})
    try:
        certificate.require_open(network.proof, given.graph.open)
    except NdmError as reason:
        raise NdmError(f"{given.what}: {reason}") from None
    return network, choice


def require_sound(network: IntegerNetwork, what: Path) -> None:
    """Refuse a network whose integers differ in C, are constant, or pass their bound.

    Raises:
        NdmError: which of them.
    """
    if not network.same_in_c():
        raise NdmError("the C inference differs from fixedpoint.py: this is a defect, report it")
    require_alive(network.outputs, str(what))
    error = np.abs(network.error).max(axis=0)
    if (error > network.bound).any():
        raise NdmError(
            f"{what}: the integers are off by {error}, more than the bound {network.bound}: "
            "this is a defect, report it"
        )


def _errors(network: IntegerNetwork, given: Source) -> dict[str, tuple[float, ...]]:
    """Per output: largest and RMS error against the same weights, largest against the source's."""
    error = np.abs(network.error)
    drift = np.abs(quantize.real_forward(given.graph.layers, network.inputs) - network.outputs)
    return {
        "observed": tuple(error.max(axis=0).tolist()),
        "rms": tuple(np.sqrt((error**2).mean(axis=0)).tolist()),
        "drift": tuple(drift.max(axis=0).tolist()),
    }


def write_reports(report: Report, network: IntegerNetwork, folder: Path) -> None:
    """`export.json`, the model card and the page."""
    data = orjson.dumps(asdict(report), option=orjson.OPT_INDENT_2).decode()
    files.write_text(folder / "export.json", data + "\n")
    text = card.model_card(report, network) + chosen.text(folder, network.model.hash())
    files.write_text(folder / "MODEL_CARD.md", text)
    files.write_text(folder / "report.html", page.page(report, network))


def _cost(network: IntegerNetwork, headers: Path) -> tuple[speed.Speed | None, str]:
    """Cost of an inference, or why it was not measured."""
    try:
        return speed.measure(network, headers, MEASURED_ROUNDS, MEASURED), ""
    except NdmError as error:
        return None, f"not measured: {error}"


def _vectors_json(network: IntegerNetwork) -> str:
    vectors = network.trace
    data = {
        "contract": c.HASH,
        "model": network.model.hash(),
        "sha256": vectors.digest(),
        "inputs": np.ascontiguousarray(vectors.x),
        "pre": np.ascontiguousarray(vectors.pre),
        "outputs": np.ascontiguousarray(vectors.out),
    }
    return orjson.dumps(data, option=orjson.OPT_SERIALIZE_NUMPY).decode() + "\n"
