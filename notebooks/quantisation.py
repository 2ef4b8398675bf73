# ---
# jupyter:
#   jupytext:
#     formats: py:percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# SPDX-License-Identifier: GPL-2.0-only

# %% [markdown]
# # The cost of the integers
#
# The kernel cannot run floating point, so it runs s16 weights and tables. This notebook compares
# the exported integers with the trained float32 network on every recorded round, and lists the
# proofs.

# %%
import figures as f
import matplotlib.pyplot as plt
import numpy as np

from ndm_tcp import contract, fixedpoint
from ndm_tcp.export.integers import quantize
from ndm_tcp.export.integers.sensitivity import sensitivity
from ndm_tcp.export.onnx import writer
from ndm_tcp.export.proof import certificate, law, properties
from ndm_tcp.export.report.claim_rows import property_rows
from ndm_tcp.training import derived

policy, checkpoint, table = f.load()
graph = writer.read(f.RUN / "model.onnx")
layers = quantize.quantize(graph.layers)
x_int = derived.dense(table)
x_int = x_int[table["valid"].to_numpy(zero_copy_only=False)].astype(np.int64)
x = x_int / (1 << contract.Q_INPUT)
fixed = fixedpoint.forward(layers, x_int).outputs / (1 << contract.Q_PRE)
same = quantize.real_forward(quantize.dequantize(layers), x)
trained = f.outputs(policy, x)
proof = certificate.prove(layers)
print(f"{len(x)} rounds, {sum(a.weight.size + a.bias.size for a in layers)} parameters")

# %% [markdown]
# ## Two causes of error
#
# Arithmetic is the first: integers against real arithmetic on the same, rounded weights. The
# certificate bounds it for every input. Rounding of the weights is the second: it adds the rest of
# the difference to the trained network.

# %%
figure, panels = plt.subplots(1, 2, figsize=(9, 3.2))
for k, (panel, output) in enumerate(zip(panels, contract.OUTPUTS, strict=True)):
    arithmetic, all_in = fixed[:, k] - same[:, k], fixed[:, k] - trained[:, k]
    bound = proof.bound(k)
    top = 1.05 * max(bound, np.abs(all_in).max())
    bins = np.linspace(-top, top, 121)
    panel.hist(all_in, bins, color=f.ORANGE, label="against the trained network")
    panel.hist(arithmetic, bins, color=f.BLUE, alpha=0.75, label="arithmetic alone")
    for side in (-1, 1):
        panel.axvline(side * bound, color="k", ls="--", lw=1)
    panel.plot([], [], color="k", ls="--", lw=1, label="proved bound of the arithmetic")
    unit = ("log2", "logit")[k]
    panel.set(yscale="log", xlabel=f"error of {output.name} ({unit})", ylabel="rounds")
    panel.ticklabel_format(axis="x", style="sci", scilimits=(0, 0))
    share = 100 * bound / (output.hi - output.lo)
    print(
        f"{output.name}: arithmetic at most {np.abs(arithmetic).max():.2g} seen, {bound:.2g} "
        f"proved ({share:.3f} % of its range); against the trained network at most "
        f"{np.abs(all_in).max():.2g}, RMS {np.sqrt((all_in**2).mean()):.2g}"
    )
labels = panels[0].get_legend_handles_labels()
figure.legend(*labels, fontsize=8, loc="outside lower center", ncols=3)
figure.suptitle("Errors of the integers on recorded rounds")
f.save(figure, "quantisation")

# %% [markdown]
# ## Float in place of fixed
#
# The effect of the difference: a window of 1,000 packets after one round of either, and the number
# of losses for which the two disagree on the cause.

# %%
windows = 1000 * 2 ** np.stack([fixed[:, 0], trained[:, 0]])
apart = np.abs(windows[0] - windows[1])
differ = (fixed[:, 1] > 0) != (trained[:, 1] > 0)
figure, axes = plt.subplots(figsize=(5, 3.2))
axes.plot(np.sort(apart), 100 * np.arange(1, len(apart) + 1) / len(apart), color=f.BLUE)
axes.set(xlabel="difference of the next window (packets of 1,000)", ylabel="rounds (%)")
axes.set(title="Float or fixed: the window is the same", ylim=(0, 101))
f.save(figure, "float_or_fixed")
print(
    f"Of 1,000 packets, the windows differ by {np.median(apart):.2f} in the median round and by "
    f"{apart.max():.2f} at most; the cause is judged differently in "
    f"{differ.sum()} of {len(x)} rounds."
)

# %% [markdown]
# ## Which layer costs most
#
# One layer's weights rounded, the others real.

# %%
costs = sensitivity(graph.layers, layers, x)
print(f"{'layer':>5}{'fractional bits':>18}" + "".join(f"{o.name:>16}" for o in contract.OUTPUTS))
for cost in costs:
    text = f"{cost.layer:5}{f'{cost.bits[0]} to {cost.bits[1]}':>18}"
    print(text + "".join(f"{value:16.2g}" for value in cost.largest))

# %% [markdown]
# ## Proofs
#
# The window, for any network: `tests/law.c` runs through the control law exhaustively. The network
# by itself: each claim covers every input in a box and is decided on sub-boxes. An independent
# checker reads the certificate and the C headers again (`ndm check`). Refuted: an example breaks
# the claim, and the named claims about the law bound the window in that case. Unknown: neither
# proved nor refuted with the allowed number of boxes.

# %%
for claim in law.CLAIMS:
    print(f"proved    {claim.statement} ({claim.cases:,} cases)")
print(f"\nthe network by itself, at most {properties.BOXES} sub-boxes per claim\n")
for row in property_rows(proof):
    print(f"{row.verdict:9} {row.claim} (proved {row.proved}, worst seen {row.seen:.4f})")
    if row.contained_by:
        print(f"          contained by {row.contained_by}")
