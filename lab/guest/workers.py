# SPDX-License-Identifier: GPL-2.0-only
"""Where runs happen: in guests, on this machine or on the Ray cluster that is running, or in the
simulator."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass

from ndm_tcp import cluster
from ndm_tcp.errors import NdmError


@dataclass(frozen=True)
class Workers:
    """Both engines leave the same bytes."""

    at_once: int = 1
    """guests at a time on this machine, each pinned to its own core"""
    engine: str = cluster.LOCAL
    """a cluster takes as many guests as it has cores"""
    simulated: bool = False
    """in the simulator in place of guests, on this machine"""
    stage: str = ""
    """what the runs are for, printed before their progress; empty: the command says it"""


ONE = Workers()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options that all verbs that run many guests share."""
    parser.add_argument(
        "--jobs",
        type=int,
        default=len(os.sched_getaffinity(0)),
        help="guests at a time (default: one a CPU)",
    )
    cluster.add_engine(parser, "where guests run")


def add_simulator(
    parser: argparse.ArgumentParser,
    text: str = "in the simulator: a hundredth of the time, close to the lab (docs/simulator.md)",
) -> None:
    """The option of verbs that the simulator can serve."""
    parser.add_argument("--simulate", action="store_true", help=text)


def workers_of(args: argparse.Namespace) -> Workers:
    """From these options.

    Raises:
        NdmError: a number below 1, or the simulator on a cluster.
    """
    if args.jobs < 1:
        raise NdmError("--jobs must be at least 1; name more")
    simulated = getattr(args, "simulate", False)
    if simulated and args.engine != cluster.LOCAL:
        raise NdmError("--simulate runs on this machine; leave out --engine")
    return Workers(args.jobs, args.engine, simulated)
