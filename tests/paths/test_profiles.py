# SPDX-License-Identifier: GPL-2.0-only
"""Profiles of others: iBoxNet's JSON and mahimahi's traces become models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ndm_tcp.cli import run_command
from ndm_tcp.paths import model as models
from ndm_tcp.paths import scenario

from ..conftest import ROOT

TRACE = ROOT / "lab" / "scenarios" / "variable" / "wandering.trace"


def profile(**uplink: Any) -> str:
    up: dict[str, Any] = {
        "bottleneck_bandwidth": 852,
        "buffer_size_bytes": 27781,
        "buffer_size_packets": 18,
    }
    up |= {"propagation_delay": 208, "cross_traffic_pattern": [0, 0, 1, 100, 852]}
    down = up | {"propagation_delay": 2, "bottleneck_bandwidth": 10000}
    config = {"uplink": up | uplink, "downlink": down}
    return json.dumps({"data_flow_direction": "upload", "link_type": "cellular", "config": config})


def test_iboxnet_profiles_become_paths(tmp_path: Path) -> None:
    folder = tmp_path / "profiles" / "china" / "cellular"
    folder.mkdir(parents=True)
    (folder / "network-profile-1.json").write_text(profile())
    (folder / "network-profile-2.json").write_text(profile(bottleneck_bandwidth=5000))
    command = ["path", "import", str(tmp_path / "profiles"), "-o", str(tmp_path / "out")]
    assert run_command(command) == 0
    one, two = models.load_all(tmp_path / "out")
    assert one.name == "china-cellular-network-profile-1" and two.rate_bps > 4e6
    assert one.rtt_us.value == 210_000 and one.queue_packets.value == 18
    # Other traffic is taken off the rate, but never all of it.
    assert [(v.from_s, v.rate_bps.value) for v in one.levels] == [
        (0.0, 852e3),
        (3.0, 752e3),
        (4.0, pytest.approx(0.05 * 852e3)),
    ]
    made = scenario.scenario(one)
    assert made.link is not None and len(made.link.steps) == 3
    (step_s, _), (last_s, _), (leaves_s, leaves_bps) = made.link.steps
    mean = (852e3 * step_s + 752e3 * (last_s - step_s) + 0.05 * 852e3 * (30 - last_s)) / 30
    assert leaves_bps == pytest.approx(mean, abs=1), "after it the queue leaves"
    late_s = 6 * (0.21 + 18 * 1514 * 8 / mean)  # a flow begins, and so ends, some RTTs late
    assert leaves_s == pytest.approx(30 + late_s)


def test_a_trace_needs_the_values_that_it_does_not_have(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert run_command(["path", "import", str(TRACE), "-o", str(out)]) == 1
    assert "add --rtt-ms MS --queue-packets PACKETS" in capsys.readouterr().err
    given = ["--rtt-ms", "40", "--queue-packets", "100"]
    assert run_command(["path", "import", str(TRACE), "-o", str(out), *given]) == 0
    (one,) = models.load_all(out)
    assert len(one.levels) > 50 and one.rtt_us.value == 40_000
    assert scenario.scenario(one).link is not None


@pytest.mark.parametrize("rtt_ms", ["nan", "inf", "0", "-3", "1e-9"])
def test_an_rtt_that_no_path_has_is_refused(
    rtt_ms: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [f"--rtt-ms={rtt_ms}", "--queue-packets", "100", "-o", str(tmp_path / "out")]
    assert run_command(["path", "import", str(TRACE), *given]) == 1
    assert "the RTT 1 us or more" in capsys.readouterr().err
    assert not list(tmp_path.rglob("*.path.json"))


def test_no_model_takes_the_place_of_another(tmp_path: Path) -> None:
    """Both directions of a trace, and files of the same name in two folders."""
    places = [tmp_path / "a" / "cell.up", tmp_path / "a" / "cell.down", tmp_path / "b" / "cell.up"]
    for place in places:
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(TRACE.read_bytes())
    given = ["--rtt-ms", "40", "--queue-packets", "100", "-o", str(tmp_path / "out")]
    assert run_command(["path", "import", *map(str, places), *given]) == 0
    names = {one.name for one in models.load_all(tmp_path / "out")}
    assert names == {"cell.up", "cell.down", "cell.up.2"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"config": {}}', "neither an iBoxNet profile"),
        ("not a trace", "is not a millisecond"),
        (profile(buffer_size_packets=0), "must be above 0"),
        (profile(bottleneck_bandwidth=0), "must be above 0"),
    ],
)
def test_one_bad_file_does_not_spoil_the_others(
    text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad.json").write_text(text)
    (tmp_path / "good.json").write_text(profile())
    files = [str(tmp_path / name) for name in ("bad.json", "good.json")]
    assert run_command(["path", "import", *files, "-o", str(tmp_path / "out")]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("ndm: left out: ") and "bad.json" in line and said in line
    assert len(models.load_all(tmp_path / "out")) == 1
    assert run_command(["path", "import", *files, "-o", str(tmp_path / "out"), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert len(found["models"]) == 1 and Path(found["models"][0]).is_file()
    assert found["left_out"] == files[:1]
