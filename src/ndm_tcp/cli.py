# SPDX-License-Identifier: GPL-2.0-only
"""The `ndm` command. Modules load when their verb is used: `ndm dataset` never imports torch."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import re
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, NoReturn

from ndm_tcp import __version__, checkout, files, interrupts
from ndm_tcp.errors import BAD_INPUT, NdmError

COMMANDS: dict[tuple[str, ...], tuple[str, str]] = {
    ("dataset", "build"): (
        "ndm_tcp.paths.build_command",
        "turn captures and logs into rounds",
    ),
    ("dataset", "info"): ("ndm_tcp.datasets.store.info_command", "show the content of a dataset"),
    ("dataset", "record"): (
        "ndm_tcp.datasets.recorder.command",
        "record transfers of this host (root)",
    ),
    ("dataset", "convert"): ("ndm_tcp.lab.recordings.convert", "bring old datasets to this format"),
    ("data", "core"): ("ndm_tcp.training.core_set", "choose the flows most worth training on"),
    ("data", "record"): ("ndm_tcp.lab.recordings.again", "make a recording of rounds.lock again"),
    ("data", "verify"): (
        "ndm_tcp.datasets.store.verify_command",
        "compare recordings with rounds.lock",
    ),
    ("data", "lock"): ("ndm_tcp.lab.recordings.write_lock", "write rounds.lock of recordings"),
    ("path", "estimate"): (
        "ndm_tcp.paths.estimate_command",
        "estimate the network path that a capture crossed",
    ),
    ("path", "replay"): (
        "ndm_tcp.paths.replay_command",
        "run the captured algorithm on path models, and compare with the capture",
    ),
    ("path", "predict"): (
        "ndm_tcp.paths.predict_command",
        "run other algorithms on captured paths",
    ),
    ("path", "import"): (
        "ndm_tcp.paths.import_command",
        "read iBoxNet profiles and mahimahi traces as path models",
    ),
    ("adapt",): (
        "ndm_tcp.adapt.command",
        "adapt the shipped network to the paths of captures, and say whether to use it",
    ),
    ("ab",): (
        "ndm_tcp.ab.command",
        "compare algorithms by the flows of this host, or of logs of ss",
    ),
    ("trace",): (
        "ndm_tcp.datasets.module_event.command",
        "turn the module's events into rows or a picture",
    ),
    ("train",): ("ndm_tcp.training.train", "train the network on a dataset"),
    ("select",): ("ndm_tcp.selection", "choose a network of a population by the closed loop"),
    ("eval",): ("ndm_tcp.training.eval_command", "measure a run on a dataset's flows"),
    ("export",): ("ndm_tcp.export.command", "turn a run into ONNX, integers, C header and vectors"),
    ("check",): ("ndm_tcp.export.check", "check golden vectors and generated files"),
    ("claims",): (
        "ndm_tcp.export.proof.claims",
        "count how recorded rounds fare by the certificate's claims",
    ),
    ("convert",): (
        "ndm_tcp.export.convert",
        "bring an old ONNX file or ndm_model.json to this format",
    ),
    ("status",): (
        "ndm_tcp.status_command",
        "show module and BPF form: network, flows, counters; for Prometheus too",
    ),
    ("swap",): (
        "ndm_tcp.swap_command",
        "give each loaded form another network, under traffic (root)",
    ),
    ("kmod", "status"): (
        "ndm_tcp.kmod_status",
        "show whether the module is loaded, its network and users",
    ),
    ("bpf", "load"): (
        "ndm_tcp.bpf.load_command",
        "load the BPF form of the module into this kernel (root)",
    ),
    ("bpf", "status"): (
        "ndm_tcp.bpf.status_command",
        "show whether the BPF form is loaded, its network and counters (root)",
    ),
    ("bpf", "events"): ("ndm_tcp.bpf.events_command", "print its event of every round (root)"),
    ("bpf", "unload"): ("ndm_tcp.bpf.unload_command", "unload the BPF form (root)"),
    ("lab", "build"): (
        "ndm_tcp.lab.guest.uml_build",
        "build the lab's kernel, and the module for it",
    ),
    ("lab", "run"): ("ndm_tcp.lab.guest.run", "run a scenario once, in virtual time"),
    ("lab", "record"): ("ndm_tcp.lab.recordings.command", "record many runs, to train on"),
    ("lab", "board"): ("ndm_tcp.lab.score.board", "run a suite and write its scoreboard"),
    ("lab", "plot"): ("ndm_tcp.lab.score.plot", "draw a board, two boards, or runs over time"),
    ("lab", "bars"): ("ndm_tcp.lab.score.bars", "show which bars the boards of a folder reach"),
    ("lab", "scenarios"): ("ndm_tcp.lab.paths.command", "write the drawn scenarios again"),
    ("lab", "host-record"): (
        "ndm_tcp.lab.experiments.host_record",
        "record transfers over emulated paths on this host (root)",
    ),
    ("completion",): ("ndm_tcp.completion", "print a script that completes ndm's words in a shell"),
}
GROUPS = {
    "dataset": "build and inspect datasets",
    "data": "manage the recordings that the shipped network is trained on",
    "path": "estimate the paths of captures, replay them, predict",
    "kmod": "look at the module in this kernel",
    "bpf": "run the module as BPF in this kernel",
    "lab": "run the real stack in virtual time",
}


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Examples as they are written, and the default of every option that has one."""

    def _get_help_string(self, action: argparse.Action) -> str:
        text = action.help or ""
        plain = isinstance(action.default, (str, int, float, Path)) and action.default is not False
        if not text or "default" in text or not plain or action.default == argparse.SUPPRESS:
            return text
        return f"{text} (default: %(default)s)"


RESUMED = {
    *(("train",), ("select",), ("adapt",), ("path", "replay"), ("path", "predict")),
    *(("lab", "board"), ("lab", "record"), ("lab", "host-record"), ("data", "record")),
}
"""They keep what an interrupted run has finished."""


def _named(text: str) -> Path:
    """A path; an unset variable of a shell script gives an empty one, which is no folder."""
    if not text:
        raise argparse.ArgumentTypeError("an empty name; write . for the working folder")
    return Path(text)


class Parser(argparse.ArgumentParser):
    """Takes the options of its verb from the verb's module when it needs them."""

    module = ""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.register("type", Path, _named)

    def load(self) -> None:
        """Import the verb's module and take its options; once."""
        name, self.module = self.module, ""
        if name:
            verb: Any = importlib.import_module(name)
            self.epilog = verb.EXAMPLE
            verb.add_arguments(self)
            self.set_defaults(main=verb.main, parser=self)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self.load()
        return super().parse_known_args(args, namespace)

    def format_help(self) -> str:
        self.load()
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        verb = self.prog.removeprefix("ndm").strip()
        raise NdmError(f"{verb}{': ' * bool(verb)}{message}; run: {self.prog} --help")


def listed() -> str:
    """Every verb with a summary."""
    width = max(len(" ".join(words)) for words in COMMANDS)
    return "\n".join(f"  {' '.join(w):{width}}  {text}" for w, (_, text) in COMMANDS.items())


def _add(parsers: Any, words: tuple[str, ...], text: str) -> Parser:
    title = text[0].upper() + text[1:] + "."
    made: Parser = parsers.add_parser(
        words[-1],
        help=text,
        prog=" ".join(["ndm", *words]),
        description=title,
        formatter_class=HelpFormatter,
    )
    return made


def parser() -> Parser:
    """The whole tree; the options of a verb come when it is used, or by `load_all`."""
    root = Parser(
        prog="ndm",
        formatter_class=HelpFormatter,
        epilog="ndm VERB --help shows options and an example; docs/cli.md has them all.",
    )
    root.add_argument("--version", action="version", version=f"ndm {__version__}")
    root.set_defaults(parser=root)
    subs = root.add_subparsers(title="verbs", metavar="VERB", parser_class=Parser)
    groups: dict[str, Any] = {}
    for words, (module, text) in COMMANDS.items():
        under = subs
        if len(words) > 1:
            if words[0] not in groups:
                group = _add(subs, words[:1], GROUPS[words[0]])
                group.set_defaults(parser=group)
                groups[words[0]] = group.add_subparsers(
                    title="verbs", metavar="VERB", parser_class=Parser
                )
            under = groups[words[0]]
        _add(under, words, text).module = module
    return root


def verb_parsers(root: Parser) -> dict[tuple[str, ...], Parser]:
    """The parsers of all verbs, with their options."""
    found = {}
    for words in COMMANDS:
        at: Parser = root
        for word in words:
            subs = next(a for a in at._actions if isinstance(a, argparse._SubParsersAction))
            at = subs.choices[word]
        at.load()
        found[words] = at
    return found


def require_verb(words: Sequence[str]) -> None:
    """Refuse an unknown verb, by name.

    Raises:
        NdmError: naming it, and where all are listed.
    """
    said = [*words[:2]] if words and words[0] in GROUPS else [*words[:1]]
    if not said or said[-1].startswith("-") or (len(said) == 1 and said[0] in GROUPS):
        return
    if tuple(said) not in COMMANDS:
        group = f"{said[0]} " if len(said) == 2 else ""
        raise NdmError(f"unknown verb {' '.join(said)!r}; run: ndm {group}--help")


def remedy(package: str) -> str:
    """How to install a missing package: a checkout has its own command, a wheel its extras."""
    if checkout.is_here():
        return "make setup"
    name = package.split(".")[0]
    with contextlib.suppress(metadata.PackageNotFoundError):
        for required in metadata.requires("ndm-tcp") or []:
            if extra := re.match(rf"{re.escape(name)}\b(?!-).*extra == .([\w-]+)", required):
                return f"pip install 'ndm-tcp[{extra[1]}]'"
    return f"pip install {name}"


def run_command(arguments: Sequence[str]) -> int:
    """Run one command line; bad input prints one line and returns 2."""
    again = "run the same command again"
    try:
        require_verb(arguments)
        args, unknown = parser().parse_known_args(arguments)
        if unknown:
            args.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
        if not hasattr(args, "main"):
            args.parser.print_help()
            return 0
        if tuple(args.parser.prog.split()[1:]) in RESUMED:
            again += " to carry on"
        with interrupts.signals_as_exit():
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
    except SystemExit as end:  # of a signal, or argparse after --help and --version
        code = int(end.code or 0)
        if code > 128:
            print(f"ndm: ended by a signal; {again}", file=sys.stderr)
        return code
    except KeyboardInterrupt:
        print(f"ndm: interrupted; {again}", file=sys.stderr)
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
