# SPDX-License-Identifier: GPL-2.0-only
"""The committed files of `kmod/generated`: write them, or check that they are up to date."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ndm_tcp import core
from ndm_tcp.datasets.readers import sources
from ndm_tcp.errors import NdmError
from ndm_tcp.export.integers import contract_c, golden, model_c
from ndm_tcp.export.proof import certificate

ROOT = Path(__file__).resolve().parents[2]
GENERATED = ROOT / "kmod" / "generated"
STREAM_SOURCE = Path("datasets/traces/reno-03-lossy")
STREAM_ACKS = 1000
"""ACKs of the feature stream compiled into the module."""


def stream_text() -> str:
    """`ndm_stream.h` from the shipped trace.

    Raises:
        NdmError: the trace is missing.
    """
    result = sources.read(ROOT / STREAM_SOURCE)
    acks = max((flow.acks for flow in result.flows), key=len)[:STREAM_ACKS]
    rounds = core.replay(acks)
    return model_c.stream_header(acks, rounds.dense()[rounds.valid], str(STREAM_SOURCE))


def expected(out: Path, proof: certificate.Proof | None = None) -> dict[str, str]:
    """What every generated file must say, given the contract and the model's JSON twin.

    Args:
        out: where the twin lies.
        proof: of that model, if there is one already.

    Raises:
        NdmError: the twin is missing or damaged.
    """
    model = model_c.from_json(out / "ndm_model.json")
    proof = proof or certificate.prove(model.layers)
    vectors = golden.compute(model.layers, golden.inputs())
    return model_files(model, proof, vectors)


def model_files(
    model: model_c.Model, proof: certificate.Proof, vectors: golden.Vectors
) -> dict[str, str]:
    """Every generated file; the model's header last.

    Args:
        model: the network.
        proof: of the same network.
        vectors: begin with those of `golden.inputs()`.
    """
    fixed = len(golden.inputs())
    extra = golden.compute(model.layers, golden.edges(model.layers, proof.inputs()))
    every = golden.Vectors(
        np.concatenate([vectors.x[:fixed], extra.x]),
        np.concatenate([vectors.pre[:fixed], extra.pre]),
        np.concatenate([vectors.out[:fixed], extra.out]),
    )
    headers = {
        "ndm_contract.h": contract_c.contract_header(),
        "ndm_tables.h": contract_c.tables_header(),
        "ndm_model.h": model_c.model_header(model, proof),
    }
    return {
        "ndm_contract.h": headers["ndm_contract.h"],
        "ndm_tables.h": headers["ndm_tables.h"],
        "ndm_stream.h": stream_text(),
        "ndm_vectors.h": model_c.vectors_header(model, golden.for_kernel(vectors, extra)),
        "ndm_digests.h": model_c.digests_header(model, extra.x, golden.digests(every)),
        "ndm_model.json": model_c.to_json(model),
        certificate.NAME: certificate.to_json(proof, model.hash(), headers),
        "ndm_model.h": headers["ndm_model.h"],
    }


def check(out: Path, proof: certificate.Proof | None = None) -> int:
    """Regenerate in memory and compare.

    Returns:
        how many files were compared.

    Raises:
        NdmError: naming the first file that differs, and what to run.
    """
    wanted = expected(out, proof)
    for name, text in wanted.items():
        path = out / name
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            raise NdmError(f"{path}: not what its sources generate; run: make generated")
    return len(wanted)
