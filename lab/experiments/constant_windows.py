# SPDX-License-Identifier: GPL-2.0-only
"""Which constant window serves a path best? The measure of what target windows should be.

    python -m ndm_tcp.lab.experiments.constant_windows lab/scenarios/training/*-lone-jitter.toml

Prints a Markdown table: for each multiple of the bandwidth-delay product, the goodput as part of
the best one and the mean RTT as multiple of the path's own; and the target window that is taught.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from ndm_tcp.errors import NdmError
from ndm_tcp.lab.guest import run
from ndm_tcp.lab.paths import scenario, truth

SHARES = (1.0, 1.15, 1.3, 1.45, 1.6, 1.8, 2.0)
"""windows to try, of the BDP"""


def row(path: Path, work: Path, seed: int) -> str:
    """A line of the table.

    Args:
        path: a scenario of one flow without steps of the rate.
        work: folder for the runs.
        seed: of the lab.

    Raises:
        NdmError: another scenario.
    """
    made = scenario.load(path)
    link = made.link
    if link is None or link.steps or len(made.flows) != 1:
        raise NdmError(f"{path}: not a path of one flow and one rate; name another scenario")
    bdp = truth.bdp_packets(link)
    (ideal,) = truth.ideals(made, "ndm_tcp")
    taught = ideal.packets_per_s * ideal.rtt_us / 1e6
    flows = []
    for share in SHARES:
        params = {"cwnd": max(2, round(bdp * share))}
        out = work / f"{made.name}-{share}"
        found = run.run(made, "fixed_cwnd", seed, out, params=params, light=True)
        flows.append(found["flows"][0])
    best = max(flow["goodput_mbps"] for flow in flows)
    cells = [
        f"{flow['goodput_mbps'] / best:.3f} / {flow['rtt_mean_ms'] / link.rtt_us * 1e3:.2f}"
        for flow in flows
    ]
    known = (f"{bdp:.0f}", f"{link.jitter_us / link.rtt_us:.3f}", f"{link.loss:g}")
    return " | ".join(["", made.name, *known, *cells, f"{taught / bdp:.2f} |"]).lstrip()


def main(argv: list[str] | None = None) -> int:
    """Print the table of the scenarios."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("scenarios", nargs="+", type=Path, metavar="SCENARIO")
    parser.add_argument("--seed", type=int, default=1, help="of the lab (default: %(default)s)")
    args = parser.parse_args(argv)
    heads = ["path", "BDP, packets", "jitter / RTT", "loss", *map(str, SHARES), "taught"]
    print("| " + " | ".join(heads) + " |\n|" + "---|" * len(heads))
    with tempfile.TemporaryDirectory() as work:
        for path in args.scenarios:
            print(row(path, Path(work), args.seed), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
