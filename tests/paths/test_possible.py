# SPDX-License-Identifier: GPL-2.0-only
"""Models that a user has mended: a value that no path has teaches nothing."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from ndm_tcp.errors import NdmError
from ndm_tcp.paths import model as models

from ..conftest import ROOT

SHIPPED = sorted((ROOT / "datasets" / "path-models").rglob(f"*{models.SUFFIX}"))


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("rtt_us.value", -43_000.0),
        ("rtt_us.low", 0.0),
        ("rtt_us.high", 1.0),
        ("queue_packets.low", -1.0),
        ("loss.high", 7.0),
        ("jitter_us.low", -0.1),
        ("mss", 0),
        ("seconds", 0.0),
        ("app_limited", 1.5),
        ("label_error_log2", -1.0),
        ("window_bdp", -1.0),
        ("levels", []),
        ("levels.0.from_s", -1.0),
        ("levels.0.rate_bps.low", -1e6),
        ("levels.0.rate_bps.value", 1e15),
    ],
)
def test_a_value_that_no_path_has_is_named(place: str, value: Any, tmp_path: Path) -> None:
    text = SHIPPED[0].read_text()
    models.read(SHIPPED[0])
    found: dict[str, Any] = json.loads(text)
    at: Any = found["model"]
    *above, last = place.split(".")
    for key in above:
        at = at[int(key)] if isinstance(at, list) else at[key]
    at[last] = value
    path = tmp_path / f"x{models.SUFFIX}"
    path.write_text(json.dumps(found))
    with pytest.raises(NdmError, match=r"x\.path\.json: \w+: no path has this value.*mend it"):
        models.read(path)


def test_levels_come_one_after_the_other(tmp_path: Path) -> None:
    found = json.loads(SHIPPED[0].read_text())
    level = found["model"]["levels"][0]
    for starts_s, sound in (((0.0, 2.0), True), ((2.0, 1.0), False), ((1.0, 1.0), False)):
        found["model"]["levels"] = [{**level, "from_s": from_s} for from_s in starts_s]
        (tmp_path / "x").write_text(json.dumps(found))
        if sound:
            assert math.isfinite(models.read(tmp_path / "x").rate_bps)
        else:
            with pytest.raises(NdmError, match="levels: no path"):
                models.read(tmp_path / "x")


def test_what_ships_is_possible() -> None:
    assert SHIPPED and all(models.read(path).levels for path in SHIPPED)
