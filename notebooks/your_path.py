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
# # Your path
#
# This notebook takes a capture of a sender, estimates its path, replays it in the lab, and predicts
# what other algorithms would get there. `NDM_CAPTURE` names the capture. Where `ndm adapt` has left
# a network for it (`NDM_ADAPTED`, by default that of `make demo`), the notebook shows what adapting
# changed.

# %%
import itertools
import os
from pathlib import Path

import figures as f
import matplotlib.pyplot as plt
import msgspec
import numpy as np

from ndm_tcp import contract, core
from ndm_tcp.adapt import report as adapt_report
from ndm_tcp.datasets.readers import sources
from ndm_tcp.datasets.rounds.compute import rounds_of
from ndm_tcp.errors import NdmError
from ndm_tcp.lab.guest import boot, uml_build
from ndm_tcp.lab.score.board import network_of
from ndm_tcp.paths import difference, report, series
from ndm_tcp.paths.estimate import estimate
from ndm_tcp.paths.model import HEADER_BYTES
from ndm_tcp.paths.predict import Entrant, predict
from ndm_tcp.paths.replay import replay
from ndm_tcp.training import start

capture = f.ROOT / os.environ.get("NDM_CAPTURE", "datasets/traces/cubic-01-clean")
# The demo's network was adapted to the demo's capture.
demo = "none" if "NDM_CAPTURE" in os.environ else "out/demo/adapt"
adapted = f.ROOT / os.environ.get("NDM_ADAPTED", demo)
kmod = Path(os.environ["NDM_KMOD"]) if "NDM_KMOD" in os.environ else None
policy, checkpoint = f.network()
flow = max(sources.read(capture).flows, key=lambda one: len(one.acks))
model = estimate(flow, capture.name)
print(f"{model.name}: {model.seconds:.1f} s, {len(flow.acks)} ACKs")
print(report.table(["", "value [95 % interval]"], [list(row) for row in report.facts(model)]))

# %% [markdown]
# ## The model over the captured flow
#
# Dashed lines are the model: the rate that the bottleneck gives to payload, the baseline RTT, and
# the RTT of a full queue.

# %%
captured = series.of_records(flow)
at_s = np.array(captured.at_s)
payload = model.mss / (model.mss + HEADER_BYTES)
levels = [*model.levels, None]
figure, (top, low) = plt.subplots(2, 1, figsize=(8, 4.6), sharex=True)
top.plot(at_s, captured.mbps, color=f.BLACK, lw=1, label="captured")
low.plot(at_s, np.array(captured.rtt_ms, float), color=f.BLACK, lw=1, label="captured")
base_ms = model.rtt_us.value / 1e3
for level, following in itertools.pairwise(levels):
    span = (level.from_s, following.from_s if following else model.seconds)
    bps = level.rate_bps.value
    packet_ms = (model.mss + HEADER_BYTES) * 8e3 / bps
    full_ms = base_ms + model.queue_packets.value * packet_ms
    top.plot(span, [bps * payload / 1e6] * 2, "--", color=f.BLUE)
    low.plot(span, [full_ms] * 2, "--", color=f.RED)
top.plot([], [], "--", color=f.BLUE, label="the bottleneck's rate")
low.axhline(base_ms, ls="--", color=f.GREEN, label="baseline RTT")
low.plot([], [], "--", color=f.RED, label="a full queue")
top.set(ylabel="acknowledged (Mbit/s)", ylim=(0, None), title=model.name)
low.set(ylabel="smoothed RTT (ms)", xlabel="time (s)", ylim=(0, None))
for panel in (top, low):
    panel.legend(ncols=3)
f.save(figure, "path_model")
for note in model.notes:
    print(note)

# %% [markdown]
# ## Replay
#
# The captured algorithm on the model, in the lab.

# %%
accepted = None
work = f.OUT / "your_path"
try:
    uml_build.need(boot.TOOLS)
    if uml_build.built() is None:
        raise NdmError("no lab kernel; run: ndm lab build")
    (found,) = replay([model], work / "replay", quiet=True).values()
    if isinstance(found, NdmError):
        raise found
    accepted = found
    again = series.of_run(work / "replay" / found.folder)
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3))
    for one, color, label in ((captured, f.BLACK, "captured"), (again, f.ORANGE, "replayed")):
        left.plot(one.at_s, one.mbps, color=color, lw=1, label=label)
        right.plot(one.at_s, np.array(one.rtt_ms, float), color=color, lw=1, label=label)
    left.set(title="acknowledged (Mbit/s)", xlabel="time (s)", ylim=(0, None))
    right.set(title="smoothed RTT (ms)", xlabel="time (s)", ylim=(0, None))
    left.legend()
    f.save(figure, "path_replay")
    verb = "accepted" if found.accepted else "rejected"
    print(
        f"{found.cc}: captured {model.seen.goodput_mbps:.2f} Mbit/s, replayed "
        f"{found.replayed.goodput_mbps:.2f}; RTT {model.seen.rtt_mean_ms:.1f} and "
        f"{found.replayed.rtt_mean_ms:.1f} ms: {verb}"
    )
except NdmError as reason:
    print(f"no replay: {reason}")

# %% [markdown]
# ## Prediction
#
# Other algorithms on draws of the model; every point is one draw. `ndm_tcp` is the shipped module,
# or the one whose sources `NDM_KMOD` names.

# %%
if accepted is not None and accepted.accepted:
    print(*network_of(kmod, always=True))
    entrants = {cc: Entrant(cc) for cc in ("reno", "cubic", "bbr")} | {
        "ndm_tcp": Entrant("ndm_tcp", kmod)
    }
    ((_, of_path),) = predict(
        [accepted.model], entrants, work / "predict", range(3), quiet=True
    ).items()
    figure, panel = plt.subplots(figsize=(6, 3.4))
    for cc, prediction in of_path.items():
        x = [run.rtt_mean_ms for run in prediction.draws]
        y = [run.goodput_mbps for run in prediction.draws]
        panel.plot(x, y, "o", color=f.CC[cc], label=cc)
    panel.set(
        xlabel="mean RTT (ms)", ylabel="goodput (Mbit/s)", title="up and to the left is better"
    )
    panel.legend()
    f.save(figure, "path_prediction")
    print(report.table(report.PREDICTION_HEAD, report.prediction_rows(of_path)))
    print(report.sentence(of_path))

# %% [markdown]
# ## What adapting changed
#
# The step of the adapted network less that of the shipped one, at every round of the captured flow,
# and how both did on the model.


# %%
def steps_of(layers, x):
    """[n] cwnd_gain of a network in real numbers."""
    for number, (weight, bias) in enumerate(layers):
        x = x @ weight.numpy().T + bias.numpy()
        if number + 1 < len(layers):
            x = np.tanh(x)
    return np.clip(x[:, 0], -1, 1)


rows = rounds_of(flow).rows
rows = rows[rows["valid"] > 0]
dense = core.remember(rows["x"], np.arange(len(rows)) == 0, np.ones(len(rows), bool))
x = dense / (1 << contract.Q_INPUT)
shipped = steps_of(start.load("shipped").layers, x)
places = [adapted / name for name in ("kmod", "refused") if (adapted / name).is_dir()]
if places:
    mine = steps_of(start.load(str(places[0] / "generated")).layers, x)
    figure, (top, low) = plt.subplots(2, 1, figsize=(8, 4.2), sharex=True)
    t_s = rows["t_us"] / 1e6
    for values, color, label in ((shipped, f.GREY, "shipped"), (mine, f.BLUE, "adapted")):
        top.plot(t_s, values, color=color, lw=0.9, label=label)
    low.plot(t_s, mine - shipped, color=f.RED, lw=0.9)
    top.set(ylabel="step (log2)", title="Predicted steps on the captured flow")
    low.set(ylabel="adapted less shipped", xlabel="time (s)")
    top.legend(ncols=2)
    f.save(figure, "path_adapted")
    result = msgspec.json.decode(
        (adapted / adapt_report.RESULT).read_bytes(), type=adapt_report.Adapted
    )
    print(report.table(difference.HEAD, difference.table_rows(result.differences)))
    print(adapt_report.guard_text(result))
    print(result.sentence)
else:
    print("no adapted network; run: ndm adapt CAPTURE -o DIR, and set NDM_ADAPTED=DIR")
