# SPDX-License-Identifier: GPL-2.0-only
"""Where does a module do worst? Its goodput over the best of Reno, CUBIC and BBR, simulated.

python -m tests.bench.bench_worst [KMOD ...] [--draws 500] [--seed 2]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from ndm_tcp.lab.guest.uml_build import KMOD
from ndm_tcp.lab.sim.build import build
from tests.worst import drawn, shares

SHOWN = 5


def main() -> None:
    """Run the drawn paths; print the worst ones and a summary for each module."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folders", nargs="*", type=Path, default=[KMOD], help="sources")
    parser.add_argument("--draws", type=int, default=500)
    parser.add_argument("--seed", type=int, default=2, help="of the draws; the test has 1")
    args = parser.parse_args()
    paths = drawn(args.seed, args.draws)
    for folder in args.folders:
        found = shares(build(folder), paths)
        share = np.array([*found.values()])
        for title in sorted(found, key=found.__getitem__)[:SHOWN]:
            print(f"{found[title]:.3f}  {title}")
        print(
            f"{folder}: {len(share)} paths, geometric mean {np.exp(np.log(share).mean()):.3f}, "
            f"at least 0.98 on {(share >= 0.98).mean():.1%}, 0.9 on {(share >= 0.9).mean():.1%}"
        )


if __name__ == "__main__":
    main()
