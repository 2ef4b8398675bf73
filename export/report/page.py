# SPDX-License-Identifier: GPL-2.0-only
"""`report.html` of an export: one file, plots inside, to read without this project."""

from __future__ import annotations

import html
import io
from collections.abc import Sequence

import numpy as np

from ndm_tcp import contract as c
from ndm_tcp import plots
from ndm_tcp.export.integers.model_c import upward
from ndm_tcp.export.integers.network import IntegerNetwork
from ndm_tcp.export.integers.quantize import Floats
from ndm_tcp.export.proof import certificate, law, properties
from ndm_tcp.export.report.claim_rows import law_rows, property_rows
from ndm_tcp.export.report.facts import Report

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; margin: 1rem 0 }
th, td { padding: .25rem .75rem; text-align: left }
th { border-bottom: 2px solid #888 } td { border-bottom: 1px solid #ccc }
td.n { text-align: right; font-variant-numeric: tabular-nums } svg { max-width: 100%; height: auto }
code { font-size: 90% }
"""


CLAIM = ("property", "claim", "verdict", "proved", "worst seen", "example")


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """An HTML table; floats and integers are set right."""

    def cell(value: object) -> str:
        if isinstance(value, float):
            return f'<td class="n">{value:.3g}</td>'
        if isinstance(value, int):
            return f'<td class="n">{value}</td>'
        return f"<td>{html.escape(str(value))}</td>"

    top = "".join(f"<th>{html.escape(name)}</th>" for name in head)
    body = "\n".join("<tr>" + "".join(map(cell, row)) + "</tr>" for row in rows)
    return f"<table>\n<tr>{top}</tr>\n{body}\n</table>"


def histograms(error: Floats, bounds: Sequence[float]) -> str:
    """Signed fixed - real per output, with the certified bound, as SVG text.

    Args:
        error: [n, 2], in units of the outputs.
        bounds: per output.
    """
    from matplotlib.figure import Figure

    with plots.plain({"svg.hashsalt": "ndm", "svg.fonttype": "path", "font.size": 9}):
        figure = Figure(figsize=(9, 3), layout="constrained")
        axes = figure.subplots(1, c.N_OUTPUTS)
        for axis, o, column, bound in zip(axes, c.OUTPUTS, error.T, bounds, strict=True):
            axis.hist(column, bins=60, range=(-bound, bound), color="#456990")
            axis.set_yscale("log")
            for side in (-bound, bound):
                axis.axvline(side, color="#b33", linestyle="--", linewidth=1)
            axis.set_title(f"{o.name}: fixed - real")
            axis.set_ylabel("golden vectors")
            axis.ticklabel_format(axis="x", style="sci", scilimits=(0, 0))
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata=plots.NO_VERSION["svg"])
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def _errors(report: Report, bounds: Sequence[float]) -> str:
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
    return table(head, rows)


def _ranges(network: IntegerNetwork) -> str:
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
    return table(("layer", "lowest", "highest", "bits", "lowest found", "highest found"), rows)


def _layers(report: Report) -> str:
    """What quantising each layer costs."""
    names = [o.name for o in c.OUTPUTS]
    head = (
        "layer",
        "fractional bits",
        *(f"{n}, largest" for n in names),
        *(f"{n}, RMS" for n in names),
    )
    rows = [(x.layer, f"{x.bits[0]} to {x.bits[1]}", *x.largest, *x.rms) for x in report.layers]
    return table(head, rows)


def _sizes(network: IntegerNetwork) -> str:
    """Shape and size of every layer."""
    rows = [
        (n, f"{layer.n_in} x {layer.n_out}", layer.weight.size + layer.bias.size, layer.bytes_in_c)
        for n, layer in enumerate(network.layers)
    ]
    return table(("layer", "in x out", "parameters", "bytes"), rows)


def _cost(report: Report) -> str:
    """What an inference takes, if it was measured."""
    if report.cost is None:
        return f"What that costs is {html.escape(report.no_cost)}."
    head = ("", "ns", "ratio", "instructions")
    cost = "On the machine of this export, all in the same run, with warm caches:</p>\n"
    return cost + table(head, report.cost.rows()) + f"<p>{html.escape(report.cost.note())}"


def page(report: Report, network: IntegerNetwork) -> str:
    """The whole page: what the export measured of the network that it wrote."""
    bounds = [network.proof.bound(i) for i in range(c.N_OUTPUTS)]
    low, high = (float(v) / (1 << c.Q_PRE) for v in certificate.gain_range(network.proof))
    products = sum(layer.weight.size for layer in network.layers)
    lookups = sum(layer.n_out - layer.clamped for layer in network.layers[:-1])
    cost = _cost(report)
    notes = table(("", ""), list(network.model.notes.items()))
    inputs = ", ".join(i.name for i in c.DENSE)
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Model {network.model.hash()}</title>
<style>{STYLE}</style></head><body>
<h1>Model {network.model.hash()}</h1>
{notes}
<p>On held-out paths: {html.escape(report.held_out)}.</p>
<h2>Fixed against real</h2>
<p>The integer network against real arithmetic on the same (quantised) weights. The bound is
proved for every input in the box; the rest was seen on {report.vectors} golden vectors. The last
column compares with the float32 network before quantisation.</p>
{_errors(report, bounds)}
{histograms(network.error, bounds)}
<h2>Ranges</h2>
<p>Accumulators for every input in the box, next to what was attained (pre-activations in the
last layer). All fit s32; the first layer's ends are attained exactly. cwnd_gain lies within
[{low:.4f}, {high:.4f}]: no round changes the window by more than a factor of
{2**low:.3f} to {2**high:.3f}.</p>
{_ranges(network)}
<h2>What the window does, for any network</h2>
<p>Proved of the network together with its control law (<code>ndm_control.h</code>), whatever the
network's outputs are, in every round in which they count. <code>{html.escape(law.COMMAND)}</code>
goes through all of these cases.</p>
{table(("name", "claim", "gone through", "cases"), law_rows())}
<h2>What the network does by itself</h2>
<p>For every input that a claim speaks of; outputs are clamped ones. Over the inputs {inputs};
examples in that order. Refuted means that the example, computed by the integer core, breaks the
claim; the claims about the control law that are named then bound what the window does.
Unknown: neither proved nor refuted with {properties.BOXES} sub-boxes.</p>
{table(CLAIM, property_rows(network.proof))}
<h2>Quantisation, layer by layer</h2>
<p>Only this layer quantised, the others real: largest and RMS difference of each output.</p>
{_layers(report)}
<h2>Size and cost</h2>
{_sizes(network)}
<p>An inference takes {products} multiplications and {lookups} looks into the tanh table. {cost}</p>
<p>{report.parameters} parameters, {report.weight_bytes} bytes; contract {c.HASH}; vectors sha256
<code>{report.vectors_sha256}</code>.</p>
</body></html>
"""
