# SPDX-License-Identifier: GPL-2.0-only
"""`report.html` of an export: one file, plots inside, to read without this project."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
from markupsafe import Markup

from ndm_tcp import contract as c
from ndm_tcp import pages, plots
from ndm_tcp.export.integers.model_c import upward
from ndm_tcp.export.integers.network import IntegerNetwork
from ndm_tcp.export.integers.quantize import Floats
from ndm_tcp.export.proof import certificate, law, properties
from ndm_tcp.export.report.claim_rows import law_rows, property_rows, scales
from ndm_tcp.export.report.facts import Report

Table = tuple[Sequence[str], Sequence[Sequence[object]]]
"""titles, rows"""
ERROR_HELP = {
    "bound": "no input makes the integers differ by more",
    "of range": "the bound as a part of the output's range",
    "drift": "largest difference from the float32 network",
}


def histograms(error: Floats, bounds: Sequence[float]) -> str:
    """Signed fixed - real per output, with the certified bound, as SVG text.

    Args:
        error: [n, 2], in units of the outputs.
        bounds: per output.
    """
    from matplotlib.figure import Figure

    with plots.plain():
        figure = Figure(figsize=(9, 3), layout="constrained")
        axes = figure.subplots(1, c.N_OUTPUTS)
        for axis, o, column, bound in zip(axes, c.OUTPUTS, error.T, bounds, strict=True):
            axis.hist(column, bins=60, range=(-bound, bound), color=plots.BLUE)
            axis.set_yscale("log")
            for side in (-bound, bound):
                axis.axvline(side, color=plots.RED, linestyle="--", linewidth=1)
            axis.set_title(f"{o.name}: integer - real")
            axis.set_ylabel("golden vectors")
            axis.ticklabel_format(axis="x", style="sci", scilimits=(0, 0))
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata=plots.NO_VERSION["svg"])
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def _errors(report: Report, bounds: Sequence[float]) -> Table:
    """Bound and seen errors of the outputs."""
    head = ("output", "bound", "of range", "worst seen", "RMS", "bound / seen", "drift")
    rows = [
        (
            o.name,
            upward(bound),
            f"{upward(100 * bound / (o.hi - o.lo)):g} %",
            seen,
            rms,
            bound / seen if seen else float("inf"),
            drift,
        )
        for o, bound, seen, rms, drift in zip(
            c.OUTPUTS, bounds, report.observed, report.rms, report.drift, strict=True
        )
    ]
    return head, rows


def _ranges(network: IntegerNetwork) -> Table:
    """Accumulators of every layer: proved and attained."""
    proof = network.proof
    rows = [
        (
            number,
            min(row.accumulator[0] for row in rows),
            max(row.accumulator[1] for row in rows),
            float(np.log2(max(max(-row.accumulator[0], row.accumulator[1]) for row in rows))),
            min(pair[0].value for pair in pairs),
            max(pair[1].value for pair in pairs),
        )
        for number, (rows, pairs) in enumerate(zip(proof.rows, proof.attained, strict=True))
    ]
    return ("layer", "lowest", "highest", "bits", "lowest found", "highest found"), rows


def _layers(report: Report) -> Table:
    """Cost of quantising each layer."""
    names = [o.name for o in c.OUTPUTS]
    largest, rms = ([f"{n}, {kind}" for n in names] for kind in ("largest", "RMS"))
    rows = [(x.layer, f"{x.bits[0]} to {x.bits[1]}", *x.largest, *x.rms) for x in report.layers]
    return ("layer", "fractional bits", *largest, *rms), rows


def _sizes(network: IntegerNetwork) -> Table:
    """Shape and size of every layer."""
    rows = [
        (n, f"{layer.n_in} x {layer.n_out}", layer.weight.size + layer.bias.size, layer.bytes_in_c)
        for n, layer in enumerate(network.layers)
    ]
    return ("layer", "in x out", "parameters", "bytes"), rows


def _cost_note(report: Report) -> str:
    return f"The cost is {report.no_cost}." if report.cost is None else report.cost.note()


def page(report: Report, network: IntegerNetwork) -> str:
    """The whole page: results of the export for the network that it wrote."""
    bounds = [network.proof.bound(i) for i in range(c.N_OUTPUTS)]
    low, high = (float(v) / (1 << c.Q_PRE) for v in certificate.gain_range(network.proof))
    slowest, fastest = scales(certificate.gain_range(network.proof))
    claims = property_rows(network.proof)
    return pages.render(
        "report.html.j2",
        title=f"Model {network.model.hash()}",
        notes=network.model.notes,
        held_out=report.held_out,
        vectors=report.vectors,
        errors=_errors(report, bounds),
        error_help=ERROR_HELP,
        histogram=Markup(histograms(network.error, bounds)),
        low=low,
        high=high,
        slowest=slowest,
        fastest=fastest,
        ranges=_ranges(network),
        law_command=law.COMMAND,
        law=law_rows(),
        boxes=properties.BOXES,
        claims=[row.told() for row in claims],
        inputs=[i.name for i in c.DENSE],
        examples=[(row.name, *row.example) for row in claims if row.example],
        layers=_layers(report),
        sizes=_sizes(network),
        products=sum(layer.weight.size for layer in network.layers),
        lookups=sum(layer.n_out - layer.clamped for layer in network.layers[:-1]),
        cost=report.cost.rows() if report.cost else [],
        cost_note=_cost_note(report),
        parameters=report.parameters,
        weight_bytes=report.weight_bytes,
        contract=c.HASH,
        vectors_sha256=report.vectors_sha256,
    )
