# SPDX-License-Identifier: GPL-2.0-only
"""What fuzzing starts from: the beginnings of the shipped traces and of what lies beside the tree.

python -m tests.fuzz.corpus FOLDER      writes one seed per file, for fuzz_native.c
python -m tests.fuzz.corpus FOLDER blob writes networks, for fuzz_blob.c
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ndm_tcp.datasets.readers import mlab, pcap, simulated, ss, streams, tcp_probe
from ndm_tcp.errors import NdmError
from tests import blobs, captures

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared"
FOLDERS = (ROOT / "datasets" / "traces", SHARED / "realdata", SHARED / "cases")
SEED_BYTES = 6000
TEXT_BYTES = 40_000
ROUND_TRACE = (
    b"  iperf3-7  [000] ..s.. 2.404064: ndm_tcp_round: sport=20001 dport=5201 valid=1 "
    b"x=4095,-1,409,0,4096,0,1151,0,4096,0 gain=4026 congestion=-5 phase=0 state=0 cwnd=10 "
    b"target=11 ssthresh=2147483647 why=network\n"
)
FLENT = json.dumps(
    {
        "metadata": {"BATCH_UUID": "a", "SERIES_META": {"TCP": {"CONG_CONTROL": "cubic"}}},
        "version": 4,
        "raw_values": {
            "TCP": [
                {"t": k / 4, "val": 8.0, "dur": 0.2, "tcp_cwnd": 10 + k, "tcp_rtt": 40.0}
                for k in range(20)
            ]
        },
    }
).encode()
KINDS = ((tcp_probe.sniff, 2), (ss.sniff, 3), (mlab.sniff, 4))


def recording() -> bytes:
    """The ACKs of two flows of the simulator, more or less."""
    records = np.zeros(64, simulated.RECORD)
    records["flow"] = np.arange(64) % 2
    ack = records["ack"]
    ack["now_us"] = np.arange(64) * 10_000
    ack["rtt_us"] = ack["srtt_us"] = ack["min_rtt_us"] = 20_000
    ack["acked"], ack["cwnd"], ack["ssthresh"], ack["interval_us"] = 2, 10, 8, 20_000
    ack["delivered"] = np.arange(64) * 2
    ack["prior_delivered"] = np.maximum(np.arange(64) * 2 - 4, 0)
    return simulated.KIND + records.tobytes()


def clock_of_centuries() -> bytes:
    """A pcapng in ns whose clock goes back by 220 years, and forward by 200."""
    made = captures.Captured(Path())
    made.handshake(0, 20_000, 20_050)
    made.transfer(21_000, 20)
    nanoseconds = captures.option("<", 9, b"\x09")
    out = captures.section("<") + captures.interface("<", 101, nanoseconds)
    frames = made.sort().frames()
    for number, (at_us, data, wire) in enumerate(frames):
        years = (260, 40, 240)[number * 3 // len(frames)]
        ns = (years * 365 * 86_400 * 10**6 + at_us) * 1000
        out += captures.enhanced("<", 0, ns, data, wire)
    return out


def files(step: int = 1) -> list[Path]:
    """Every step-th file of the folders."""
    found = [p for folder in FOLDERS if folder.is_dir() for p in sorted(folder.rglob("*"))]
    return [p for p in found if p.is_file()][::step]


def seeds(step: int = 1) -> Iterator[tuple[int, bytes]]:
    """(reader of fuzz_native.c, first bytes of a file)."""
    yield 0, clock_of_centuries()
    for path in files(step):
        try:
            with streams.open_bytes(path) as stream:
                head = stream.read(SEED_BYTES)
        except NdmError:
            continue
        if pcap.sniff(head):
            yield 0, head
            yield 1, head[:2000]
            continue
        for sniff, kind in KINDS:
            if sniff(head):
                yield kind, head[:2500]


def texts(step: int = 1) -> Iterator[tuple[int, bytes]]:
    """(reader of fuzz_readers.py, first bytes of a file; of JSON more)."""
    for path in files(step):
        try:
            with streams.open_bytes(path) as stream:
                head = stream.read(TEXT_BYTES)
        except NdmError:
            continue
        kind = 4 if path.name == "drops.csv" else 0
        yield kind, head if head[:1] == b"{" else head[:SEED_BYTES]
    yield 0, FLENT
    yield 5, recording()
    yield 6, ROUND_TRACE


def write(folder: Path, step: int = 1) -> int:
    """Write the seeds; returns how many."""
    folder.mkdir(parents=True, exist_ok=True)
    number = 0
    for kind, data in seeds(step):
        seed = bytes([kind]) + data
        (folder / hashlib.sha256(seed).hexdigest()[:16]).write_bytes(seed)
        number += 1
    return number


def write_blobs(folder: Path) -> int:
    """Write the shipped network and others in blobs; returns how many."""
    folder.mkdir(parents=True, exist_ok=True)
    models = [blobs.shipped(), blobs.other(1), blobs.other(2)]
    for number, model in enumerate(models):
        (folder / f"{number}").write_bytes(bytes([number % 2]) + blobs.of(model))
    return len(models)


if __name__ == "__main__":
    writer = write_blobs if "blob" in sys.argv[2:] else write
    print(writer(Path(sys.argv[1])), "seeds")
