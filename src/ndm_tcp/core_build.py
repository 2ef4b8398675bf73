# SPDX-License-Identifier: GPL-2.0-only
"""Builds `ndm_tcp._core`: the kernel module's own headers, compiled for user space."""

import re
from pathlib import Path

import cffi

ROOT = Path(__file__).resolve().parents[2]
NATIVE = ROOT / "datasets" / "native"


def _declared(name: str) -> str:
    """Declarations of a header, without the directives, which cffi does not read."""
    text = (NATIVE / name).read_text(encoding="utf-8")
    return re.sub(r"^#(?!define NDM_TCP_INFO_BYTES).*\n", "", text, flags=re.M)


def _here(paths: list[Path]) -> list[str]:
    return sorted(str(path.relative_to(ROOT)) for path in paths)


ffi = cffi.FFI()
ffi.cdef(
    """
    unsigned long long ndm_core_contract(void);
    size_t ndm_core_features_size(void);
    size_t ndm_core_ack_size(void);
    int ndm_core_replay(const void *acks, int n, void *features, int16_t *x,
                        int32_t *ack_index, uint8_t *valid);
    void ndm_core_remember(const int16_t *x, const uint8_t *begins, const uint8_t *valid,
                           int64_t n, uint16_t *state, int16_t *dense);
    int ndm_core_infer(int n_layers, const uint8_t *widths, const uint8_t *clamped,
                       const uint64_t *weight, const uint64_t *bias, const uint8_t *shift,
                       const int16_t *x, int n, int32_t *out, int32_t *trace);
    void ndm_core_tanh(const int32_t *pre, int n, int16_t *out);
    void ndm_core_exp2(const int32_t *gain, int n, uint32_t *out);
    void ndm_core_window(const uint32_t *ca_state, const uint32_t *cwnd,
                         const uint32_t *ssthresh, int n, uint32_t *out);
    #define NDM_PROBE_ROUNDS ...
    int32_t ndm_core_probed_gain(int32_t gain, uint32_t phase);
    void ndm_core_apply_gain(const uint32_t *cwnd, const int32_t *gain, int n, uint32_t *out);
    void ndm_core_cut(const uint32_t *cwnd, const int32_t *congestion, int n, uint32_t *out);
    void ndm_core_entropy(const uint64_t *ring, const uint32_t *n_samples, int n, uint32_t *out);
    struct ndm_ack { ...; };
    struct ndm_ack_row { ...; };
    struct ndm_round_row { ...; };
    int64_t ndm_rounds_of(const struct ndm_ack *ack, int64_t n, const uint8_t *cause,
                          const uint8_t *rwnd_limited, struct ndm_round_row *row);
    """
    + "".join(_declared(name) for name in ("capture.h", "names.h", "text.h"))
)
ffi.set_source(
    "ndm_tcp._core",
    '#include "src/ndm_tcp/core.c"\n#include "datasets/native/capture.h"\n'
    '#include "datasets/native/text.h"\n',
    sources=_here([*NATIVE.glob("*.c")]),
    include_dirs=["."],
    depends=[
        "src/ndm_tcp/core.c",
        *_here([*(ROOT / "kmod").glob("ndm_*.h"), *NATIVE.glob("*.h")]),
        "kmod/generated/ndm_contract.h",
        "kmod/generated/ndm_tables.h",
    ],
    extra_compile_args=["-O2", "-Wall", "-Wextra", "-fno-strict-overflow"],
)
