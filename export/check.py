# SPDX-License-Identifier: GPL-2.0-only
"""`ndm check`: does what lies in kmod/generated hold together, in Python and in C?"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from ndm_tcp import contract as c
from ndm_tcp.errors import NdmError
from ndm_tcp.export.integers import generated, model_c
from ndm_tcp.export.integers.network import IntegerNetwork
from ndm_tcp.export.proof import law

CHECKER = Path(__file__).resolve().parent / "checker" / "check_certificate.py"
EXAMPLE = """example:
  ndm check                                # the committed header
  ndm check --kmod out/demo/kmod           # another copy of the module's sources
  ndm check --update                       # regenerate from contract and ndm_model.json"""


def run_selftest(kmod: Path, compiler: str = "cc", flags: tuple[str, ...] = ("-O2",)) -> str:
    """Compile the module's self-test for user space and run it.

    Args:
        kmod: folder with ndm_selftest.c and generated/.
        compiler: a C compiler's command.
        flags: passed to it.

    Returns:
        the output of the self-test.

    Raises:
        NdmError: no compiler, it does not compile, or a vector fails.
    """
    if shutil.which(compiler) is None:
        raise NdmError(f"{compiler}: not found; install a C compiler (apt install gcc)")
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "selftest"
        command = [compiler, "-std=gnu11", "-Wall", "-Wextra", "-Werror", *flags]
        built = subprocess.run(
            [*command, "-o", str(program), str(kmod / "ndm_selftest.c")],
            capture_output=True,
            text=True,
            check=False,
        )
        if built.returncode:
            first = next((line for line in built.stderr.splitlines() if "error" in line), "failed")
            raise NdmError(
                f"{kmod}: the self-test does not compile: {first}; "
                f"run: ndm export RUN -o {kmod}/generated"
            )
        result = subprocess.run([str(program)], capture_output=True, text=True, check=False)
    if result.returncode:
        raise NdmError(
            f"{kmod}: golden vectors: {(result.stderr or result.stdout).strip()}; "
            f"run: ndm export RUN -o {kmod}/generated"
        )
    return result.stdout.strip()


def run_checker(folder: Path) -> str:
    """The independent checker on a folder of generated files, as a separate program.

    Returns:
        what it printed.

    Raises:
        NdmError: the claim that it refused.
    """
    result = subprocess.run(
        [sys.executable, "-B", str(CHECKER), str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode:
        said = result.stderr.strip().splitlines() or ["it said nothing"]
        raise NdmError(f"{said[-1]}; run: ndm export RUN -o {folder}")
    return result.stdout.strip()


def check(kmod: Path) -> dict[str, object]:
    """Every check of the exported model that needs no training run.

    Raises:
        NdmError: the first that fails.
    """
    folder = kmod / "generated"
    network = IntegerNetwork.read(folder)
    if not network.same_in_c():
        raise NdmError(
            f"{kmod}: C and fixedpoint.py disagree on the golden vectors: "
            "this is a defect, report it"
        )
    error, bound = np.abs(network.error).max(axis=0), network.bound
    if (error > bound).any():
        raise NdmError(
            f"{kmod}: |fixed - real| is {error}, above the bound {bound}; "
            f"run: ndm export RUN -o {kmod}/generated"
        )
    compared = generated.check(folder, network)
    law.require(kmod)
    return {
        "contract": c.HASH,
        "model": network.model.hash(),
        "vectors": len(network.trace.x),
        "vectors_sha256": network.trace.digest(),
        "bound": bound.tolist(),
        "observed": error.tolist(),
        "generated_files": compared,
        "certificate": run_checker(folder),
        "selftest": run_selftest(kmod),
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `ndm check`."""
    parser.add_argument(
        "--kmod",
        type=Path,
        metavar="DIR",
        default=generated.GENERATED.parent,
        help="the module's sources (default: the checkout's kmod)",
    )
    parser.add_argument("--update", action="store_true", help="rewrite what follows from the rest")
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")


def main(args: argparse.Namespace) -> int:
    """Run `ndm check`."""
    folder = args.kmod / "generated"
    if args.update:
        generated.write(IntegerNetwork.read(folder), folder)
    result = check(args.kmod)
    if args.json:
        print(json.dumps(result, indent=2))
        return 0
    print(f"model {result['model']}, contract {result['contract']}")
    print(f"C against specification: {result['vectors']} vectors, every layer, bit for bit")
    bounds = zip(c.OUTPUTS, result["bound"], result["observed"], strict=True)  # type: ignore[call-overload]
    for o, bound, seen in bounds:
        print(f"{o.name}: |fixed - real| <= {model_c.upward(bound)}, seen {seen:.2g}")
    print(f"{result['generated_files']} generated files are up to date")
    print(result["certificate"])
    print(result["selftest"])
    return 0
