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
MOST_NODES = 128
LARGEST_BATCH = 1024
"""Rows per call, where a file fixes them."""
LARGEST_SHAPE = 16
"""Elements of the only integer tensors there are: shapes of Reshape, columns of Gather."""
TYPES = {TensorProto.FLOAT: ("float_data", 4), TensorProto.INT64: ("int64_data", 8)}
"""The field of a tensor's numbers, and their size in raw_data."""


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
        raise NdmError(
            f"{path}: {size} bytes, more than the {LARGEST_FILE} of any network here; "
            "export a smaller one"
        )
    try:
        model = onnx.load(path, load_external_data=False)
        _check_tensors(path, model)
        onnx.checker.check_model(model)
    except (DecodeError, onnx.checker.ValidationError, ValueError) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise NdmError(f"{path}: not a valid ONNX model ({first}); export it again") from None
    return model


def _check_tensors(path: Path, model: onnx.ModelProto) -> None:
    if len(model.graph.node) > MOST_NODES or len(model.functions) > 0:
        raise NdmError(
            f"{path}: {len(model.graph.node)} nodes and {len(model.functions)} functions; "
            f"at most {MOST_NODES} and none"
        )
    if len(model.graph.sparse_initializer) > 0:
        raise NdmError(f"{path}: sparse tensors are not supported; save them dense")
    attributes = [a for node in model.graph.node for a in node.attribute]
    if any(a.HasField("g") or a.graphs or a.sparse_tensors for a in attributes):
        raise NdmError(
            f"{path}: nodes with graphs of their own are not supported; export without control flow"
        )
    tensors = [*model.graph.initializer, *(a.t for a in attributes if a.HasField("t"))]
    for tensor in tensors:
        count = math.prod(tensor.dims)
        shape = tensor.data_type == TensorProto.INT64
        limit = LARGEST_SHAPE if shape else LARGEST_TENSOR
        if any(d < 0 for d in tensor.dims) or count > limit:
            raise NdmError(
                f"{path}: {tensor.name!r} has shape {list(tensor.dims)}; at most {limit} elements"
            )
        if tensor.data_location == TensorProto.EXTERNAL:
            raise NdmError(f"{path}: {tensor.name!r} lies in another file; save it in this one")
        if tensor.data_type not in TYPES:
            raise NdmError(
                f"{path}: {tensor.name!r} holds {_type_name(tensor.data_type)}, "
                "expected FLOAT; export in float32"
            )
        field, size = TYPES[tensor.data_type]
        have = len(tensor.raw_data) // size if tensor.raw_data else len(getattr(tensor, field))
        if have != count:
            raise NdmError(
                f"{path}: {tensor.name!r} holds {have} numbers, its shape needs {count}; "
                "export it again"
            )


def _type_name(number: int) -> str:
    known = TensorProto.DataType.values()
    return str(TensorProto.DataType.Name(number)) if number in known else f"type {number}"
