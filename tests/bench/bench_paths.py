# SPDX-License-Identifier: GPL-2.0-only
"""How far path models are from known paths, and how fast they are made.

    python -m tests.bench.bench_paths [FOLDER ...] [--list] [--speed]

Folders hold recorded runs with their truth (`ndm lab record`); without one, the shipped traces.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from ndm_tcp.datasets.readers import run_folder
from ndm_tcp.errors import NdmError
from ndm_tcp.paths.estimate import estimate
from ndm_tcp.paths.model import PathModel
from tests.paths.known import Errors, errors, flows

TRACES = Path(__file__).resolve().parents[2] / "datasets" / "traces"
LABEL_GOOD, LABEL_FAIR = 0.1, 0.24
"""|log2|; the second is the shipped network's own error"""
MARKED = 0.24
"""a model whose expected error of the target window is larger is not used for labels"""


def _runs(folders: Iterable[Path]) -> list[Path]:
    return sorted({path.parent for folder in folders for path in folder.rglob("sender.pcap*")})


def _pair(values: list[float], scale: float = 100) -> str:
    good = np.abs([v for v in values if np.isfinite(v)])
    if not len(good):
        return "-"
    return f"{np.median(good) * scale:.2f} / {np.percentile(good, 90) * scale:.2f}"


def _measured(values: list[float]) -> str:
    return f"{_pair(values)} ({sum(bool(np.isfinite(v)) for v in values)})"


def _label(values: list[float]) -> str:
    good = np.array([v for v in values if np.isfinite(v)])
    if not len(good):
        return "-"
    return (
        f"{np.median(good):.3f} / {np.percentile(good, 90):.3f}, "
        f"{np.mean(good < LABEL_GOOD):.0%} < {LABEL_GOOD}, {np.mean(good < LABEL_FAIR):.0%} < "
        f"{LABEL_FAIR}"
    )


def report(rows: list[tuple[str, str, PathModel, Errors]]) -> None:
    """Print a table by group, and the share of intervals that hold the truth."""
    groups: dict[str, list[tuple[PathModel, Errors]]] = defaultdict(list)
    for _, group, model, one in rows:
        groups[group].append((model, one))
    print("median / 90th percentile of the absolute error, %; n: flows where it is no bound\n")
    print(
        "| group | flows | rate (n) | baseline RTT (n) | queue (n) | queue bound too high | loss |",
        end="",
    )
    print(" steps false, missed | rivals false, missed | labels, |log2| |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for group, pairs in sorted(groups.items()):
        found = [e for _, e in pairs]
        used = [e.label for m, e in pairs if m.label_error_log2 < MARKED]
        steps = [e.steps for m, e in pairs if not m.rivals]
        words = [
            *(group, str(len(pairs)), _measured([e.rate for e in found])),
            *(_measured([e.base for e in found]), _measured([e.queue for e in found])),
            *(_pair([e.queue_bound for e in found]), _pair([e.loss for e in found])),
            f"{sum(s > 0 for s in steps)}, {sum(s < 0 for s in steps)}",
            f"{sum(e.rivals > 0 for e in found)}, {sum(e.rivals < 0 for e in found)}",
            f"{_label(used)} ({len(used)})",
        ]
        print("| " + " | ".join(words) + " |")
    used = [e.label for *_, m, e in rows if m.label_error_log2 < MARKED]
    print(f"\nlabels of all unmarked flows: {_label(used)} ({len(used)} of {len(rows)} flows)")
    changing = [(e.over_time, m.measured) for *_, m, e in rows if np.isfinite(e.over_time)]
    if changing:
        off, measured = (list(column) for column in zip(*changing, strict=True))
        print(
            f"rate over time of {len(changing)} flows whose rate changes, |log2|: {_pair(off, 1)}, "
            f"mean {np.mean(off):.2f}; measured in {np.mean(measured):.0%} of the time"
        )
    held: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for *_, one in rows:
        for name, good in one.covered.items():
            held[name] += good
            total[name] += 1
    print("95 % intervals that hold the truth: ", end="")
    print(", ".join(f"{name} {held[name]} of {total[name]}" for name in total))


def details(rows: list[tuple[str, str, PathModel, Errors]]) -> None:
    """Print a line per flow."""
    for name, group, model, e in rows:
        print(
            f"{name[:46]:46} {group[:16]:16} rate {e.rate * 100:+7.2f} base {e.base * 100:+7.2f} "
            f"queue {e.queue * 100:+7.1f} bound {e.queue_bound * 100:5.1f} "
            f"loss {e.loss * 100:+6.0f} "
            f"false {e.false_loss * 100:.2f} steps {e.steps:+d} rivals {e.rivals:+d} hold "
            f"{model.ack_hold_us.value / 1e3:.1f} {model.qdisc:8} label {e.label:.3f} "
            f"({model.label_error_log2:.2f}) jitter {model.jitter_us.value / 1e3:.2f}"
            f"{' R' if model.reorder else ''}{' J' if model.joined else ''}"
        )


def speed(runs: list[Path]) -> None:
    """Packets per CPU second of the estimate, beside reading the same captures."""
    reading = estimating = 0.0
    packets = 0
    for run in runs:
        start = time.process_time()
        found, _ = run_folder.read(run)
        middle = time.process_time()
        for flow in found:
            packets += int(flow.facts["packets"])
            try:
                estimate(flow, run.name)
            except NdmError:
                continue
        reading += middle - start
        estimating += time.process_time() - middle
    print(
        f"\n{packets} packets: estimated {packets / estimating / 1e6:.2f} million packets per CPU "
        f"second, {estimating / reading:.2f} times the time to read them"
    )


def main() -> None:
    """Estimate all, compare, and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="*", type=Path, default=[TRACES])
    parser.add_argument("--list", action="store_true", help="a line per flow, too")
    parser.add_argument("--speed", action="store_true")
    args = parser.parse_args()
    rows: list[tuple[str, str, PathModel, Errors]] = []
    refused: Counter[str] = Counter()
    runs = _runs(args.folders)
    for run in runs:
        for flow, known in flows(run):
            try:
                model = estimate(flow, run.name)
            except NdmError as error:
                refused[str(error).partition(":")[0]] += 1
                continue
            rows.append(
                (f"{run.name}-{flow.sender_port}", known.group, model, errors(model, known, flow))
            )
    if args.list:
        details(rows)
    report(rows)
    for reason, count in refused.items():
        print(f"{count} flows refused: {reason}")
    if args.speed:
        speed(runs)


if __name__ == "__main__":
    main()
