# SPDX-License-Identifier: GPL-2.0-only
"""`ndm completion`: a script that completes verbs and options in a shell, written by shtab."""

from __future__ import annotations

import argparse

SHELLS = ("bash", "zsh", "tcsh")
EXAMPLE = """example:
  source <(ndm completion bash)
  ndm completion zsh > ~/.zfunc/_ndm"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The argument of `ndm completion`."""
    parser.add_argument("shell", choices=SHELLS, help="the shell that reads the script")


def main(args: argparse.Namespace) -> int:
    """Print the script."""
    import shtab

    from ndm_tcp import cli

    root = cli.parser()
    cli.verb_parsers(root)
    print(shtab.complete(root, shell=args.shell))
    return 0
