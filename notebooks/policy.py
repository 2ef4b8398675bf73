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
# Response of both outputs, what each input contributes, and three synthetic stories, played
# through the kernel's own feature code: scattered losses, a queue that grows until it overflows, a
# delay spike.

# %%
import figures as f
import matplotlib.pyplot as plt
import numpy as np
import pyarrow.compute as pc
import torch

from ndm_tcp import contract, core
from ndm_tcp.training.evaluate import auc
from ndm_tcp.training.objective import examples

policy, checkpoint, table = f.load()
config = checkpoint.config
data = examples(table.filter(pc.equal(table["sampling"], config.sampling)), config)
held_out = (data.split != "train") & data.policy
known = (data.split != "train") & (data.cause >= 0)
middle = np.median(data.x[data.policy], axis=0)
print(
    "inputs at their median:",
    ", ".join(f"{n} {v:.2f}" for n, v in zip(f.NAMES, middle, strict=True)),
)

# %% [markdown]
# ## Response surfaces
#
# Two inputs vary, the others stay at their median. Zero holds the window, 0.1 grows it by 7 % per
# round trip. Dots are held-out rounds: far from them the map is extrapolation.


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
figure.suptitle("Window step: it grows where the pipe is not full, shrinks where a queue stands")
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
# ## What each input contributes
#
# Permutation importance: held-out rounds with one input shuffled among them, ten times; whiskers
# are standard deviations. How much worse do the outputs get?

# %%


def score(x_policy, x_known):
    """Mean error of the step, AUC of the logit."""
    gains, logits = f.outputs(policy, x_policy)[:, 0], f.outputs(policy, x_known)[:, 1]
    return np.abs(gains - data.action[held_out]).mean(), auc(logits, data.cause[known]) or 0.5


base = score(data.x[held_out], data.x[known])
rng = np.random.default_rng(0)
worse = np.zeros((contract.N_INPUTS, 10, 2))
for i in range(contract.N_INPUTS):
    for repeat in range(worse.shape[1]):
        a, b = data.x[held_out].copy(), data.x[known].copy()
        a[:, i], b[:, i] = rng.permutation(a[:, i]), rng.permutation(b[:, i])
        error, area = score(a, b)
        worse[i, repeat] = error - base[0], base[1] - area
figure, panels = plt.subplots(1, 2, figsize=(9, 4.1), sharey=True)
colors = [f.RED if i.name in f.DELAY else f.BLUE for i in contract.INPUTS]
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
# How far each input moves an output away from what it is at the median input: the gradient,
# integrated on the straight line from there (Sundararajan et al., 2017). The attributions of a
# round add up to the difference exactly; the printed remainder says how well the sum does.

# %%
STEPS = 64


def integrated_gradients(x, output):
    """[n, 18] attributions of an output to the inputs, against the median input."""
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
    panel.set_yticks(range(1, contract.N_INPUTS + 1), f.LABELS)
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
# A sender with a constant window of 40 packets over 10 Mbit/s and 50 ms, ACK by ACK through
# `kmod/ndm_features.h`: the inputs are those that the kernel would compute. Nothing reacts to the
# network's answers here (no closed loop); the question is what it would say. One event at 4 s.

# %%
WINDOW, FLOOR_US, SECONDS, EVENT_US = 40, 50_000, 7.0, 4_000_000


def play(rtt_us, losses):
    """(seconds, RTT in ms, inputs) of the rounds of a story.

    Args:
        rtt_us: time in us to the RTT of a packet sent then.
        losses: (us from, us until, every how many packets one is lost).
    """
    rng = np.random.default_rng(1)
    acks, sent_us, sent_at = [], 0.0, []
    ends = []
    while sent_us < SECONDS * 1e6:
        rtt = rtt_us(sent_us) + rng.normal(0, 300)
        sent_at.append(sent_us)
        ends.append(sent_us + rtt)
        # The next leaves when the packet a window ago is answered.
        sent_us = max(
            sent_us + 1200, ends[len(ends) - WINDOW] if len(ends) >= WINDOW else sent_us + 1200
        )
    srtt = mdev = 0.0
    low = np.inf
    order = np.argsort(ends, kind="stable")
    delivered_when = np.searchsorted(np.sort(ends), sent_at, side="right")
    for done, k in enumerate(order, 1):
        rtt = ends[k] - sent_at[k]
        low = min(low, rtt)
        mdev = 0.75 * mdev + 0.25 * abs(rtt - srtt) if srtt else rtt / 2
        srtt = srtt + (rtt - srtt) / 8 if srtt else rtt
        lost = sum(a <= sent_at[k] < b and k % every == 0 for a, b, every in losses)
        prior = int(delivered_when[k])
        row = np.zeros(1, core.ACK_DTYPE)
        row["now_us"], row["rtt_us"], row["acked"], row["lost"] = ends[k], rtt, 1 - lost, lost
        row["inflight"] = row["cwnd"] = WINDOW
        row["ssthresh"] = WINDOW // 2
        row["srtt_us"], row["rttvar_us"], row["min_rtt_us"] = srtt, mdev, low
        row["delivered"], row["prior_delivered"], row["interval_us"] = done, prior, rtt
        acks.append(row)
    acks = np.concatenate(acks)
    rounds = core.replay(acks)
    at = rounds.ack_index[rounds.valid]
    x = rounds.x[rounds.valid] / (1 << contract.Q_INPUT)
    return acks["now_us"][at] / 1e6, acks["rtt_us"][at] / 1e3, x


def growing(t_us):
    """Somebody fills a queue of 100 ms within two seconds, then stops."""
    return FLOOR_US + 1e5 * np.clip((t_us - EVENT_US + 2e6) / 2e6, 0, 1) * (t_us < EVENT_US + 3e5)


stories = {
    "scattered losses": (lambda t: FLOOR_US, [(EVENT_US, EVENT_US + 1e5, 37)]),
    "a queue grows and overflows": (growing, [(EVENT_US, EVENT_US + 2e5, 4)]),
    "a delay spike": (lambda t: FLOOR_US + 1e5 * (EVENT_US <= t < EVENT_US + 1.2e5), []),
}
figure, panels = plt.subplots(3, 3, figsize=(9.5, 6), sharex=True, sharey="row")
for column, (name, (rtt_us, losses)) in enumerate(stories.items()):
    t, rtt_ms, x = play(rtt_us, losses)
    said = f.outputs(policy, x)
    show = t > 1.5
    lossy = show & (x[:, 1] > 0)
    top, gain, cause = panels[:, column]
    top.plot(t[show], rtt_ms[show], color=f.GREY)
    top.plot(t[lossy], rtt_ms[lossy], "x", color=f.RED, label="packets lost")
    top.set_title(name)
    gain.plot(t[show], said[show, 0], ".-", color=f.BLUE, ms=4)
    gain.axhline(0, color=f.GREY, lw=0.8)
    cause.plot(t[show], f.probability(said[show, 1]), ".-", color=f.ORANGE, ms=4)
    cause.set(xlabel="time (s)", ylim=(-0.02, 1.02))
    if lossy.any():
        top.legend()
    before, after = (t > 1.5) & (t < 1.9), (t >= 3.9) & (t < 4.5)
    print(
        f"{name}: gain {said[before, 0].mean():+.2f} before, {said[after, 0].min():+.2f} at least "
        f"around it; probability of congestion {f.probability(said[after, 1]).max():.2f} at most"
        + (f", {f.probability(said[lossy, 1]).mean():.2f} at the loss" if lossy.any() else "")
    )
for panel, text in zip(
    panels[:, 0], ("RTT (ms)", "cwnd_gain (log2)", "P(congestion)"), strict=True
):
    panel.set_ylabel(text)
f.save(figure, "stories")
