# SPDX-License-Identifier: GPL-2.0-only
"""The `ndm` command. Modules load when their verb is used: `ndm dataset` never imports torch."""

from __future__ import annotations

import argparse
import importlib
import io
import sys
from collections.abc import Sequence
from pathlib import Path

from ndm_tcp import __version__, files
from ndm_tcp.errors import BAD_INPUT, NdmError

COMMANDS: dict[tuple[str, ...], tuple[str, str]] = {
    ("dataset", "build"): ("ndm_tcp.datasets.build.command", "captures and logs to rounds"),
    ("dataset", "info"): ("ndm_tcp.datasets.disk.info_command", "what a dataset holds"),
    ("dataset", "record"): ("ndm_tcp.datasets.recorder.command", "transfers of this host (root)"),
    ("dataset", "convert"): ("ndm_tcp.lab.recordings.convert", "datasets of before to this format"),
    ("data", "core"): ("ndm_tcp.training.core_set", "the flows most worth training on"),
    ("data", "record"): ("ndm_tcp.lab.recordings.again", "a recording of rounds.lock, made again"),
    ("data", "verify"): (
        "ndm_tcp.datasets.disk.verify_command",
        "the recordings against rounds.lock",
    ),
    ("trace",): (
        "ndm_tcp.datasets.module_event.command",
        "the module's event of every round: rows, picture",
    ),
    ("train",): ("ndm_tcp.training.train", "train the network on a dataset"),
    ("select",): ("ndm_tcp.selection", "one network of a population, by the closed loop"),
    ("eval",): ("ndm_tcp.training.eval_command", "metrics of a run on a dataset's flows"),
    ("export",): ("ndm_tcp.export.command", "a run to ONNX, integers, C header and vectors"),
    ("check",): ("ndm_tcp.export.check", "golden vectors and generated files"),
    ("kmod", "status"): ("ndm_tcp.kmod_status", "the module: loaded, which network, who uses it"),
    ("lab", "build"): ("ndm_tcp.lab.guest.uml_build", "the lab's kernel, and the module for it"),
    ("lab", "run"): ("ndm_tcp.lab.guest.run", "one run of a scenario in virtual time"),
    ("lab", "record"): ("ndm_tcp.lab.recordings.command", "many runs, to train on"),
    ("lab", "board"): ("ndm_tcp.lab.score.board", "the scoreboard of a suite"),
    ("lab", "host-record"): (
        "ndm_tcp.lab.experiments.host_record",
        "record transfers on this host",
    ),
}
GROUPS = {
    "dataset": "build and inspect datasets",
    "data": "the recordings that the shipped network is trained on",
    "kmod": "the module in this kernel",
    "lab": "the real stack in virtual time",
}


def parser_for(words: tuple[str, ...]) -> argparse.ArgumentParser:
    """The parser of one verb, with its example."""
    name, summary = COMMANDS[words]
    module = importlib.import_module(name)
    parser = argparse.ArgumentParser(
        prog=" ".join(["ndm", *words]),
        description=summary[0].upper() + summary[1:] + ".",
        epilog=module.EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module.add_arguments(parser)
    parser.set_defaults(main=module.main)
    return parser


def usage(group: str = "") -> str:
    """What `ndm --help` prints, or `ndm GROUP --help`."""
    listed = {k: summary for k, (_, summary) in COMMANDS.items() if not group or k[0] == group}
    width = max(len(" ".join(words)) for words in listed)
    rows = "\n".join(f"  {' '.join(words):{width}}  {text}" for words, text in listed.items())
    options = "--help" if group else "--help, --version"
    verb = f"{group} VERB" if group else "VERB"
    title = f"{GROUPS[group]}\n\n" if group else ""
    return (
        f"usage: ndm {verb} ... (ndm {verb} --help shows an example)\n\n"
        f"{title}{rows}\n\noptions:\n  {options}\n"
    )


def remedy(package: str) -> str:
    """How to install what is missing: a checkout has a command of its own, a wheel has not."""
    makefile = Path(__file__).resolve().parents[2] / "Makefile"
    return "make setup" if makefile.is_file() else f"pip install {package.split('.')[0]}"


def run_command(arguments: Sequence[str]) -> int:
    """Run one command line; bad input prints one line and returns 2."""
    words = tuple(arguments)
    if not words or words[0] in ("-h", "--help"):
        print(usage(), end="")
        return 0
    if words[0] == "--version":
        print(f"ndm {__version__}")
        return 0
    if words[0] in GROUPS and words[1:2] in ((), ("-h",), ("--help",)):
        print(usage(words[0]), end="")
        return 0
    verb = next((key for key in COMMANDS if words[: len(key)] == key), None)
    try:
        if verb is None:
            group = words[0] if words[0] in GROUPS else None
            raise NdmError(
                f"unknown verb {' '.join(words[: 2 if group else 1])!r}; "
                f"run: ndm {f'{group} ' if group else ''}--help"
            )
        args = parser_for(verb).parse_args(words[len(verb) :])
        return int(args.main(args))
    except NdmError as error:
        print(f"ndm: {one_line(str(error))}", file=sys.stderr)
        return BAD_INPUT
    except ModuleNotFoundError as error:
        if not error.name or error.name.startswith("ndm_tcp"):
            raise
        print(
            f"ndm: Python package {error.name!r} is missing; run: {remedy(error.name)}",
            file=sys.stderr,
        )
        return BAD_INPUT
    except KeyboardInterrupt:
        print("ndm: interrupted; run the same command again to carry on", file=sys.stderr)
        return 130
    except BrokenPipeError:
        return 141
    except OSError as error:  # a full or read-only disk, a folder that may not be entered
        where = f"{files.shown(error.filename)}: " if error.filename else ""
        print(f"ndm: {one_line(where + files.why(error))}", file=sys.stderr)
        return BAD_INPUT


def one_line(text: str) -> str:
    """File names may hold line ends, and bytes that are no UTF-8."""
    return " ".join(files.shown(text).splitlines())


def main() -> None:
    """Entry point of the console script."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    sys.exit(run_command(sys.argv[1:]))


if __name__ == "__main__":
    main()
