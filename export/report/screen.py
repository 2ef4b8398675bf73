# SPDX-License-Identifier: GPL-2.0-only
"""The output of `ndm export`: one screen, widths for a terminal of 100 columns."""

from __future__ import annotations

from ndm_tcp import contract as c
from ndm_tcp.export.integers.model_c import upward
from ndm_tcp.export.proof import law
from ndm_tcp.export.report.facts import Report


def screen(report: Report) -> str:
    """The text for a report."""
    names = [o.name for o in c.OUTPUTS]
    lines = [
        f"model {report.model}: {report.network}, {report.parameters} parameters, "
        f"{report.weight_bytes} bytes",
        f"onnxruntime against {report.compared}: at most {report.onnx_vs_torch:.2g}",
        f"C against specification: {report.vectors} vectors, every layer, bit for bit",
    ]
    lines.append(_wrapped(f"on held-out paths: {report.held_out}".split(" "), 2, joint=" "))
    if report.fine_tuning:
        lines.append(f"fine-tuning in integers: {report.fine_tuning}")
    lines += [
        "",
        f"{'|fixed - real|':20}{'certified':>12}{'of range':>12}{'worst seen':>12}{'RMS':>12}"
        f"{'from float32':>14}",
    ]
    for o, bound, seen, rms, drift in zip(
        c.OUTPUTS, report.bound, report.observed, report.rms, report.drift, strict=True
    ):
        share = f"{upward(100 * bound / (o.hi - o.lo)):.2g} %"
        lines.append(
            f"  {o.name:18}{upward(bound):12.3g}{share:>12}{seen:12.2g}{rms:12.2g}{drift:14.2g}"
        )
    lines += ["", f"{'only quantised':20}{'bits':>12}" + "".join(f"{n:>12}" for n in names)]
    for layer in report.layers:
        bits = f"{layer.bits[0]} to {layer.bits[1]}"
        worst = "".join(f"{value:12.2g}" for value in layer.largest)
        lines.append(f"  layer {layer.layer:<12}{bits:>12}{worst}")
    lines += ["", "the window, whatever the network's outputs are (its control law)"]
    proved = [claim.name for claim in law.CLAIMS]
    lines.append(f"  proved   {len(proved):3}  {_wrapped(proved, 16)}")
    lines += ["", "the network by itself, for every input that a claim speaks of"]
    for verdict in dict.fromkeys(report.claims.values()):
        found = [name for name, v in report.claims.items() if v == verdict]
        lines.append(f"  {verdict:9}{len(found):3}  {_wrapped(found, 16)}")
    if "refuted" in report.claims.values():
        lines.append("  where a claim is refuted the control law bounds the window: report.html")
    lines += ["", report.cost.text() if report.cost else f"cost of an inference: {report.no_cost}"]
    return "\n".join(lines)


def _wrapped(words: list[str], indent: int, width: int = 100, joint: str = ", ") -> str:
    lines, line = [], ""
    for word in words:
        if line and indent + len(line) + len(word) + len(joint) > width:
            lines.append(line + joint.rstrip())
            line = word
        else:
            line = f"{line}{joint}{word}" if line else word
    return ("\n" + " " * indent).join([*lines, line])
