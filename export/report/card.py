# SPDX-License-Identifier: GPL-2.0-only
"""The model card: a page for readers who meet the model without its makers."""

from __future__ import annotations

import json

from ndm_tcp import contract as c
from ndm_tcp.export.integers.model_c import upward
from ndm_tcp.export.integers.network import IntegerNetwork
from ndm_tcp.export.proof import certificate, law, properties
from ndm_tcp.export.report.claim_rows import law_rows, property_rows
from ndm_tcp.export.report.facts import Report


def model_card(report: Report, network: IntegerNetwork) -> str:
    """The card in Markdown."""
    rows = "\n".join(
        f"| {o.name} | {upward(bound)} | {seen:.3g} | {rms:.3g} | {drift:.3g} |"
        for o, bound, seen, rms, drift in zip(
            c.OUTPUTS, report.bound, report.observed, report.rms, report.drift, strict=True
        )
    )
    notes = "\n".join(f"- {name}: {text}" for name, text in network.model.notes.items())
    layers = "\n".join(
        f"| {x.layer} | {x.bits[0]} to {x.bits[1]} | "
        + " | ".join(f"{value:.3g}" for value in x.largest)
        + " |"
        for x in report.layers
    )
    names = " | ".join(o.name for o in c.OUTPUTS)
    tuning = f"- fine-tuning in integers: {report.fine_tuning}\n" if report.fine_tuning else ""
    cost = _cost(report)
    return f"""{front_matter(report)}
# Model {report.model}

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

{claims_text(network.proof)}
| only this layer quantised | fractional bits | {names} |
|---|---|---|---|
{layers}

{cost}

Intended use: the ndm_tcp kernel module and research on it. Out of scope: any claim about
throughput, which only a closed loop can make.
"""


def front_matter(report: Report) -> str:
    """Head for a model hub: YAML, https://huggingface.co/docs/hub/model-cards."""
    bounds = {
        f"proved bound on the integers' error of {o.name}": bound
        for o, bound in zip(c.OUTPUTS, report.bound, strict=True)
    }
    metrics = "\n".join(
        f"    - {{type: {kind}, name: {json.dumps(name)}, value: {float(f'{value:.4g}')}}}"
        for kind, group in (("held-out", report.metrics), ("proof", bounds))
        for name, value in group.items()
    )
    return f"""---
license: gpl-2.0
library_name: pytorch
tags: [tcp, congestion-control, linux-kernel, fixed-point, onnx]
model-index:
- name: ndm_tcp {report.model}
  results:
  - task: {{type: tabular-regression, name: step of the congestion window in one round}}
    dataset: {{type: ndm-tcp-rounds, name: rounds of held-out paths}}
    metrics:
{metrics}
---
"""


def _cost(report: Report) -> str:
    """Cost of an inference, as a table if it was measured."""
    if report.cost is None:
        return f"The cost of an inference is {report.no_cost}."
    return "\n".join(
        [
            "| an inference takes | ns | ratio | instructions |",
            "|---|---|---|---|",
            *(f"| {' | '.join(row)} |" for row in report.cost.rows()),
            *(["", report.cost.note()] if report.cost.note() else []),
        ]
    )


def claims_text(proof: certificate.Proof) -> str:
    """The claims in the card: about the network with its law, and by itself."""
    bounded = "\n".join(f"| `{row[0]}` | {' | '.join(row[1:])} |" for row in law_rows())
    rows = property_rows(proof)
    claims = "\n".join(
        f"| {r.claim} | {r.verdict} | {r.proved} | {r.seen:.4f} | {r.contained_by} |" for r in rows
    )
    return f"""The network's outputs reach the window through the control law (`{law.HEADERS[0]}`).
Proved of both together, for any network and in every round in which its outputs count, by
`{law.COMMAND}`:

| name | claim | gone through | cases |
|---|---|---|---|
{bounded}

The network by itself:

| claim, for every input it speaks of | verdict | proved | worst seen | contained by |
|---|---|---|---|---|
{claims}

`docs/export.md` has the situations. Refuted: the integer core breaks the claim for one input, which
`report.html` and `ndm_certificate.json` show; the claims about the control law in the last
column bound what the window does even then. Unknown: neither proved nor refuted with
{properties.BOXES} sub-boxes.
"""
