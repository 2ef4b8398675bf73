# SPDX-License-Identifier: GPL-2.0-only
"""Write docs/tutorial.md: a shipped capture's round, computed by hand and by the kernel's C.

python docs/tutorial.py            # writes it; fails if a value by hand is not the C's
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ndm_tcp import contract, core, model_json

ROOT = Path(__file__).resolve().parent.parent
SOURCE = "datasets/traces/cubic-03-lossy"
ONE = 1 << contract.Q_INPUT
Q16 = 1 << 16
HALF_ROUNDS = 5
"""rounds in a half window of max_rate (kmod/ndm_features.h)"""

TEXT = (ROOT / "docs/tutorial.md.in").read_text()


def rounds() -> list[dict[str, Any]]:
    """The rounds of the shipped capture."""
    with tempfile.TemporaryDirectory() as folder:
        out = str(Path(folder) / "data")
        ndm = [sys.executable, "-m", "ndm_tcp.cli", "dataset", "build"]
        subprocess.run([*ndm, str(ROOT / SOURCE), "-o", out], check=True, capture_output=True)
        table = pq.read_table(Path(out) / "rounds.parquet")
    flow = pc.value_counts(table["flow_id"]).to_pylist()
    longest = max(flow, key=lambda f: f["counts"])["values"]
    return table.filter(pc.equal(table["flow_id"], longest)).to_pylist()


def highest_rates(rows: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """Of every round: the rate sample (packets, us) that is max_rate, as two half windows."""
    found, halves, count = [], [(0, 1), (0, 1)], 0

    def more(a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
        return a if a[0] * b[1] >= b[0] * a[1] else b

    for row in rows:
        sample = (row["rate_packets"], row["rate_interval_us"])
        if sample[1] > 0 and not (row["app_limited"] and more(more(*halves), sample) != sample):
            halves[0], count = more(halves[0], sample), count + 1
        if count == HALF_ROUNDS:
            halves, count = [sample, halves[0]], 0
        found.append(more(*halves))
    return found


def by_hand(row: dict[str, Any], before: dict[str, Any], best: tuple[int, int]) -> dict[str, str]:
    """Formula with numbers of each input that a row suffices for; checked against the row."""
    bdp = best[0] / best[1] * row["min_rtt_us"]
    total = row["lost"] + row["delivered"]
    cwnd, srtt, floor = row["cwnd"], row["srtt_us"], row["min_rtt_us"]
    packets, us, was = row["rate_packets"], row["rate_interval_us"], before["srtt_us"]
    values = {
        "rtt_ratio": (floor / srtt, f"{floor} / {srtt}"),
        "loss_rate": (row["lost"] / total, f"{row['lost']} / ({row['lost']} + {row['delivered']})"),
        "bdp_ratio": (bdp / cwnd, f"{best[0]} / {best[1]} x {floor} / {cwnd}"),
        "slow_start": (
            float(cwnd < row["ssthresh"]),
            f"cwnd < ssthresh: {cwnd} < {row['ssthresh']}",
        ),
        "plasticity": (1.0, "a loss event in this round"),
        "rtt_variation": (row["rttvar_us"] / srtt, f"{row['rttvar_us']} / {srtt}"),
        "rtt_gradient": ((srtt - was) / was, f"({srtt} - {was}) / {was}"),
        "delivery_ratio": (
            packets / us / (best[0] / best[1]),
            f"({packets} / {us}) / ({best[0]} / {best[1]})",
        ),
    }
    for name, (value, formula) in values.items():
        if abs(int(value * ONE) - row[name]) > 1:
            raise SystemExit(f"docs/tutorial.py: {name}: {formula} = {value}, in C {row[name]}")
    return {n: f"{formula} = {value:.4f}" for n, (value, formula) in values.items()}


def chosen(rows: list[dict[str, Any]]) -> int:
    """The first round after twenty that lost packets, neither in slow start nor in CA_Loss."""

    def fits(row: dict[str, Any]) -> bool:
        lost = row["valid"] and row["lost"] and row["cwnd"] > 8
        return bool(lost and not row["slow_start"] and row["ca_state"] < 4)

    return next(i for i in range(20, len(rows)) if fits(rows[i]) and rows[i - 1]["valid"])


def page() -> str:
    rows = rounds()
    at = chosen(rows)
    row, best = rows[at], highest_rates(rows)[at]
    x = np.array([[r[i.name] for i in contract.INPUTS] for r in rows[: at + 1]], np.int16)
    valid = np.array([r["valid"] for r in rows[: at + 1]])
    dense = core.remember(x, np.arange(at + 1) == 0, valid)
    model = model_json.from_json(ROOT / "kmod/generated/ndm_model.json")
    (gain, logit), _ = (a[0] for a in core.infer(model.layers, dense[-1:]))
    hand = by_hand(row, rows[at - 1], best)
    loss = [i.name for i in contract.INPUTS].index("loss_rate")
    state = np.zeros(contract.N_MEANS, np.uint16)
    core.remember(x[:-1], np.arange(at) == 0, valid[:-1], state)
    mean = contract.MEMORY.of.index("loss_rate")
    before = int(state[mean]) - contract.MEAN_OFFSET
    new = int(x[-1, loss]) << 2
    after = before + ((new - before + 8) >> 4)
    if after >> 2 != dense[-1, contract.N_INPUTS + mean]:
        raise SystemExit("docs/tutorial.py: the mean by hand is not the C's")
    cwnd = np.array([row["cwnd"]], np.uint32)
    lines = [f"| `{i.name}` | {hand.get(i.name, '')} | {row[i.name]} |" for i in contract.INPUTS]
    return TEXT.format(
        **{k: v for k, v in row.items() if k != "source" and "{" + k + "}" in TEXT},
        source=SOURCE,
        number=at,
        rounds=len(rows),
        t_s=f"{row['t_us'] / 1e6:.3f}",
        srtt_before_us=rows[at - 1]["srtt_us"],
        max_packets=best[0],
        max_interval_us=best[1],
        one=ONE,
        inputs="\n".join(lines),
        widths=", ".join(str(layer.n_out) for layer in model.layers[:-1])
        + f" and {model.layers[-1].n_out}",
        mean_before=before,
        x_q14=new,
        mean_after=after,
        mean_q12=after >> 2,
        gain=gain,
        gain_real=f"{gain / Q16:.4f}",
        logit=logit,
        logit_real=f"{logit / Q16:.3f}",
        probability=f"{1 / (1 + np.exp(-logit / Q16)):.3f}",
        target=int(core.apply_gain(cwnd, np.array([gain], np.int32))[0]),
        cut=int(core.cut(cwnd, np.array([logit], np.int32))[0]),
    )


if __name__ == "__main__":
    (ROOT / "docs/tutorial.md").write_text(page())
