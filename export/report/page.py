# SPDX-License-Identifier: GPL-2.0-only
"""`report.html` of an export: one file, plots inside, to read without this project."""

from __future__ import annotations

import html
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ndm_tcp import contract as c
from ndm_tcp import fixedpoint, plots
from ndm_tcp.export.integers.model_c import Model, upward
from ndm_tcp.export.integers.quantize import Floats
from ndm_tcp.export.integers.sensitivity import LayerCost
from ndm_tcp.export.proof import certificate, law, properties

if TYPE_CHECKING:
    from ndm_tcp.export.command import Report

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; margin: 1rem 0 }
th, td { padding: .25rem .75rem; text-align: left }
th { border-bottom: 2px solid #888 } td { border-bottom: 1px solid #ccc }
td.n { text-align: right; font-variant-numeric: tabular-nums } svg { max-width: 100%; height: auto }
code { font-size: 90% }
"""


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


def property_rows(proof: certificate.Proof) -> list[tuple[object, ...]]:
    """Name, claim, verdict, proved bound, worst seen, example of every property of the network.

    First what the arithmetic by itself sees to, then what branch and bound found.
    """
    one = 1 << c.Q_PRE
    clamped = [
        [max(o.lo_q, min(o.hi_q, found.value)) for found in pair]
        for o, pair in zip(c.OUTPUTS, proof.attained[-1], strict=True)
    ]
    low, high = fixedpoint.exp2(np.array(certificate.gain_range(proof))) / one
    slow, fast = fixedpoint.exp2(np.array(clamped[0])) / one
    least, most = (share / (2 * one) for share in certificate.loss_cut(proof))
    rows: list[tuple[object, ...]] = [
        (
            "output_in_range",
            "both outputs stay within the contract's ranges",
            "proved",
            ", ".join(f"{o.name} in [{o.lo:g}, {o.hi:g}]" for o in c.OUTPUTS),
            max(abs(value) / one for value in clamped[0]),
            "",
        ),
        (
            "bounded_step",
            "a round at most doubles or halves the window (and adds a packet)",
            "proved" if low >= 0.5 and high <= 2 else "refuted",
            f"times {low:.4f} to {high:.4f}",
            float(max(fast, 1 / slow)),
            "",
        ),
        (
            "bounded_cut",
            "a loss takes at most half of the window and adds nothing",
            "proved" if least >= 0 and most <= 0.5 else "refuted",
            f"{least:.4f} to {most:.4f} of it",
            certificate.cut_share(clamped[1][1]) / (2 * one),
            "",
        ),
    ]
    for p, v in zip(properties.PROPERTIES, proof.verdicts, strict=True):
        o, sign = c.OUTPUTS[p.output], "<=" if p.sign > 0 else ">="
        bound, seen = (max(o.lo_q, min(o.hi_q, q)) / one for q in (v.bound, v.attained))
        example = ", ".join(f"{x / (1 << c.Q_INPUT):g}" for x in v.witness)
        verdict = v.verdict
        if verdict in ("refuted", "unknown"):
            verdict += f" (contained by {' and '.join(p.contained_by)})"
        rows.append((p.name, p.claim, verdict, f"{o.name} {sign} {bound:.4f}", seen, example))
    return rows


def law_rows() -> list[tuple[str, str, str, str]]:
    """Name, claim, what was gone through and how many cases, of every claim about the law."""
    return [(x.name, x.statement, x.gone_through, f"{x.cases:,}") for x in law.CLAIMS]


def page(
    report: Report,
    model: Model,
    proof: certificate.Proof,
    costs: Sequence[LayerCost],
    error: Floats,
) -> str:
    """The whole page.

    Args:
        report: what the export measured.
        model: what it wrote.
        proof: what it proved.
        costs: of each layer's quantisation.
        error: [n, 2] integer minus real network on the golden vectors.
    """
    bounds = [proof.bound(i) for i in range(c.N_OUTPUTS)]
    errors = [
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
    sizes = [
        (n, f"{layer.n_in} x {layer.n_out}", layer.weight.size + layer.bias.size,
         layer.bytes_in_c)
        for n, layer in enumerate(model.layers)
    ]  # fmt: skip
    ranges = [
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
    low, high = (float(v) / (1 << c.Q_PRE) for v in certificate.gain_range(proof))
    layer_rows = [(x.layer, f"{x.bits[0]} to {x.bits[1]}", *x.largest, *x.rms) for x in costs]
    products = sum(layer.weight.size for layer in model.layers)
    lookups = sum(layer.n_out - layer.clamped for layer in model.layers[:-1])
    cost = f"What that costs is {html.escape(report.no_cost)}."
    if report.cost is not None:
        head = ("", "ns", "ratio", "instructions")
        cost = "On the machine of this export, all in the same run, with warm caches:</p>\n"
        cost += table(head, report.cost.rows()) + f"<p>{html.escape(report.cost.note())}"
    names = [o.name for o in c.OUTPUTS]
    notes = table(("", ""), list(model.notes.items()))
    inputs = ", ".join(i.name for i in c.DENSE)
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Model {model.hash()}</title>
<style>{STYLE}</style></head><body>
<h1>Model {model.hash()}</h1>
{notes}
<p>On held-out paths: {html.escape(report.held_out)}.</p>
<h2>Fixed against real</h2>
<p>The integer network against real arithmetic on the same (quantised) weights. The bound is
proved for every input in the box; the rest was seen on {report.vectors} golden vectors. The last
column compares with the float32 network before quantisation.</p>
{table(("output", "bound", "of range", "worst seen", "RMS", "bound / seen", "drift"), errors)}
{histograms(error, bounds)}
<h2>Ranges</h2>
<p>Accumulators for every input in the box, next to what was attained (pre-activations in the
last layer). All fit s32; the first layer's ends are attained exactly. cwnd_gain lies within
[{low:.4f}, {high:.4f}]: no round changes the window by more than a factor of
{2**low:.3f} to {2**high:.3f}.</p>
{table(("layer", "lowest", "highest", "bits", "lowest found", "highest found"), ranges)}
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
{table(("property", "claim", "verdict", "proved", "worst seen", "example"), property_rows(proof))}
<h2>Quantisation, layer by layer</h2>
<p>Only this layer quantised, the others real: largest and RMS difference of each output.</p>
{
        table(
            (
                "layer",
                "fractional bits",
                *(f"{n}, largest" for n in names),
                *(f"{n}, RMS" for n in names),
            ),
            layer_rows,
        )
    }
<h2>Size and cost</h2>
{table(("layer", "in x out", "parameters", "bytes"), sizes)}
<p>An inference takes {products} multiplications and {lookups} looks into the tanh table. {cost}</p>
<p>{report.parameters} parameters, {report.weight_bytes} bytes; contract {c.HASH}; vectors sha256
<code>{report.vectors_sha256}</code>.</p>
</body></html>
"""
