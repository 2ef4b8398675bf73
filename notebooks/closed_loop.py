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
# # The loop closed: ndm_tcp beside BBR and CUBIC
#
# This notebook compares the algorithms in the lab: real kernels in virtual time. It shows the
# window of each algorithm, the RTT that it caused, and its goodput. Then it draws the whole board.
# Runs are kept in `out/closed_loop`. `NDM_KMOD` names another copy of the module's sources.

# %%
import hashlib
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import figures as f
import matplotlib.pyplot as plt
import numpy as np
import orjson

from ndm_tcp.datasets.readers import streams
from ndm_tcp.lab.guest.plan import FIRST_PORT
from ndm_tcp.lab.score import bars, board, metrics

NDM = Path(sys.executable).with_name("ndm")
KMOD = f.ROOT / os.environ.get("NDM_KMOD", "kmod")
PUBLISHED = f.ROOT / "lab" / "scenarios" / "published"
SHOWN = ("c-dumbbell-loss-0", "c-dumbbell-loss-1", "c-dumbbell-loss-5", "a2-moderate-jitter")
ALGORITHMS = ("cubic", "bbr", "ndm_tcp")
STEP_S = 0.5
SOURCES = (".py", ".c", ".sh", ".patch", ".config")


def key(scenario, cc):
    """Twelve hex digits of what makes a run: another lab, path or network, another run."""
    lab = [p for p in (f.ROOT / "lab").rglob("*") if p.suffix in SOURCES]
    module = [*KMOD.glob("*.[ch]"), *KMOD.glob("generated/*.h")] if cc == "ndm_tcp" else []
    names = [*sorted(lab), PUBLISHED / f"{scenario}.toml", *sorted(module)]
    return hashlib.sha256(b"".join(p.read_bytes() for p in names)).hexdigest()[:12]


def run(scenario, cc):
    """Folder of a run, made if it is not there yet; None if the lab is not built."""
    out = f.OUT / "closed_loop" / f"{scenario}-{cc}-{key(scenario, cc)}"
    if not (out / "result.json").is_file():
        if subprocess.run([NDM, "lab", "build", "--check"], capture_output=True).returncode:
            return None
        command = [NDM, "lab", "run", PUBLISHED / f"{scenario}.toml", "--cc", cc, "--light"]
        command += ["--kmod", KMOD] if cc == "ndm_tcp" else []
        subprocess.run([*command, "-o", out], check=True, capture_output=True)
    return out


def series(folder):
    """(s, cwnd in packets, RTT in ms) at every poll, (s, Mbit/s) every half second."""
    with streams.open_bytes(folder / "tcp_info.jsonl.zst") as stream:
        rows = [orjson.loads(line) for line in stream.read().splitlines()]
    rows = [r for r in rows if r["sport"] == FIRST_PORT and r["bytes_sent"] and r["state"] == 1]
    names = ("t_ns", "cwnd", "srtt_us", "bytes_acked")
    t, cwnd, srtt, acked = (np.array([r[name] for r in rows], dtype=float) for name in names)
    t = (t - t[0]) / 1e9
    marks = np.arange(0, t[-1], STEP_S)
    mbps = np.diff(np.interp(marks, t, acked)) * 8e-6 / STEP_S
    return t, cwnd, srtt / 1e3, marks[1:], mbps


# %% [markdown]
# ## Over time
#
# One flow, one seed. Top: acknowledged data per half second (dashed: the link's rate).
# Middle: smoothed RTT. Bottom: congestion window.


# %%
def draw(scenario):
    """Three panels of a scenario, and a sentence."""
    folders = {cc: run(scenario, cc) for cc in ALGORITHMS}
    if None in folders.values():
        print("the lab's kernel is not built; run: make test-packages && .venv/bin/ndm lab build")
        return
    facts = tomllib.loads((PUBLISHED / f"{scenario}.toml").read_text())
    figure, (top, middle, low) = plt.subplots(3, 1, figsize=(6.5, 5.4), sharex=True)
    words = []
    for cc, folder in folders.items():
        t, cwnd, rtt_ms, marks, mbps = series(folder)
        style = {"color": f.CC[cc], "lw": 1.6 if cc == "ndm_tcp" else 1.1, "label": cc}
        top.plot(marks, mbps, **style)
        middle.plot(t, rtt_ms, **style)
        low.plot(t, cwnd, **style)
        flow = orjson.loads((folder / "result.json").read_bytes())["flows"][0]
        words.append(
            f"{cc} {flow['goodput_mbps']:.2f} Mbit/s at {flow['rtt_mean_ms']:.0f} ms, "
            f"{flow['retransmissions']} segments retransmitted"
        )
    if "link" in facts:
        top.axhline(facts["link"]["rate_bps"] / 1e6, color=f.GREY, ls="--", lw=0.8)
    top.set(ylabel="received (Mbit/s)", title=facts["title"], ylim=(0, None))
    middle.set(ylabel="smoothed RTT (ms)", ylim=(0, None))
    low.set(ylabel="cwnd (packets)", xlabel="time (s)", yscale="log")
    figure.legend(*top.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    f.save(figure, f"closed_{scenario}")
    print("; ".join(words) + ".")


draw(SHOWN[0])

# %%
draw(SHOWN[1])

# %%
draw(SHOWN[2])

# %%
draw(SHOWN[3])

# %% [markdown]
# ## The published scenarios
#
# Goodput of the shipped module as a part of the best of Reno, CUBIC and BBR, means over the seeds
# of `docs/board`. The dashed line is the bar of 0.98.

# %%
published = bars.load(f.ROOT / "docs" / "board" / "published.csv")
names = list(published)
best = {n: max(published[n][cc].mean["goodput_mbps"] for cc in bars.RIVALS) for n in names}
figure, axes = plt.subplots(figsize=(6.8, 0.6 + 0.24 * len(names)))
ratios = {}
for cc, mark in (("reno", "v"), ("cubic", "^"), ("bbr", "D"), ("ndm_tcp", "o")):
    ratios[cc] = np.array([published[n][cc].mean["goodput_mbps"] / best[n] for n in names])
    size = 7 if cc == "ndm_tcp" else 4.5
    axes.plot(ratios[cc], range(len(names)), mark, color=f.CC[cc], ms=size, label=cc, alpha=0.9)
axes.axvline(bars.GOODPUT, color=f.GREY, ls="--", lw=0.8)
axes.set_yticks(range(len(names)), names)
axes.invert_yaxis()
axes.grid(axis="y", color="0.92")
axes.set(xscale="log", xlabel="goodput, part of the best of Reno, CUBIC and BBR")
axes.legend(ncols=4, loc="lower center", bbox_to_anchor=(0.4, 1.0))
f.save(figure, "board_goodput")
good = ratios["ndm_tcp"] >= bars.GOODPUT
seeds = min(c.runs for cells in published.values() for c in cells.values())
print(f"{good.sum()} of {len(names)} scenarios reach {bars.GOODPUT} ({seeds} runs or more)")
for name, ratio, reached in zip(names, ratios["ndm_tcp"], good, strict=True):
    if not reached:
        print(f"  not {name}: {ratio:.3f}")

# %% [markdown]
# ## Delay
#
# Mean RTT as a part of BBR's. Left of the line, the queue is shorter than BBR's.

# %%
timed = [n for n in names if np.isfinite(published[n]["bbr"].mean["rtt_mean_ms"])]
figure, axes = plt.subplots(figsize=(6.8, 0.6 + 0.24 * len(timed)))
for cc, mark in (("reno", "v"), ("cubic", "^"), ("ndm_tcp", "o")):
    ratio = [
        published[n][cc].mean["rtt_mean_ms"] / published[n]["bbr"].mean["rtt_mean_ms"]
        for n in timed
    ]
    size = 7 if cc == "ndm_tcp" else 4.5
    axes.plot(ratio, range(len(timed)), mark, color=f.CC[cc], ms=size, label=cc, alpha=0.9)
axes.axvline(1, color=f.GREY, ls="--", lw=0.8)
axes.set_yticks(range(len(timed)), timed)
axes.invert_yaxis()
axes.grid(axis="y", color="0.92")
axes.set(xscale="log", xlabel="mean RTT, part of BBR's")
ticks = [0.5, 0.7, 1, 1.5, 2, 3]
axes.set_xticks(ticks, [str(tick) for tick in ticks])
axes.minorticks_off()
axes.legend(ncols=3, loc="lower center", bbox_to_anchor=(0.4, 1.0))
f.save(figure, "board_rtt")
print(f"ndm_tcp's RTT is at most BBR's in {sum(r <= 1 for r in ratio)} of {len(timed)} scenarios.")

# %% [markdown]
# ## ccBench
#
# Share of scenarios won. Set I: a lone flow, goodput squared over delay. Set II: beside CUBIC,
# distance from half of the goodput. An algorithm within a tenth of the best wins too.

# %%
ccbench = bars.load(f.ROOT / "docs" / "board" / "ccbench.csv")
figure, panels = plt.subplots(1, 2, figsize=(8.5, 4.2))
for panel, (title, prefix) in zip(panels, board.SETS.items(), strict=True):
    cells = [c for n, group in ccbench.items() if n.startswith(prefix) for c in group.values()]
    rates = metrics.winning_rates(cells, set_two=prefix == "set2-")
    colors = [f.CC["ndm_tcp"] if cc == "ndm_tcp" else "0.75" for cc in rates]
    panel.barh(list(rates), [100 * r for r in rates.values()], color=colors)
    panel.invert_yaxis()
    panel.set(xlabel="scenarios won (%)", title=title)
    place = list(rates).index("ndm_tcp") + 1
    print(f"{title}: ndm_tcp {100 * rates['ndm_tcp']:.1f} %, place {place} of {len(rates)}.")
f.save(figure, "board_ccbench")

# %% [markdown]
# ## Sharing
#
# Jain's index of flows of one algorithm, two of which may have RTTs of 40 and 120 ms, and ndm_tcp's
# share beside other algorithms. The line is the bar of equal flows, the band marks the shares that
# count as fair beside CUBIC.

# %%
path = f.ROOT / "docs" / "board" / "fairness.csv"
if not path.is_file():
    print("no fairness board here; run: make board")
else:
    fairness = bars.load(path)
    equal = [n for n in fairness if not n.startswith("beside")]
    beside = [n for n in fairness if n.startswith("beside")]
    figure, panels = plt.subplots(
        2, 1, figsize=(6.8, 1.6 + 0.26 * len(fairness)), height_ratios=(len(equal), len(beside))
    )
    for panel, chosen, measure in ((panels[0], equal, "jain"), (panels[1], beside, "share")):
        for cc, mark in (("reno", "v"), ("cubic", "^"), ("bbr", "D"), ("ndm_tcp", "o")):
            shown = [(fairness[n][cc].mean[measure], n) for n in chosen if cc in fairness[n]]
            size = 7 if cc == "ndm_tcp" else 4.5
            panel.plot(*zip(*shown, strict=True), mark, color=f.CC[cc], ms=size, label=cc)
        panel.invert_yaxis()
        panel.grid(axis="y", color="0.92")
    panels[0].axvline(bars.JAIN, color=f.GREY, ls="--", lw=0.8)
    panels[0].set(xlabel="Jain's index")
    panels[1].axvspan(*bars.SHARE, color="0.92", zorder=0)
    panels[1].set(xlabel="share of the goodput", xlim=(0, 1))
    panels[0].legend(ncols=4, loc="lower center", bbox_to_anchor=(0.4, 1.0))
    f.save(figure, "board_fairness")
    own = [fairness[n]["ndm_tcp"].mean["jain"] for n in equal]
    low, high = bars.SHARE
    shares = {n: fairness[n]["ndm_tcp"].mean["share"] for n in beside if "cubic" in n}
    print(
        f"Jain's index of ndm_tcp is {min(own):.3f} or more in {len(own)} scenarios. Beside CUBIC "
        f"it takes {low} to {high} in {sum(low <= s <= high for s in shares.values())} of "
        f"{len(shares)}."
    )
