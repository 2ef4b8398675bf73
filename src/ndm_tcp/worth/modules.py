# SPDX-License-Identifier: GPL-2.0-only
"""Sources of the module beside one another in the closed loop: does a change of the C code pay?

    git worktree add ../before HEAD
    python -m ndm_tcp.worth.modules ../before/kmod kmod --suites validation -o out/modules

Prints a table for each suite: each module less the first, as docs/worth.md does. Resumes; runs of
sources that have changed since are made anew.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ndm_tcp.errors import NdmError
from ndm_tcp.lab.guest import suite
from ndm_tcp.worth import populations


def named(folders: Sequence[Path]) -> dict[str, Path]:
    """Name to sources: the folder's name, or that of the one around it if it is `kmod`.

    Raises:
        NdmError: fewer than two, two of one name, or one without the module's sources.
    """
    made: dict[str, Path] = {}
    for folder in folders:
        path = folder.resolve()
        name = path.parent.name if path.name == "kmod" else path.name
        if not (path / "Kbuild").is_file():
            raise NdmError(f"{folder}: no sources of the module; name a folder such as kmod")
        if name in made:
            raise NdmError(f"{folder}: another module is called {name}, too; rename a folder")
        made[name] = path
    if len(made) < 2:
        raise NdmError("one module: name another to compare it with")
    return made


def main(argv: list[str] | None = None) -> int:
    """Compare modules."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path, help="sources of the module")
    populations.add_arguments(parser)
    args = parser.parse_args(argv)
    made, (suites, where) = named(args.folders), populations.checked(args)
    suite.prepare(where)
    populations.compare(made, {name: [name] for name in made}, suites, where, args, "modules.md")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except NdmError as error:
        sys.exit(f"worth: {error}")
