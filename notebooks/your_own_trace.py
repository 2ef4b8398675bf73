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
# # Your own trace
#
# This notebook takes a capture of a sender (or a recorded run, or a tcp_info log) and a trained
# network. It shows the kernel's features over time and the outputs of the network. `NDM_CAPTURE`
# names the capture, `NDM_RUN` the training run. The trace does not react to the network: with the
# network in control, the rest of the trace would differ.

# %%
import os

import figures as f
import matplotlib.pyplot as plt
import numpy as np

from ndm_tcp import contract, core
from ndm_tcp.datasets.readers import sources
from ndm_tcp.datasets.rounds.flow import LossCause

capture = f.ROOT / os.environ.get("NDM_CAPTURE", "datasets/traces/cubic-06-lossy-jitter")
policy, checkpoint = f.network()
found = sources.read_rounds(capture, sources.digest(capture))
flow = max(found.flows, key=lambda one: len(one.rows))
rows = flow.rows[flow.rows["valid"] > 0]
t = rows["t_us"] / 1e6
dense = core.remember(rows["x"], np.arange(len(rows)) == 0, np.ones(len(rows), bool))
x = dense / (1 << contract.Q_INPUT)
gain, logit = f.outputs(policy, x).T
print(
    f"{capture.name}: {len(found.flows)} flows, the longest has {len(rows)} rounds in "
    f"{t[-1]:.1f} s; sender {flow.cc_name or 'unknown'}, window {flow.cwnd_source.value}"
)
if flow.sampling.value == "poll":
    print("sampled now and then: no delay entropy and no queue floor in it (inputs 4 and 10)")

# %% [markdown]
# ## The flow

# %%
lost = rows["lost"] > 0
figure, (top, low) = plt.subplots(2, 1, figsize=(8, 4.2), sharex=True)
top.plot(t, rows["srtt_us"] / 1e3, color=f.BLUE, label="smoothed RTT")
top.plot(t, rows["min_rtt_us"] / 1e3, color=f.GREY, label="lowest RTT so far")
top.set(ylabel="RTT (ms)", ylim=(0, None), title="What the sender saw")
top.legend(ncols=2)
low.plot(t, rows["cwnd"], color=f.BLUE, label="congestion window")
low.plot(t[lost], rows["cwnd"][lost], "x", color=f.RED, label="round with a loss")
low.set(ylabel="packets", xlabel="time (s)", ylim=(0, None))
low.legend(ncols=2)
f.save(figure, "trace_flow")
print(
    f"{int(rows['lost'].sum())} of {int(rows['delivered'].sum())} packets marked lost in "
    f"{int(lost.sum())} rounds; the median RTT is {np.median(rows['srtt_us']) / 1e3:.1f} ms, the "
    f"lowest {rows['min_rtt_us'][-1] / 1e3:.1f} ms."
)

# %% [markdown]
# ## Inputs of the network
#
# The ten inputs, each in its range, and the means of eight of them, which are the network's memory.

# %%
figure, panels = plt.subplots(6, 3, figsize=(10, 8.2), sharex=True)
for number, (panel, item) in enumerate(zip(panels.T.flat, contract.DENSE, strict=True)):
    color = f.RED if item.name in f.DELAY else f.BLUE
    panel.plot(t, x[:, number], color=color, lw=0.9)
    panel.set_title(f"{item.index} {item.name}")
    panel.set_ylim(item.lo - 0.03, item.hi + 0.03)
for panel in panels[-1]:
    panel.set_xlabel("time (s)")
figure.supylabel("input (no unit)")
f.save(figure, "trace_inputs")
widest = int(x.std(0).argmax())
print(f"{f.NAMES[widest]} moves most (standard deviation {x.std(0)[widest]:.2f}).")

# %% [markdown]
# ## Outputs of the network
#
# Top: the predicted step, beside the sender's own, over the same rounds. Bottom: the predicted
# probability that a loss at that moment is an overflow loss; marks are the actual losses.

# %%
own = np.append(np.diff(np.log2(np.maximum(rows["cwnd"].astype(float), 1))), np.nan)
own = np.clip(own, -1, 1)
figure, (top, low) = plt.subplots(2, 1, figsize=(8, 4.6), sharex=True)
top.plot(t, own, color=f.GREY, lw=0.8, label=f"{flow.cc_name or 'the sender'} did")
top.plot(t, gain, color=f.BLUE, lw=1.2, label="the network asks for")
top.axhline(0, color="k", lw=0.6)
top.set(ylabel="step (log2 per round)", title="What the network would do")
top.legend(ncols=2)
probability = f.probability(logit)
low.plot(t, probability, color=f.GREY, lw=0.8)
causes = (
    ((LossCause.QUEUE,), f.BLUE, "o", "lost to a full queue"),
    ((LossCause.RANDOM, LossCause.REORDERED), f.ORANGE, "s", "lost at random, or only reordered"),
    ((LossCause.UNKNOWN,), f.RED, "x", "lost, cause unknown"),
)
for which, color, mark, label in causes:
    here = lost & np.isin(rows["loss_cause"], which)
    if here.any():
        low.plot(t[here], probability[here], mark, color=color, ms=5, label=label)
low.set(ylabel="P(congestion)", xlabel="time (s)", ylim=(-0.02, 1.02))
low.legend(ncols=2)
f.save(figure, "trace_outputs")
parts = [
    f"{who} in {100 * (step > 0.02).mean():.0f} % of the rounds and shrink it in "
    f"{100 * (step < -0.02).mean():.0f} %"
    for who, step in (("The network would grow the window", gain), ("the sender grew it", own))
]
print(parts[0] + "; " + parts[1].replace("shrink it", "shrank it") + ".")
for which, _, _, label in causes:
    here = lost & np.isin(rows["loss_cause"], which)
    if here.any():
        print(
            f"{label}: {int(here.sum())} rounds, probability of congestion "
            f"{probability[here].mean():.2f} in the mean"
        )
