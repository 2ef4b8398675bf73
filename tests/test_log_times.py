# SPDX-License-Identifier: GPL-2.0-only
"""Times of ss logs that are not what they seem: behind the call, and set back."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from .test_field_logs import EPOCH, STEP_S, read, record


def test_times_behind_each_call(tmp_path: Path) -> None:
    """`ss -tin; date +%s.%N`: the first call has no time, and the year 1970 is none."""
    log = "".join(f"{record(k + 1)}{EPOCH + k * STEP_S:.6f}\n" for k in range(24))
    (flow,), warnings = read(tmp_path / "log", log)
    assert flow.acks["now_us"].tolist() == [round(k * STEP_S * 1e6) for k in range(23)]
    assert warnings == ["1 sockets before the first time stamp were left out"]


@pytest.mark.parametrize("back_s", [0.6, 3600])
def test_a_clock_that_is_set_back_does_not_mix_polls(tmp_path: Path, back_s: float) -> None:
    """By NTP, or at the end of summer time: the order of the log is that of the polls."""
    seconds = [k * STEP_S - back_s * (k >= 12) for k in range(24)]
    log = "".join(f"{EPOCH + s:.6f}\n{record(k + 1)}" for k, s in enumerate(seconds))
    (flow,), (warning,) = read(tmp_path / "log", log)
    assert flow.acks["now_us"].tolist() == [round(k * STEP_S * 1e6) for k in range(24)]
    assert (np.diff(flow.acks["delivered"].astype(np.int64)) > 0).all()
    assert warning.startswith("the log's clock was set back 1 times; ")


def test_without_acknowledged_bytes_the_times_give_the_order(tmp_path: Path) -> None:
    """Of old iproute2: a step back cannot be distinguished from polls of another order."""
    seconds = [k * STEP_S - 3600 * (k >= 12) for k in range(24)]
    log = "".join(f"{EPOCH + s:.6f}\n{record(k + 1)}" for k, s in enumerate(seconds))
    (flow,), warnings = read(tmp_path / "log", re.sub(r"bytes_acked:\d+ ?", "", log))
    assert (np.diff(flow.acks["now_us"].astype(np.int64)) > 0).all() and not warnings
