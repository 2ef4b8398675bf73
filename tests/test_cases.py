# SPDX-License-Identifier: GPL-2.0-only
"""The cases from the field that lie beside the checkout, each held to what its page says.

Their kinds are tested always, with files made on the spot: test_field_captures.py,
test_field_logs.py, test_user_errors.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ndm_tcp.cli import run_command
from ndm_tcp.datasets.store import store

from .conftest import ROOT

CASES = ROOT.parent / "shared" / "cases"
pytestmark = pytest.mark.skipif(not CASES.is_dir(), reason="no shared/cases beside the tree")

RTT_US = range(39_990, 40_010)
CLEAN = {"segments": 101, "retransmitted": 1, "capture_holes": 0}
READ: dict[str, tuple[int, dict[str, int]]] = {
    "any_nat_twice.pcap": (1, CLEAN),
    "clock_back_20ms.pcap": (1, CLEAN),
    "fin_half_close_refused.pcap": (1, {"segments": 100, "retransmitted": 0, "capture_holes": 0}),
    "fin_tso_refused.pcap": (1, {"segments": 80, "retransmitted": 0, "capture_holes": 0}),
    "keepalive_one_byte.pcap": (1, CLEAN | {"keepalives": 20}),
    "linktype_nflog.pcap": (1, CLEAN),
    "records_out_of_order.pcap": (1, CLEAN | {"segments": 201}),
    "snaplen54.pcap": (1, CLEAN),
    "tunnel_ipip.pcap": (1, CLEAN),
    "tunnel_vxlan.pcap": (1, CLEAN),
    "iperf3_R_get_server_output.json": (1, {"polls": 10}),
    "iperf3_json_stream_cut.json": (1, {"polls": 10}),
    "iperf3_omit.json": (1, {"polls": 10, "retransmitted": 10}),
    "mlab_bigquery_rows.jsonl": (3, {"polls": 40}),
    "ndt7_client_json.jsonl": (1, {"polls": 40}),
    "perf_script_two_events.txt": (1, {"polls": 300, "retransmitted": 6}),
    "ss_date_default.txt": (1, {"polls": 40, "rounds": 39}),
    "ss_date_iso.txt": (1, {"polls": 40, "rounds": 39}),
    "ss_good.txt": (1, {"polls": 200}),
    "ss_grep_A1_dashes.txt": (2, {"polls": 40}),
    "ss_listen_first.txt": (1, {"polls": 10}),
    "ss_ts_prefix.txt": (1, {"polls": 40, "rounds": 39}),
    "ss_whole_seconds.txt": (1, {"polls": 40}),
    "tcp_probe_after_other_events.txt": (1, {"polls": 300}),
}
SAID = {
    "clock_back_20ms.pcap": "the capture's clock was set back 1 times",
    "iperf3_json_stream_cut.json": "the last object is cut off and left out",
    "ss_grep_A1_dashes.txt": "40 lines that ss did not print were left out, the first is line 4",
    "ss_whole_seconds.txt": "38 of 40 polls have the time of the previous poll",
    "snaplen54.pcap": "202 packets have their TCP options cut off",
    "tcp_probe_after_other_events.txt": "no tcp_retransmit_skb event",
}
REFUSED = {
    "merged_two_points.pcap": "two capture points are merged in one file",
    "iperf3_no_cwnd.json": "this system's iperf3 gives no snd_cwnd",
    "tcp_probe_clock_mono_ns.txt": "the trace clock counts in whole numbers",
}
MISTAKES = {
    "non_utf8_name": (0, "1 flows"),
    "out_is_a_file": (2, "f.txt: not a folder"),
    "dangling_link": (0, "1 flows"),
    "link_loop": (0, "1 flows"),
    "fifo_hangs": (0, "1 flows"),
    "read_only_out": (2, "Read-only file system"),
    "disk_full": (2, "No space left on device"),
    "deep_folder": (2, "no capture, run folder or tcp_info log found here"),
    "tar_of_an_ss_log": (0, "1 flows"),
}


def test_every_case_is_here() -> None:
    names = {p.name for p in CASES.iterdir() if p.suffix not in (".md", ".sh")}
    assert names == set(READ) | set(REFUSED)


@pytest.mark.parametrize("name", READ)
def test_a_case_is_read(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flows, facts = READ[name]
    assert run_command(["dataset", "build", str(CASES / name), "-o", str(tmp_path)]) == 0
    said = capsys.readouterr().err
    assert SAID.get(name, "") in said and len(said.splitlines()) == (name in SAID)
    dataset = store.load(tmp_path)
    found: list[dict[str, Any]] = dataset.manifest["sources"][0]["flows"]
    assert len(found) == flows
    for flow in found:
        assert {key: flow[key] for key in facts} == facts
    if name.endswith(".pcap"):
        assert set(dataset.rounds["mss"].to_pylist()) == {1448}
        assert all(us in RTT_US for us in dataset.rounds["min_rtt_us"].to_pylist())


@pytest.mark.parametrize("name", REFUSED)
def test_a_case_is_refused(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert run_command(["dataset", "build", str(CASES / name), "-o", str(out)]) == 2
    said = capsys.readouterr().err
    assert REFUSED[name] in said and said.count("\n") == 1 and not out.exists()


def test_the_mistakes_end_in_one_line(tmp_path: Path) -> None:
    """The two mounts need root; without it, these two say so."""
    ndm = str(Path(sys.executable).parent / "ndm")
    place = tmp_path / "place"
    place.mkdir()
    script = (CASES / "user_errors.sh").read_text()
    assert "size=128k" in script  # on which a dataset of ten inputs and its card find room
    done = subprocess.run(
        ["bash", "-c", script.replace("size=128k", "size=48k"), str(CASES / "user_errors.sh")],
        env={**os.environ, "NDM": ndm, "TMPDIR": str(place)},
        capture_output=True,
        text=True,
        check=False,
    )
    subprocess.run(["rm", "-rf", place], check=True)  # deeper than pytest can remove
    answers = {}
    for part in done.stdout.split("== ")[1:]:
        name, line, code = part.splitlines()[:3]
        answers[name] = (int(code.removeprefix("rc=")), line)
    for name, (code, text) in MISTAKES.items():
        if name in answers:
            assert answers[name][0] == code and text in answers[name][1], (name, answers[name])
    assert set(MISTAKES) - set(answers) <= {"read_only_out", "disk_full"}
