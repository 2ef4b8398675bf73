# SPDX-License-Identifier: GPL-2.0-only
"""Loading ONNX files that may come from anyone: small, plain and whole, or refused in one line."""

from __future__ import annotations

import math
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError
from onnx import TensorProto

from ndm_tcp import contract as c
from ndm_tcp.errors import NdmError

LARGEST_FILE = 4 << 20
"""Bytes; the widest network that the contract allows takes 54 KB."""
LARGEST_TENSOR = c.MAX_WIDTH * c.MAX_WIDTH
"""Elements; of the widest layer."""
MOST_NODES = 64


def load(path: Path, remedy: str) -> onnx.ModelProto:
    """Read and check a model without following references out of the file.

    Args:
        path: the file.
        remedy: the command that makes it anew, for the message of a missing file.

    Raises:
        NdmError: missing, too large, not ONNX, or with tensors that no network here can have.
    """
    if not path.is_file():
        raise NdmError(f"{path}: no such file; run: {remedy}")
    size = path.stat().st_size
    if size > LARGEST_FILE:
        raise NdmError(f"{path}: {size} bytes, more than the {LARGEST_FILE} of any network here")
    try:
        model = onnx.load(path, load_external_data=False)
        _check_tensors(path, model)
        onnx.checker.check_model(model)
    except (DecodeError, onnx.checker.ValidationError, ValueError) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise NdmError(f"{path}: not a valid ONNX model ({first})") from None
    return model


def _check_tensors(path: Path, model: onnx.ModelProto) -> None:
    if len(model.graph.node) > MOST_NODES or len(model.functions) > 0:
        raise NdmError(
            f"{path}: {len(model.graph.node)} nodes and {len(model.functions)} functions; "
            f"at most {MOST_NODES} and none"
        )
    if len(model.graph.sparse_initializer) > 0:
        raise NdmError(f"{path}: sparse tensors are not supported")
    for tensor in model.graph.initializer:
        count = math.prod(tensor.dims)
        if any(d < 0 for d in tensor.dims) or count > LARGEST_TENSOR:
            raise NdmError(
                f"{path}: {tensor.name!r} has shape {list(tensor.dims)}; "
                f"at most {LARGEST_TENSOR} elements"
            )
        if tensor.data_location == TensorProto.EXTERNAL:
            raise NdmError(f"{path}: {tensor.name!r} lies in another file; save it in this one")
        if tensor.data_type != TensorProto.FLOAT:
            raise NdmError(
                f"{path}: {tensor.name!r} holds {TensorProto.DataType.Name(tensor.data_type)}, "
                "expected FLOAT; export in float32"
            )
        have = len(tensor.raw_data) // 4 if tensor.raw_data else len(tensor.float_data)
        if have != count:
            raise NdmError(f"{path}: {tensor.name!r} holds {have} numbers, its shape says {count}")
