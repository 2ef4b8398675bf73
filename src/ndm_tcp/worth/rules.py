# SPDX-License-Identifier: GPL-2.0-only
"""Fixed rules around the network, and the module without one of them.

A rule is taken out by a change of one place in the sources. `without` refuses a text that is not
there once, so a rule that moved is noticed.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from ndm_tcp.errors import NdmError


@dataclass(frozen=True)
class Rule:
    """One fixed rule of the module."""

    does: str
    file: str
    """of kmod, where it is"""
    text: str
    """that occurs once in the file"""
    without: str
    """in its place: the rule is off"""


def _never(does: str, file: str, condition: str, line: str) -> Rule:
    """A rule behind a condition, a part of a line, that is never true."""
    return Rule(does, file, line, line.replace(condition, f"false && {condition}", 1))


RULES = {
    "probe": Rule(
        "eight rounds of a little more and less window",
        "ndm_control.h",
        "return step[phase % NDM_PROBE_ROUNDS] * NDM_PROBE;",
        "return 0 * step[phase % NDM_PROBE_ROUNDS];",
    ),
    "drift": Rule(
        "one cycle of the probe in eight has a round more",
        "ndm_policy.h",
        "get_random_u32() & NDM_PROBE_SLIP",
        "true",
    ),
    "ceiling": _never(
        "holds the window after an overflow, and paces it, where hosts do not pause",
        "ndm_policy.h",
        "ca->ceiling_rounds",
        "held = ca->ceiling_rounds &&",
    ),
    "room under the ceiling": Rule(
        "no ceiling for a flow that does not fill its window, without a queue",
        "ndm_policy.h",
        "(r->limited || ndm_queue_shows(r->x))",
        "true",
    ),
    "drain": Rule(
        "empties a standing queue now and then",
        "ndm_drain.h",
        "!ndm_queue_persists(queue) || !may)",
        "!ndm_queue_persists(queue) || !may || true)",
    ),
    "watchdog": Rule(
        "takes over where losses go on",
        "ndm_watchdog.h",
        "return w->starved >= NDM_WATCHDOG_PATIENCE || w->loss >= NDM_WATCHDOG_LOSS;",
        "return false;",
    ),
    "guard": _never(
        "sends no more than arrived after a flood",
        "ndm_control.h",
        "x[NDM_IN_LOSS_RATE]",
        "return x[NDM_IN_LOSS_RATE] >= NDM_FLOOD_LOSS && lost",
    ),
    "return of slow start": _never(
        "slow start that random losses ended goes on",
        "ndm_slow_start.h",
        "ca->starting",
        "return ca->starting && ca->congestion < 0",
    ),
    "spared losses": _never(
        "losses without a growing queue do not end slow start",
        "ndm_recovery.h",
        "tcp_in_initial_slowstart(tp)",
        "} else if (tcp_in_initial_slowstart(tp) &&",
    ),
    "bursts into an empty pipe": _never(
        "with nothing in flight packets leave at 16 times the rate of the window",
        "ndm_pacing.h",
        "!tp->packets_out",
        "if (!tp->packets_out && ndm_may_burst(sk))",
    ),
    "short bursts": Rule(
        "TCP hands down packets of a quarter of a millisecond at a time",
        "ndm_pacing.h",
        "ndm_burst_shift = 12;",
        "ndm_burst_shift = 10;",
    ),
    "own min RTT": Rule(
        "leaves out RTTs rounded to milliseconds",
        "ndm_measure.h",
        "lowest = min(lowest ? lowest : ~0U,\n"
        "\t\t\t     ndm_is_rounded(tp, core) ? core + (u32)USEC_PER_MSEC : core);",
        "lowest = core;",
    ),
    "longer paths": _never(
        "take an RTT that a drain leaves as it was for the path's",
        "ndm_drain.h",
        "ndm_path_is_longer(",
        "ndm_path_is_longer(d->shortest, queue) ? NDM_DRAIN_IN_VAIN :",
    ),
    "unrivalled": Rule(
        "a window that its losses would not leave Reno or CUBIC is cut as without a queue",
        "ndm_policy.h",
        "ca->unrivalled = r->limited &&",
        "ca->unrivalled = false &&",
    ),
    "half packets": _never(
        "beside others on short paths or with frequent losses add every second packet",
        "ndm_rivals.h",
        "(phase & 1)",
        "return (phase & 1) && (ndm_path_is_local(min_rtt_us) ||",
    ),
    "quarter for an overflow": _never(
        "beside others with frequent losses give up a quarter for an overflow",
        "ndm_rivals.h",
        "lost",
        "if (lost && congestion >= NDM_RIVALS_SURE)",
    ),
    "slow growth": Rule(
        "there too grow by an eighth of the window at most",
        "ndm_rivals.h",
        "return ndm_min(target, window + ndm_max(window / NDM_RIVALS_GROW, 1U));",
        "return target;",
    ),
}
"""name to rule"""


def without(rule: str, kmod: Path, to: Path) -> Path:
    """A copy of the module's sources with one rule off.

    Args:
        rule: key of `RULES`.
        kmod: the sources.
        to: the folder to make, or to make anew.

    Raises:
        NdmError: the rule is not where it was.
    """
    one = RULES[rule]
    text = (kmod / one.file).read_text()
    if text.count(one.text) != 1:
        raise NdmError(
            f"{kmod / one.file}: {rule} is not where it was; correct its entry in worth/rules.py"
        )
    if to.exists():
        shutil.rmtree(to)
    shutil.copytree(kmod, to)
    (to / one.file).write_text(text.replace(one.text, one.without))
    return to
