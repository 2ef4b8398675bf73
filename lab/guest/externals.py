# SPDX-License-Identifier: GPL-2.0-only
"""What a user brings to the lab by path: patches of its kernel, and modules with algorithms.

A guest with externals runs the patched kernel, and loads the modules whatever it tests.
So all algorithms of a board have the same guest, and its A/A control (`lab/score/control.py`)
measures what the externals do to CUBIC and ndm_tcp.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ndm_tcp import files
from ndm_tcp.errors import NdmError
from ndm_tcp.lab.guest import kernel_patches, uml_build

NAME = re.compile(r'\.name\s*=\s*"([\w.-]{1,15})"')
"""of an algorithm, in the C source of a module"""
HIDDEN = re.compile(r'\.name\s*=\s*(?:[^\s"]|"[^"\n]*"\s*[\w"])')
"""a name that is no text there, as that of a macro, or not all of it"""
OURS = ("ndm_tcp", "ndm_watch", "fixed_cwnd")


@dataclass(frozen=True)
class Externals:
    """Files outside the project; false if there are none."""

    patches: tuple[Path, ...] = ()
    """of the kernel's source, applied in this order"""
    modules: tuple[Path, ...] = ()
    """folders of modules' sources"""

    def __bool__(self) -> bool:
        return bool(self.patches or self.modules)

    def algorithms(self) -> list[str]:
        """The names of algorithms, among others, that they may bring."""
        names = kernel_patches.algorithms(self.patches)
        return names + [name for text in self._sources() for name in NAME.findall(text)]

    def hide_names(self) -> bool:
        """Is the name of an algorithm a macro or a variable, so that only the guest knows it?"""
        return any(HIDDEN.search(text) for text in self._sources())

    def _sources(self) -> Iterator[str]:
        """The C of the modules."""
        for folder in self.modules:
            for path in uml_build.module_files(folder):
                if path.suffix in (".c", ".h"):
                    yield path.read_text(encoding="utf-8", errors="replace")

    def digests(self) -> list[tuple[str, str]]:
        """(name without its folder, `files.digest` of the content)."""
        found = [(p.resolve().name, files.digest(kernel_patches.content(p))) for p in self.patches]
        for folder in self.modules:
            sources = uml_build.module_files(folder)
            names = [str(path.relative_to(folder)).encode() for path in sources]
            whole = files.digest(*names, *(path.read_bytes() for path in sources))
            found.append((folder.resolve().name, whole))
        return found

    def build_modules(self) -> list[Path]:
        """The modules for the kernel with the patches.

        Raises:
            NdmError: one does not compile, or is called like one of the lab's own.
        """
        built = [uml_build.build_module(path, patches=self.patches) for path in self.modules]
        for folder, module in zip(self.modules, built, strict=True):
            if module.stem in OURS:
                raise NdmError(
                    f"--cc-module {folder}: makes {module.name}, which the lab has itself; "
                    "name it with --kmod"
                )
        return built


NONE = Externals()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the verbs that run guests."""
    kernel_patches.add_argument(parser, "run the kernel with this patch, as ndm lab build makes it")
    parser.add_argument(
        "--cc-module",
        type=Path,
        action="append",
        default=[],
        metavar="DIR",
        help="load the module of these sources (repeatable); --cc takes its algorithm by name",
    )


def given(args: argparse.Namespace) -> Externals:
    """Those of the options; none, if the verb does not have them.

    Raises:
        NdmError: no such file or folder.
    """
    patches, modules = getattr(args, "kernel_patch", []), getattr(args, "cc_module", [])
    for patch in patches:
        kernel_patches.content(patch)
    for folder in modules:
        if not any((folder / name).is_file() for name in ("Kbuild", "Makefile")):
            raise NdmError(
                f"--cc-module {folder}: no Kbuild and no Makefile in it; "
                "name the folder of a kernel module's sources"
            )
    return Externals(tuple(patches), tuple(modules))
