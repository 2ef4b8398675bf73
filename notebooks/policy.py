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
# # What the network does
#
# This notebook shows the response of both outputs and the contribution of each input. Then it plays
# three stories from the recordings: random losses on an idle path, a queue that overflows, jitter.

# %%
import figures as f
import matplotlib.pyplot as plt
import numpy as np
import pyarrow.compute as pc
import torch

from ndm_tcp import contract
from ndm_tcp.datasets.rounds.flow import LossCause
from ndm_tcp.training.evaluate import auc
from ndm_tcp.training.objective import examples

policy, checkpoint, table = f.load()
config = checkpoint.config
data = examples(table.filter(pc.equal(table["sampling"], config.sampling)), config)
held_out = (data.split != "train") & data.policy
known = (data.split != "train") & (data.cause >= 0)
if not held_out.any():
    print("Nothing was held out: rounds called held-out below are those that trained the network.")
    held_out, known = data.policy, data.cause >= 0
middle = np.median(data.x[data.policy], axis=0)
print(
    "inputs at their median:",
    ", ".join(f"{n} {v:.2f}" for n, v in zip(f.NAMES, middle, strict=True)),
)

# %% [markdown]
# ## Response surfaces
#
# Two inputs vary, the others stay at their median. A gain of zero keeps the window, 0.1 grows it by
# 7 % per round. Dots are held-out rounds. Far from them the map is extrapolation.


# %%
def surface(axes, output, across, up, span):
    """Draw an output over two inputs (1-based)."""
    a, b = np.meshgrid(*(np.linspace(*s, 91) for s in span))
    grid = np.tile(middle, (a.size, 1))
    grid[:, across - 1], grid[:, up - 1] = a.ravel(), b.ravel()
    values = f.outputs(policy, grid)[:, output].reshape(a.shape)
    if output:
        values = f.probability(values)
        shown = {"cmap": f.SEQUENTIAL, "vmin": 0, "vmax": 1}
    else:
        limit = np.abs(values).max()
        shown = {"cmap": f.DIVERGING, "vmin": -limit, "vmax": limit}
    image = axes.pcolormesh(a, b, values, **shown)
    image.set_rasterized(True)
    level = 0.5 if output else 0.0
    if values.min() < level < values.max():
        axes.contour(a, b, values, levels=[level], colors="k", linewidths=1)
    rng = np.random.default_rng(0)
    rows = rng.permutation(np.flatnonzero(known if output else held_out))[:300]
    axes.plot(data.x[rows, across - 1], data.x[rows, up - 1], ".", color="k", ms=2, alpha=0.4)
    axes.set(xlim=span[0], ylim=span[1], xlabel=f.LABELS[across - 1], ylabel=f.LABELS[up - 1])
    return image, values


figure, panels = plt.subplots(1, 2, figsize=(9, 3.6))
image, delay = surface(panels[0], 0, 1, 3, ((0.05, 1), (0, 2)))
figure.colorbar(image, ax=panels[0], label="cwnd_gain (log2 per round)")
image, _ = surface(panels[1], 0, 8, 10, ((-0.4, 0.4), (0, 1)))
figure.colorbar(image, ax=panels[1], label="cwnd_gain (log2 per round)")
figure.suptitle("Window step: red grows, blue shrinks; black line: the window stays")
f.save(figure, "response_gain")
print(
    f"Over rtt_ratio and bdp_ratio the step goes from {delay.min():.2f} to {delay.max():.2f}; "
    f"it grows the window on {100 * (delay > 0).mean():.0f} % of that map."
)

# %%
figure, panels = plt.subplots(1, 2, figsize=(9, 3.6))
image, memory = surface(panels[0], 0, 17, 15, ((0.3, 1), (0, 0.5)))
figure.colorbar(image, ax=panels[0], label="cwnd_gain (log2 per round)")
image, _ = surface(panels[1], 0, 3, 13, ((0, 2), (0, 2)))
figure.colorbar(image, ax=panels[1], label="cwnd_gain (log2 per round)")
figure.suptitle("The same round, another past: what the means change")
f.save(figure, "response_memory")
print(
    f"With all ten inputs of the round at their median, the two means alone move the step from "
    f"{memory.min():.2f} to {memory.max():.2f}."
)

# %%
figure, panels = plt.subplots(1, 2, figsize=(9, 3.6))
image, loss = surface(panels[0], 1, 1, 2, ((0.05, 1), (0, 0.5)))
figure.colorbar(image, ax=panels[0], label="probability of congestion")
image, _ = surface(panels[1], 1, 4, 10, ((0, 0.8), (0, 1)))
figure.colorbar(image, ax=panels[1], label="probability of congestion")
figure.suptitle("Congestion output: is a loss now the queue's?")
f.save(figure, "response_congestion")
print(f"Over rtt_ratio and loss_rate it says {loss.min():.2f} to {loss.max():.2f}.")

# %% [markdown]
# ## Contribution of each input
#
# Permutation importance: one input is shuffled among held-out rounds, ten times. Bars show by how
# much the outputs get worse; whiskers are standard deviations.

# %%


def score(x_policy, x_known):
    """Mean error of the step, AUC of the logit."""
    gains, logits = f.outputs(policy, x_policy)[:, 0], f.outputs(policy, x_known)[:, 1]
    return np.abs(gains - data.action[held_out]).mean(), auc(logits, data.cause[known]) or 0.5


base = score(data.x[held_out], data.x[known])
rng = np.random.default_rng(0)
worse = np.zeros((contract.N_DENSE, 10, 2))
for i in range(contract.N_DENSE):
    for repeat in range(worse.shape[1]):
        a, b = data.x[held_out].copy(), data.x[known].copy()
        a[:, i], b[:, i] = rng.permutation(a[:, i]), rng.permutation(b[:, i])
        error, area = score(a, b)
        worse[i, repeat] = error - base[0], base[1] - area
figure, panels = plt.subplots(1, 2, figsize=(9, 4.1), sharey=True)
colors = [f.RED if i.name in f.DELAY else f.BLUE for i in contract.DENSE]
words = ("increase of the mean error of the step (log2)", "loss of AUC of congestion")
for column, panel in enumerate(panels):
    part = worse[:, :, column]
    panel.barh(f.LABELS, part.mean(1), xerr=part.std(1), color=colors)
    panel.axvline(0, color="k", lw=0.8)
    panel.set(xlabel=words[column])
panels[0].invert_yaxis()
panels[0].set_ylabel("shuffled input")
figure.suptitle("What the network uses (red: inputs 7 and 8, and their means)")
f.save(figure, "permutation")
order = worse[:, :, 0].mean(1).argsort()[::-1]
print(f"Nothing shuffled: error {base[0]:.4f}, AUC {base[1]:.3f}.")
print("For the step:", ", ".join(f"{f.NAMES[i]} +{worse[i, :, 0].mean():.4f}" for i in order[:4]))
print(
    "Of the delay:", ", ".join(f"{n} +{worse[f.NAMES.index(n), :, 0].mean():.4f}" for n in f.DELAY)
)

# %% [markdown]
# ## Integrated gradients
#
# How far each input moves an output from its value at the median input: the gradient, integrated
# on the straight line from there (Sundararajan et al., 2017). The attributions of a round add up to
# the difference exactly. The printed remainder is the error of the numerical sum.

# %%
STEPS = 64


def integrated_gradients(x, output):
    """[n, dense] attributions of an output to the inputs, against the median input."""
    start = torch.from_numpy(middle)
    away = torch.from_numpy(x) - start
    total = torch.zeros_like(away)
    for k in range(STEPS):
        at = (start + (k + 0.5) / STEPS * away).requires_grad_()
        (gradient,) = torch.autograd.grad(policy.raw(at)[:, output].sum(), at)
        total += gradient
    return (away * total / STEPS).numpy()


x = data.x[rng.permutation(np.flatnonzero(held_out))[:4000]]
figure, panels = plt.subplots(1, 2, figsize=(9, 4.1), sharey=True)
for output, panel in enumerate(panels):
    shares = integrated_gradients(x, output)
    with torch.no_grad():
        both = [policy.raw(torch.from_numpy(v)).numpy()[:, output] for v in (x, middle[None])]
    rest = np.abs(shares.sum(1) - (both[0] - both[1])).max()
    parts = panel.boxplot(
        list(shares.T), orientation="horizontal", whis=(5, 95), showfliers=False, patch_artist=True
    )
    for box, color in zip(parts["boxes"], colors, strict=True):
        box.set(facecolor=color, alpha=0.6)
    for line in parts["medians"]:
        line.set(color="k")
    panel.axvline(0, color="k", lw=0.8)
    panel.set_yticks(range(1, contract.N_DENSE + 1), f.LABELS)
    unit = ("cwnd_gain (log2)", "congestion (logit)")[output]
    panel.set(xlabel=f"attribution to {unit}")
    strong = np.abs(shares).mean(0)
    words = ", ".join(f"{f.NAMES[i]} {strong[i]:.3f}" for i in strong.argsort()[::-1][:4])
    delay = ", ".join(f"{n} {strong[f.NAMES.index(n)]:.3f}" for n in f.DELAY)
    print(f"{unit}: mean size {words}; of the delay: {delay}; rest {rest:.1g}")
panels[0].invert_yaxis()
figure.suptitle("Attributions: box 25 to 75 %, whiskers 5 to 95 % of held-out rounds")
f.save(figure, "integrated_gradients")

# %% [markdown]
# ## Three stories
#
# Held-out flows of the data, round by round; ndm_tcp's own where there are any. Of the flows that
# fit a story, the one with the median number of lossy rounds is shown (for jitter: with the median
# RTT variation). The outputs are those of this network at the recorded states. The recordings are
# of earlier networks, so the sender's next action was not this network's choice.
#
# Made-up states do not serve here. A constant window over a path of 10 Mbit/s and 50 ms was played
# through the kernel's feature code before. The shipped network then gave scattered losses a
# probability of overflow of 0.85 to 0.90, and grew the window where a queue overflowed. The first
# scattered loss, the overflow and a delay spike lie 1.9 to 3.7 standard deviations of the inputs
# away from the nearest recorded round. Recorded rounds with a loss are 0.8 apart in the median,
# and 1.4 in 19 of 20 cases. The later scattered losses are nearer, at 1.1. Of the 50 recorded lossy
# rounds nearest to them, 47 or more were overflows of short queues that equal flows share: those
# have a low entropy, too. Random loss shows an entropy of 0.2 to 0.6.

# %%
CAUSES = {"random": (LossCause.RANDOM, LossCause.REORDERED), "overflow": (LossCause.QUEUE,)}
SHOWN_S = 12.0

rounds = table.filter(pc.equal(table["sampling"], config.sampling))
column = {
    name: rounds[name].to_numpy(zero_copy_only=False)
    for name in ("t_us", "srtt_us", "cwnd", "valid", "slow_start", "rtt_ratio", "rtt_variation")
}
said = f.outputs(policy, data.x)
lost = {name: np.isin(rounds["loss_cause"].to_numpy(), values) for name, values in CAUSES.items()}
lost = {name: rows & column["valid"] for name, rows in lost.items()}
candidates = np.unique(data.flow[data.split != "train"])
own = np.unique(data.flow[(data.split != "train") & (data.cc == "ndm_tcp")])
names, number = np.unique(data.flow, return_inverse=True)


def per_flow(values):
    """[flows] sums over a flow's rounds."""
    return np.bincount(number, values.astype(float), len(names))


count = {name: per_flow(rows) for name, rows in lost.items()}
usable = np.maximum(per_flow(column["valid"]), 1)
idle = per_flow(column["valid"] * column["rtt_ratio"]) / usable / (1 << contract.Q_INPUT)
variation = per_flow(column["valid"] * column["rtt_variation"]) / usable
long = usable >= 40
first = np.unique(data.flow, return_index=True)[1]
kind_of = f.kinds(f.text_column(rounds, "source")[first])
# Paths without other flows, as far as the names of recordings tell.
alone = np.isin(kind_of, ("clean", "lone", "step", "lossy"))
none = {name: long & (values == 0) for name, values in count.items()}
stories = {
    "random losses, no overflow": (
        (count["random"] >= 5) & none["overflow"] & (idle > 0.8),
        "random",
    ),
    "a queue of its own overflows": ((count["overflow"] >= 5) & none["random"] & alone, "overflow"),
    "jitter, no loss": (none["random"] & none["overflow"], ""),
}
jittery = stories["jitter, no loss"][0] & (variation > 0.1 * (1 << contract.Q_INPUT))
jittery &= np.char.find(kind_of, "jitter") >= 0
stories["jitter, no loss"] = (jittery, "")


def median_flow(fits, kind):
    """(the flow in the middle of those that fit, how many do), ndm_tcp's before others'."""
    for group in (own, candidates):
        chosen = np.flatnonzero(fits & np.isin(names, group))
        if len(chosen):
            order = chosen[np.argsort((count[kind] if kind else variation)[chosen], kind="stable")]
            return names[order[len(order) // 2]], len(order)
    return None, 0


def steps(rows):
    """Mean step at these rounds, and the one towards the target window if that is known."""
    rows = rows & data.policy
    if not rows.any():
        return "no step asked for"
    words = f"mean step {said[rows, 0].mean():+.3f}"
    if config.objective == "target_step":
        words += f", towards the target window {data.action[rows].mean():+.3f}"
    return words


figure, panels = plt.subplots(4, 3, figsize=(11, 7.5), sharex="col")
for panel, (title, (fits, kind)) in zip(panels.T, stories.items(), strict=True):
    flow, like_it = median_flow(fits, kind)
    if flow is None:
        panel[0].set_title(f"{title}: no such flow")
        print(f"{title}: no held-out flow in these data")
        continue
    here = (data.flow == flow) & column["valid"] & (column["t_us"] < SHOWN_S * 1e6)
    t = column["t_us"][here] / 1e6
    asked = here & ~(column["slow_start"] > 0)
    top, window, gain, cause = panel
    top.plot(t, column["srtt_us"][here] / 1e3, color=f.GREY)
    top.set(title=title, ylim=(0, None))
    window.plot(t, column["cwnd"][here], color=f.GREY)
    window.set_yscale("log")
    gain.plot(column["t_us"][asked] / 1e6, said[asked, 0], "-", color=f.BLUE, lw=0.9)
    gain.axhline(0, color=f.GREY, lw=0.8)
    cause.plot(t, f.probability(said[here, 1]), color=f.GREY, lw=0.9)
    for name, color in (("random", f.ORANGE), ("overflow", f.BLUE)):
        rows = here & lost[name]
        at = column["t_us"][rows] / 1e6
        if rows.any():
            top.plot(at, column["srtt_us"][rows] / 1e3, "x", color=color, ms=4, label=name)
            cause.plot(at, f.probability(said[rows, 1]), "x", color=color, ms=4)
    cause.set(xlabel="time (s)", ylim=(-0.02, 1.02))
    if top.get_legend_handles_labels()[0]:
        top.legend(title="packets lost", fontsize=8, loc="upper right")
    source = rounds["source"][int(np.flatnonzero(here)[0])].as_py()
    words = f"{title} ({source}, one of {like_it} such flows): {steps(asked)}"
    for name, rows in lost.items():
        if (rows & here).any():
            p = f.probability(said[rows & here, 1])
            words += f"; at {int((rows & here).sum())} {name} losses {steps(rows & here)}, "
            words += f"probability of congestion {p.mean():.2f}"
    print(words)
for panel, text in zip(
    panels[:, 0], ("RTT (ms)", "cwnd (packets)", "cwnd_gain (log2)", "P(overflow)"), strict=True
):
    panel.set_ylabel(text)
for panel in panels[2]:
    panel.set_ylim(-1.05, 1.05)
f.save(figure, "stories")
for name, rows in lost.items():
    rows = rows & (data.split != "train")
    if rows.any():
        p = f.probability(said[rows, 1])
        print(
            f"All {int(rows.sum())} held-out rounds with {name} losses: {steps(rows)}, probability "
            f"of congestion {p.mean():.2f}, above one half in {100 * (p > 0.5).mean():.0f} %"
        )
