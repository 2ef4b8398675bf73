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
# # One training run: its data and its quality
#
# This notebook shows the learning curves, the range of the rounds, the labels, and the errors on
# flows that the network never saw. It makes no claim about throughput, which needs a closed loop
# (`closed_loop.py`).

# %%
import json

import figures as f
import matplotlib.pyplot as plt
import numpy as np
import pyarrow.compute as pc
import pyarrow.csv

from ndm_tcp.training.evaluate import auc, calibration, evaluate
from ndm_tcp.training.experiments.ablation import GROUPS
from ndm_tcp.training.objective import examples

policy, checkpoint, table = f.load()
config = checkpoint.config
table = table.filter(pc.equal(table["sampling"], config.sampling))
data = examples(table, config)
kind = f.kinds(f.text_column(table, "source"))
out = f.outputs(policy, data.x)
print(f"{len(data.x)} rounds of {len(np.unique(data.flow))} flows; {int(data.policy.sum())} teach")
print("left out:", ", ".join(f"{reason} {count}" for reason, count in data.masked.items()))

# %% [markdown]
# ## Learning curves
#
# The loss is the weighted Huber loss of the window step plus a tenth of the cross-entropy of the
# congestion logit. The weights that are kept are those of the lowest validation loss.

# %%
curves = pyarrow.csv.read_csv(f.RUN / "metrics.csv").to_pydict()
kept = f.kept_epoch(curves)
held_out = f.held_out_chose()
other = "validation flows" if held_out else "training flows, at the epoch's end"
figure, axes = plt.subplots(figsize=(6, 3.2))
axes.plot(curves["epoch"], curves["train_loss"], color=f.ORANGE, label="training flows")
axes.plot(curves["epoch"], curves["val_loss"], color=f.BLUE, label=other)
if kept:
    axes.plot(kept, curves["val_loss"][kept - 1], "o", color=f.BLUE, label="kept")
axes.set(xlabel="epoch", ylabel="loss", title=f"The loss on the {other.partition(',')[0]}")
axes.legend()
f.save(figure, "learning_curves")
if not held_out:
    print("No flow was held out, or none with labels: the loss is that of the training flows.")
if kept:
    lowest = curves["val_loss"][kept - 1]
    print(
        f"Lowest loss {lowest:.4f} at epoch {kept} of {len(curves['epoch'])}; the last is "
        f"{100 * (curves['val_loss'][-1] / lowest - 1):.2f} % above it."
    )
else:
    print("No epoch was better than the network that it started from, whose weights are kept.")

# %% [markdown]
# ## Which paths and algorithms
#
# Rounds by kind of path and by the sender's algorithm.

# %%
family = f.families(kind)
rows = [name for name in (*GROUPS, f.OTHER) if (family == name).any()]
columns = sorted(np.unique(data.cc), key=lambda cc: -(data.cc == cc).sum())
counts = np.array([[((family == k) & (data.cc == c)).sum() for c in columns] for k in rows])
figure, axes = plt.subplots(figsize=(2.4 + 0.75 * len(columns), 1 + 0.34 * len(rows)))
shade = np.log10(np.where(counts, counts, np.nan))
axes.imshow(shade, cmap="Blues", aspect="auto", vmin=0, vmax=1.25 * np.nanmax(shade))
for (i, j), n in np.ndenumerate(counts):
    if n:
        dark = shade[i, j] > 0.8 * np.nanmax(shade)
        words = {"ha": "center", "va": "center", "fontsize": 8, "color": "w" if dark else "k"}
        axes.text(j, i, f"{n:,}", **words)
axes.set_xticks(range(len(columns)), columns)
axes.set_yticks(range(len(rows)), rows)
axes.tick_params(length=0)
axes.set(xlabel="algorithm of the sender", title="Rounds by family of paths (blank: none)")
f.save(figure, "coverage")
most = rows[counts.sum(1).argmax()]
print(
    f"{len(np.unique(kind))} kinds of path in {len(rows)} families, {len(columns)} algorithms. "
    f"Most rounds come from the family {most!r} ({100 * counts.sum(1).max() / counts.sum():.0f} %)."
)

# %% [markdown]
# ## Which rates and delays
#
# One dot per flow: its median RTT and its mean rate over its whole life.

# %%
names, first = np.unique(data.flow, return_index=True)
number = np.searchsorted(names, data.flow)
column = {
    c: table[c].to_numpy(zero_copy_only=False).astype(float)
    for c in ("srtt_us", "delivered", "duration_us", "mss")
}
groups = np.split(np.argsort(number, kind="stable"), np.cumsum(np.bincount(number))[:-1])
rtt_ms = np.array([np.median(column["srtt_us"][g]) / 1e3 for g in groups])
octets = np.bincount(number, column["delivered"] * np.nan_to_num(column["mss"], nan=1448))
seconds = np.bincount(number, column["duration_us"]) / 1e6
mbps = 8e-6 * octets / np.maximum(seconds, 1e-3)
figure, axes = plt.subplots(figsize=(6, 3.8))
own = data.cc[first] == "ndm_tcp"
for mask, color, label in ((~own, f.ORANGE, "other algorithms"), (own, f.BLUE, "ndm_tcp")):
    if mask.any():
        axes.plot(rtt_ms[mask], mbps[mask], ".", color=color, ms=4, alpha=0.6, label=label)
axes.set(xscale="log", yscale="log", xlabel="median RTT (ms)", ylabel="rate of the flow (Mbit/s)")
axes.set_title("Flows of its data")
axes.legend()
f.save(figure, "paths")
spread = [np.percentile(v[np.isfinite(v)], (5, 95)) for v in (rtt_ms, mbps)]
print(
    f"{len(names)} flows; nine in ten have a median RTT of {spread[0][0]:.3g} to "
    f"{spread[0][1]:.3g} ms and a rate of {spread[1][0]:.3g} to {spread[1][1]:.3g} Mbit/s."
)

# %% [markdown]
# ## Labels of the window step
#
# The action of a round is the change of the window until the next one. With objective
# `target_step` it is a step towards the target window, which the lab knows,
# and which is estimated for captures. Otherwise it is the sender's own step.

# %%
figure, axes = plt.subplots(figsize=(6, 3.2))
own = data.cc == "ndm_tcp"
bins = np.linspace(-1, 1, 81)
for mask, color, label in ((~own, f.ORANGE, "other algorithms"), (own, f.BLUE, "ndm_tcp")):
    chosen = data.policy & mask
    if chosen.any():
        share = np.full(chosen.sum(), 100 / chosen.sum())
        axes.hist(data.action[chosen], bins, weights=share, histtype="step", color=color)
        axes.plot([], [], color=color, label=label)
axes.axvline(0, color=f.GREY, lw=0.8)
axes.set(xlabel="action (log2 of the factor on cwnd, per round)", ylabel="rounds (%)")
axes.set(title="Labels of the window step", yscale="log")
axes.legend()
f.save(figure, "actions")
parts = []
for mask, label in ((~own, "other algorithms"), (own, "ndm_tcp")):
    a = data.action[data.policy & mask]
    if len(a):
        parts.append(
            f"{label}: {100 * (a > 0.05).mean():.0f} % should grow, "
            f"{100 * (a < -0.05).mean():.0f} % shrink by more than 3 %"
        )
print("; ".join(parts) + ".")

# %% [markdown]
# ## Labels of the congestion output
#
# Rounds in which packets were marked lost, and the cause: the queue was full, or the link dropped
# or reordered them. The lab knows the cause.

# %%
lossy = data.cause >= 0
rows = [k for k in (*GROUPS, f.OTHER) if (lossy & (family == k)).any()]
share = np.array([[((data.cause == c) & (family == k)).sum() for k in rows] for c in (1, 0)])
total = share.sum(0)
figure, axes = plt.subplots(figsize=(6, 1.2 + 0.3 * max(len(rows), 3)))
part = 100 * share / total
axes.barh(rows, part[0], color=f.BLUE, label="a full queue")
axes.barh(rows, part[1], left=part[0], color=f.ORANGE, label="random, or late packets")
for i, n in enumerate(total):
    axes.text(101, i, f"{n:,}", va="center", fontsize=8, color=f.GREY)
axes.invert_yaxis()
axes.set(xlabel="rounds with a loss (%), and how many", xlim=(0, 100))
axes.set_title("Why packets were lost")
figure.legend(loc="outside lower center", ncols=2)
f.save(figure, "causes")
said = f"{int(lossy.sum())} rounds with a loss whose cause is known"
if lossy.any():
    said += f", {100 * (data.cause[lossy] == 1).mean():.0f} % of them congestion"
print(f"{said}.")

# %% [markdown]
# ## Flows that it never saw
#
# Error of the window step by algorithm; `hold` is the error of a constant window. Whole paths are
# held out. Further down, kinds and algorithms are held out, too.

# %%
results = evaluate(policy, data)
print(f"{'split':7}{'algorithm':12}{'rounds':>8}{'gain MAE':>10}{'hold':>8}{'right sign':>12}")
for split in ("val", "test"):
    for cc, part in results[split]["by_cc"].items():
        sign = part["decisive_sign"]
        print(
            f"{split:7}{cc:12}{part['rounds']:8}{part['gain_mae']:10.4f}{part['hold_mae']:8.4f}"
            + (f"{100 * sign:10.1f} %" if sign is not None else f"{'-':>12}")
        )

# %% [markdown]
# ## Does it distinguish overflow loss from random loss?
#
# Reliability: of the losses with a predicted probability of overflow of 0.7, seven in ten should
# be overflow losses. Training weighs both causes alike, so the probabilities assume that both are
# equally frequent. The second line weighs the held-out losses that way.

# %%
unseen = (data.split != "train") & lossy
label, logit = data.cause[unseen], out[unseen, 1]
area = auc(logit, label)
if not len(label):
    print("No loss of known cause was held out.")
elif area is None:
    print("Held-out losses have one cause only: nothing to tell apart.")
else:
    brier, bars = calibration(logit, label)
    prior = label.mean()
    figure, (axes, below) = plt.subplots(
        2, 1, figsize=(4.6, 4.8), sharex=True, height_ratios=(3, 1)
    )
    axes.plot([0, 1], [0, 1], color=f.GREY, lw=0.8, ls="--")
    axes.plot(bars[:, 0], bars[:, 1], "o-", color=f.BLUE, label="as they are")
    even = bars[:, 1] / prior / (bars[:, 1] / prior + (1 - bars[:, 1]) / (1 - prior))
    axes.plot(bars[:, 0], even, "s-", color=f.ORANGE, label="both causes weighed alike")
    axes.set(ylabel="share that was congestion", title="Reliability of the congestion output")
    axes.legend()
    below.bar(bars[:, 0], bars[:, 2], width=0.06, color=f.BLUE)
    below.set(xlabel="probability of congestion, as the network says", ylabel="rounds")
    f.save(figure, "reliability")
    constant = prior * (1 - prior)
    print(
        f"{int(unseen.sum())} held-out losses: AUC {area:.3f}, Brier score {brier:.3f} "
        f"(always saying {prior:.2f} scores {constant:.3f})."
    )

# %% [markdown]
# ## Paths, kinds and algorithms that it never saw, and the delay inputs
#
# From `make ablation` (`docs/ablation.json`), which trains on other paths than it measures on.
# Rows name the part that the network did not get; whiskers are 95 % intervals over paths and seeds.

# %%
if not f.ABLATION.is_file():
    print("no ablation here; run: make ablation")
else:
    found = json.loads(f.ABLATION.read_text())
    rows = []
    for name, parts in found["variants"].items():
        if name.startswith("never saw"):
            ((where, values),) = parts.items()
            rows.append((where, values, found["variants"]["full"].get(where)))
    figure, axes = plt.subplots(figsize=(6, 3.8))
    for i, (_, values, seen) in enumerate(rows):
        r2, gap = values["r2"], values["r2_difference"]
        before = seen["r2"]["mean"] if seen else r2["mean"] - gap["mean"]
        axes.plot(before, i - 0.12, "o", color=f.BLUE, label="saw such flows" if not i else None)
        bars = [[r2["mean"] - r2["low"]], [r2["high"] - r2["mean"]]]
        axes.errorbar(
            *(r2["mean"], i + 0.12),
            xerr=bars,
            fmt="s",
            color=f.ORANGE,
            label="never saw one" if not i else None,
        )
    axes.axvline(0, color=f.GREY, lw=0.8)
    axes.set_yticks(range(len(rows)), [where for where, _, _ in rows])
    axes.invert_yaxis()
    axes.grid(axis="y", color="#e4e4e4", lw=0.6)
    # Below -1 a network is worse than any constant; how much worse says little.
    axes.set(xlabel="weighted R² of the window step, test paths (cut at -1)", xlim=(-1, 1))
    axes.set_title("Accuracy on paths of a family that training left out")
    figure.legend(loc="outside lower center", ncols=2)
    f.save(figure, "unseen")
    worst = min(rows, key=lambda row: row[1]["r2_difference"]["mean"])
    print(
        f"Worst is {worst[0]}: R² {worst[1]['r2']['mean']:.2f}, "
        f"{-worst[1]['r2_difference']['mean']:.2f} less than with such paths in training."
    )

# %%
if f.ABLATION.is_file():
    figure, axes = plt.subplots(figsize=(4.6, 3.6))
    axes.plot([0, 1], [0, 1], color=f.GREY, lw=0.8, ls="--")
    styles = {"full": ("o-", f.BLUE), "without 7, 8": ("s-", f.ORANGE)}
    for name, bars in found["reliability"].items():
        values = np.array(bars)
        style, color = styles[name]
        axes.plot(values[:, 0], values[:, 1], style, color=color, label=name)
        part = found["variants"][name]["all"]
        words = [
            f"{part[m]['mean']:.3f} [{part[m]['low']:.3f}, {part[m]['high']:.3f}]"
            for m in ("auc", "brier")
        ]
        print(f"{name:14} AUC {words[0]}, Brier score {words[1]}")
    axes.set(xlabel="probability of congestion", ylabel="share that was congestion")
    axes.set_title("Reliability on unseen paths, with and without the delay inputs")
    axes.legend()
    f.save(figure, "reliability_delay_inputs")
