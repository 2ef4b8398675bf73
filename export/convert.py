# SPDX-License-Identifier: GPL-2.0-only
"""`ndm convert`: an ONNX file or ndm_model.json of an older contract, in the present format."""

from __future__ import annotations

import argparse
from pathlib import Path

from ndm_tcp import contract as c
from ndm_tcp import files, model_json
from ndm_tcp.errors import NdmError

EXAMPLE = """example:
  ndm convert old.onnx -o new.onnx                 # takes inputs and means: puts the memory before
  ndm convert old/ndm_model.json -o ndm_model.json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `ndm convert`."""
    parser.add_argument("file", type=Path, metavar="FILE", help=".onnx or .json to convert")
    parser.add_argument("-o", "--out", type=Path, required=True, help="file to write")


def main(args: argparse.Namespace) -> int:
    """Convert by the ending of the file."""
    if args.file.suffix == ".onnx":
        from ndm_tcp.export.onnx import memory

        memory.put_before(args.file, args.out)
        names = (memory.INPUT, c.N_INPUTS, memory.STATE, c.N_MEANS)
        print("{}: takes {} [n, {}] and {} [n, {}]".format(args.out, *names))
    elif args.file.suffix == ".json":
        model = model_json.from_json(args.file, model_json.BEFORE_MEMORY)
        files.write_text(args.out, model_json.to_json(model))
        was = model.hash(model_json.BEFORE_MEMORY)
        print(f"{args.out}: model {model.hash()}, which was {was}")
    else:
        raise NdmError(f"{args.file}: neither .onnx nor .json; datasets: ndm dataset convert")
    return 0
