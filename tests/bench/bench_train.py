# SPDX-License-Identifier: GPL-2.0-only
"""What training the shipped network costs: CPU seconds and peak memory, held against their bars.

    python -m tests.bench.bench_train [--runs N] [--data DIR...]

Trains with the default recipe, each time in a process of its own, on what `make shipped` trains on
(the rounds of datasets/lab-rounds and of the traces; the latter are built first, and not counted).
Prints the median; the processor's seconds of a busy machine are longer than those of an idle one.
Exit code 1 if a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CPU_S, PEAK_MB = 60.0, 1500.0
"""bars of the median"""


def _train(data: list[Path], out: Path, quick: bool) -> None:
    """Train in this process; prints CPU seconds, peak MB and held-out loss as JSON."""
    import torch

    from ndm_tcp.training.config import TrainConfig
    from ndm_tcp.training.loop import Trainer

    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    config = TrainConfig(epochs=1) if quick else TrainConfig()
    loss = float(Trainer(data, out, config).run(quiet=True)["val_loss"])
    usage = resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps([usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, loss]))


def measure(data: list[Path], runs: int, quick: bool = False) -> list[list[float]]:
    """Each run's CPU seconds, peak MB and held-out loss; prints them as they come."""
    found = []
    for number in range(1, runs + 1):
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, __file__, "--child", str(Path(folder) / "run")]
            command += ["--data", *map(str, data), *(["--quick"] if quick else [])]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        row = json.loads(done.stdout)
        wall = time.monotonic() - began
        print(
            f"run {number}: {row[0]:.1f} CPU s, {row[1]:.0f} MB, {wall:.0f} s, held-out loss "
            f"{row[2]:.5f}",
            flush=True,
        )
        found.append(row)
    return found


def main(arguments: list[str]) -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--data", type=Path, nargs="+", help="dataset folders")
    parser.add_argument("--quick", action="store_true", help="one epoch: does this program run?")
    parser.add_argument("--child", metavar="RUN", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.child:
        _train(args.data, args.child, args.quick)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        data = args.data
        if data is None:
            from ndm_tcp.datasets.builder.build import build

            traces = Path(folder) / "traces"
            build([ROOT / "datasets" / "traces"], traces, quiet=True)
            recorded = (ROOT / "datasets" / "lab-rounds").iterdir()
            data = [traces, *sorted(path for path in recorded if path.is_dir())]
        found = measure(data, args.runs, args.quick)
    cpu, peak = (statistics.median(column) for column in list(zip(*found, strict=True))[:2])
    print(
        f"median of {args.runs}: {cpu:.1f} CPU s (bar {CPU_S:.0f}), {peak:.0f} MB ({PEAK_MB:.0f})"
    )
    return 0 if cpu <= CPU_S and peak <= PEAK_MB else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
