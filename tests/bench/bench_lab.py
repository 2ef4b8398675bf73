# SPDX-License-Identifier: GPL-2.0-only
"""How fast the lab's time passes: simulated seconds per wall second and core.

    python tests/bench/bench_lab.py

Real time, the speed of an emulation on the host, is the peer: 1.0. Run it on an idle machine.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from ndm_tcp.lab.guest import run, uml_build
from ndm_tcp.lab.paths import scenario

SCENARIOS = {
    "50 Mbit/s, loopback (published B)": """
        seconds = 20
        topology = "lo"
        [lo]
        netem = "delay 20ms 5ms distribution normal loss 0.5%"
        tbf = "rate 50mbit burst 5000kbit latency 50ms"
        """,
    "10 Mbit/s, routed path": """
        seconds = 20
        topology = "path"
        [link]
        rate_bps = 10_000_000
        rtt_us = 40_000
        queue_packets = 60
        """,
    "50 Mbit/s, routed path": """
        seconds = 20
        topology = "path"
        [link]
        rate_bps = 50_000_000
        rtt_us = 40_000
        queue_packets = 300
        """,
}


def main() -> None:
    """Print one line per scenario and mode."""
    uml_build.build()
    print(f"{'scenario':36}{'recorded':>10}{'light':>10}   (simulated s per wall s)")
    with tempfile.TemporaryDirectory() as folder:
        for title, text in SCENARIOS.items():
            made = scenario.parse(text, "bench", title)
            ratios = []
            for light in (False, True):
                result = run.run(made, "cubic", 1, Path(folder) / "run", light=light)
                ratios.append(result["simulated_s"] / result["wall_s"])
            print(f"{title:36}{ratios[0]:10.1f}{ratios[1]:10.1f}")


if __name__ == "__main__":
    main()
