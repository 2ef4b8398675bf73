# SPDX-License-Identifier: GPL-2.0-only
"""What `ndm path estimate` says of its sources."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ndm_tcp.cli import run_command
from ndm_tcp.datasets.readers import streams
from ndm_tcp.paths.estimate_command import estimate_all

from ..conftest import TRACES


@pytest.fixture(scope="module")
def capture() -> bytes:
    path = TRACES / "cubic-00-clean" / "sender.pcap.zst"
    with streams.open_bytes(path) as stream:
        return streams.read_whole(path, stream, 1 << 30)


def test_a_cut_capture_is_named(
    tmp_path: Path, capture: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = len(capture) // 2
    (tmp_path / "cut.pcap").write_bytes(capture[:whole])
    words = ["path", "estimate", str(tmp_path / "cut.pcap"), "-o", str(tmp_path / "models")]
    assert run_command(words) == 0
    said = capsys.readouterr().err
    assert re.search(r"cut.pcap: cut short or damaged at byte \d+; its \d+ whole packets", said)


def test_the_same_bytes_give_one_path(
    tmp_path: Path, capture: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("one.pcap", "two.pcap"):
        (tmp_path / name).write_bytes(capture)
    made, refused = estimate_all([tmp_path], tmp_path / "models", quiet=True)
    assert len(made) == 1 and not refused
    assert re.search(r"two.pcap: same bytes as .*one.pcap; used once", capsys.readouterr().err)


def test_a_short_connection_beside_a_flow_is_as_usual(tmp_path: Path) -> None:
    """That of iperf3's orders, for one."""
    line = (
        "ESTAB 0 0 10.0.0.1:{} 10.0.0.2:5 cubic wscale:9,7 rto:240 rtt:{}/2 mss:1448 cwnd:50 "
        "bytes_acked:{} delivered:{} minrtt:40"
    )
    bulk = [(4, 40 + k % 10, 1448 * 100 * k, 100 * k) for k in range(1, 60)]
    orders = [(6, 41, 1448 * 7, 7)] * len(bulk)
    log = tmp_path / "ss.log"
    both = "".join(
        f"{1_700_000_000 + k / 10:.9f}\n{line.format(*one)}\n{line.format(*other)}\n"
        for k, (one, other) in enumerate(zip(bulk, orders, strict=True))
    )
    log.write_text(both)
    words = ["path", "estimate", str(log), "-o", str(tmp_path / "models")]
    assert run_command(words) == 0
    log.write_text("".join(part for part in both.splitlines(True) if ":4 " not in part))
    assert run_command(words) == 2
