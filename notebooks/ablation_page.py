# SPDX-License-Identifier: GPL-2.0-only
"""What `make ablation` measured, as a page: `python notebooks/ablation_page.py OUT` writes
docs/ablation.md and docs/ablation.json from OUT/offline.json and OUT/board/*/board.csv."""

import sys
from dataclasses import asdict
from pathlib import Path

import figures as f
import numpy as np
import orjson
import pyarrow.compute as pc

from ndm_tcp import contract, files, fixedpoint
from ndm_tcp.datasets.store import store
from ndm_tcp.errors import NdmError
from ndm_tcp.export.integers import quantize
from ndm_tcp.export.onnx import writer
from ndm_tcp.lab.score import bars
from ndm_tcp.training import population
from ndm_tcp.training.config import TrainConfig
from ndm_tcp.training.evaluate import auc
from ndm_tcp.training.experiments.ablation import FULL, GROUPS, OFFLINE, kind_of
from ndm_tcp.training.objective import examples
from ndm_tcp.worth.experiment import difference

BOARDS = {
    "full": FULL,
    "no-delay": "without 7, 8",
    "no-entropy": "without 4",
    "no-floor": "without 10",
    "no-memory": "without 11 to 18",
    "untrained": "untrained",
}
"""folder of a variant's boards, less the seed, to the variant"""
SHIPPED = "as shipped"
"""`kmod` itself, one seed"""
ALONE = ("jitter, reordering", "random loss", "clean, steps")
BESIDE_CUBIC = ("cubic", "late-cubic")
ENOUGH = 3
"""paths of a kind, for an interval of its own"""


def text(value, digits=3):
    """`mean [low, high]` of an interval."""
    if value["mean"] is None or not np.isfinite(value["mean"]):
        return "-"
    return f"{value['mean']:.{digits}f} [{value['low']:.{digits}f}, {value['high']:.{digits}f}]"


def excludes_zero(value):
    """Is the sign of a difference known?"""
    return value["low"] > 0 or value["high"] < 0


# --- offline -------------------------------------------------------------------------------


def offline_tables(found):
    """The two tables of replayed rounds."""
    variants = {n: p for n, p in found["variants"].items() if not n.startswith("never saw")}
    groups = [group for group in GROUPS if group in variants[FULL]]
    head = "| network | parameters | R² of the step | difference | MAE (log2) | AUC | Brier |"
    yield head
    yield "|---|---|---|---|---|---|---|"
    for name, parts in variants.items():
        p = parts["all"]
        gap = "" if name == FULL else text(p["r2_difference"])
        cells = [text(p["r2"]), gap, text(p["mae"]), text(p["auc"]), text(p["brier"])]
        yield f"| {name} | {found['parameters'][name]} | {' | '.join(cells)} |"
    yield ""
    yield "R² of the step by kind of path, and its difference from the full network's:"
    yield ""
    yield f"| network | {' | '.join(groups)} |"
    yield "|---|" + "---|" * len(groups)
    for name, parts in variants.items():
        measure = "r2" if name == FULL else "r2_difference"
        yield f"| {name} | {' | '.join(text(parts[g][measure]) for g in groups)} |"
    yield ""
    yield "Kinds of path and algorithms that training never saw, measured on just those:"
    yield ""
    yield "| measured on | R² | difference | AUC |"
    yield "|---|---|---|---|"
    for name, parts in found["variants"].items():
        if name.startswith("never saw"):
            ((where, p),) = parts.items()
            yield f"| {where} | {text(p['r2'])} | {text(p['r2_difference'])} | {text(p['auc'])} |"


def float_or_fixed():
    """The shipped network in float32 and in integers on the held-out flows of its data."""
    policy, checkpoint = f.network()
    layers = quantize.quantize(writer.read(f.RUN / "model.onnx").layers)
    table = store.load_all(f.data_folders()).rounds
    data = examples(table.filter(pc.equal(table["sampling"], "per_ack")), checkpoint.config)
    held_out = data.split != "train"
    x = np.rint(data.x[held_out] * (1 << contract.Q_INPUT)).astype(np.int64)
    pair = {
        "float32": f.outputs(policy, data.x[held_out]),
        "s16 integers": fixedpoint.forward(layers, x).outputs / (1 << contract.Q_PRE),
    }
    decided = data.policy[held_out]
    known = data.cause[held_out] >= 0
    action, cause = data.action[held_out][decided], data.cause[held_out][known]
    yield "| arithmetic | MAE (log2) | AUC |"
    yield "|---|---|---|"
    for name, out in pair.items():
        error = np.abs(out[decided, 0] - action).mean()
        yield f"| {name} | {error:.5f} | {auc(out[known, 1], cause):.5f} |"
    apart = np.abs(pair["float32"] - pair["s16 integers"])
    yield ""
    yield (
        f"Largest difference of the two over {len(x)} held-out rounds: {apart[:, 0].max():.5f} in "
        f"the step (log2), {apart[:, 1].max():.5f} in the logit. The kernel cannot run the float."
    )


# --- closed loop ---------------------------------------------------------------------------


def goodputs(board, rivals):
    """Path to its kind, path to the part of the best rival's goodput, of paths for one flow."""
    kinds = {n: kind_of(n) for n in board}
    alone = [n for n in board if any(kinds[n] in GROUPS[g] for g in ALONE)]
    best = {n: max(rivals[n][cc].mean["goodput_mbps"] for cc in bars.RIVALS) for n in alone}
    return kinds, {n: board[n]["ndm_tcp"].mean["goodput_mbps"] / best[n] for n in alone}


def by_kind(board, rivals):
    """Kind of path, if there are enough of it, to the goodput on each; of one network."""
    kinds, goodput = goodputs(board, rivals)
    found = {}
    for name, value in goodput.items():
        found.setdefault(kinds[name], []).append(value)
    return {kind: values for kind, values in found.items() if len(values) >= ENOUGH}


def measures(board, rivals):
    """Measure to its value on every path that it is for, of one network."""
    own = {n: cells["ndm_tcp"].mean for n, cells in board.items()}
    kinds, goodput = goodputs(board, rivals)
    found = {}
    for group in ALONE:
        values = [v for n, v in goodput.items() if kinds[n] in GROUPS[group]]
        found[f"goodput, {group}"] = values
    found["RTT"] = [own[n]["rtt_mean_ms"] / rivals[n]["bbr"].mean["rtt_mean_ms"] for n in goodput]
    cubic = [own[n]["share"] for n in own if kinds[n] in BESIDE_CUBIC]
    found["share beside CUBIC"] = cubic
    found["distance from half"] = [abs(s - 0.5) for s in cubic]
    found["Jain"] = [own[n]["jain"] for n in own if kinds[n] == "equals"]
    return found


def closed(out, of=measures):
    """Variant to its measures, each [seeds][paths]; of those that ran with every seed."""
    path = out / "board" / "rivals" / "board.csv"
    if not path.is_file():
        return {}
    rivals = bars.load(path)
    found, wanted = {}, set()
    for folder, name in BOARDS.items():
        boards = sorted((out / "board").glob(f"{folder}-[0-9]*/board.csv"))
        seeds = {board.parent.name.rsplit("-", 1)[1] for board in boards}
        if boards and seeds == (wanted := wanted or seeds):
            each = [of(bars.load(board), rivals) for board in boards]
            found[name] = {m: [one[m] for one in each] for m in each[0]}
    own = out / "board" / "shipped" / "board.csv"
    if FULL in found and own.is_file():
        found[SHIPPED] = {m: [v] for m, v in of(bars.load(own), rivals).items()}
    return found


def mean(values, less=None):
    """Interval of the mean of [seeds][paths], or of that less another one's, over the same paths.

    By Student's t over paths, and over networks: a resampling of five networks, or of a few paths,
    excludes zero two or three times as often as it should.
    """
    ones = np.asarray(values, dtype=float).T
    others = np.zeros((len(ones), 1)) if less is None else np.asarray(less, dtype=float).T
    return asdict(difference(ones, others))


def closed_table(found):
    """One row a variant."""
    names = list(found[FULL])
    head = [f"| network | {' | '.join(names)} |", "|---|" + "---|" * len(names)]
    yield from head
    for name, own in found.items():
        yield f"| {name} | {' | '.join(text(mean(own[m]), 2) for m in names)} |"
    for name in BOARDS.values():
        if name not in found:
            yield f"| {name} | refused by the exporter or not run |" + " - |" * (len(names) - 1)
    yield ""
    yield "Differences from the full network, path by path:"
    yield ""
    yield from head
    for name, own in found.items():
        if name not in (FULL, SHIPPED):
            gaps = [mean(own[m], found[FULL][m]) for m in names]
            yield f"| {name} | {' | '.join(text(gap, 2) for gap in gaps)} |"


# --- what it says --------------------------------------------------------------------------


def finding(found, loops, kinds, name):
    """Plain words about a variant: where the difference is significant, and where not."""
    parts = found["variants"][name]
    gap = parts["all"]["r2_difference"]
    words = "costs" if gap["mean"] < 0 else "gains"
    known = "" if excludes_zero(gap) else ", which is not significant"
    yield (
        f"- **{name}**: offline it {words} {abs(gap['mean']):.3f} of R² over all unseen paths "
        f"(difference {text(gap)}){known}."
    )
    if name == "without 7, 8":
        delay = text(parts[ALONE[0]]["r2_difference"])
        yield f"  On paths with jitter or reordering, where delay should matter: R² {delay}."
    clear = [g for g in GROUPS if g in parts and excludes_zero(parts[g]["r2_difference"])]
    listed = "; ".join(f"{g} {text(parts[g]['r2_difference'])}" for g in clear)
    yield f"  Significant on: {listed or 'no kind of path'}."
    area = parts["all"]["auc_difference"]
    chance = "significant" if excludes_zero(area) else "not significant"
    yield f"  AUC of congestion: difference {text(area)}, {chance}."
    if FULL in loops and name in loops:
        pairs = {m: (v, loops[FULL][m]) for m, v in loops[name].items()}
        if kinds:
            pairs |= {f"goodput, {k}": (v, kinds[FULL][k]) for k, v in kinds[name].items()}
        gaps = {m: mean(own, full) for m, (own, full) in pairs.items()}
        known = {m: v for m, v in gaps.items() if excludes_zero(v) and abs(v["mean"]) >= 0.005}
        clear = [f"{m} {text(v, 2)}" for m, v in known.items()]
        yield "  Significant in the closed loop: " + ("; ".join(clear) or "nothing") + "."


def epochs(out):
    """For which the networks of the boards were trained."""
    trained = next(iter(population.members(out / "run" / "full").values()))
    return orjson.loads((trained / "config.json").read_bytes())["epochs"]


def facts(out):
    """The content of docs/ablation.json."""
    found = orjson.loads((out / OFFLINE).read_bytes())
    arithmetic = list(float_or_fixed()) if (f.RUN / "model.onnx").is_file() else []
    loops = closed(out)
    return found | {
        "float_or_fixed": arithmetic,
        "closed_loop": loops,
        "closed_kinds": closed(out, by_kind),
        "closed_epochs": epochs(out) if loops else 0,
    }


def page(found):
    """The text of docs/ablation.md."""
    loops, kinds = found["closed_loop"], found["closed_kinds"]
    counts = found["paths"]
    lines = [
        "# Ablation",
        "",
        f"Made by `make ablation`, {found['seeds']} seeds of training. Intervals are 95 %: those "
        "of the closed loop Student's t over paths and seeds, the others of resampled paths and "
        "seeds.",
        "",
        "## Findings",
        "",
        "Significant: the interval of the difference from the full network leaves zero out. Of "
        "twenty such intervals one does so by chance, of twenty of resampled seeds one to three, "
        "and there are more than twenty here.",
        "",
    ]
    inputs = ("without 7, 8", "without 4", "without 10", "without 11 to 18")
    for name in (*inputs, "16-16", "64-64", "eight rounds at once", "untrained"):
        lines += finding(found, loops, kinds, name)
    lines += [
        "",
        "## Replayed rounds, unseen paths",
        "",
        f"Trained for {found['epochs']} epochs on {counts['train']} paths of "
        f"the training suites (best of {counts['val']} more), measured on {counts['test']} "
        f"others; {found['rounds']} rounds in all, of `datasets/lab-rounds` "
        f"({', '.join(found['data'])}); "
        f"weight decay {found['weight_decay']}, expectile {found['expectile']}: the mean. R² is "
        "of the step towards the target window, weighted as in training; AUC and Brier score are "
        "of the congestion output, over losses whose cause is known. This says how well a network "
        "knows the target window, nothing about "
        "throughput.",
        "",
    ]
    lines += offline_tables(found)
    if found["float_or_fixed"]:
        lines += ["", "## Float in place of fixed", "", *found["float_or_fixed"]]
    lines += ["", "## Closed loop, validation paths", ""]
    if FULL not in loops:
        lines.append("Not run: the lab's kernel is not built (`ndm lab build`).")
    else:
        lines += [
            f"`ndm lab board validation` on each of {len(loops[FULL]['RTT'])} networks a variant, "
            "which differ in the seed of training. Goodput: part of the best of Reno, CUBIC and "
            f"BBR. RTT: mean, part of BBR's. Trained for {found['closed_epochs']} epochs; the "
            f"shipped network, a `{FULL}`, for {TrainConfig.epochs} on the same data.",
            "",
        ]
        lines += closed_table(loops)
    if kinds:
        lines += ["", f"Goodput by kind of path, of which there are {ENOUGH} or more:", ""]
        lines += closed_table(kinds)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    try:
        found = facts(Path(sys.argv[1]))
    except (NdmError, FileNotFoundError) as error:
        sys.exit(f"ablation_page: {error}; run: make ablation")
    docs = f.ROOT / "docs"
    data = orjson.dumps(found, option=orjson.OPT_INDENT_2).decode()
    files.write_text(docs / "ablation.json", data + "\n")
    files.write_text(docs / "ablation.md", page(found))
    print(f"wrote {docs / 'ablation.md'}")
