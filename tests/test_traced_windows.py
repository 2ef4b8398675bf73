# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's windows of a recorded run: those of each ACK, or none."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import zstandard

from ndm_tcp.datasets.readers import capture, run_folder, sources
from ndm_tcp.datasets.rounds.flow import CwndSource

from .conftest import TRACES

RUN = TRACES / "cubic-00-clean"
TIME = re.compile(r"(\d+\.\d+): ")


def traced(folder: Path, how: str) -> Path:
    """A copy of the run with a part of its trace."""
    shutil.copytree(RUN, folder)
    (path,) = folder.glob("tcp_probe.txt*")
    text = zstandard.ZstdDecompressor().decompressobj().decompress(path.read_bytes()).decode()
    path.unlink()
    lines = text.splitlines(keepends=True)
    n = len(lines)
    keep = {
        "whole": lines,
        "first half": lines[: n // 2],
        "last half": lines[n // 2 :],
        "a hole": lines[: n // 3] + lines[2 * n // 3 :],
        "another clock": [
            TIME.sub(lambda found: f"{float(found[1]) + 3600:.6f}: ", line) for line in lines
        ],
        "few missing": [line for k, line in enumerate(lines) if k % 50],
    }
    (folder / "tcp_probe.txt").write_text("".join(keep[how]))
    return folder


@pytest.mark.parametrize("how", ["first half", "last half", "a hole", "another clock"])
def test_a_trace_of_other_acks_gives_no_windows(how: str, tmp_path: Path) -> None:
    folder = traced(tmp_path / "run", how)
    found = sources.read(folder)
    (flow,) = found.flows
    (pcap,) = folder.glob("sender.pcap*")
    (plain,), _ = capture.read(pcap)
    assert flow.cwnd_source == CwndSource.INFLIGHT
    assert np.array_equal(flow.acks["cwnd"], plain.acks["cwnd"])
    assert re.match(rf"tcp_probe has no event of \d+ of {len(flow.acks)} ACKs", found.warnings[0])


@pytest.mark.parametrize("how", ["whole", "few missing"])
def test_a_trace_of_nearly_all_acks_gives_the_windows(how: str, tmp_path: Path) -> None:
    found = sources.read(traced(tmp_path / "run", how))
    (flow,), _ = run_folder.read(RUN)
    assert found.flows[0].cwnd_source == CwndSource.KERNEL and not found.warnings
    assert (found.flows[0].acks["cwnd"] == flow.acks["cwnd"]).mean() > 0.97
