# SPDX-License-Identifier: GPL-2.0-only
"""`ndm path estimate`."""

from __future__ import annotations

import argparse
import itertools
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from ndm_tcp import files, progress
from ndm_tcp.datasets.readers import pcap, sources
from ndm_tcp.datasets.readers.capture import AS_USUAL
from ndm_tcp.datasets.rounds.flow import FlowRecords
from ndm_tcp.errors import BAD_INPUT, NdmError
from ndm_tcp.paths import model, report, series
from ndm_tcp.paths.estimate import estimate
from ndm_tcp.paths.model import PathModel
from ndm_tcp.paths.observed import TooShortError
from ndm_tcp.paths.series import Series

EXAMPLE = """example:
  ndm path estimate my.pcap -o out/paths
  ndm path estimate captures/ datasets/traces/cubic-00-clean -o out/paths --json

Capture where the data are sent. Each flow of at least 200 packets gives a file DIR/NAME.path.json.
exit code 1: some sources or flows gave no path, the others are written; 2: none did. Short
connections beside a flow do not count: iperf3 has one for its orders"""
LEFT_OUT = 1
"""exit code"""
GAP_US = 1_000_000
"""between the parts of one flow"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `ndm path estimate`."""
    parser.add_argument(
        "sources", nargs="+", type=Path, metavar="SRC", help="capture, log, run folder, or folder"
    )
    parser.add_argument(
        "-o", "--out", type=files.folder, required=True, metavar="DIR", help="for models"
    )
    parser.add_argument("--json", action="store_true", help="print the models as JSON")


def estimate_all(
    paths: Sequence[Path], out: Path, quiet: bool
) -> tuple[dict[str, PathModel], dict[str, str]]:
    """Estimate every flow of the sources, and write models and series.

    Args:
        paths: captures, logs, run folders, or folders of them.
        out: the folder of the models.
        quiet: no progress bar.

    Returns:
        the models by name, and why others are not there, by source.

    Raises:
        NdmError: a source is not there.
    """
    refused: dict[str, str] = {}
    made: dict[str, PathModel] = {}
    before = _Before()
    found = sources.discover(list(paths), refused)
    with progress.bar(len(found), "source", quiet) as bar:
        for path in found:
            for one, over_time in _models(path, before, refused):
                named = model.apart(one, made)
                model.write(named, out / f"{named.name}{model.SUFFIX}")
                series.write(over_time, out / f"{named.name}{series.SUFFIX}")
                made[named.name] = named
            bar.update()
    for names in before.parts():
        said = "parts of one flow, each used alone; to join them: mergecap -w whole.pcap"
        print(f"ndm: {', '.join(names)}: {said} {shlex.join(names)}", file=sys.stderr)
    for reason in refused.values():
        print(f"ndm: left out: {files.shown(reason)}", file=sys.stderr)
    return made, refused


def main(args: argparse.Namespace) -> int:
    """Run `ndm path estimate`."""
    made, refused = estimate_all(args.sources, args.out, args.json)
    if args.json:
        print(msgspec.json.format(msgspec.json.encode(list(made.values())), indent=1).decode())
    else:
        for one in made.values():
            print(f"{one.name}: {one.seconds:.1f} s")
            print("\n".join(f"  {name:17} {text}" for name, text in report.facts(one)), end="\n\n")
        print(f"{args.out}: path models: {len(made)}; left out: {len(refused)}")
    if not made:
        return BAD_INPUT
    return LEFT_OUT if refused else 0


@dataclass(frozen=True)
class _Span:
    """When a flow was captured."""

    start_us: int
    end_us: int
    handshake: bool
    path: str


@dataclass
class _Before:
    """What the sources before had."""

    read: dict[str, Path] = field(default_factory=dict)
    """digest of a source to its place"""
    flows: dict[str, Path] = field(default_factory=dict)
    """a flow's fingerprint to its source"""
    paths: dict[str, int] = field(default_factory=dict)
    """the two hosts to a number: an address is not written into a model"""
    spans: dict[tuple[str, int], list[_Span]] = field(default_factory=dict)
    """the two hosts and the sender's port to the flows that were captured"""

    def parts(self) -> list[list[str]]:
        """Sources that a flow goes on in, as tcpdump -C and -G write them; in order."""
        found: dict[tuple[str, ...], None] = {}
        for spans in self.spans.values():
            names: list[str] = []
            spans.sort(key=lambda span: span.start_us)
            for span, later in itertools.pairwise(spans):
                goes_on = abs(later.start_us - span.end_us) < GAP_US and not later.handshake
                if goes_on and span.path != later.path:
                    names += [name for name in (span.path, later.path) if name not in names]
            if names:
                found[tuple(names)] = None
        return [list(names) for names in found]

    def note(self, flow: FlowRecords, path: Path) -> None:
        """Keep when a captured flow was there."""
        if flow.start_us is None or flow.group is None or flow.sender_port is None:
            return
        end_us = flow.start_us + int(flow.acks["now_us"][-1])
        span = _Span(flow.start_us, end_us, flow.facts.get("handshake") != 0, files.shown(path))
        self.spans.setdefault((flow.group, flow.sender_port), []).append(span)

    def has(self, flow: FlowRecords, path: Path) -> Path | None:
        """Another source of the same flow: the same packets in another format or unit of time."""
        if flow.fingerprint is None:
            return None
        other = self.flows.setdefault(flow.fingerprint, path)
        return None if other is path else other

    def number(self, flow: FlowRecords) -> int:
        """Of the flow's path."""
        return self.paths.setdefault(flow.group, len(self.paths) + 1) if flow.group else 0


def _models(
    path: Path, before: _Before, refused: dict[str, str]
) -> Iterator[tuple[PathModel, Series]]:
    """Models and series of a source's flows; what gives none goes to `refused`."""
    where = files.shown(path)
    try:
        result = sources.read(path)
    except NdmError as error:
        refused[where] = str(error)
        return
    other = before.read.setdefault(result.sha256, path)
    if other is not path:
        said = f"same bytes as {files.shown(other)}; used once"
        print(f"ndm: {where}: {said}", file=sys.stderr)
        return
    warnings, capture = list(result.warnings), result.report
    if capture.truncated_at is not None:
        warnings.append(pcap.cut_short(capture.truncated_at, capture.packets))
    for warning in warnings:
        print(f"ndm: {result.name}: {warning}", file=sys.stderr)
    # Beside a flow, connections too short for a path are as usual: iperf3 has one.
    if result.flows:
        left = {why: n for why, n in result.skipped.items() if why not in AS_USUAL}
        refused.update({f"{where} {why}": f"{where}: {n} x {why}" for why, n in left.items()})
    else:
        skipped = "; ".join(f"{count} x {reason}" for reason, count in result.skipped.items())
        unread = result.report.unread() or "capture a bulk transfer"
        why = skipped or f"no TCP flow that sends data; {unread}"
        refused[where] = f"{where}: {why}"
    short: dict[str, str] = {}
    for flow in result.flows:
        if same := before.has(flow, path):
            said = f"{_label(flow)} is that of {files.shown(same)}; used once"
            print(f"ndm: {where}: {said}", file=sys.stderr)
            continue
        before.note(flow, path)
        try:
            one = estimate(flow, path.name, result.flows)
            yield replace(one, path=before.number(flow)), series.of_records(flow)
        except NdmError as error:
            of = short if isinstance(error, TooShortError) else refused
            of[f"{where} {flow.flow_id}"] = f"{where}: {_label(flow)}: {error}"
    if len(short) == len(result.flows):
        refused.update(short)


def _label(flow: FlowRecords) -> str:
    return f"flow {flow.flow_id[:8]}" if flow.sender_port is None else f"port {flow.sender_port}"
