# SPDX-License-Identifier: GPL-2.0-only
"""`ndm swap`: another network for each form that is loaded, while connections use it."""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

from ndm_tcp import files, kmod_status
from ndm_tcp.bpf import loader, status_command
from ndm_tcp.errors import NdmError

EXAMPLE = """example:  (as root, with the module or its BPF form loaded)
  ndm export out/run && ndm swap out/run
  ndm swap out/run/ndm_model.blob          # the same
  ndm swap --built-in                      # back to the network that it was built with"""

BLOB = "ndm_model.blob"
"""beside the reports of an export"""
HEAD_BYTES = 36
BUILT_IN = "built-in"
FIRMWARE = Path("lib/firmware/ndm_tcp")
PARAMETER = Path("sys/module/ndm_tcp/parameters/model")
Done = dict[str, str | float]


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


def hash_of(blob: Path) -> str:
    """The hash by which a blob names its network; what else it holds is the kernel's to check.

    Raises:
        NdmError: too short to be a blob.
    """
    head = blob.read_bytes()[:HEAD_BYTES]
    if len(head) < HEAD_BYTES:
        raise NdmError(f"{blob}: too short for a blob; run: ndm export RUN")
    return f"{int.from_bytes(head[24:32], 'little'):016x}"


def swap_bpf(folder: Path, blob: Path | None) -> Done:
    """Swap the network of the BPF form; see `swap`."""
    before = status_command.read(folder)
    _, text = loader.run(folder, "swap", str(blob) if blob else f"--{BUILT_IN}")
    said = loader.facts(text)
    return {
        "form": loader.NAME,
        "before": str(before["model_hash"]),
        "model_hash": str(status_command.read(folder)["model_hash"]),
        "swap_ms": float(said["swap_ms"]),
        "settled_ms": float(said["settled_ms"]),
    }


def _place(firmware: Path, data: bytes | None) -> None:
    """Leave a file for the kernel; None: none."""
    if data is None:
        firmware.unlink()
        return
    with files.replacing(firmware) as temporary:
        temporary.write_bytes(data)


def swap_module(blob: Path | None, root: Path = Path("/")) -> Done:
    """Swap the network of the module; see `swap`. root: where lib and sys are."""
    parameter = root / PARAMETER
    before = kmod_status.read(root)["model_hash"]
    if not parameter.exists():
        raise NdmError("the loaded module cannot swap; build and load it again: make -C kmod")
    name = hash_of(blob) if blob else BUILT_IN
    firmware = root / FIRMWARE / name
    kept = firmware.read_bytes() if blob and firmware.is_file() else None
    if blob:
        _place(firmware, blob.read_bytes())
    began = time.monotonic()
    try:
        parameter.write_text(name + "\n")
    except OSError as error:
        if blob:
            _place(firmware, kept)
        raise NdmError(
            f"{blob or BUILT_IN}: the module refuses it ({files.why(error)}); the reason: dmesg | "
            "tail"
        ) from None
    settled = round(1e3 * (time.monotonic() - began), 3)
    after = kmod_status.read(root)["model_hash"]
    return {"form": "ndm_tcp", "before": str(before), "model_hash": str(after),
            "settled_ms": settled}  # fmt: skip


def swap(folder: Path, blob: Path | None) -> list[Done]:
    """Give every loaded form a blob's network, or the one that it was built with.

    Args:
        folder: where the loader of the BPF form is.
        blob: the file; None: the built-in network.

    Returns:
        per form model_hash before and after; settled_ms, until no round uses the former network;
        of BPF swap_ms, until new rounds use the new one.

    Raises:
        NdmError: not root, nothing loaded, or the network is refused; the former one runs on then.
    """
    if os.geteuid():
        raise NdmError("not root: only root may swap a network; run it with sudo")
    module = bool(kmod_status.read()["loaded"])
    done = [swap_module(blob)] if module else []
    if not module or (folder / "ndm_bpf").is_file():
        if status_command.read(folder)["loaded"]:
            try:
                done.append(swap_bpf(folder, blob))
            except NdmError as error:
                if not done:
                    raise
                raise NdmError(
                    f"{error}; the module has swapped: it runs {done[0]['model_hash']}"
                ) from None
        elif not module:
            raise NdmError("neither form is loaded; run: ndm bpf load, or: make -C kmod load")
    return done


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `ndm swap`."""
    loader.add_folder(parser)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "what", metavar="RUN", nargs="?", type=Path, help="what was exported, or a blob"
    )
    what.add_argument(
        f"--{BUILT_IN}", action="store_true", help="the network that it was built with again"
    )
    parser.add_argument("--json", action="store_true", help="print it as JSON")


def main(args: argparse.Namespace) -> int:
    """Run `ndm swap`."""
    done = swap(args.folder, None if args.built_in else blob_of(args.what))
    if args.json:
        print(json.dumps(done, indent=1))
        return 0
    for form in done:
        print(
            f"{form['form']}: network {form['model_hash']} instead of {form['before']}; "
            f"no round uses the former one after {form['settled_ms']} ms"
        )
    return 0
