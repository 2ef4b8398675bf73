# SPDX-License-Identifier: GPL-2.0-only
"""How long swaps of the network take under traffic, on this host; as root.

    python -m tests.bench.bench_swap [--seconds N] [--flows N]

Bulk transfers in network namespaces while two networks are swapped without a pause. The time of a
swap runs from the loader's start to the change of the slot: file, parser, 256 vectors in user space
and in the kernel. The bar is 10 ms. Then the loader waits until no round uses the former network.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np

from ndm_tcp.bpf import loader
from tests import blobs, namespaces

ROOT = Path(__file__).resolve().parents[2]
BAR_MS = 10.0


def swaps(folder: Path, seconds: float) -> dict[str, list[float]]:
    """Milliseconds of every swap.

    To the change; of these on a processor, with the loader's start; until the former network is
    out of use.
    """
    files = []
    for number, model in enumerate((blobs.other(), blobs.shipped())):
        files.append(folder / f"{number}.blob")
        files[-1].write_bytes(blobs.of(model))
    found: dict[str, list[float]] = {"swap_ms": [], "cpu_ms": [], "settled_ms": []}
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        blob = files[len(found["swap_ms"]) % len(files)]
        said = loader.facts(loader.run(folder, "swap", str(blob))[1])
        for name, times in found.items():
            times.append(float(said[name]))
    return found


def measure(folder: Path, seconds: int, flows: int) -> None:
    """Print the times without traffic, then beside transfers."""
    shown = {"no traffic": swaps(folder, seconds)}
    with namespaces.three() as path:
        clients = [["-C", loader.NAME]] * flows
        with namespaces.transfers(path, seconds, *clients) as ended:
            shown[f"{flows} flows"] = swaps(folder, seconds)
    for traffic, found in shown.items():
        for name, times in found.items():
            low, high = np.percentile(times, [50, 95])
            print(f"{traffic:12} {name:11} {len(times):5} swaps: median {low:6.2f}, "
                  f"95th percentile {high:6.2f}, most {max(times):6.2f}")  # fmt: skip
    within = np.mean(np.array(shown[f"{flows} flows"]["swap_ms"]) <= BAR_MS)
    rates = [flow["end"]["sum_received"]["bits_per_second"] / 1e6 for flow in ended]
    print(f"within {BAR_MS:g} ms under traffic: {100 * within:.1f} %; Mbit/s: "
          + ", ".join(f"{rate:.1f}" for rate in rates))  # fmt: skip


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--flows", type=int, default=4)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run(["make", "-s", "-C", ROOT / "bpf", f"OUT={folder}"], check=True)
        subprocess.run([folder / "ndm_bpf", "load"], check=True)
        try:
            measure(folder, args.seconds, args.flows)
        finally:
            subprocess.run([folder / "ndm_bpf", "unload"], check=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
