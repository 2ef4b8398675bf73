# SPDX-License-Identifier: GPL-2.0-only
"""`ndm trace`: the module's own event to rows and to a picture."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from ndm_tcp import files
from ndm_tcp.datasets.module_event import event_lines, event_plot
from ndm_tcp.errors import NdmError

EXAMPLE = """example:  (the first three as root, while flows use ndm_tcp)
  echo 1 > /sys/kernel/tracing/events/ndm_tcp/ndm_tcp_round/enable
  timeout 30 cat /sys/kernel/tracing/trace_pipe > rounds.txt
  ndm bpf events --seconds 30 > rounds.txt                         # of the BPF form instead
  ndm trace rounds.txt -o rounds.parquet
  ndm trace rounds.txt --port 40312 --plot rounds.png"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `ndm trace`."""
    parser.add_argument("trace", type=Path, metavar="FILE", help="text of the trace; .gz, .zst too")
    parser.add_argument("-o", "--out", type=Path, help=".parquet or .csv (default: CSV to stdout)")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="picture of one flow: .png, .svg")
    parser.add_argument("--port", type=int, help="only flows with this port at the sender")
    parser.add_argument("--peer", metavar="ADDRESS:PORT", help="only flows to this receiver")


def summary(table: pa.Table) -> str:
    """One line: rounds, flows, and who decided how often."""
    why = Counter(table["why"].to_pylist())
    flows = len(event_lines.flows(table))
    counts = ", ".join(f"{name} {why[name]}" for name in event_lines.WHY if why[name])
    return f"{table.num_rows} rounds of {flows} flows: {counts}"


def write(table: pa.Table, out: Path) -> None:
    """Rows to a file, whole or not at all."""
    if out.suffix not in (".csv", ".parquet"):
        raise NdmError(f"{out}: name it .parquet or .csv")
    with files.replacing(out) as temporary:
        if out.suffix == ".csv":
            pyarrow.csv.write_csv(table, temporary)
        else:
            pyarrow.parquet.write_table(table, temporary, compression="zstd")


def main(args: argparse.Namespace) -> int:
    """Run `ndm trace`."""
    table = event_lines.read(args.trace)
    for option, column in (("port", "sport"), ("peer", "peer")):
        if (wanted := getattr(args, option)) is not None:
            table = table.filter(pc.equal(table[column], wanted))
            if not table.num_rows:
                raise NdmError(
                    f"{args.trace}: no round of a flow with --{option} {wanted}; "
                    f"leave out --{option} to see all flows"
                )
    if args.plot is not None:
        event_plot.plot(table, args.plot)
    if args.out is not None:
        write(table, args.out)
    elif args.plot is None:
        pyarrow.csv.write_csv(table, sys.stdout.buffer)
    print(summary(table), file=sys.stderr)
    return 0
