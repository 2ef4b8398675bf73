# SPDX-License-Identifier: GPL-2.0-only
"""What an ACK costs in BPF and in the module's code, on this host; as root.

    python -m tests.bench.bench_bpf [--seconds N] [--mbps N]

The same records through the BPF programs, by the kernel's statistics, and through the module's code
in user space, by the clock; from each the cost of a record that calls nothing is taken off. Then
a bulk transfer over a token bucket, where a callback that does nothing is the cost of measuring.
"""

from __future__ import annotations

import argparse
import struct
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ndm_tcp.bpf.loader import NAME
from tests import blobs
from tests.bpf import records

ROOT = Path(__file__).resolve().parents[2]
PLAN = """
ip netns add ndmS; ip netns add ndmD
ip link add a0 netns ndmS gso_max_segs 1 type veth peer name b0 netns ndmD gso_max_segs 1
ip -n ndmS addr add 10.1.0.1/24 dev a0; ip -n ndmS link set a0 up
ip -n ndmD addr add 10.1.0.2/24 dev b0; ip -n ndmD link set b0 up
tc -n ndmS qdisc add dev a0 root tbf rate {mbps}mbit burst 64k limit 500k
"""
CLEAN = "ip netns del ndmS; ip netns del ndmD"


NOTHING = 99
"""an operation that no record has"""


def build(folder: Path) -> None:
    """Object and loader of the project, the module's code for user space, and a counter."""
    subprocess.run(["make", "-s", "-C", ROOT / "bpf", f"OUT={folder}"], check=True)
    include = [f"-I{ROOT}", f"-I{ROOT}/bpf", f"-I{ROOT}/bpf/include"]
    source = str(ROOT / "tests" / "bpf" / "replay.c")
    words = ["cc", "-O2", "-w", *include, source, "-o", str(folder / "replay")]
    subprocess.run(words, check=True)
    cost = ROOT / "tests" / "bench" / "cost.c"
    subprocess.run(["cc", "-O2", cost, "-o", folder / "cost", "-lbpf"], check=True)


def times_of(program: list[Path | str], flows: bytes) -> NDArray[np.float64]:
    """Nanoseconds of every record: the lowest of five runs, so that other programs do not count."""
    found = []
    for _ in range(5):
        done = subprocess.run(program, input=flows, capture_output=True, check=True)
        found.append([records.inputs(record)["ns"] for record in records.split(done.stdout)])
    lowest: NDArray[np.float64] = np.array(found, dtype=np.float64).min(axis=0)
    return lowest


def replayed(folder: Path) -> None:
    """The same records through both, and through BPF with a network that was swapped in."""
    flows = b"".join(records.flow(seed, 1000, timed=True) for seed in range(20))
    split = records.split(flows)
    quiet = struct.pack("I", NOTHING)
    nothing = b"".join(quiet + record[4:] for record in split)
    acks = np.array([record[0] == records.ACK for record in split])
    (folder / "same.blob").write_bytes(blobs.of(blobs.shipped()))
    bpf: list[Path | str] = [folder / "ndm_bpf", "replay"]
    programs: dict[str, list[Path | str]] = {
        "BPF": bpf,
        "BPF, swapped in": [*bpf, "--blob", folder / "same.blob"],
        "module": [folder / "replay"],
    }
    found = {}
    for name, words in programs.items():
        empty = np.median(times_of(words, nothing))
        found[name] = times_of(words, flows)[acks] - empty
    print(f"{acks.sum()} ACKs of {len(split)} records, ns without what measuring takes:")
    for name, times in found.items():
        shown = [f"  {name:16}"]
        for what, of in (("median", np.median), ("mean", np.mean)):
            ratio = float(of(times)) / float(of(found["module"]))
            shown.append(f"{what} {float(of(times)):6.0f}, {ratio:5.2f} of the module's")
        print("   ".join(shown))


def transfer(algorithm: str, seconds: int) -> None:
    """One bulk transfer, to its end."""
    inside = ["ip", "netns", "exec"]
    server = subprocess.Popen([*inside, "ndmD", "iperf3", "-s", "-1"], stdout=subprocess.DEVNULL)
    time.sleep(0.5)
    words = ["iperf3", "-c", "10.1.0.2", "-C", algorithm, "-t", str(seconds)]
    done = subprocess.run([*inside, "ndmS", *words], capture_output=True, text=True, check=True)
    print(algorithm, next(line for line in done.stdout.splitlines() if "sender" in line)[20:])
    server.wait(10)


def measure(folder: Path, seconds: int) -> dict[str, tuple[int, float]]:
    """Calls and nanoseconds a call, by program."""
    cost = subprocess.Popen(
        [folder / "cost"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert cost.stdout is not None and cost.stdout.readline() == "ready\n"
    transfer(NAME, seconds)
    rows = [line.split() for line in cost.communicate()[0].splitlines()]
    return {name: (int(n), int(ns) / int(n)) for name, n, ns in rows if int(n)}


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--mbps", type=int, default=300)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        build(folder)
        replayed(folder)
        subprocess.run(["sh", "-ec", PLAN.format(mbps=args.mbps)], check=True)
        subprocess.run([folder / "ndm_bpf", "load"], check=True)
        try:
            found = measure(folder, args.seconds)
        finally:
            subprocess.run([folder / "ndm_bpf", "unload"], check=True)
            subprocess.run(["sh", "-c", CLEAN], check=True)
    for function, (calls, ns) in found.items():
        print(f"{function:20} {calls:9} calls {ns:8.0f} ns each")
    ack = found["ndm_bpf_ack"][1] - found["ndm_bpf_sndbuf"][1]
    print(f"an ACK of the transfer: {ack:.0f} ns without the measuring")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
