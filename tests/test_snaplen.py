# SPDX-License-Identifier: GPL-2.0-only
"""Captures that hold only the first bytes of each packet, as tcpdump -s writes them."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from ndm_tcp.cli import run_command
from ndm_tcp.datasets.readers import capture, pcap
from ndm_tcp.paths import estimate, label

from . import captures
from .conftest import TRACES
from .test_capture import plain
from .test_capture_twin import compare
from .test_field_captures import TUNNELS, V6, connection, dressed

LONGEST = "VXLAN over IPv6, VLAN inside"
Capture = pytest.CaptureFixture[str]


def cut_to(whole: bytes, caught: int) -> bytes:
    """A capture of raw IP with no more of each packet."""
    parts, at = [whole[:24]], 24
    while at < len(whole):
        seconds, fraction, size, wire = struct.unpack_from("<4I", whole, at)
        left = min(size, caught)
        parts.append(struct.pack("<4I", seconds, fraction, left, wire))
        parts.append(whole[at + 16 : at + 16 + left])
        at += 16 + size
    return b"".join(parts)


@pytest.mark.parametrize(("caught", "named"), [(56, True), (64, False), (80, False)])
def test_options_that_are_cut_off_are_named(tmp_path: Path, caught: int, named: bool) -> None:
    """IP and TCP have 40 bytes, time stamps 12, and the newest SACK block 12 more."""
    path = TRACES / "cubic-03-lossy" / "sender.pcap.zst"
    whole = plain(path, tmp_path / "whole.pcap")
    (tmp_path / "x.pcap").write_bytes(cut_to(whole, caught))
    report = pcap.CaptureReport()
    flows, _ = capture.read(tmp_path / "x.pcap", None, report)
    assert flows and (report.cut_options > 0) == named
    assert any("options cut off" in warning for warning in report.warnings()) == named
    (found,) = (estimate.estimate(flow, "x.pcap") for flow in flows)
    assert (found.loss.kind == "assumed") == named
    assert any("SACK blocks" in note for note in found.notes) == named
    assert (found.label_error_log2 > label.WORST) == named, "what is guessed teaches nothing"


def test_advised_snaplens_hold_a_tunnel_s_headers(tmp_path: Path) -> None:
    made = connection(tmp_path / "x.pcap", 80)
    options = captures.stamps(1, 1) + captures.sack(*range(2000, 8000, 1000))
    assert len(options) == 40, "all that TCP has room for"
    made.packet(2_000_000, False, seq=1, ack=1, options=options)
    path = dressed(made, 101, TUNNELS[LONGEST])
    whole = path.read_bytes()
    for caught, advised in ((128, ["tcpdump -s 192"]), (192, [])):
        report = pcap.CaptureReport()
        path.write_bytes(cut_to(whole, caught))
        capture.read(path, None, report)
        said = [warning for warning in report.warnings() if "options cut off" in warning]
        assert [warning[-len("tcpdump -s 192") :] for warning in said] == advised


@pytest.mark.parametrize("caught", [96, 128])
def test_headers_that_are_cut_off_are_the_reason(
    tmp_path: Path, capsys: Capture, caught: int
) -> None:
    """The inner header of IP, or that of TCP; the advice was to capture a bulk transfer."""
    path = dressed(connection(tmp_path / "x.pcap", 80, V6), 101, TUNNELS[LONGEST])
    path.write_bytes(cut_to(path.read_bytes(), caught))
    said = "163 packets have headers that were cut off; capture more of each: tcpdump -s 192"
    for verb in (("path", "estimate"), ("dataset", "build")):
        words = [*verb, os.fspath(path), "-o", os.fspath(tmp_path / verb[0])]
        assert run_command(words) == 2
        assert said in capsys.readouterr().err
    compare(path)
