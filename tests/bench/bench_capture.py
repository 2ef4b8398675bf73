# SPDX-License-Identifier: GPL-2.0-only
"""Packets per CPU second from a classic pcap, beside other tools; memory on a large capture.

    make bench-datasets
    python -m tests.bench.bench_capture [--packets 200000] [--large-gb 5] [--folder DIR]

Every tool runs in a process of its own, three times, the best counts; CPU seconds, so that a busy
machine changes little. The work differs and is named: only ours ends in the inputs of a network.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.bench import transfer

OURS = """
import sys, time
from pathlib import Path
from ndm_tcp.datasets.readers import sources
from ndm_tcp.datasets.rounds.columns import table
path = Path(sys.argv[1])
start = time.process_time()
found = sources.read_rounds(path, sources.digest(path))
tables = [table(flow, found.name, "") for flow in found.flows]
print(time.process_time() - start)
"""
SCAPY = """
import sys, time
from scapy.all import IP, TCP, PcapReader
start = time.process_time()
for packet in PcapReader(sys.argv[1]):
    packet[TCP].seq
print(time.process_time() - start)
"""
DPKT = """
import sys, time, dpkt
start = time.process_time()
with open(sys.argv[1], "rb") as stream:
    for at, data in dpkt.pcap.Reader(stream):
        dpkt.ethernet.Ethernet(data).data.data.seq
print(time.process_time() - start)
"""
TWIN = """
import sys, time
from pathlib import Path
from tests.reference import capture
start = time.process_time()
capture.read(Path(sys.argv[1]))
print(time.process_time() - start)
"""
SPACE_BYTES = 2 << 30
FIELDS = ("frame.time_epoch", "tcp.seq", "tcp.ack", "tcp.len", "tcp.analysis.ack_rtt")
Tool = tuple[str, str, list[str], int]
"""name, what it does, command line, share of the packets that it is given (1 in so many)"""


def tools(capture: Path, part: Path) -> list[Tool]:
    """Those that are installed. Slow ones get `part`, a tenth of the packets."""
    python = [sys.executable, "-c"]
    found: list[Tool] = [
        ("ndm dataset", "sender's state at every ACK -> rounds", [*python, OURS, str(capture)], 1),
        ("Python twin", "sender's state at every ACK", [*python, TWIN, str(part)], 10),
        ("scapy", "dissection", [*python, SCAPY, str(part)], 10),
    ]
    try:
        import dpkt  # noqa: F401

        found.append(("dpkt", "Ethernet to TCP", [*python, DPKT, str(capture)], 1))
    except ImportError:
        print("dpkt is not installed: pip install -e '.[bench]'")
    if shutil.which("tcptrace"):
        found.append(("tcptrace", "counters of connections", ["tcptrace", "-lr", str(capture)], 1))
    else:
        print("tcptrace is not installed: apt-get install tcptrace")
    if shutil.which("tshark"):
        words = ["tshark", "-r", str(part), "-T", "fields"]
        words += [word for field in FIELDS for word in ("-e", field)]
        found.append(("tshark", "five fields with analysis", words, 10))
    else:
        print("tshark is not installed: apt-get install tshark")
    return found


def cpu_seconds(words: list[str], space: int = resource.RLIM_INFINITY) -> tuple[float, int]:
    """CPU seconds of a program (what it prints, if that is a number) and its peak RSS in KiB.

    Args:
        words: its command line.
        space: bytes of address space it may have.
    """
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen(
            words,
            stdout=out,
            stderr=subprocess.DEVNULL,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (space, space)),
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = status
        if status:
            raise SystemExit(f"{words[0]} ended with {status}")
        out.seek(0)
        printed = out.read(40).strip()
    try:
        seconds = float(printed)
    except ValueError:
        seconds = usage.ru_utime + usage.ru_stime
    return seconds, usage.ru_maxrss


def speed(folder: Path, packets: int) -> None:
    """Print packets per CPU second of every tool, and the ratio of ours to it."""
    capture, part = folder / "speed.pcap", folder / "part.pcap"
    count, few = transfer.write(capture, packets), transfer.write(part, packets // 10)
    print(f"{count} packets, {capture.stat().st_size} bytes, one flow, 96 bytes per packet")
    rates: dict[str, float] = {}
    rows = []
    for name, what, words, share in tools(capture, part):
        best = min(cpu_seconds(words)[0] for _ in range(3))
        rates[name] = (count if share == 1 else few) / best
        rows.append((name, what))
    print(f"\n| tool | gives | packets/s | ndm dataset is |\n|{'---|' * 4}")
    for name, what in rows:
        ratio = rates["ndm dataset"] / rates[name]
        print(f"| {name} | {what} | {rates[name]:,.0f} | {ratio:.3g} x |")


def memory(folder: Path, gigabytes: float) -> None:
    """Build from a capture of so many GB, in less address space, and print the peak RSS."""
    capture, out = folder / "large.pcap", folder / "large.data"
    size = int(gigabytes * 1e9)
    if shutil.disk_usage(folder).free < size + (2 << 30):
        raise SystemExit(f"{folder}: less than {gigabytes + 2} GB free")
    count = transfer.write(capture, size=size)
    print(f"\n{count} packets, {capture.stat().st_size / 1e9:.2f} GB")
    words = [sys.executable, "-m", "ndm_tcp.cli", "dataset", "build", str(capture), "-o", str(out)]
    try:
        start = time.monotonic()
        seconds, rss = cpu_seconds([*words, "--jobs", "1"], SPACE_BYTES)
        wall = time.monotonic() - start
    finally:
        capture.unlink()
        shutil.rmtree(out, ignore_errors=True)
    print(f"ndm dataset build --jobs 1: peak RSS {rss / 1024:.0f} MiB, of at most")
    print(f"{SPACE_BYTES >> 20} MiB of address space; {wall:.0f} s, {seconds:.0f} s of CPU time,")
    print(f"{count / seconds / 1e6:.2f} million packets per CPU second")


def main() -> None:
    """Run both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--packets", type=int, default=200_000)
    parser.add_argument("--large-gb", type=float, default=5.0, help="0: leave it out")
    parser.add_argument("--folder", type=Path, help="for the files (default: a temporary one)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        speed(Path(name), args.packets)
        if args.large_gb:
            memory(Path(name), args.large_gb)


if __name__ == "__main__":
    main()
