# SPDX-License-Identifier: GPL-2.0-only
"""A recorded run: the sender's capture and the machine's own records beside it; or, of the
simulator, the ACKs themselves (`simulated`).

Files are found by name with any of the endings plain, .gz, .zst:
`sender.pcap` (required, but of the simulator), `tcp_probe.txt` or `trace.txt` (the kernel's cwnd
and ssthresh), `drops.csv` (t_ns,seq,len,cause), `run.toml` or `clock.txt` (capture clock against
trace clock), `tcp_info.jsonl` (the kernel's RTT, if there is no trace), `result.json` or
`iperf3.json` (the names of the congestion controls), `scenario.toml` (with `run.toml` and
`result.json`: the path's truth).
"""

from __future__ import annotations

import csv
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import orjson

from ndm_tcp.datasets.readers import capture, mlab, pcap, simulated, streams, tcp_probe
from ndm_tcp.datasets.readers.pcap import CaptureReport
from ndm_tcp.datasets.readers.tcp_probe import ProbeColumns
from ndm_tcp.datasets.rounds.flow import FlowRecords, LossCause
from ndm_tcp.errors import NdmError

CAUSES = {"random": LossCause.RANDOM, "queue": LossCause.QUEUE}


def find(folder: Path, *stems: str) -> Path | None:
    """The first of these files that exists, compressed or not."""
    for stem in stems:
        for ending in ("", ".zst", ".gz"):
            path = folder / (stem + ending)
            if path.is_file():
                return path
    return None


def is_run(folder: Path) -> bool:
    """True if the folder holds a recorded run."""
    return folder.is_dir() and find(folder, "sender.pcap", simulated.STEM) is not None


def other_captures(folder: Path) -> list[str]:
    """Names of captures in a run's folder that are neither the sender's nor the receiver's."""
    found = []
    for path in sorted(folder.iterdir()):
        if path.name.startswith((".", "sender.pcap", "receiver")) or not path.is_file():
            continue
        with streams.open_bytes(path) as stream:
            if pcap.sniff(stream.read(pcap.MAGIC_BYTES)):
                found.append(path.name)
    return found


def _rows(path: Path, stream: IO[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """Line number and columns of each row."""
    try:
        yield from enumerate(csv.DictReader(stream), start=2)
    except csv.Error as error:
        raise NdmError(f"{path}: not CSV ({error}); record the run again") from None


def _time_us(row: dict[str, str]) -> int:
    """Raises OverflowError beyond 64 bits."""
    return int(np.int64(int(row["t_ns"]))) // 1000


def read_drops(path: Path) -> dict[int, list[tuple[int, int]]]:
    """32-bit sequence number to [(time in us, LossCause)] of every dropped data packet.

    Raises:
        NdmError: a column is missing or a value is not of its kind.
    """
    drops: dict[int, list[tuple[int, int]]] = {}
    with streams.open_text(path) as stream:
        for number, row in _rows(path, stream):
            try:
                at_us, seq = _time_us(row), int(np.uint32(int(row["seq"])))
                drops.setdefault(seq, []).append((at_us, CAUSES[row["cause"]]))
            except (KeyError, TypeError, ValueError, OverflowError):
                raise NdmError(
                    f"{path}:{number}: expected t_ns,seq,len,cause with cause random or queue; "
                    "record the run again"
                ) from None
    return drops


def _facts(folder: Path) -> dict[str, Any]:
    path = find(folder, "run.toml")
    if path is None:
        return {}
    try:
        with streams.open_text(path) as stream:
            return tomllib.loads(stream.read())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise NdmError(f"{path}: not valid TOML ({error}); record the run again") from None


def _clock_offset_s(folder: Path, facts: dict[str, Any]) -> float | None:
    """Capture clock minus trace clock, s; None if the folder has no clock."""
    if "realtime_ns" in facts.get("clock", facts):
        clock = facts.get("clock", facts)
        return (int(clock["realtime_ns"]) - int(clock["monotonic_ns"])) / 1e9
    path = find(folder, "clock.txt")
    if path is None:
        return None
    try:
        with streams.open_text(path) as stream:
            realtime_s, monotonic_s = (float(word) for word in stream.read().split())
    except ValueError:
        raise NdmError(
            f"{path}: expected two numbers, CLOCK_REALTIME CLOCK_MONOTONIC; record the run again"
        ) from None
    return realtime_s - monotonic_s


def _json(path: Path) -> dict[str, Any]:
    with streams.open_bytes(path) as stream:
        try:
            data: dict[str, Any] = orjson.loads(stream.read())
        except orjson.JSONDecodeError as error:
            raise NdmError(f"{path}: not valid JSON ({error}); record the run again") from None
    return data


def _cc_name(folder: Path, facts: dict[str, Any]) -> str | None:
    if "cc" in facts:
        return str(facts["cc"])
    path = find(folder, "iperf3.json")
    name = _json(path).get("end", {}).get("sender_tcp_congestion") if path else None
    return str(name) if name else None


def _cc_by_ports(folder: Path) -> dict[tuple[int, int | None], str]:
    """Ports of a run's flows to their algorithm; the lab names the sender's alone."""
    path = find(folder, "result.json")
    flows = _json(path).get("flows", []) if path else []
    return {
        (int(f["port"]), int(f["peer_port"]) if "peer_port" in f else None): str(f["cc"])
        for f in flows
        if "port" in f and "cc" in f
    }


PATH_KEYS = ("rate_bps", "rtt_us", "queue_packets", "loss", "jitter_us", "reorder", "rate_steps")


def _describes(key: str) -> bool:
    return key in PATH_KEYS or key.startswith("burst")


def _path_name(facts: dict[str, Any]) -> str | None:
    """The link's parameters as one word."""
    link = facts.get("link", facts)
    parts = [f"{key}={link[key]}" for key in sorted(link) if _describes(key) and link[key]]
    return " ".join(parts) or None


def _probes(path: Path, needed: bool) -> dict[tuple[int, int], ProbeColumns]:
    """The trace by ports; without a clock it only shows the RTT, and may be damaged."""
    try:
        return tcp_probe.read_columns(path)
    except NdmError:
        if needed:
            raise
        return {}


def _kernel_srtt_us(
    folder: Path, probes: dict[tuple[int, int], ProbeColumns]
) -> dict[tuple[int, int] | None, float]:
    """Median srtt by ports; of a run's only connection from tcp_info, if there is no trace."""
    found: dict[tuple[int, int] | None, float] = {
        ports: float(np.median(probe.srtt_us[probe.srtt_us > 0]))
        for ports, probe in probes.items()
        if (probe.srtt_us > 0).any()
    }
    path = find(folder, "tcp_info.jsonl")
    if found or path is None:
        return found
    try:
        flows = mlab.read(path)
    except NdmError:
        return found
    if len(flows) == 1:
        found[None] = float(np.median(flows[0].acks["srtt_us"]))
    return found


def _run(folder: Path, facts: dict[str, Any]) -> capture.Run | None:
    """The path's truth, if the lab made the run; text that training reads.

    Raises:
        NdmError: the scenario is not UTF-8, or a file that goes with it lacks something.
    """
    path, result = find(folder, "scenario.toml"), find(folder, "result.json")
    if path is None or result is None or "clock" not in facts:
        return None
    try:
        with streams.open_text(path) as stream:
            text = stream.read()
        return capture.Run(
            text,
            str(_json(result)["cc"]),
            int(np.uint16(facts["sender_port"])),
            int(facts["flows"]),
            int(np.int64(facts["clock"]["realtime_ns"])) // 1000,
        )
    except UnicodeDecodeError:
        raise NdmError(f"{path}: not UTF-8; record the run again") from None
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise NdmError(
            f"{folder}: run.toml or result.json lacks a number that goes with scenario.toml "
            f"({error}); record the run again, or remove scenario.toml"
        ) from None


def read(
    folder: Path, report: CaptureReport | None = None
) -> tuple[list[FlowRecords], Counter[str]]:
    """The flows of a recorded run, with the kernel's windows and the causes of loss.

    Raises:
        NdmError: a file of the run is damaged.
    """
    if acks := find(folder, simulated.STEM):
        return simulated.read(acks)
    facts = _facts(folder)
    sent = find(folder, "sender.pcap")
    assert sent is not None
    probe = find(folder, "tcp_probe.txt", "trace.txt")
    offset_s = _clock_offset_s(folder, facts)
    drops = find(folder, "drops.csv")
    probes = _probes(probe, offset_s is not None) if probe else {}
    truth = capture.Truth(
        cc_name=_cc_name(folder, facts),
        cc_by_ports=_cc_by_ports(folder),
        path=_path_name(facts),
        probes=probes if offset_s is not None else {},
        srtt_us=_kernel_srtt_us(folder, probes),
        probe_offset_s=offset_s or 0.0,
        drops=read_drops(drops) if drops else None,
        run=_run(folder, facts),
    )
    return capture.read(sent, truth, report)
