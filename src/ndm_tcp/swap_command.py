# SPDX-License-Identifier: GPL-2.0-only
"""`ndm swap`: another network for the form that is loaded, while connections use it."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from ndm_tcp.bpf import loader, status_command
from ndm_tcp.errors import NdmError

EXAMPLE = """example:  (as root, with ndm_tcp_bpf loaded)
  ndm export out/run && ndm swap out/run
  ndm swap out/run/ndm_model.blob          # the same
  ndm swap --built-in                      # back to the network that it was built with"""

BLOB = "ndm_model.blob"
"""beside the reports of an export"""


def blob_of(what: Path) -> Path:
    """The blob of a run, of an ONNX file that was exported, or the file itself.

    Raises:
        NdmError: there is none.
    """
    found = what
    if what.is_dir():
        found = what / BLOB
    elif what.suffix == ".onnx":
        found = what.with_suffix(".export") / BLOB
    if not found.is_file():
        raise NdmError(f"{found}: no blob of a network there; run: ndm export RUN")
    return found


def swap(folder: Path, blob: Path | None) -> dict[str, str | float]:
    """Swap in a blob, or the network of the build again.

    Args:
        folder: where the loader of the BPF form is.
        blob: the file; None: the built-in network.

    Returns:
        model_hash before and after; swap_ms, until new rounds use it; settled_ms, until no round
        uses the former one.

    Raises:
        NdmError: not root, not loaded, or the network is refused; the former one runs on then.
    """
    before = status_command.read(folder)
    if not before["loaded"]:
        raise NdmError(f"{loader.NAME} is not loaded; run: ndm bpf load")
    _, text = loader.run(folder, "swap", str(blob) if blob else "--built-in")
    said = loader.facts(text)
    return {
        "form": "bpf",
        "before": str(before["model_hash"]),
        "model_hash": str(status_command.read(folder)["model_hash"]),
        "swap_ms": float(said["swap_ms"]),
        "settled_ms": float(said["settled_ms"]),
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `ndm swap`."""
    loader.add_folder(parser)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "what", metavar="RUN", nargs="?", type=Path, help="what was exported, or a blob"
    )
    what.add_argument(
        "--built-in", action="store_true", help="the network that it was built with again"
    )
    parser.add_argument("--json", action="store_true", help="print it as JSON")


def main(args: argparse.Namespace) -> int:
    """Run `ndm swap`."""
    done = swap(args.folder, None if args.built_in else blob_of(args.what))
    if args.json:
        print(json.dumps(done, indent=1))
    else:
        print(
            f"{loader.NAME}: network {done['model_hash']} instead of {done['before']}, in "
            f"{done['swap_ms']} ms; no round uses the former one after {done['settled_ms']} ms"
        )
    return 0
