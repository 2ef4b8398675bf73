# SPDX-License-Identifier: GPL-2.0-only
"""What an ACK costs: instructions of ndm_tcp beside BBR and CUBIC, in one kernel.

    python tests/bench/bench_cost.py [--kmod DIR]

The lab's kernel is a process: a debugger stops it where it calls a congestion control for an
ACK and counts the machine instructions until the call returns, callees included. The code is
the kernel's own, all three compiled by the same compiler with the same options, and every
algorithm sends the same data over the same path. Each makes its own stream of ACKs, so the
figures are per call. Counted are cong_control() of ndm_tcp and BBR, and for CUBIC pkts_acked()
and cong_avoid(); what the core does for CUBIC but not for the other two (reduction of the
window in a recovery, pacing rate) is not counted, which flatters CUBIC.

Instructions are not cycles: no cache misses, no branch mispredictions.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from ndm_tcp.lab.guest import boot, run, uml_build
from ndm_tcp.lab.paths import scenario

SCENARIOS = {
    "bulk": """
seconds = 2
topology = "path"
[link]
rate_bps = 10_000_000
rtt_us = 40_000
queue_packets = 60
loss = 0.001
""",
    "rpc": """
seconds = 2
topology = "path"
[link]
rate_bps = 1_000_000_000
rtt_us = 200
queue_packets = 160
offloads = true
[web]
objects = 1000
bytes = 1_000_000
""",
}
"""bulk: a transfer; rpc: a thousand responses of 1 KB, one after the other"""
CALLS = {
    "ndm_tcp": ("ndm_cong_control",),
    "bbr": ("bbr_main",),
    "cubic": ("cubictcp_cong_avoid", "cubictcp_acked"),
}


def compiled(folder: Path) -> Path:
    """The stepping program."""
    program = folder / "steps"
    source = Path(__file__).with_name("steps.c")
    words = ["gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-o", str(program), str(source)]
    subprocess.run(words, check=True)
    return program


def addresses(cc: str, folder: Path, kmod: Path) -> list[str]:
    """Where the functions are; without address randomisation a module's are always the same."""
    names = CALLS[cc]
    if cc == "ndm_tcp":
        work = folder / "where"
        work.mkdir()
        for path in (uml_build.build_module(uml_build.WATCH), uml_build.build_module(kmod)):
            (work / path.name).write_bytes(path.read_bytes())
        plan = "insmod /run/host/ndm_watch.ko sender=s capture=0\ninsmod /run/host/ndm_tcp.ko\n"
        (work / "plan.sh").write_text(plan + "cat /proc/kallsyms >/run/host/out/symbols\n")
        boot.boot(work, 1, None, 60)
        text = (work / "out" / "symbols").read_text()
    else:
        words = ["nm", str(uml_build.build().vmlinux)]
        text = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    found = {m[2]: m[1] for m in re.finditer(r"^(\w+) [tT] (\w+)", text, re.MULTILINE)}
    return [found[name] for name in names]


def calls(
    cc: str, traffic: str, folder: Path, steps: Path, kmod: Path
) -> tuple[list[int], dict[str, Any]]:
    """Instructions of every call, and the run's result."""
    folder.mkdir()
    where = addresses(cc, folder, kmod)
    counted = folder / f"{cc}.txt"
    start = boot.start_kernel
    kernel = str(uml_build.build().vmlinux)

    def traced(*args: Any, **kwargs: Any) -> subprocess.Popen[bytes]:
        process = start(*args, **kwargs)
        words = [str(steps), str(process.pid), kernel, *where]
        with counted.open("w") as out:
            subprocess.Popen(words, stdout=out)
        return process

    boot.start_kernel = traced
    try:
        made = scenario.parse(SCENARIOS[traffic], traffic, f"{traffic}.toml")
        result = run.run(made, cc, 1, folder / cc, module=kmod)
    finally:
        boot.start_kernel = start
    lines = counted.read_text().splitlines()
    main = [int(line.split()[1]) for line in lines if line.startswith("0 ")]
    other = sum(int(line.split()[1]) for line in lines if not line.startswith("0 "))
    # What CUBIC does beside cong_avoid() is spread over its calls.
    return [n + other // max(len(main), 1) for n in main], result


def table(traffic: str, ccs: list[str], folder: Path, steps: Path, kmod: Path) -> bool:
    """Print instructions per ACK, and the ratios of ndm_tcp's to the others'."""
    means = {}
    print(f"{traffic:10}{'ACKs':>8}{'Mbit/s':>8}{'median':>8}{'mean':>8}{'p99':>8}{'most':>8}")
    for cc in ccs:
        found, result = calls(cc, traffic, folder / f"{traffic}-{cc}", steps, kmod)
        if not found:
            print(f"{cc}: no call was seen; are debug registers allowed here?")
            return False
        n = np.sort(np.array(found))
        means[cc] = n.mean(), float(np.median(n))
        print(
            f"{cc:10}{len(n):8}{result['total_mbps']:8.2f}{np.median(n):8.0f}{n.mean():8.0f}"
            f"{np.percentile(n, 99):8.0f}{n[-1]:8}"
        )
        if cc == "ndm_tcp":
            # Inference alone is thousands, everything else hundreds.
            ends, others = n[n > 2000], n[n <= 2000]
            mean = ends.mean() if len(ends) else 0.0
            print(f"  {len(ends)} of the ACKs end a round: mean {mean:.0f}; ", end="")
            print(f"the others: {others.mean():.0f}")
        elif cc == "bbr" and len(ends) and n.mean() > others.mean():
            acks = (ends.mean() - others.mean()) / (n.mean() - others.mean())
            print(f"  ndm_tcp takes less from {acks:.0f} ACKs in a round on")
    for cc in ccs[1:]:
        mean, median = (a / b for a, b in zip(means["ndm_tcp"], means[cc], strict=True))
        print(f"ndm_tcp / {cc}: {mean:.2f} by the mean, {median:.2f} by the median")
    return True


def main() -> int:
    """A bulk transfer beside BBR and CUBIC; requests and responses beside BBR.

    The peers of an rpc use the kernel's default, CUBIC, so its calls would be theirs too.
    """
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kmod", type=Path, default=uml_build.KMOD, help="the module's sources")
    kmod = parser.parse_args().kmod
    uml_build.build()
    with tempfile.TemporaryDirectory() as name:
        steps = compiled(Path(name))
        done = table("bulk", list(CALLS), Path(name), steps, kmod)
        done = done and table("rpc", ["ndm_tcp", "bbr"], Path(name), steps, kmod)
    return 0 if done else 1


if __name__ == "__main__":
    sys.exit(main())
