# SPDX-License-Identifier: GPL-2.0-only
"""Draining: flows that keep a long queue together see it empty, one alone does so seldom."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa

from .lab import INFERENCE, drive

LOWEST_MS = 30
# The second flow comes when the first fills the queue.
TWO = f"""
seconds = 24
topology = "path"
[link]
rate_bps = 20_000_000
rtt_us = {LOWEST_MS}_000
queue_packets = 400
[[flows]]
[[flows]]
sender = 1
start_s = 4.0
seconds = 20
"""
ONE = TWO[: TWO.index("[[flows]]")]
LOSSY = ONE.replace("[link]", "[link]\nloss = 0.01")
# Both windows stay where slow start left them: a queue that nobody empties.
STAND = f"{INFERENCE}\n\t\tout[0] = window < 90 ? 8000 : -2000;\n\t\tout[1] = -65536;"
NEVER = ("#define NDM_DRAIN_QUEUE\t\t16", "#define NDM_DRAIN_QUEUE\t\t255")


def stand(text: str, to: Path, drains: bool = True) -> tuple[dict[str, Any], pa.Table]:
    """A run in which the network wants about 90 packets, whatever it sees; result and rounds."""
    return drive(text, to, ndm_tcp=[(INFERENCE, STAND)], ndm_drain=[] if drains else [NEVER])


def test_a_late_flow_comes_to_see_the_lowest_rtt(tmp_path: Path) -> None:
    """Two times 90 packets, where 50 fill the pipe: a queue of 78 ms."""
    lowest = {}
    for drains in (True, False):
        result, rounds = stand(TWO, tmp_path / str(drains), drains)
        assert ("drain" in rounds["why"].to_pylist()) == drains
        late = result["flows"][1]
        lowest[drains] = late["rtt_min_ms"] / LOWEST_MS
        assert late["rtt_mean_ms"] > 2 * LOWEST_MS, "there is a queue"
    print(
        f"\nits lowest RTT, of the path's: {lowest[True]:.2f}, without drains {lowest[False]:.2f}"
    )
    assert lowest[True] < 1.25
    assert lowest[False] > 1.4


def test_a_drain_is_a_quarter_then_twice_that(tmp_path: Path) -> None:
    """Alone with its queue a flow drains less and less, and always for one round."""
    _, table = stand(ONE, tmp_path)
    rows = table.to_pylist()
    begins = [n for n, row in enumerate(rows) if row["why"] == "drain"][::2]
    assert len(begins) >= 4
    for n in begins:
        first, second = rows[n : n + 2]
        assert second["why"] == "drain"
        assert first["target"] == first["cwnd"] // 4 == second["cwnd"]
        assert second["target"] in (2 * second["cwnd"], second["cwnd"]), "held if not used"
        assert first["ssthresh"] <= first["target"], "no slow start"
    # The rounds in between; of those with a drain two, and none is counted in a recovery.
    gaps = [after - before for before, after in pairwise(begins)]
    assert 16 <= gaps[0] <= 24 and 32 <= gaps[1] <= 40 and min(gaps[2:]) > 100


def test_a_loss_ends_it(tmp_path: Path) -> None:
    """What a loss left is not doubled when its recovery is over."""
    _, table = stand(LOSSY, tmp_path)
    rows = table.to_pylist()
    drains = {n for n, row in enumerate(rows) if row["why"] == "drain"}
    begins = {n for n in drains if rows[n]["target"] < rows[n]["cwnd"]}
    assert all(n - 1 in begins for n in drains - begins), "over at once or never"
    assert any(n + 1 not in drains for n in begins), "a loss came in between"
