# SPDX-License-Identifier: GPL-2.0-only
"""What an ACK costs in BPF, in the module's code and in BBR, on this host; as root.

    python -m tests.bench.bench_bpf [--seconds N] [--mbps N]

The same records through the BPF programs, by the kernel's statistics, and through the module's code
in user space, by the clock; from each the cost of a record that calls nothing is taken off. The
module's code is compiled as for a Debian kernel: without vector registers, and with returns as in
this kernel. Then a flow of ndm_tcp_bpf and one of the kernel's BBR, called from BPF, beside a CUBIC
flow that fills a router's queue: the median of their cost in 200 ms, less that of a callback that
does nothing.
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

BENCH = Path(__file__).resolve().parent
ROOT = BENCH.parents[1]
SAFE_RETURN = Path("/sys/devices/system/cpu/vulnerabilities/spec_rstack_overflow")
PLAN = """
ip netns add ndmS; ip netns add ndmR; ip netns add ndmD
ip link add a0 netns ndmS gso_max_segs 1 type veth peer name b0 netns ndmR gso_max_segs 1
ip link add c0 netns ndmR gso_max_segs 1 type veth peer name d0 netns ndmD gso_max_segs 1
ip -n ndmS addr add 10.1.0.1/24 dev a0; ip -n ndmS link set a0 up
ip -n ndmR addr add 10.1.0.2/24 dev b0; ip -n ndmR link set b0 up
ip -n ndmR addr add 10.2.0.1/24 dev c0; ip -n ndmR link set c0 up
ip -n ndmD addr add 10.2.0.2/24 dev d0; ip -n ndmD link set d0 up
ip -n ndmS route add default via 10.1.0.2; ip -n ndmD route add default via 10.2.0.1
ip netns exec ndmR sysctl -qw net.ipv4.ip_forward=1
tc -n ndmR qdisc add dev c0 root tbf rate {mbps}mbit burst 64k limit {queue}k
"""
CLEAN = "for at in S R D; do ip netns del ndm$at; done"
BBR = "bbr_timed"
FLOW_RATE = "100M"


ROUNDS = 0.185
"""the part of the records' ACKs that end a round with an inference"""
NOTHING = 99
"""an operation that no record has"""


def build(folder: Path) -> None:
    """Object and loader of the project, the module's code for user space, and a counter."""
    subprocess.run(["make", "-s", "-C", ROOT / "bpf", f"OUT={folder}"], check=True)
    include = [f"-I{ROOT}", f"-I{ROOT}/bpf", f"-I{ROOT}/bpf/include"]
    source = str(ROOT / "tests" / "bpf" / "replay.c")
    words = ["cc", "-O2", "-w", *as_in_kernel(), *include, source, "-o", str(folder / "replay")]
    subprocess.run(words, check=True)
    subprocess.run(["cc", "-O2", BENCH / "cost.c", "-o", folder / "cost", "-lbpf"], check=True)
    words = ["clang", "-O2", "-g", f"-I{ROOT}/bpf/include", "-target", "bpf", "-mcpu=v3", "-c"]
    subprocess.run([*words, BENCH / "bbr.bpf.c", "-o", folder / "bbr.bpf.o"], check=True)


def as_in_kernel() -> list[str]:
    """Options with which Debian's kernels compile a module, and the returns of the running one."""
    words = ["-mgeneral-regs-only", "-fno-strict-aliasing", "-fno-delete-null-pointer-checks"]
    # Of Debian's configuration; the first two are security features.
    words += ["-fstack-protector-strong", "-ftrivial-auto-var-init=zero", "-fno-jump-tables"]
    if SAFE_RETURN.exists() and "Safe RET" in SAFE_RETURN.read_text():
        words += ["-mfunction-return=thunk-extern", "-fcf-protection=none"]
        words.append(str(BENCH / "returns.S"))
    return words


def times_of(program: list[Path | str], flows: bytes) -> NDArray[np.float64]:
    """Nanoseconds of every record: the lowest of five runs, so that other programs do not count."""
    found = []
    for _ in range(5):
        done = subprocess.run(program, input=flows, capture_output=True, check=True)
        found.append([records.inputs(record)["ns"] for record in records.split(done.stdout)])
    lowest: NDArray[np.float64] = np.array(found, np.float64).min(axis=0)
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
        # Not their median: the clock counts ten nanoseconds at a time.
        empty = times_of(words, nothing).mean()
        found[name] = times_of(words, flows)[acks] - empty
    print(f"{acks.sum()} ACKs of {len(split)} records, ns without what measuring takes:")
    # Which records end a round: the same in all.
    slow = found["module"] > np.quantile(found["module"], 1 - ROUNDS)
    groups = (("within a round", ~slow), ("at its end", slow), ("mean", slow | ~slow))
    for name, times in found.items():
        shown = [f"  {name:16}"]
        for what, of in groups:
            mean = float(times[of].mean())
            ratio = mean / float(found["module"][of].mean())
            shown.append(f"{what} {mean:6.0f}, {ratio:5.2f} of the module's")
        print("   ".join(shown))


def transfers(algorithms: list[str], seconds: int) -> None:
    """Bulk transfers at the same time, to their end."""
    inside = ["ip", "netns", "exec"]
    ports = [str(5201 + i) for i in range(len(algorithms))]
    words = [*inside, "ndmD", "iperf3", "-s", "-1", "-p"]
    servers = [subprocess.Popen([*words, port], stdout=subprocess.DEVNULL) for port in ports]
    time.sleep(0.5)
    words = [*inside, "ndmS", "iperf3", "-c", "10.2.0.2", "-t", str(seconds)]
    clients = [
        subprocess.Popen(
            [*words, *rates(name), "-C", name, "-p", port], stdout=subprocess.PIPE, text=True
        )
        for name, port in zip(algorithms, ports, strict=True)
    ]
    for name, client in zip(algorithms, clients, strict=True):
        lines = client.communicate()[0].splitlines()
        print(name, next(line for line in lines if "sender" in line)[20:])
    for server in servers:
        server.wait(10)


def rates(name: str) -> list[str]:
    """The timed ones send alike, so that a round has as many ACKs; CUBIC fills the queue."""
    return [] if name == "cubic" else ["--fq-rate", FLOW_RATE]


def windows(lines: list[str]) -> dict[str, NDArray[np.float64]]:
    """What cost.c printed: ns a call of each program, [windows of 200 ms with 50 calls]."""
    rows: dict[str, list[tuple[int, int]]] = {}
    for line in lines:
        _, name, calls, ns = line.split()
        rows.setdefault(name, []).append((int(calls), int(ns)))
    found = {}
    for name, counts in rows.items():
        calls, ns = np.diff(np.array(counts, np.float64), axis=0).T
        found[name] = ns[calls >= 50] / calls[calls >= 50]
    return found


def measure(folder: Path, seconds: int) -> None:
    """Both algorithms at the same time."""
    words = [folder / "cost", folder / "bbr.bpf.o"]
    cost = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert cost.stdout is not None and cost.stdout.readline() == "ready\n"
    transfers([NAME, BBR, "cubic"], seconds)
    found = windows(cost.communicate()[0].splitlines())
    nothing = float(np.median(found["bbr_nothing"]))
    ours, bbr = (np.median(found[name]) - nothing for name in ("ndm_bpf_ack", "bbr_ack"))
    print(f"an ACK at bulk, ns less the {nothing:.0f} of measuring, median of windows of 200 ms:")
    print(f"  {NAME} {ours:.0f}, the kernel's BBR {bbr:.0f}: {ours / bbr:.2f}")


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--mbps", type=int, default=300)
    parser.add_argument("--queue", type=int, default=1000, help="of the token bucket, KB")
    parser.add_argument("--transfer-only", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        build(folder)
        if not args.transfer_only:
            replayed(folder)
        subprocess.run(["sh", "-ec", PLAN.format(mbps=args.mbps, queue=args.queue)], check=True)
        subprocess.run([folder / "ndm_bpf", "load"], check=True)
        try:
            measure(folder, args.seconds)
        finally:
            subprocess.run([folder / "ndm_bpf", "unload"], check=True)
            subprocess.run(["sh", "-c", CLEAN], check=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
