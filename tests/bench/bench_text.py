# SPDX-License-Identifier: GPL-2.0-only
"""Lines per CPU second from text logs, beside Python reading every line.

python -m tests.bench.bench_text
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from types import ModuleType

from ndm_tcp.datasets.readers import mlab, ss, streams, tcp_probe
from tests.reference import mlab as mlab_twin
from tests.reference import ss as ss_twin
from tests.reference import tcp_probe as probe_twin

TRACES = Path(__file__).resolve().parents[2] / "datasets" / "traces"
LINES = 300_000
RUNS = 3
LOGS: list[tuple[str, str, ModuleType, ModuleType]] = [
    ("ss -tinO", "reno-03-lossy/ss.txt.zst", ss, ss_twin),
    ("tcp_probe", "reno-03-lossy/tcp_probe.txt.zst", tcp_probe, probe_twin),
    ("M-Lab tcp-info", "third_party/mlab_tcpinfo_jdczh_00183.jsonl.zst", mlab, mlab_twin),
]


def seconds(reader: ModuleType, path: Path) -> float:
    """CPU seconds of the best run."""
    taken = []
    for _ in range(RUNS):
        start = time.process_time()
        reader.read(path)
        taken.append(time.process_time() - start)
    return min(taken)


def main() -> None:
    """Repeat each shipped log until it is long, and read it with both."""
    print(f"| log | lines | bytes per line | lines/s | twin in Python | ratio |\n|{'---|' * 6}")
    with tempfile.TemporaryDirectory() as folder:
        for name, source, reader, twin in LOGS:
            with streams.open_text(TRACES / source) as stream:
                text = stream.read()
            path = Path(folder) / "log"
            times = -(-LINES // text.count("\n"))
            path.write_text(text * times)
            lines = text.count("\n") * times
            ours, theirs = lines / seconds(reader, path), lines / seconds(twin, path)
            width = path.stat().st_size / lines
            print(
                f"| {name} | {lines} | {width:.0f} | {ours:,.0f} | {theirs:,.0f} | "
                f"{ours / theirs:.2g} x |"
            )


if __name__ == "__main__":
    main()
