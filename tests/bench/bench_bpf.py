# SPDX-License-Identifier: GPL-2.0-only
"""What an ACK costs in BPF, in the module's code and in BBR, on this host; as root.

    python -m tests.bench.bench_bpf [--seconds N] [--mbps N] [--queue-kb N] [--delay-ms N]

The same records through the BPF programs and through the module's code in user space, each timed
one by one; from each the cost of a record that calls nothing is taken off. Some are of bulk flows
in the simulator, some of scripted flows with every kind of ACK. Both forms are functions that are
called directly: what the core's pointer and BPF's trampoline cost is not in it. The module's code
has the options of a Debian kernel that matter here (gcc 12 or newer): no vector registers,
variables set to zero, a guarded stack, and on x86 guarded returns where this kernel guards them so.

Then a flow of ndm_tcp_bpf and one of the kernel's BBR, called from BPF, beside a CUBIC flow over
a link with a delay (link.c): the median of their cost in 200 ms, by the kernel's statistics of BPF
programs, less that of a callback that does nothing. An ACK that ends a round costs most, so the
mean depends on how many ACKs a round has. It needs Linux 6.10 or newer with BBR.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ndm_tcp.bpf import default, loader
from tests import blobs, namespaces
from tests.bpf import records, simulated

BENCH = Path(__file__).resolve().parent
ROOT = BENCH.parents[1]
SAFE_RETURN = Path("/sys/devices/system/cpu/vulnerabilities/spec_rstack_overflow")
BBR = "bbr_timed"
FEWEST = 50
"""calls in a window"""
NOTHING = 99
"""an operation that no record has"""
Times = NDArray[np.float64]


def build(folder: Path) -> None:
    """Object and loader of the project, the module's code for user space, BBR and a counter."""
    subprocess.run(["make", "-s", "-C", ROOT / "bpf", f"OUT={folder}"], check=True)
    include = [f"-I{ROOT}", f"-I{ROOT}/bpf", f"-I{ROOT}/bpf/include"]
    source = str(ROOT / "tests" / "bpf" / "replay.c")
    words = ["cc", "-O2", "-w", *as_in_kernel(), *include, source, "-o", str(folder / "replay")]
    subprocess.run(words, check=True)
    subprocess.run(["cc", "-O2", BENCH / "cost.c", "-o", folder / "cost", "-lbpf"], check=True)
    subprocess.run(["cc", "-O2", BENCH / "link.c", "-o", folder / "link"], check=True)
    words = ["clang", "-O2", "-g", f"-I{ROOT}/bpf/include", "-target", "bpf", "-mcpu=v3", "-c"]
    subprocess.run([*words, BENCH / "bbr.bpf.c", "-o", folder / "bbr.bpf.o"], check=True)


def as_in_kernel() -> list[str]:
    """Options of Debian's kernels that change what the module's code costs."""
    words = ["-mgeneral-regs-only", "-fno-strict-aliasing", "-fno-delete-null-pointer-checks"]
    words += ["-fstack-protector-strong", "-ftrivial-auto-var-init=zero", "-fno-jump-tables"]
    words.append("-DNDM_COMMON=inline __attribute__((always_inline))")
    safe = SAFE_RETURN.exists() and "Safe RET" in SAFE_RETURN.read_text()
    if safe and platform.machine() == "x86_64":
        words += ["-mfunction-return=thunk-extern", "-fcf-protection=none"]
        words.append(str(BENCH / "returns.S"))
    print("returns of the module's code:", "guarded (SRSO)" if safe else "plain")
    return words


def replay(program: list[Path | str], flows: bytes) -> tuple[Times, list[bytes]]:
    """Nanoseconds of every record, the lowest of fifteen runs; and the last run's."""
    found = []
    for _ in range(15):
        done = subprocess.run(program, input=flows, capture_output=True, check=True)
        split = records.split(done.stdout)
        found.append([records.inputs(record)["ns"] for record in split])
    lowest: Times = np.array(found, np.float64).min(axis=0)
    return lowest, split


def replayed(folder: Path) -> None:
    """Bulk flows and scripted ones through all programs."""
    kinds = {
        "bulk": simulated.flows(folder, simulated.BULK),
        "scripted": [records.flow(seed, 1000, timed=True) for seed in range(20)],
    }
    for kind, flows in kinds.items():
        compare(kind, b"".join(flows), folder)


def compare(kind: str, flows: bytes, folder: Path) -> None:
    """The same records through both, and through BPF with a network that was swapped in."""
    split = records.split(flows)
    quiet = struct.pack("I", NOTHING)
    nothing = b"".join(quiet + record[4:] for record in split)
    (folder / "same.blob").write_bytes(blobs.of(blobs.shipped()))
    bpf: list[Path | str] = [folder / "ndm_bpf", "replay"]
    programs: dict[str, list[Path | str]] = {
        "BPF": bpf,
        "BPF, swapped in": [*bpf, "--blob", folder / "same.blob"],
        "module": [folder / "replay"],
    }
    found = {}
    for name, words in programs.items():
        # Their mean, not their median: the clock counts ten nanoseconds at a time.
        empty = replay(words, nothing)[0].mean()
        times, ended = replay(words, flows)
        found[name] = times - empty
    # The end of a round changes the network's memory; the same records in all.
    memory = [records.memory(record) for record in ended]
    acks = np.array([record[0] == records.ACK for record in split])
    ends = acks & np.array([False, *(a != b for a, b in pairwise(memory))])
    print(f"{kind}: {acks.sum()} ACKs, {ends.sum()} end a round; ns of each:")
    for name, times in found.items():
        shown = [f"  {name:16}"]
        for what, of in (("within a round", acks & ~ends), ("at its end", ends), ("mean", acks)):
            mean, module = float(times[of].mean()), float(found["module"][of].mean())
            shown.append(f"{what} {mean:6.0f}, {mean / module:5.2f} of the module's")
        print("   ".join(shown))


def windows(lines: list[str]) -> dict[str, Times]:
    """What cost.c printed: ns a call of each program, [windows with enough calls]."""
    rows: dict[str, list[tuple[int, int]]] = {}
    for line in lines:
        name, calls, ns = line.split()
        rows.setdefault(name, []).append((int(calls), int(ns)))
    found = {}
    for name, counts in rows.items():
        calls, ns = np.diff(np.array(counts, np.float64), axis=0).T
        found[name] = ns[calls >= FEWEST] / calls[calls >= FEWEST]
        if not found[name].size:
            sys.exit(f"{name}: no 200 ms with {FEWEST} calls; raise --mbps or --seconds")
    return found


@contextlib.contextmanager
def linked(folder: Path, mbps: int, queue_kb: int, delay_ms: int) -> Iterator[str]:
    """The prefix of two network namespaces, with a link of link.c between them."""
    prefix = f"ndm{os.getpid() % 100000}"
    names = [prefix + end for end in "sd"]
    words = [str(folder / "link"), *names, str(mbps), str(queue_kb), str(delay_ms)]
    pipe = subprocess.PIPE
    with contextlib.ExitStack() as stack:
        for name in names:
            subprocess.run(["ip", "netns", "add", name], check=True)
            stack.callback(subprocess.run, ["ip", "netns", "del", name], check=True)
        link = stack.enter_context(subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True))
        assert link.stdin is not None and link.stdout is not None
        stack.callback(link.stdin.close)
        if link.stdout.readline() != "ready\n":
            sys.exit("link: no device; run: modprobe tun")
        for name, address in zip(names, ("10.2.0.1", namespaces.RECEIVER), strict=True):
            for of in (
                ["addr", "add", f"{address}/24", "dev", "link0"],
                ["link", "set", "link0", "up", "txqueuelen", "10000"],
            ):
                subprocess.run(["ip", "-n", name, *of], check=True)
        yield prefix


def rounds(folder: Path) -> int:
    """Of all flows of the loaded programs."""
    return int(loader.facts(loader.run(folder, "status")[1])["rounds"])


def transferred(folder: Path, seconds: int, link: tuple[int, int, int]) -> None:
    """Both algorithms at the same time, at the same rate, so that rounds have as many ACKs.

    link: Mbit/s, KB of queue, and ms of delay each way.
    """
    rate = ["--fq-rate", f"{link[0] // 3}M"]
    clients = [["-C", loader.NAME, *rate], ["-C", BBR, *rate], ["-C", "cubic"]]
    counts = folder / "counts"
    with linked(folder, *link) as path, counts.open("w") as out:
        words = [folder / "cost", folder / "bbr.bpf.o"]
        pipe = subprocess.PIPE
        cost = subprocess.Popen(words, stdin=pipe, stdout=out, stderr=pipe, text=True)
        assert cost.stderr is not None
        said = cost.stderr.readline()
        if said != "ready\n":
            sys.exit(f"cost: {said.strip() or 'the kernel takes no BBR behind BPF'}")
        with namespaces.transfers(path, seconds, *clients) as ended:
            pass
        cost.communicate("")
    lines = counts.read_text().splitlines()
    acks = max(int(line.split()[1]) for line in lines if line.startswith("ndm_bpf_ack "))
    for client, flow in zip(clients, ended, strict=True):
        mbps = flow["end"]["sum_received"]["bits_per_second"] / 1e6
        rtt_us = flow["end"]["streams"][0]["sender"]["mean_rtt"]
        print(f"{client[1]} {mbps:.1f} Mbit/s, RTT {rtt_us / 1000:.1f} ms")
    found = windows(lines)
    nothing = float(np.median(found["bbr_nothing"]))
    ours, bbr = (float(np.median(found[name])) - nothing for name in ("ndm_bpf_ack", "bbr_ack"))
    print(f"an ACK, ns less the {nothing:.0f} of measuring, median of windows of 200 ms:")
    print(f"  {loader.NAME} {ours:.0f}, the kernel's BBR {bbr:.0f}: {ours / bbr:.2f}")
    print(f"  {loader.NAME}: {acks / rounds(folder):.1f} ACKs a round")


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=int, default=15)
    parser.add_argument("--mbps", type=int, default=300, help="of the link")
    parser.add_argument("--queue-kb", type=int, default=1000, help="of the link")
    parser.add_argument("--delay-ms", type=int, default=10, help="of the link, each way")
    args = parser.parse_args()
    if "bbr" not in default.available():
        sys.exit("bbr: not in this kernel; run: modprobe tcp_bbr")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        build(folder)
        replayed(folder)
        subprocess.run([folder / "ndm_bpf", "load"], check=True)
        try:
            transferred(folder, args.seconds, (args.mbps, args.queue_kb, args.delay_ms))
        finally:
            subprocess.run([folder / "ndm_bpf", "unload"], check=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
