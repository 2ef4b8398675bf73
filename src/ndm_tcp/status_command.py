# SPDX-License-Identifier: GPL-2.0-only
"""`ndm status`: module and BPF form in one table, or as Prometheus reads it from a text file."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping

from ndm_tcp import kmod_status
from ndm_tcp.bpf import loader, status_command
from ndm_tcp.errors import NdmError

EXAMPLE = """example:  (as root, else without the BPF form)
  ndm status
  cd /var/lib/node_exporter                # renamed, as a scrape must not see half of a file
  ndm status --prometheus > ndm_tcp.new; mv ndm_tcp.new ndm_tcp.prom"""

METRICS = {
    "flows": ("ndm_tcp_flows", "gauge", "Sockets that use the algorithm now."),
    "rounds": ("ndm_tcp_rounds_total", "counter", "Rounds since it was loaded."),
    "fallbacks": ("ndm_tcp_fallbacks_total", "counter", "Times the watchdog took over."),
    "guarded": ("ndm_tcp_guarded_total", "counter", "Rounds in which the guard held the window."),
    "events_lost": ("ndm_tcp_events_lost_total", "counter", "Events that nobody read in time."),
    "no_memory": ("ndm_tcp_no_memory_total", "counter", "Rounds that had no memory."),
}
HASHES = ("model_hash", "contract_hash")
Facts = Mapping[str, str | int | bool | None]


def read(args: argparse.Namespace) -> dict[str, Facts]:
    """Facts of both forms, by form; a form that cannot be read is named on standard error."""
    found: dict[str, Facts] = {"module": kmod_status.read()}
    try:
        found["bpf"] = status_command.read(args.folder)
    except NdmError as error:
        print(f"ndm: without the BPF form: {error}", file=sys.stderr)
    return found


def prometheus(found: Mapping[str, Facts]) -> str:
    """The text format of Prometheus; a value that a form does not have is left out."""
    loaded = {form: facts for form, facts in found.items() if facts["loaded"]}
    lines = ["# HELP ndm_tcp_loaded Whether the form is loaded.", "# TYPE ndm_tcp_loaded gauge"]
    lines += [f'ndm_tcp_loaded{{form="{form}"}} {int(form in loaded)}' for form in found]
    if loaded:
        lines += ["# HELP ndm_tcp_info The network that runs.", "# TYPE ndm_tcp_info gauge"]
    for form, facts in loaded.items():
        labels = ",".join(f'{name}="{facts[name] or ""}"' for name in HASHES)
        lines.append(f'ndm_tcp_info{{form="{form}",{labels}}} 1')
    for key, (name, kind, what) in METRICS.items():
        values = [
            f'{name}{{form="{form}"}} {facts[key]}'
            for form, facts in loaded.items()
            if facts.get(key) is not None
        ]
        if values:
            lines += [f"# HELP {name} {what}", f"# TYPE {name} {kind}", *values]
    return "\n".join(lines) + "\n"


def table(found: Mapping[str, Facts]) -> str:
    """A row for each form."""
    names = ("loaded", "model_hash", *METRICS)
    rows = [("form", *names)]
    for form, facts in found.items():
        values = (facts.get(name) for name in names[1:])
        rows.append(
            (
                form,
                "yes" if facts["loaded"] else "no",
                *("-" if v is None else str(v) for v in values),
            )
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    said = [
        "  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    module = found["module"]
    return "\n".join([f"kernel {module['kernel']}, default {module['default']}", *said])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `ndm status`."""
    loader.add_folder(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print it as JSON")
    form.add_argument("--prometheus", action="store_true", help="print it for Prometheus")


def main(args: argparse.Namespace) -> int:
    """Run `ndm status`; exit code 1 if neither form is loaded."""
    found = read(args)
    if args.prometheus:
        print(prometheus(found), end="")
    else:
        print(json.dumps(found, indent=1) if args.json else table(found))
    return 0 if any(facts["loaded"] for facts in found.values()) else 1
