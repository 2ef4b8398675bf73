# SPDX-License-Identifier: GPL-2.0-only
"""Links that vary: traces of delivery opportunities, in mahimahi's format.

One line per opportunity to deliver 1,504 bytes: the millisecond, from the start, ascending;
the trace repeats when it ends. The lab's queue sends at a rate, so a trace becomes the mean rate
of each tenth of a second; variation that is faster is lost.

`ndm lab scenarios variable` writes the trace that ships with the lab.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

from ndm_tcp import files
from ndm_tcp.errors import NdmError

OPPORTUNITY_BYTES = 1504
BIN_MS = 100
SLOWEST_BPS = 20_000
"""where a bin has no opportunity at all; a rate of zero would stop the queue for good"""


def read(path: Path) -> list[int]:
    """Milliseconds of the opportunities.

    Raises:
        NdmError: no such file, a line that is no number, times that fall, or an empty trace.
    """
    try:
        lines = path.read_text(encoding="ascii").split()
    except OSError as error:
        raise NdmError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise NdmError(f"{path}: not a trace: expected one millisecond per line") from None
    times: list[int] = []
    for number, line in enumerate(lines, start=1):
        if not line.isdigit():
            raise NdmError(f"{path}:{number}: {line!r} is not a millisecond; write whole numbers")
        times.append(int(line))
        if len(times) > 1 and times[-1] < times[-2]:
            raise NdmError(
                f"{path}:{number}: time falls from {times[-2]} to {times[-1]} ms; sort the lines"
            )
    if not times or times[-1] == 0:
        raise NdmError(f"{path}: no opportunity after 0 ms; add a later line")
    return times


def rates(times_ms: list[int], seconds: float) -> list[tuple[float, int]]:
    """(s, bit/s from then on) for so many seconds; the first one starts at 0.

    Args:
        times_ms: opportunities; the trace lasts until the last one, then repeats.
        seconds: how far to go.
    """
    period_ms = times_ms[-1]
    bins = Counter[int]()
    end_ms = round(seconds * 1000)
    whole_ms = -(-end_ms // BIN_MS) * BIN_MS  # the last bin is as long as the others
    for start_ms in range(0, whole_ms, period_ms):
        for at_ms in times_ms:
            # The last opportunity of a period stands at the start of the next.
            bins[(start_ms + at_ms) // BIN_MS] += 1
    steps: list[tuple[float, int]] = []
    for index in range(-(-end_ms // BIN_MS)):
        bits = bins[index] * OPPORTUNITY_BYTES * 8
        rate_bps = max(round(bits * 1000 / BIN_MS), SLOWEST_BPS)
        if not steps or steps[-1][1] != rate_bps:
            steps.append((index * BIN_MS / 1000, rate_bps))
    return steps


SHIPPED = Path(__file__).resolve().parents[1] / "scenarios" / "variable" / "wandering.trace"


def wandering(seconds: int = 20, seed: int = 20261121) -> str:
    """A made-up link whose rate wanders between 1 and 12 Mbit/s, a factor of 1.3 a second."""
    rng = random.Random(seed)
    mbps, credit, lines = 6.0, 0.0, []
    for at_ms in range(1, seconds * 1000 + 1):
        if at_ms % BIN_MS == 0:
            mbps = min(max(mbps * 1.3 ** rng.gauss(0, (BIN_MS / 1000) ** 0.5), 1.0), 12.0)
        credit += mbps * 1000 / (OPPORTUNITY_BYTES * 8)
        lines += [f"{at_ms}"] * int(credit)
        credit -= int(credit)
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the trace that ships with the lab."""
    files.write_text(SHIPPED, wandering())
