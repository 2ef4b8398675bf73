# SPDX-License-Identifier: GPL-2.0-only
"""The kernel module's C, called from Python: features of ACK streams and integer inference.

Nothing is computed here; every function passes arrays to `kmod/ndm_*.h` as compiled into
the extension `ndm_tcp._core`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ndm_tcp import contract
from ndm_tcp.errors import NdmError
from ndm_tcp.fixedpoint import Layer

try:
    from ndm_tcp import _core
    from ndm_tcp._core import ffi as ffi
    from ndm_tcp._core import lib as lib
except ImportError as error:  # pragma: no cover - only in a checkout that was never set up
    raise NdmError(
        f"ndm_tcp._core: the C extension is not built ({error}); run: make setup"
    ) from None

contract.require(f"{lib.ndm_core_contract():016x}", "ndm_tcp._core", "make setup")
ACK_DTYPE = np.dtype(contract.ACK_DTYPE)
if lib.ndm_core_ack_size() != ACK_DTYPE.itemsize:  # pragma: no cover
    raise NdmError("ndm_tcp._core: struct ndm_ack has another size here; run: make setup")

EXTENSION: str = _core.__file__
"""The compiled file, whose bytes distinguish one build of the C code from another."""

FEATURES_BYTES: int = lib.ndm_core_features_size()
"""Size of `struct ndm_features`, which shares the kernel's 104 bytes with the controller."""


@dataclass(frozen=True)
class Rounds:
    """The rounds of one ACK stream, in order."""

    x: npt.NDArray[np.int16]
    """[rounds, inputs] Q12; all zero where not valid"""
    ack_index: npt.NDArray[np.int32]
    """[rounds] the ACK that ended each round"""
    valid: npt.NDArray[np.bool_]
    """[rounds] false where the round had no RTT, rate or window to go by"""

    def dense(self) -> npt.NDArray[np.int16]:
        """[rounds, dense] Q12: inputs of the dense layers; all zero where not valid."""
        return remember(self.x, np.arange(len(self.x)) == 0, self.valid)


def _pointer(ctype: str, array: npt.NDArray[Any]) -> Any:
    return ffi.cast(ctype, array.ctypes.data)


def replay(acks: npt.NDArray[Any]) -> Rounds:
    """Run the kernel's feature code over a whole flow.

    Args:
        acks: [n] structured array of `contract.ACK_DTYPE`, in order.

    Raises:
        NdmError: if the array has another type.
    """
    if acks.dtype != ACK_DTYPE:
        raise NdmError(f"replay: ACK records of type {acks.dtype}, expected {ACK_DTYPE}")
    acks = np.ascontiguousarray(acks)
    n = len(acks)
    x = np.zeros((n, contract.N_INPUTS), dtype=np.int16)
    index = np.zeros(n, dtype=np.int32)
    valid = np.zeros(n, dtype=np.uint8)
    state = np.zeros(FEATURES_BYTES, dtype=np.uint8)
    rounds = lib.ndm_core_replay(
        _pointer("void *", acks),
        n,
        _pointer("void *", state),
        _pointer("int16_t *", x),
        _pointer("int32_t *", index),
        _pointer("uint8_t *", valid),
    )
    return Rounds(x[:rounds].copy(), index[:rounds].copy(), valid[:rounds].astype(bool))


def remember(
    x: npt.NDArray[np.int16],
    begins: npt.NDArray[np.bool_],
    valid: npt.NDArray[np.bool_],
    state: npt.NDArray[np.uint16] | None = None,
) -> npt.NDArray[np.int16]:
    """Inputs of the dense layers in the rounds of flows: the network's memory, in C.

    Args:
        x: [n, inputs] Q12, rounds in order, those of a flow together.
        begins: [n] true at the first round of a flow.
        valid: [n] false where a round has no inputs; the memory does not see it.
        state: [means] of the flow that goes on at the first round; overwritten by the last one's.
            None: a new one.

    Returns:
        [n, dense] Q12, all zero where not valid.
    """
    n = len(x)
    if x.shape != (n, contract.N_INPUTS) or len(begins) != n or len(valid) != n:
        raise NdmError(f"remember: inputs {x.shape}, expected [n, {contract.N_INPUTS}]")
    if state is None:
        state = np.zeros(contract.N_MEANS, dtype=np.uint16)
    x = np.ascontiguousarray(x, np.int16)
    first, good = (np.ascontiguousarray(flags, np.uint8) for flags in (begins, valid))
    dense = np.empty((n, contract.N_DENSE), dtype=np.int16)
    lib.ndm_core_remember(
        _pointer("int16_t *", x),
        _pointer("uint8_t *", first),
        _pointer("uint8_t *", good),
        n,
        _pointer("uint16_t *", state),
        _pointer("int16_t *", dense),
    )
    return dense


def _pairs(rows: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """An even number of rows, two in a number: NDM_PAIR of ndm_infer.h, flat."""
    wide = rows.astype(np.int64)
    return (wide[::2] + (wide[1::2] << 32)).view(np.uint64).ravel()


def infer(
    layers: Sequence[Layer], x: npt.NDArray[np.int16]
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Integer inference in C.

    Args:
        layers: at most MAX_LAYERS layers, none wider than MAX_WIDTH.
        x: [batch, dense], Q12: inputs and means, see `remember`.

    Returns:
        outputs [batch, outputs] in Q16, and all pre-activations [batch, sum of widths] in Q16.

    Raises:
        NdmError: if the shapes do not fit the contract.
    """
    if not 1 <= len(layers) <= contract.MAX_LAYERS:
        raise NdmError(f"infer: {len(layers)} layers, at most {contract.MAX_LAYERS}")
    widths = [layers[0].n_in, *(layer.n_out for layer in layers)]
    if any(a.n_out != b.n_in for a, b in itertools.pairwise(layers)):
        raise NdmError("infer: layer shapes do not chain; each takes what the one before it gives")
    if max(widths) > contract.MAX_WIDTH:
        raise NdmError(f"infer: width {max(widths)}, at most {contract.MAX_WIDTH}")
    if x.ndim != 2 or x.shape[1] != contract.N_DENSE or x.dtype != np.int16:
        raise NdmError(f"infer: inputs {x.dtype}{x.shape}, expected int16[n, {contract.N_DENSE}]")
    x = np.ascontiguousarray(x)
    width_array = np.array(widths, dtype=np.uint8)
    clamped = np.array([layer.clamped for layer in layers], dtype=np.uint8)
    even = [layer.even() for layer in layers]
    weight = np.concatenate([_pairs(layer.weight) for layer in even])
    bias = np.concatenate([_pairs(layer.rounding_bias()) for layer in even])
    shift = np.concatenate([layer.shift for layer in even]).astype(np.uint8)
    out = np.zeros((len(x), contract.N_OUTPUTS), dtype=np.int32)
    trace = np.zeros((len(x), sum(widths[1:])), dtype=np.int32)
    status = lib.ndm_core_infer(
        len(layers),
        _pointer("uint8_t *", width_array),
        _pointer("uint8_t *", clamped),
        _pointer("uint64_t *", weight),
        _pointer("uint64_t *", bias),
        _pointer("uint8_t *", shift),
        _pointer("int16_t *", x),
        len(x),
        _pointer("int32_t *", out),
        _pointer("int32_t *", trace),
    )
    if status:
        raise NdmError("infer: layer shapes do not fit the contract; see MAX_WIDTH")
    return out, trace


def _map(function: Any, out_dtype: Any, *arrays: tuple[str, npt.NDArray[Any]]) -> npt.NDArray[Any]:
    out = np.zeros(len(arrays[0][1]), dtype=out_dtype)
    ctypes = {np.int16: "int16_t *", np.uint32: "uint32_t *"}
    pointers = [_pointer(ctype, array) for ctype, array in arrays]
    *head, last = pointers
    function(*head, last, len(out), _pointer(ctypes[out_dtype], out))
    return out


def tanh(pre: npt.NDArray[np.int32]) -> npt.NDArray[np.int16]:
    """[n] Q16 to Q15, by `ndm_tanh`."""
    return _map(lib.ndm_core_tanh, np.int16, ("int32_t *", np.ascontiguousarray(pre, np.int32)))


def exp2(gain: npt.NDArray[np.int32]) -> npt.NDArray[np.uint32]:
    """[n] 2**gain, Q16 to Q16, by `ndm_exp2`."""
    return _map(lib.ndm_core_exp2, np.uint32, ("int32_t *", np.ascontiguousarray(gain, np.int32)))


def window(
    ca_state: npt.NDArray[Any], cwnd: npt.NDArray[Any], ssthresh: npt.NDArray[Any]
) -> npt.NDArray[np.uint32]:
    """[n] windows in packets that the sender wants, by `ndm_window`."""
    return _map(
        lib.ndm_core_window,
        np.uint32,
        ("uint32_t *", np.ascontiguousarray(ca_state, np.uint32)),
        ("uint32_t *", np.ascontiguousarray(cwnd, np.uint32)),
        ("uint32_t *", np.ascontiguousarray(ssthresh, np.uint32)),
    )


def probed_gains(gain: int) -> list[int]:
    """A network's gain in Q16 as it is applied in each phase of the probe, by `ndm_probed_gain`."""
    return [lib.ndm_core_probed_gain(gain, phase) for phase in range(lib.NDM_PROBE_ROUNDS)]


def apply_gain(cwnd: npt.NDArray[np.uint32], gain: npt.NDArray[np.int32]) -> npt.NDArray[np.uint32]:
    """[n] windows in packets after a gain in Q16, by `ndm_apply_gain`."""
    return _map(
        lib.ndm_core_apply_gain,
        np.uint32,
        ("uint32_t *", np.ascontiguousarray(cwnd, np.uint32)),
        ("int32_t *", np.ascontiguousarray(gain, np.int32)),
    )


def cut(cwnd: npt.NDArray[np.uint32], congestion: npt.NDArray[np.int32]) -> npt.NDArray[np.uint32]:
    """[n] windows in packets after a loss, by `ndm_cut`; congestion is the logit in Q16."""
    return _map(
        lib.ndm_core_cut,
        np.uint32,
        ("uint32_t *", np.ascontiguousarray(cwnd, np.uint32)),
        ("int32_t *", np.ascontiguousarray(congestion, np.int32)),
    )


def entropy(
    ring: npt.NDArray[np.uint64], samples: npt.NDArray[np.uint32]
) -> npt.NDArray[np.uint32]:
    """[n] entropy of rings of four-bit bins, Q12, by `ndm_entropy`."""
    return _map(
        lib.ndm_core_entropy,
        np.uint32,
        ("uint64_t *", np.ascontiguousarray(ring, np.uint64)),
        ("uint32_t *", np.ascontiguousarray(samples, np.uint32)),
    )
