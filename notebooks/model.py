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
# # What the trained network learned
#
# Reads one training run and its dataset: learning curves, the response of `cwnd_gain`, what
# the delay inputs 7 and 8 contribute, and the error of the integers that the kernel runs.
# `NDM_RUN` and `NDM_DATA` choose another run and dataset; plots are also saved in `RUN/plots`.

# %%
import os
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pyarrow.csv
import torch

from ndm_tcp import contract
from ndm_tcp.datasets import store
from ndm_tcp.export import golden, onnx_graph, quantize
from ndm_tcp.training.checkpoint import load_policy
from ndm_tcp.training.config import TrainConfig
from ndm_tcp.training.evaluate import auc, evaluate
from ndm_tcp.training.loop import Trainer
from ndm_tcp.training.objective import examples

torch.set_num_threads(1)
RUN = Path(os.environ.get("NDM_RUN", "out/shipped/run"))
DATA = Path(os.environ.get("NDM_DATA", "out/shipped/data"))
PLOTS = RUN / "plots"
PLOTS.mkdir(exist_ok=True)

policy, checkpoint = load_policy(RUN)
config = checkpoint.config
data = examples(store.load(DATA).rounds, config.gamma, config.sampling)
names = [i.name for i in contract.INPUTS]
print(f"{config.objective}, hidden {list(config.hidden)}, seed {config.seed}")
print(f"{len(data.x)} rounds, {int(data.policy.sum())} of them decisions; left out: {data.masked}")

# %% [markdown]
# ## Learning curves
#
# The loss is the weighted Huber loss of the gain plus a tenth of the cross-entropy of the
# congestion logit. The shipped weights are those of the lowest validation loss.

# %%
metrics = pyarrow.csv.read_csv(RUN / "metrics.csv").to_pydict()
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.4), layout="constrained")
left.plot(metrics["epoch"], metrics["train_loss"], label="train")
left.plot(metrics["epoch"], metrics["val_loss"], label="validation (other flows)")
left.axvline(metrics["epoch"][int(np.argmin(metrics["val_loss"]))], color="0.7", lw=1)
left.set(xlabel="epoch", ylabel="loss", title="Objective")
left.legend(frameon=False)
right.plot(metrics["epoch"], metrics["val_gain_mae"], color="C1")
held = np.abs(data.action[(data.split == "val") & data.policy]).mean()
right.axhline(held, color="0.5", ls="--", lw=1)
right.annotate(
    "never moving the window", (0.02, held), xycoords=("axes fraction", "data"), va="top"
)
right.set(xlabel="epoch", ylabel="mean |gain - action|, log2", title="Imitation error, validation")
figure.savefig(PLOTS / "learning_curves.png", dpi=120)

# %% [markdown]
# ## Response of the window
#
# `cwnd_gain` over the RTT ratio (left edge: deep queue) and the RTT gradient (top: the queue
# grows), all other inputs at their median over the training rounds. Zero holds the window,
# 0.1 grows it by 7 % per round trip. The dots are training rounds: far from them the map is
# extrapolation.

# %%
train = (data.split == "train") & data.policy
middle = np.median(data.x[train], axis=0)
ratio, gradient = np.meshgrid(np.linspace(0.1, 1, 91), np.linspace(-0.5, 0.5, 101))
grid = np.tile(middle, (ratio.size, 1)).astype(np.float32)
grid[:, 0], grid[:, 7] = ratio.ravel(), gradient.ravel()
with torch.no_grad():
    gain = policy(torch.from_numpy(grid)).numpy()[:, 0].reshape(ratio.shape)
limit = max(float(np.abs(gain).max()), 1e-3)
figure, axes = plt.subplots(figsize=(6, 4.2), layout="constrained")
image = axes.pcolormesh(ratio, gradient, gain, cmap="RdBu_r", vmin=-limit, vmax=limit)
axes.contour(ratio, gradient, gain, levels=[0], colors="k", linewidths=1)
sample = np.random.default_rng(0).permutation(np.flatnonzero(train))[:400]
axes.plot(data.x[sample, 0], data.x[sample, 7], ".", color="k", ms=2, alpha=0.35)
axes.set(
    xlim=(0.1, 1), ylim=(-0.5, 0.5), xlabel="rtt_ratio (min_rtt / srtt)", ylabel="rtt_gradient"
)
axes.set_title("cwnd_gain, log2 per round")
figure.colorbar(image, ax=axes)
figure.savefig(PLOTS / "response.png", dpi=120)

# %% [markdown]
# ## What each input contributes
#
# Held-out rounds with one input shuffled among them: how much worse do both outputs get?
# Twenty shuffles each; bars show the mean, whiskers the standard deviation.

# %%
held_out = (data.split != "train") & data.policy
known = (data.split != "train") & (data.cause >= 0)


def score(x_policy, x_known):
    """Imitation error and AUC of the congestion logit."""
    with torch.no_grad():
        gains = policy(torch.from_numpy(x_policy)).numpy()[:, 0]
        logits = policy(torch.from_numpy(x_known)).numpy()[:, 1]
    return np.abs(gains - data.action[held_out]).mean(), auc(logits, data.cause[known])


base_error, base_auc = score(data.x[held_out], data.x[known])
rng = np.random.default_rng(0)
worse = np.zeros((contract.N_INPUTS, 20, 2))
for i in range(contract.N_INPUTS):
    for repeat in range(20):
        a, b = data.x[held_out].copy(), data.x[known].copy()
        a[:, i], b[:, i] = rng.permutation(a[:, i]), rng.permutation(b[:, i])
        error, area = score(a, b)
        worse[i, repeat] = error - base_error, (base_auc or 0) - (area or 0)
figure, panels = plt.subplots(1, 2, figsize=(10, 3.8), sharey=True, layout="constrained")
labels = [f"{i.index} {i.name}" for i in contract.INPUTS]
colors = ["C3" if i.index in (7, 8) else "C0" for i in contract.INPUTS]
for panel, column, title in zip(
    panels, (0, 1), ("increase of the imitation error", "loss of AUC of congestion"), strict=True
):
    panel.barh(labels, worse[:, :, column].mean(1), xerr=worse[:, :, column].std(1), color=colors)
    panel.set(title=title)
    panel.axvline(0, color="k", lw=0.8)
    panel.locator_params(axis="x", nbins=5)
panels[0].invert_yaxis()
figure.savefig(PLOTS / "inputs.png", dpi=120)
auc_text = f"{base_auc:.3f}" if base_auc is not None else "unknown"
print(f"held out, nothing shuffled: error {base_error:.4f}, congestion AUC {auc_text}")

# %% [markdown]
# ## The network without inputs 7 and 8
#
# Shuffling asks what this network uses; training again without the delay inputs asks what
# they are worth. Three seeds each, same data, same settings.

# %%
rows = []
with tempfile.TemporaryDirectory() as folder:
    for mask in ((), (7, 8)):
        for seed in (1, 2, 3):
            settings = {**config.to_dict(), "mask": mask, "seed": seed}
            trainer = Trainer(
                DATA, Path(folder) / f"{len(mask)}-{seed}", TrainConfig.from_dict(settings)
            )
            result = trainer.run(quiet=True)
            for split in ("val", "test"):
                rows.append(
                    (mask, split, result[split]["gain_mae"], result[split]["congestion_auc"])
                )
print(f"{'inputs':16}{'split':8}{'gain MAE':>20}{'congestion AUC':>22}")
for mask in ((), (7, 8)):
    for split in ("val", "test"):
        chosen = [(e, a) for m, s, e, a in rows if m == mask and s == split and e is not None]
        if not chosen:
            continue
        errors = np.array([e for e, _ in chosen])
        areas = np.array([np.nan if a is None else a for _, a in chosen])
        name = "without 7, 8" if mask else "all ten"
        print(
            f"{name:16}{split:8}{errors.mean():12.4f} ± {errors.std():.4f}"
            f"{areas.mean():14.3f} ± {areas.std():.3f}"
        )

# %% [markdown]
# ## Float against fixed point
#
# The kernel runs integers. Differences to real arithmetic on the same weights, over the golden
# vectors (random points and all corners of the input box), beside the bound that holds for
# every input in the box.

# %%
graph = onnx_graph.read(RUN / "model.onnx")
layers = quantize.quantize(graph.layers)
vectors = golden.compute(layers, golden.inputs())
real = quantize.real_forward(quantize.dequantize(layers), vectors.x / float(1 << contract.Q_INPUT))
error = vectors.out / float(1 << contract.Q_PRE) - real
bound = quantize.error_bound(layers)
figure, panels = plt.subplots(1, 2, figsize=(10, 3.2), layout="constrained")
for panel, output, column in zip(panels, contract.OUTPUTS, (0, 1), strict=True):
    panel.hist(error[:, column], bins=80, color="C2")
    for side in (-1, 1):
        panel.axvline(side * bound[column], color="C3", ls="--", lw=1)
    panel.set(yscale="log", xlabel="fixed - real", title=f"{output.name} (dashed: bound)")
    panel.set(ylabel="vectors")
    panel.ticklabel_format(axis="x", style="sci", scilimits=(0, 0))
    panel.locator_params(axis="x", nbins=6)
figure.savefig(PLOTS / "fixed_point.png", dpi=120)
for output, limit, seen in zip(contract.OUTPUTS, bound, np.abs(error).max(axis=0), strict=True):
    share = 100 * limit / (output.hi - output.lo)
    print(f"{output.name}: bound {limit:.2g} ({share:.3f} % of the range), seen {seen:.2g}")

# %% [markdown]
# ## Held-out flows
#
# Imitation error by congestion control, on flows the network never saw. `hold` is the error of
# a network that never moves the window. None of this says anything about throughput: that
# takes a closed loop.

# %%
results = evaluate(policy, data)
print(f"{'split':7}{'algorithm':12}{'rounds':>8}{'gain MAE':>10}{'hold':>8}")
for split in ("val", "test"):
    for cc, part in results[split]["by_cc"].items():
        print(f"{split:7}{cc:12}{part['rounds']:8}{part['gain_mae']:10.4f}{part['hold_mae']:8.4f}")
